"""Every way an agent says no, each error with its fields; messages never hold a prompt, a reply or a credential.

Malformed input is `InvalidInput` of the memory kernel, and a memory that does not fit a saved session is
`DurableMemoryBindingMismatch` of recall; everything else is an `AgentError`. `family` says what a caller can do.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from a3s_actors.memory.errors import ErrorFamily

__all__ = [
    "AgentClosed",
    "AgentError",
    "ModelError",
    "ModelProtocolError",
    "ModelRefused",
    "ModelUnavailable",
    "RunIdentityConflict",
    "SessionClosed",
    "SessionExists",
    "SessionInUse",
    "SessionNotFound",
    "SessionNotSaved",
    "SessionStoreConflict",
    "SessionStoreCorrupt",
    "SessionStoreError",
    "SessionStoreUnavailable",
    "ToolRoundsExceeded",
    "TurnReentered",
]

_error = attrs.define(eq=False, slots=False)


class AgentError(Exception):
    """Base of all errors of `a3s_actors.agent`."""

    family: ClassVar[ErrorFamily] = ErrorFamily.REFUSED
    code: ClassVar[str] = "AGENT_ERROR"

    def fields(self) -> dict[str, object]:
        """Return the error's fields by name, JSON ready, for logs and machine output."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


@_error
class AgentClosed(AgentError):
    """The agent's block has been left."""

    family: ClassVar[ErrorFamily] = ErrorFamily.CLOSED
    code: ClassVar[str] = "AGENT_CLOSED"

    def __str__(self) -> str:
        return "the agent is closed; open it again with open_agent"


@_error
class SessionClosed(AgentError):
    """The session takes no more turns, or has ended the turn.

    Attributes:
        session_id: the session.
        started: False when the turn had not begun, so that nothing happened.
    """

    family: ClassVar[ErrorFamily] = ErrorFamily.CLOSED
    code: ClassVar[str] = "SESSION_CLOSED"
    session_id: str
    started: bool = False

    def __str__(self) -> str:
        fate = "the turn was ended" if self.started else "the turn was not started"
        return f"session {self.session_id!r} is closed; {fate}; open or resume it"


@_error
class SessionInUse(AgentError):
    """The agent has a session of that id open."""

    family: ClassVar[ErrorFamily] = ErrorFamily.CONFLICT
    code: ClassVar[str] = "SESSION_IN_USE"
    session_id: str

    def __str__(self) -> str:
        return f"session {self.session_id!r} is open already; close it first"


@_error
class SessionExists(AgentError):
    """The store has a session of that id: it must be resumed, or another id chosen."""

    family: ClassVar[ErrorFamily] = ErrorFamily.CONFLICT
    code: ClassVar[str] = "SESSION_EXISTS"
    session_id: str

    def __str__(self) -> str:
        return f"session {self.session_id!r} is in the store; resume it, or choose another id"


@_error
class SessionNotFound(AgentError):
    """The store has no session of that id."""

    code: ClassVar[str] = "SESSION_NOT_FOUND"
    session_id: str

    def __str__(self) -> str:
        return f"session {self.session_id!r} is not in the store"


@_error
class TurnReentered(AgentError):
    """A turn asked for another turn of its own session, which would wait for itself."""

    code: ClassVar[str] = "TURN_REENTERED"
    session_id: str

    def __str__(self) -> str:
        return (
            f"session {self.session_id!r}: a turn cannot wait for another turn of its own session;"
            " use delegate, or send after the turn"
        )


@_error
class RunIdentityConflict(AgentError):
    """A run of that id is still retained; it is untouched, and no model was called.

    Attributes:
        session_id: the session.
        run_id: the id that is taken.
    """

    family: ClassVar[ErrorFamily] = ErrorFamily.CONFLICT
    code: ClassVar[str] = "RUN_IDENTITY_CONFLICT"
    session_id: str
    run_id: str

    def __str__(self) -> str:
        return f"session {self.session_id!r}: run {self.run_id!r} is still retained; use an id that is not"


@_error
class ToolRoundsExceeded(AgentError):
    """The model went on asking for tools.

    Attributes:
        limit: how many rounds of tools a turn may have.
    """

    code: ClassVar[str] = "TOOL_ROUNDS_EXCEEDED"
    limit: int

    def __str__(self) -> str:
        return f"the model asked for tools in more than {self.limit} rounds; raise max_tool_rounds or change the tools"


