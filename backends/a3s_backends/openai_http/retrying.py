"""How long to wait before the next attempt. Pure: chance and the time of day are given.

A plain loop in `calls` does the waiting. stamina would do it under trio, too, but its chance, its off-switch and its
hooks are global to the process, and it cannot say "not at all" to a server that asks for a longer wait than allowed.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from a3s_backends.openai_http.failures import Failure
from a3s_backends.openai_http.policy import OpenAiHttpPolicy

__all__ = ["retry_after_seconds", "wait_before_retry"]

_SECONDS: Final = re.compile(r"\d{1,20}(\.\d{1,20})?", re.ASCII)
_LONGEST_DATE: Final = 64


def retry_after_seconds(header: str | None, now: float) -> float | None:
    """Return the seconds that a `Retry-After` header asks for, as a number or a date; None where it makes no sense.

    Args:
        header: the header's value.
        now: the time of day, in seconds since 1970.
    """
    if header is None:
        return None
    value = header.strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    if len(value) > _LONGEST_DATE:
        return None
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def wait_before_retry(policy: OpenAiHttpPolicy, failure: Failure, attempts: int, chance: float) -> float | None:
    """Return the seconds to wait before another attempt, None where there shall be none.

    Args:
        policy: the limits.
        failure: what came of the last attempt.
        attempts: how many there were.
        chance: 0 to 1; how much of the wait that is left to chance is waited.
    """
    if not failure.retried or attempts >= policy.max_attempts:
        return None
    asked = failure.retry_after or 0.0
    if asked > policy.max_retry_after:
        return None
    bound = min(policy.backoff_max, policy.backoff_initial * 2.0 ** (attempts - 1))
    return max(asked, bound * (0.5 + 0.5 * min(max(chance, 0.0), 1.0)))
