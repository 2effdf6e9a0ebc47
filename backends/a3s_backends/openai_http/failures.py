"""What a status, a broken connection or an error that the server words means: a bounded code, and whether to try again.

| the server, or the way to it | code | tried again |
| --- | --- | --- |
| 401, 403 | refused: `authentication` | no |
| 404 | refused: `not_found` | no |
| other 4xx | refused: `bad_request` | no |
| `error.code` is one of `TOLD` | refused: that code | no |
| 3xx: a key does not follow | refused: `redirected` | no |
| any other status but 200 | refused: `unexpected_status` | no |
| 408, 409, 429 | `timeout`, `conflict`, `rate_limited` | yes |
| 5xx | `server_error` | yes |
| no connection, or no answer in time | `connect`, `timeout` | yes |
| a connection that ends before an answer | `disconnected` | yes |
| no TLS, or not with whom was meant | `tls` | no |
"""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from a3s_actors.agent.errors import ModelError, ModelRefused, ModelUnavailable
from a3s_actors.memory.errors import ErrorFamily

__all__ = ["TOLD", "Failure", "OpenAiHttpClosed", "failure_of_status"]

# Codes of a server's own that say more than its status; no other text of a server gets into an error.
TOLD: Final = frozenset({"context_length_exceeded", "insufficient_quota"})
_REFUSED: Final = {401: "authentication", 403: "authentication", 404: "not_found"}
_RETRIED: Final = {408: "timeout", 409: "conflict", 429: "rate_limited"}


@attrs.define(eq=False, slots=False)
class OpenAiHttpClosed(ModelError):
    """The block that the client, or the stream, lived in has been left.

    Attributes:
        what: "client" or "stream".
    """

    family: ClassVar[ErrorFamily] = ErrorFamily.CLOSED
    code: ClassVar[str] = "MODEL_CLIENT_CLOSED"
    what: str = "client"

    def __str__(self) -> str:
        return f"the model's {self.what} is closed: its block has been left; open it again"


@attrs.frozen(kw_only=True)
class Failure:
    """Why an attempt gave no answer.

    Attributes:
        reason: a code of the table above.
        status: the HTTP status, where there was one.
        refused: whether the server refuses this very request.
        retried: whether another attempt may do better.
        retry_after: seconds that the server asks to wait, where it does.
    """

    reason: str
    status: int | None = None
    refused: bool = False
    retried: bool = False
    retry_after: float | None = None

    def error(self, attempts: int) -> ModelError:
        """Return what to raise after so many attempts."""
        if self.refused:
            return ModelRefused(self.reason, self.status)
        return ModelUnavailable(self.reason, self.status, self.retry_after, attempts)


def failure_of_status(status: int, retry_after: float | None, told: str | None) -> Failure | None:
    """Return what a status means, None for success.

    Args:
        status: the HTTP status.
        retry_after: seconds that the server asks to wait.
        told: the code of `TOLD` that the server's answer holds, if any.
    """
    if status == 200:
        return None
    if told is not None and 400 <= status < 500:
        return Failure(reason=told, status=status, refused=True)
    if status in _RETRIED:
        return Failure(reason=_RETRIED[status], status=status, retried=True, retry_after=retry_after)
    if 500 <= status < 600:
        return Failure(reason="server_error", status=status, retried=True, retry_after=retry_after)
    if 400 <= status < 500:
        return Failure(reason=_REFUSED.get(status, "bad_request"), status=status, refused=True)
    return Failure(reason="redirected" if 300 <= status < 400 else "unexpected_status", status=status, refused=True)