class ModelError(AgentError):
    """Base of what a model client raises."""

    code: ClassVar[str] = "MODEL_ERROR"


@_error
class ModelUnavailable(ModelError):
    """The model did not answer, also after the client's retries; the same request may work later.

    Attributes:
        reason: a short code, such as "connect", "timeout", "rate_limited", "server_error".
        status: the HTTP status, where there was one.
        retry_after: seconds that the server asked to wait, where it did.
        attempts: how often it was tried.
    """

    family: ClassVar[ErrorFamily] = ErrorFamily.UNAVAILABLE
    code: ClassVar[str] = "MODEL_UNAVAILABLE"
    reason: str
    status: int | None = None
    retry_after: float | None = None
    attempts: int = 1

    def __str__(self) -> str:
        status = "" if self.status is None else f" (status {self.status})"
        return f"the model did not answer: {self.reason}{status} after {self.attempts} attempts; try again later"


@_error
class ModelRefused(ModelError):
    """The server refuses this request; repeating it does not help.

    Attributes:
        reason: a short code, such as "authentication", "not_found", "bad_request".
        status: the HTTP status, where there was one.
    """

    code: ClassVar[str] = "MODEL_REFUSED"
    reason: str
    status: int | None = None

    def __str__(self) -> str:
        status = "" if self.status is None else f" (status {self.status})"
        return f"the model's server refuses: {self.reason}{status}; check address, model and key"


@_error
class ModelProtocolError(ModelError):
    """The server's answer is not what the protocol promises, or is cut short.

    Attributes:
        field: the part of the answer.
        message: what is wrong with it, without content.
    """

    family: ClassVar[ErrorFamily] = ErrorFamily.UNAVAILABLE
    code: ClassVar[str] = "MODEL_PROTOCOL_ERROR"
    field: str
    message: str

    def __str__(self) -> str:
        return f"the model's answer is malformed: {self.field}: {self.message}"


class SessionStoreError(AgentError):
    """Base of what a session store raises."""

    code: ClassVar[str] = "SESSION_STORE_ERROR"


@_error
class SessionStoreUnavailable(SessionStoreError):
    """The store could not read or write.

    Attributes:
        operation: what was tried.
        message: what the system says, and the cure.
    """

    family: ClassVar[ErrorFamily] = ErrorFamily.UNAVAILABLE
    code: ClassVar[str] = "SESSION_STORE_UNAVAILABLE"
    operation: str
    message: str

    def __str__(self) -> str:
        return f"session store, {self.operation}: {self.message}"


@_error
class SessionStoreCorrupt(SessionStoreError):
    """What is stored is not what was saved. Nothing was changed; a previous good state is kept.

    Attributes:
        session_id: the session.
        message: what is wrong, without content.
    """

    family: ClassVar[ErrorFamily] = ErrorFamily.CORRUPT
    code: ClassVar[str] = "SESSION_STORE_CORRUPT"
    session_id: str
    message: str

    def __str__(self) -> str:
        return f"session {self.session_id!r}: the stored state is damaged: {self.message}; restore it, or delete it"


@_error
class SessionStoreConflict(SessionStoreError):
    """Somebody else has saved the session since it was read.

    Attributes:
        session_id: the session.
        expected: the generation that was to be replaced.
        actual: the one that is stored.
    """

    family: ClassVar[ErrorFamily] = ErrorFamily.CONFLICT
    code: ClassVar[str] = "SESSION_STORE_CONFLICT"
    session_id: str
    expected: int
    actual: int

    def __str__(self) -> str:
        return (
            f"session {self.session_id!r}: generation {self.actual} is stored, {self.expected} was expected;"
            " another owner has saved it; resume it from the store"
        )


@_error
class SessionNotSaved(AgentError):
    """The turn is done and its reply is in the session, but the store has not kept it; `session.save` tries again.

    Attributes:
        session_id: the session.
        run_id: the run, completed in memory.
    """

    family: ClassVar[ErrorFamily] = ErrorFamily.UNAVAILABLE
    code: ClassVar[str] = "SESSION_NOT_SAVED"
    session_id: str
    run_id: str

    def __str__(self) -> str:
        return f"session {self.session_id!r}: run {self.run_id!r} is done but not saved; call save() again"
