"""`SqliteSessionStore`: sessions in one SQLite file that several processes may use at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import trio

from a3s_actors.actor import BlockingRunner, ThreadRunner
from a3s_actors.actor.events import warn
from a3s_actors.agent.errors import SessionStoreError
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, StoredSession
from a3s_actors.memory._checks import checked_path
from a3s_backends.in_memory_sessions.checks import (
    check_generation,
    check_mark,
    check_session_id,
    check_snapshot,
    store_closed,
)
from a3s_backends.sqlite_sessions.database import SessionDatabase

__all__ = ["SqliteSessionStore", "open_sqlite_session_store"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SqliteSessionStore:
    """A `SessionStore` in one SQLite file. Made by `open_sqlite_session_store`.

    Attributes:
        path: the file.

    Cancellation: cancelled before a call's turn in the store's thread has come, nothing happened; after that its one
    transaction is finished and its outcome returned.
    """

    def __init__(self, database: SessionDatabase, runner: BlockingRunner) -> None:
        self.path: Path = database.path
        self._database = database
        self._runner = runner
        self._closed = False

    def __repr__(self) -> str:
        return f"<SqliteSessionStore {self.path.name!r}{' closed' if self._closed else ''}>"

    async def save(self, snapshot: SessionSnapshot) -> None:
        """See `SessionStore.save`."""
        check_snapshot(snapshot)
        await self._run("save", self._database.save, snapshot)

    async def mark(self, session_id: str, generation: int, mark: RunMark) -> None:
        """See `SessionStore.mark`.

        Raises:
            SessionStoreCorrupt: besides what the protocol says, the file is damaged.
        """
        check_session_id(session_id)
        check_generation(generation)
        check_mark(mark)
        await self._run("mark", self._database.mark, session_id, generation, mark)

    async def load(self, session_id: str) -> StoredSession:
        """See `SessionStore.load`."""
        check_session_id(session_id)
        return await self._run("load", self._database.load, session_id)

    async def delete(self, session_id: str) -> bool:
        """See `SessionStore.delete`. What is deleted is overwritten; a reader may delay that, never for long."""
        check_session_id(session_id)
        return await self._run("delete", self._database.delete, session_id)

    async def list(self) -> tuple[str, ...]:
        """See `SessionStore.list`. Damage that hits the whole file has the file's name in place of a session's."""
        return await self._run("list", self._database.list)

    async def _run(self, operation: str, function: Callable[[*Ts], T], *args: *Ts) -> T:
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise store_closed(operation)
        return await self._runner.run(function, *args)


@asynccontextmanager
async def open_sqlite_session_store(
    path: str | PathLike[str], *, runner: BlockingRunner | None = None
) -> AsyncIterator[SqliteSessionStore]:
    """Open (and make, when missing) a session file for the length of the block.

    It is a file of its own: a memory repository is refused, and refuses it. Several processes, and several opens in
    one, may use it at once; it has to be on a local disk. Leaving the block waits for the call that is in the file;
    those that wait for it raise `SessionStoreUnavailable`, as all later ones do.

    Args:
        path: the file; a new one gets mode 0600, a new folder 0700.
        runner: seam for blocking work; by default one thread.

    Raises:
        SessionStoreUnavailable: the file cannot be opened or made, is no session file, is from a newer release, or is
            held by another process for more than ten seconds.
        SessionStoreCorrupt: it is damaged, or no SQLite file.

    Cancellation: before the block it leaves nothing open; a file that was just made stays.
    """
    threads = runner or ThreadRunner("a3s-sqlite-sessions")
    database = await threads.run(SessionDatabase.open, checked_path("path", path).absolute())
    store = SqliteSessionStore(database, threads)
    try:
        yield store
    finally:
        store._closed = True
        # Closing empties the log; it must happen even when the block was cancelled. Bounded by the call that is in
        # the file and by that one checkpoint.
        with trio.CancelScope(shield=True):
            await threads.run(_close, database)


def _close(database: SessionDatabase) -> None:
    try:
        database.close()
    except SessionStoreError as error:
        # All commits are durable already; what failed is tidying up the log.
        warn("a3s_backends.sqlite_sessions", "sqlite_sessions_close_failed", error=str(error))
