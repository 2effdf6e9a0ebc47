"""`FileSessionStore`: a session a file, in one folder that several processes may use at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

import trio

from a3s_actors.actor import BlockingRunner, ThreadRunner, check_cancelled
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, StoredSession
from a3s_actors.memory._checks import checked_path
from a3s_backends.file_sessions.disk import FileOperations
from a3s_backends.file_sessions.files import SessionFiles
from a3s_backends.in_memory_sessions.checks import (
    check_generation,
    check_mark,
    check_session_id,
    check_snapshot,
    store_closed,
)

__all__ = ["FileSessionStore", "open_file_session_store"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_THREADS: Final = 4


class FileSessionStore:
    """A `SessionStore` in the files of a folder. Made by `open_file_session_store`.

    A session's file is replaced, never changed, and the one before it stays beside it. Reading takes no lock. A
    session's name in the folder is a digest of its id; the id is in the file.

    Attributes:
        folder: where.

    Cancellation: before a call's work has begun, or while it waits for another process, nothing happened; after that
    the work is finished and its outcome returned.
    """

    def __init__(self, files: SessionFiles, runner: BlockingRunner) -> None:
        self.folder: Path = files.folder
        self._files = files
        self._runner = runner
        self._closed = False

    def __repr__(self) -> str:
        return f"<FileSessionStore {self.folder.name!r}{' closed' if self._closed else ''}>"

    async def save(self, snapshot: SessionSnapshot) -> None:
        """See `SessionStore.save`."""
        check_snapshot(snapshot)
        await self._run("save", self._files.save, snapshot)

    async def mark(self, session_id: str, generation: int, mark: RunMark) -> None:
        """See `SessionStore.mark`.

        Raises:
            SessionStoreCorrupt: besides what the protocol says, the session's file is damaged.
        """
        check_session_id(session_id)
        check_generation(generation)
        check_mark(mark)
        await self._run("mark", self._files.mark, session_id, generation, mark)

    async def load(self, session_id: str) -> StoredSession:
        """See `SessionStore.load`."""
        check_session_id(session_id)
        return await self._run("load", self._files.load, session_id)

    async def delete(self, session_id: str) -> bool:
        """See `SessionStore.delete`. The previous file goes, too, and what a killed process left of it."""
        check_session_id(session_id)
        return await self._run("delete", self._files.delete, session_id)

    async def list(self) -> tuple[str, ...]:
        """See `SessionStore.list`. Where a damaged file does not say whose it is, the error has the file's name."""
        return await self._run("list", self._files.list)

    # -- beyond the protocol -------------------------------------------------------------------------------------------

    async def restore_previous(self, session_id: str) -> int:
        """Bring a damaged session back to what is whole.

        Where its file is damaged or missing, the one before takes its place: what was saved last, and its marks, are
        lost. Where only its marks are damaged, they are dropped. A whole session stays as it is. Close what still holds
        the session first: it has seen more than the store has then.

        Returns:
            The generation that is stored now.

        Raises:
            SessionNotFound: there is no session.
            SessionStoreCorrupt: the file before is damaged or missing, too; nothing was changed.
            SessionStoreUnavailable: the folder cannot be read or written.

        Cancellation: as for `save`.
        """
        check_session_id(session_id)
        return await self._run("restore", self._files.restore_previous, session_id)

    async def _run(self, operation: str, function: Callable[[*Ts], T], *args: *Ts) -> T:
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise store_closed(operation)
        return await self._runner.run(function, *args)


@asynccontextmanager
async def open_file_session_store(
    folder: str | PathLike[str],
    *,
    runner: BlockingRunner | None = None,
    operations: FileOperations | None = None,
) -> AsyncIterator[FileSessionStore]:
    """Open (and make, when missing) a folder of sessions for the length of the block.

    Several processes, and several opens in one, may use a folder at once; it has to be on a local disk. Nothing is
    held open between calls, so a call that is still going on when the block is left just ends. New files get mode
    0600, a new folder and its parents 0700. What killed processes were writing is removed.

    Args:
        folder: where; for session files alone.
        runner: seam for blocking work; by default four threads.
        operations: seam for the system calls that change the folder, for fault injection.

    Raises:
        SessionStoreUnavailable: the folder cannot be made or is none.

    Cancellation: cancelled before the block it leaves at most the folder and its empty lock file.
    """
    place = checked_path("folder", folder).absolute()
    files = SessionFiles(place, operations or FileOperations(), check_cancelled)
    threads = runner or ThreadRunner("a3s-file-sessions", _THREADS)
    await threads.run(files.prepare)
    store = FileSessionStore(files, threads)
    try:
        yield store
    finally:
        store._closed = True
