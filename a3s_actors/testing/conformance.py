"""What every `MemoryRepository` has to do, as checks to run on a backend.

    async def check_mine() -> None:
        for each in REPOSITORY_CHECKS:
            await each.run(factory)           # a fresh, empty storage for each check

or in one call, which goes on after a failure and tells of all:

    results = await run_conformance(make_factory)

A check raises `ConformanceFailure` when something does not hold, and whatever the repository raises unexpectedly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

# The checks register themselves when they are imported.
from a3s_actors.testing import _checks_access, _checks_changes, _checks_life, _checks_purge, _checks_reads
from a3s_actors.testing._registry import ConformanceFailure, RepositoryCheck, RepositoryFactory, registered

__all__ = [
    "REPOSITORY_CHECKS",
    "CheckResult",
    "ConformanceFailure",
    "RepositoryCheck",
    "RepositoryFactory",
    "run_conformance",
]

assert all((_checks_access, _checks_changes, _checks_life, _checks_purge, _checks_reads))

REPOSITORY_CHECKS: tuple[RepositoryCheck, ...] = registered()
"""Every check."""


@attrs.frozen
class CheckResult:
    """How a check went: `error` is None when it passed."""

    check: RepositoryCheck
    error: Exception | None


async def run_conformance(
    make_factory: Callable[[], RepositoryFactory], checks: Iterable[RepositoryCheck] | None = None
) -> tuple[CheckResult, ...]:
    """Run checks one after another, each on a new storage, and go on after a failure.

    Args:
        make_factory: returns a factory of a storage that is empty and new.
        checks: by default all.

    Returns:
        A result for each check, in their order.

    Cancellation: as the repository's; the check in hand is given up.
    """
    results = []
    for each in REPOSITORY_CHECKS if checks is None else checks:
        error: Exception | None = None
        try:
            await each.run(make_factory())
        except Exception as exc:  # noqa: BLE001 - whatever it is, the check has failed
            error = exc
        results.append(CheckResult(each, error))
    return tuple(results)
