"""The limits of an HTTP model client."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Literal

import attrs

from a3s_actors.memory._checks import whole
from a3s_actors.memory.errors import InvalidInput

__all__ = ["OpenAiHttpPolicy"]

_DAY: Final = 86_400.0
_GIB: Final = 1 << 30
_TOKEN_FIELDS: Final = ("max_tokens", "max_completion_tokens")


def _seconds(field: str, *, zero_ok: bool = False) -> Callable[[Any, Any, Any], None]:
    """Return an attrs validator: a number of seconds, at most a day."""

    def validate(_instance: object, _attribute: object, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise InvalidInput(field, "must be a number of seconds")
        if not (value >= 0 if zero_ok else value > 0) or value > _DAY:
            raise InvalidInput(field, f"must be {'at least' if zero_ok else 'above'} 0 and at most {_DAY:.0f} seconds")

    return validate


def _flag(_instance: object, _attribute: object, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidInput("policy.allowPlainHttp", "must be True or False")


def _token_field(_instance: object, _attribute: object, value: object) -> None:
    if value not in _TOKEN_FIELDS:
        raise InvalidInput("policy.maxTokensField", f"must be one of {', '.join(_TOKEN_FIELDS)}")


@attrs.frozen(kw_only=True)
class OpenAiHttpPolicy:
    """How long, how often and how much.

    Args:
        connect: seconds for the connection, and again for its TLS handshake.
        read: seconds without a byte, from the server or to it. A model that thinks before its first byte needs them.
        total: seconds for a whole call, with waiting for a place, all attempts and the waits between them. A stream's
            reader counts too, but only the client's own waiting is ever ended.
        max_attempts: how often a request is sent at most, 1 to 10.
        backoff_initial: seconds before the second attempt; doubled each time, and up to half of it taken off by chance.
        backoff_max: the most that one such wait may be.
        max_retry_after: a server that asks to wait longer than this many seconds fails the call at once.
        max_response_bytes: the most that is read of an answer, 1 KiB to 1 GiB; of a stream, all its lines together.
        max_concurrent_requests: how many requests may be under way, 1 to 1000; later ones wait. A stream counts until
            its block is left: who calls the model within it needs another place.
        allow_plain_http: whether a key may go over unencrypted HTTP to a host other than this one.
        max_tokens_field: what the bound of the output is called. "max_tokens" is what nearly every server knows;
            OpenAI's reasoning models know "max_completion_tokens" only.

    Raises:
        InvalidInput: a figure is malformed or out of its range.
        LimitExceeded: a count is too large.
    """

    connect: float = attrs.field(default=10.0, validator=_seconds("policy.connect"))
    read: float = attrs.field(default=120.0, validator=_seconds("policy.read"))
    total: float = attrs.field(default=600.0, validator=_seconds("policy.total"))
    max_attempts: int = attrs.field(default=3, validator=whole("policy.maxAttempts", 1, 10))
    backoff_initial: float = attrs.field(default=0.5, validator=_seconds("policy.backoffInitial", zero_ok=True))
    backoff_max: float = attrs.field(default=8.0, validator=_seconds("policy.backoffMax", zero_ok=True))
    max_retry_after: float = attrs.field(default=30.0, validator=_seconds("policy.maxRetryAfter", zero_ok=True))
    max_response_bytes: int = attrs.field(default=16 << 20, validator=whole("policy.maxResponseBytes", 1024, _GIB))
    max_concurrent_requests: int = attrs.field(default=8, validator=whole("policy.maxConcurrentRequests", 1, 1000))
    allow_plain_http: bool = attrs.field(default=False, validator=_flag)
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = attrs.field(
        default="max_tokens", validator=_token_field
    )

    def __attrs_post_init__(self) -> None:
        if self.backoff_max < self.backoff_initial:
            raise InvalidInput("policy.backoffMax", "must be at least backoff_initial")
