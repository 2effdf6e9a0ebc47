"""What every `SessionStore` has to do, as checks to run on a store of your own.

    async def check_mine() -> None:
        for each in SESSION_STORE_CHECKS:
            await each.run(factory)           # a fresh, empty storage for each check

or in one call, which goes on after a failure and tells of all:

    results = await run_session_store_conformance(make_factory)

A check raises `ConformanceFailure` when something does not hold, and whatever the store raises unexpectedly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

# The checks register themselves when they are imported.
from a3s_actors.testing import _checks_sessions, _checks_sessions_life
from a3s_actors.testing._session_registry import SessionStoreCheck, SessionStoreFactory, registered

__all__ = [
    "SESSION_STORE_CHECKS",
    "SessionStoreCheck",
    "SessionStoreCheckResult",
    "SessionStoreFactory",
    "run_session_store_conformance",
]

assert all((_checks_sessions, _checks_sessions_life))

SESSION_STORE_CHECKS: tuple[SessionStoreCheck, ...] = registered()
"""Every check."""


@attrs.frozen
class SessionStoreCheckResult:
    """How a check went: `error` is None when it passed."""

    check: SessionStoreCheck
    error: Exception | None


async def run_session_store_conformance(
    make_factory: Callable[[], SessionStoreFactory], checks: Iterable[SessionStoreCheck] | None = None
) -> tuple[SessionStoreCheckResult, ...]:
    """Run checks one after another, each on a new storage, and go on after a failure.

    Args:
        make_factory: returns a factory of a storage that is empty and new.
        checks: by default all.

    Returns:
        A result for each check, in their order.

    Cancellation: as the store's; the check in hand is given up.
    """
    results = []
    for each in SESSION_STORE_CHECKS if checks is None else checks:
        error: Exception | None = None
        try:
            await each.run(make_factory())
        except Exception as exc:  # noqa: BLE001 - whatever it is, the check has failed
            error = exc
        results.append(SessionStoreCheckResult(each, error))
    return tuple(results)
