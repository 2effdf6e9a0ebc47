"""`InMemorySessionStore`: what a session store does, without storage. For tests, and as the reference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from a3s_actors.agent.errors import SessionNotFound, SessionStoreConflict
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, StoredSession
from a3s_backends.in_memory_sessions.checks import (
    check_generation,
    check_mark,
    check_session_id,
    check_snapshot,
    snapshot_body,
    store_closed,
)
from a3s_backends.in_memory_sessions.marks import mark_json, read_mark

__all__ = ["InMemorySessionStore", "open_in_memory_session_store"]


@attrs.define
class _Session:
    generation: int
    body: bytes
    marks: list[bytes]


class InMemorySessionStore:
    """A `SessionStore` in this process. Made by `open_in_memory_session_store`.

    It keeps bytes, as a store on a disk does, so that what a real store would refuse or lose is seen here, too.

    Cancellation: each method is one checkpoint, before it does anything.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<InMemorySessionStore{' closed' if self._closed else ''}>"

    async def save(self, snapshot: SessionSnapshot) -> None:
        """See `SessionStore.save`."""
        check_snapshot(snapshot)
        await self._begin("save")
        body = snapshot_body(snapshot)
        self._expect(snapshot.session_id, snapshot.generation - 1)
        self._sessions[snapshot.session_id] = _Session(snapshot.generation, body, [])

    async def mark(self, session_id: str, generation: int, mark: RunMark) -> None:
        """See `SessionStore.mark`."""
        check_session_id(session_id)
        check_generation(generation)
        check_mark(mark)
        await self._begin("mark")
        self._expect(session_id, generation)
        self._sessions[session_id].marks.append(mark_json(mark))

    async def load(self, session_id: str) -> StoredSession:
        """See `SessionStore.load`."""
        check_session_id(session_id)
        await self._begin("load")
        stored = self._sessions.get(session_id)
        if stored is None:
            raise SessionNotFound(session_id)
        snapshot = SessionSnapshot.from_json(stored.body, session_id)
        return StoredSession(snapshot=snapshot, marks=tuple(read_mark(each, session_id) for each in stored.marks))

    async def delete(self, session_id: str) -> bool:
        """See `SessionStore.delete`."""
        check_session_id(session_id)
        await self._begin("delete")
        return self._sessions.pop(session_id, None) is not None

    async def list(self) -> tuple[str, ...]:
        """See `SessionStore.list`."""
        await self._begin("list")
        return tuple(sorted(self._sessions))

    async def _begin(self, operation: str) -> None:
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise store_closed(operation)

    def _expect(self, session_id: str, generation: int) -> None:
        stored = self._sessions.get(session_id)
        actual = 0 if stored is None else stored.generation
        if actual != generation:
            raise SessionStoreConflict(session_id, generation, actual)


@asynccontextmanager
async def open_in_memory_session_store() -> AsyncIterator[InMemorySessionStore]:
    """Open an empty store for the length of the block. After it, every method raises `SessionStoreUnavailable`."""
    store = InMemorySessionStore()
    try:
        yield store
    finally:
        store._closed = True
