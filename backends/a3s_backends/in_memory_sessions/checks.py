"""What a session store refuses before it changes anything. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from a3s_actors.agent.errors import SessionStoreUnavailable
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, RunMarkKind
from a3s_actors.memory._checks import check_text, check_whole
from a3s_actors.memory.errors import InvalidInput

__all__ = [
    "MAX_GENERATION",
    "MAX_SESSION_ID_BYTES",
    "check_generation",
    "check_mark",
    "check_session_id",
    "check_snapshot",
    "snapshot_body",
    "store_closed",
]

MAX_SESSION_ID_BYTES: Final = 256
MAX_GENERATION: Final = (1 << 63) - 1  # SQLite has no larger whole numbers


def check_session_id(session_id: object) -> None:
    """Refuse what is no session id: Unicode text, not blank, without U+0000, of at most 256 UTF-8 bytes.

    Raises:
        InvalidInput, LimitExceeded: it is none.
    """
    check_text("sessionId", session_id, MAX_SESSION_ID_BYTES)
    assert isinstance(session_id, str)
    if "\0" in session_id:
        raise InvalidInput("sessionId", "must not hold U+0000")


def check_generation(generation: object) -> None:
    """Refuse what is no generation: a whole number from 1 to 2**63 - 1.

    Raises:
        InvalidInput, LimitExceeded: it is none.
    """
    check_whole("generation", generation, 1, MAX_GENERATION)


def check_snapshot(snapshot: object) -> None:
    """Refuse what is no snapshot, or one whose own fields are of the wrong type.

    Raises:
        InvalidInput, LimitExceeded: it is none.
    """
    if not isinstance(snapshot, SessionSnapshot):
        raise InvalidInput("snapshot", f"must be SessionSnapshot, not {type(snapshot).__name__}")
    check_session_id(snapshot.session_id)
    check_generation(snapshot.generation)
    texts = (
        ("workspace", snapshot.workspace, False),
        ("tenantId", snapshot.tenant_id, True),
        ("principalId", snapshot.principal_id, True),
        ("systemPrompt", snapshot.system_prompt, True),
    )
    for field, value, none_ok in texts:
        if not (isinstance(value, str) or (none_ok and value is None)):
            raise InvalidInput(f"snapshot.{field}", f"must be text, not {type(value).__name__}")


def snapshot_body(snapshot: SessionSnapshot) -> bytes:
    """Return the JSON of a checked snapshot. Takes a while for a long conversation: for a worker thread.

    Raises:
        InvalidInput: something in it cannot be written, such as a lone surrogate.
    """
    try:
        return snapshot.to_json()
    except (UnicodeEncodeError, TypeError, AttributeError, ValueError, OverflowError, msgspec.MsgspecError):
        pass
    # Outside of the handler: the library's error holds the text.
    raise InvalidInput("snapshot", "holds a value that JSON cannot have, such as a lone surrogate or a wrong type")


def check_mark(mark: object) -> None:
    """Refuse what is no mark.

    Raises:
        InvalidInput, LimitExceeded: it is none.
    """
    if not isinstance(mark, RunMark):
        raise InvalidInput("mark", f"must be RunMark, not {type(mark).__name__}")
    if not isinstance(mark.kind, RunMarkKind):
        raise InvalidInput("mark.kind", f"must be RunMarkKind, not {type(mark.kind).__name__}")
    check_text("mark.runId", mark.run_id, None)
    if mark.context_id is not None:
        check_text("mark.contextId", mark.context_id, None)
    check_whole("mark.removed", mark.removed, 0, MAX_GENERATION)
    admitted: object = mark.admitted
    if not isinstance(admitted, tuple):
        raise InvalidInput("mark.admitted", f"must be a tuple, not {type(admitted).__name__}")
    for pair in admitted:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidInput("mark.admitted", "must hold pairs of an id and a revision")
        check_text("mark.admitted.id", pair[0], None)
        check_whole("mark.admitted.revision", pair[1], 1, MAX_GENERATION)


def store_closed(operation: str) -> SessionStoreUnavailable:
    """Return the error of a store whose block has been left."""
    return SessionStoreUnavailable(operation, "the store is closed; open it again")
