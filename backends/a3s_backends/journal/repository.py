"""`FileMemoryRepository`: a journal on disk, its state in memory, one writer.

Writes go through a mailbox to one task, which writes and syncs all that wait in one append, in a worker thread,
before any reader sees them. Reads are answered from memory.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Final

import outcome

from a3s_actors.actor import BlockingRunner, Mailbox, ThreadRunner, check_cancelled, open_actor
from a3s_actors.memory._checks import checked_path
from a3s_actors.memory.errors import RepositoryClosed
from a3s_actors.memory.operations import ChangeSetResult, MemoryChangeSet
from a3s_actors.memory.purge import MemoryPurge, PurgeReceipt
from a3s_actors.memory.reads import check_type
from a3s_actors.memory.reference import ReferenceState
from a3s_actors.memory.values import AccessEvent, AccessKind
from a3s_backends.in_memory.reads import ReferenceReads
from a3s_backends.journal.file import JOURNAL_NAME, JournalFile, Sync
from a3s_backends.journal.format import JournalEvent
from a3s_backends.journal.writing import Writer, WriteRequest, publish, replay

__all__ = ["FileMemoryRepository", "open_file_repository"]

_MAX_BATCH: Final = 256
_NAME: Final = "journal repository"


class FileMemoryRepository(ReferenceReads):
    """A `MemoryRepository` in the journal of a folder. Made by `open_file_repository`.

    After a write has failed every later one raises `Persistence` until the repository is opened again; reads
    go on serving what was published.

    Attributes:
        path: the journal file.

    Cancellation: a read is one checkpoint, before it reads anything. A write that is still queued is withdrawn;
    one that the writer has in hand completes, and its outcome is returned.
    """

    def __init__(
        self,
        path: Path,
        published: ReferenceState,
        mailbox: Mailbox[WriteRequest, ChangeSetResult | PurgeReceipt | None],
    ) -> None:
        super().__init__(published)
        self.path = path
        self._mailbox = mailbox

    def __repr__(self) -> str:
        return f"<FileMemoryRepository {self.path.parent.name!r}{' closed' if self._closed else ''}>"

    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        """See `MemoryRepository.apply`. Synced before it returns.

        Raises:
            LimitExceeded: besides what the protocol says, the record's line is longer than 16 MiB.
        """
        check_type("changeSet", change_set, MemoryChangeSet)
        result = await self._mailbox.ask(change_set)
        assert isinstance(result, ChangeSetResult)
        return result

    async def record_admission(self, event: AccessEvent) -> None:
        """See `MemoryRepository.record_admission`. Synced before it returns."""
        check_type("accessEvent", event, AccessEvent)
        await self._mailbox.ask(JournalEvent(AccessKind.ADMISSION, event))

    async def record_use(self, event: AccessEvent) -> None:
        """See `MemoryRepository.record_use`. Synced before it returns."""
        check_type("accessEvent", event, AccessEvent)
        await self._mailbox.ask(JournalEvent(AccessKind.USE, event))

    async def purge(self, purge: MemoryPurge) -> PurgeReceipt:
        """See `MemoryRepository.purge`. Writes the journal anew, in a form that the a3s-memory crate cannot read.

        Raises:
            Persistence: besides what the protocol says, the folder has no room for a second journal.
        """
        check_type("purge", purge, MemoryPurge)
        receipt = await self._mailbox.ask(purge)
        assert isinstance(receipt, PurgeReceipt)
        return receipt


@asynccontextmanager
async def open_file_repository(
    directory: str | PathLike[str],
    *,
    blocking: BlockingRunner | None = None,
    capacity: int = 1024,
    settle: float = 5.0,
    sync: Sync = os.fsync,
) -> AsyncIterator[FileMemoryRepository]:
    """Open (and make, when missing) the journal of a folder for the length of the block.

    The folder holds `memory-v2.journal` and `memory-v2.lock`, in the format of the a3s-memory crate (V2). A last
    line without its newline was never acknowledged and is cut off; anything else that is not as it was written
    leaves the file as it is and raises. The whole state is held in memory.

    Leaving the block lets queued writes settle for up to `settle` seconds, then closes; later calls raise
    `RepositoryClosed`.

    Args:
        directory: the folder; a new one and its files get modes 0700 and 0600.
        blocking: seam for opening and writing; by default one thread.
        capacity: how many writes may wait before callers are held back.
        settle: total deadline of the close, in seconds.
        sync: seam for making a file descriptor durable; called for the journal and its folder at the opening
            and for the journal after each write.

    Raises:
        RepositoryLocked: the journal has an owner, in this or another process.
        Persistence: the folder or a file cannot be opened or made, is a symbolic link or of the wrong sort.
        Corruption: the journal is damaged; byte offset and line number are named.

    Cancellation: cancelled before the block it has given up the journal again; files that were just made stay.
    """
    folder = checked_path("directory", directory)
    runner = blocking or ThreadRunner("a3s-journal")
    mailbox: Mailbox[WriteRequest, ChangeSetResult | PurgeReceipt | None] = Mailbox(_NAME, capacity, RepositoryClosed)
    published = ReferenceState()
    ahead = ReferenceState(published.key)
    file = await runner.run(
        JournalFile.open, folder, sync, lambda reader: replay(reader, (published, ahead), check_cancelled)
    )
    try:
        writer = Writer(file, ahead)
        repository = FileMemoryRepository(folder / JOURNAL_NAME, published, mailbox)

        async def serve() -> None:
            while True:
                batch = await mailbox.receive(_MAX_BATCH)
                decided = await runner.run(writer.write, [request.message for request in batch])
                # No checkpoint from here to the answers: what is durable is published.
                for request, prepared in zip(batch, decided, strict=True):
                    if isinstance(prepared, outcome.Error):
                        assert isinstance(prepared.error, Exception)
                        request.fail(prepared.error)
                    else:
                        request.succeed(publish(published, prepared.unwrap()))

        try:
            async with open_actor(_NAME, serve, mailbox=mailbox, settle=settle):
                yield repository
        finally:
            repository._closed = True
    finally:
        file.close()
