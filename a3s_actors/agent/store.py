"""What a session store keeps: snapshots, and marks of the run that is going on."""

from __future__ import annotations

import enum
from typing import Protocol, runtime_checkable

import attrs

from a3s_actors.agent.snapshot import SessionSnapshot

__all__ = ["RunMark", "RunMarkKind", "SessionStore", "StoredSession"]


class RunMarkKind(enum.Enum):
    """What is about to happen to a context."""

    ADMITTING = "admitting"
    DISPATCHING = "dispatching"


@attrs.frozen(kw_only=True)
class RunMark:
    """That a run is about to admit memories to a context, or to send it to the model. Holds ids, no text.

    Written before it happens, so that after a crash nothing that the model got is unknown.

    Attributes:
        kind: what is about to happen.
        run_id: the run.
        context_id: the context's opaque id, or None.
        admitted: id and revision of the memories in it.
        removed: how many were taken out.
    """

    kind: RunMarkKind
    run_id: str
    context_id: str | None
    admitted: tuple[tuple[str, int], ...] = ()
    removed: int = 0


@attrs.frozen(kw_only=True)
class StoredSession:
    """What a store has of a session.

    Attributes:
        snapshot: the last saved one.
        marks: those made since, in order.
    """

    snapshot: SessionSnapshot
    marks: tuple[RunMark, ...] = ()


@runtime_checkable
class SessionStore(Protocol):
    """Keeps sessions. It is the host's: an agent never opens or closes it.

    Every method is a checkpoint. Cancelled before its work has begun, nothing happened; once it has begun, the work is
    finished and its outcome returned.
    """

    async def save(self, snapshot: SessionSnapshot) -> None:
        """Replace the session's stored snapshot, atomically and synced; its marks go.

        The stored generation must be one less than the snapshot's (0: nothing is stored), else somebody else owns
        the session.

        Raises:
            SessionStoreConflict: another generation is stored.
            SessionStoreCorrupt: what is stored cannot be read.
            SessionStoreUnavailable: the store cannot write. What was stored is still there.
        """
        ...

    async def mark(self, session_id: str, generation: int, mark: RunMark) -> None:
        """Keep a mark beside the stored snapshot of that generation, synced.

        Raises:
            SessionStoreConflict: another generation is stored, or none.
            SessionStoreUnavailable: the store cannot write.
        """
        ...

    async def load(self, session_id: str) -> StoredSession:
        """Return what is stored of a session.

        Raises:
            SessionNotFound: nothing is.
            SessionStoreCorrupt: what is stored is not what was saved.
            SessionStoreUnavailable: the store cannot read.
        """
        ...

    async def delete(self, session_id: str) -> bool:
        """Remove a session and its marks; return whether there was one.

        Raises:
            SessionStoreUnavailable: the store cannot write.
        """
        ...

    async def list(self) -> tuple[str, ...]:
        """Return the ids of the stored sessions, sorted.

        Raises:
            SessionStoreCorrupt, SessionStoreUnavailable: the store cannot read.
        """
        ...
