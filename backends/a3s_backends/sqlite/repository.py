"""`SqliteMemoryRepository`: one file, one writer, readers beside it.

Writes go through a mailbox to one task, which commits all that wait in one transaction. Reads run on their
own connections in worker threads, each in one read transaction, and never wait for the writer. Several
processes may use the same file at once.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

import apsw
import trio

from a3s_actors.actor import BlockingRunner, Mailbox, ThreadRunner, check_cancelled, open_actor
from a3s_actors.actor.events import warn
from a3s_actors.memory._checks import as_tuple, checked_path
from a3s_actors.memory.errors import InvalidInput, Persistence, RepositoryClosed
from a3s_actors.memory.lexical import fingerprint
from a3s_actors.memory.limits import DEFAULT_PAGE_LIMIT
from a3s_actors.memory.operations import ChangeSetResult, MemoryChangeSet
from a3s_actors.memory.purge import MemoryPurge, PurgeReceipt
from a3s_actors.memory.reads import (
    AccessCursor,
    AccessPage,
    HistoryPage,
    MemoryHit,
    MemoryQuery,
    NamespaceChangeToken,
    NodePage,
    ScanRequest,
    check_after,
    check_node_id,
    check_node_ids,
    check_page_limit,
    check_type,
)
from a3s_actors.memory.snapshot import NamespaceSnapshot, SnapshotRequest
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import (
    AccessEvent,
    AccessKind,
    MemoryNamespace,
    MemoryNode,
    NodeHead,
    UsageSummary,
)
from a3s_backends.sqlite.backup import BackupReceipt, RestoreReceipt, backup_file, restore_file
from a3s_backends.sqlite.batch import CompactRequest, Writer, WriteRequest, WriteResult
from a3s_backends.sqlite.connection import BUSY_SECONDS, arm, connect, storage_errors
from a3s_backends.sqlite.folder import being_opened, remove_leftovers
from a3s_backends.sqlite.lexical_search import LexicalReader
from a3s_backends.sqlite.log import LAST_NUMBER, LogCursor, LogPage, read_log
from a3s_backends.sqlite.purging import PurgeRequest
from a3s_backends.sqlite.reading import Reads
from a3s_backends.sqlite.rows import RowCodec
from a3s_backends.sqlite.schema import SCHEMA_VERSION, create_if_missing, read_key, read_meta, schema_version
from a3s_backends.sqlite.statistics import FileStatistics, read_statistics
from a3s_backends.sqlite.upkeep import UpkeepRequest, bring_up_to_date, load_namespace, rebuild_index, roll_up
from a3s_backends.sqlite.verifying import Finding, verify_file
from a3s_backends.sqlite.writing import ApplyRequest, EventRequest

__all__ = ["SqliteMemoryRepository", "open_sqlite_repository", "restore_sqlite_repository"]

P = ParamSpec("P")
T = TypeVar("T")

_MAX_BATCH: Final = 256
_READERS: Final = 3


class _ReaderPool:
    """A few read connections, opened when first needed. Threads take one each; the runner bounds the threads."""

    def __init__(self, path: Path, vfs: str | None) -> None:
        self._path = path
        self._vfs = vfs
        self._idle: deque[apsw.Connection] = deque()
        self._closed = False

    def read(self, function: Callable[[apsw.Connection], T]) -> T:
        """Run `function` in one read transaction, in this thread."""
        with storage_errors("read"):
            db = self._take()
            try:
                arm(db, check_cancelled)
                db.execute("BEGIN")
                try:
                    return function(db)
                finally:
                    # Disarmed first: a cancelled caller must not interrupt the end of the transaction too.
                    arm(db, None)
                    if db.in_transaction:  # an I/O error has ended it already
                        db.execute("ROLLBACK")
            finally:
                self._give_back(db)

    def backup(self, target: Path) -> BackupReceipt:
        """Copy the file to a new one, in this thread."""
        return backup_file(self._path, target, check_cancelled, vfs=self._vfs)

    def _take(self) -> apsw.Connection:
        if self._closed:
            raise RepositoryClosed("closed")
        try:
            return self._idle.pop()
        except IndexError:
            db = connect(self._path, vfs=self._vfs)
            db.execute("PRAGMA query_only = ON")
            return db

    def _give_back(self, db: apsw.Connection) -> None:
        # A statement that somebody's kept error keeps running would hold old pages, and so the end of a purge.
        if self._closed or db.in_transaction or db.txn_state("main") != apsw.SQLITE_TXN_NONE:
            db.close()
        else:
            self._idle.append(db)

    def close(self) -> None:
        """Close idle connections now and the others when they come back."""
        self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


class SqliteMemoryRepository:
    """A `MemoryRepository` in one SQLite file. Made by `open_sqlite_repository`.

    Besides the protocol it offers `verify`, `statistics`, `backup`, `load_namespace`, `roll_up_access_events`,
    `rebuild_index`, `compact`, `log` and `path`.

    Cancellation: a read is interrupted within a few thousand steps of SQLite and leaves nothing behind. A
    write that is still queued is withdrawn; one whose transaction has begun completes, and its outcome is
    returned.
    """

    def __init__(
        self,
        path: Path,
        writer: Writer,
        mailbox: Mailbox[WriteRequest, WriteResult],
        readers: _ReaderPool,
        read_runner: BlockingRunner,
    ) -> None:
        self.path = path
        self._mailbox = mailbox
        self._readers = readers
        self._read_runner = read_runner
        self._writer = writer
        self._reads = Reads(writer.codec, LexicalReader(), check_cancelled)
        self._closed = False

    def __repr__(self) -> str:
        return f"<SqliteMemoryRepository {self.path.name!r}{' closed' if self._closed else ''}>"

    async def _read(
        self, function: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise RepositoryClosed("closed")
        return await self._read_runner.run(self._readers.read, lambda db: function(db, *args, **kwargs))

    # -- writes --------------------------------------------------------------------------------------

    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        """See `MemoryRepository.apply`. Synced before it returns."""
        check_type("changeSet", change_set, MemoryChangeSet)
        result = await self._mailbox.ask(ApplyRequest.of(change_set))
        assert isinstance(result, ChangeSetResult)
        return result

    async def record_admission(self, event: AccessEvent) -> None:
        """See `MemoryRepository.record_admission`. Synced before it returns."""
        check_type("accessEvent", event, AccessEvent)
        await self._mailbox.ask(EventRequest(AccessKind.ADMISSION, event))

    async def record_use(self, event: AccessEvent) -> None:
        """See `MemoryRepository.record_use`. Synced before it returns."""
        check_type("accessEvent", event, AccessEvent)
        await self._mailbox.ask(EventRequest(AccessKind.USE, event))

    async def purge(self, purge: MemoryPurge) -> PurgeReceipt:
        """See `MemoryRepository.purge`. Rewrites the file, so it takes time in proportion to its size."""
        check_type("purge", purge, MemoryPurge)
        receipt = await self._mailbox.ask(PurgeRequest(purge))
        assert isinstance(receipt, PurgeReceipt)
        return receipt

    # -- reads ---------------------------------------------------------------------------------------

    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        """See `MemoryRepository.get`."""
        check_type("namespace", namespace, MemoryNamespace)
        return await self._read(self._reads.get, namespace, check_node_id(node_id))

    async def get_heads(self, namespace: MemoryNamespace, node_ids: Iterable[str]) -> dict[str, NodeHead]:
        """See `MemoryRepository.get_heads`."""
        check_type("namespace", namespace, MemoryNamespace)
        return await self._read(self._reads.get_heads, namespace, check_node_ids(node_ids))

    async def history(
        self, namespace: MemoryNamespace, node_id: str, after: int = 0, limit: int = DEFAULT_PAGE_LIMIT
    ) -> HistoryPage:
        """See `MemoryRepository.history`."""
        check_type("namespace", namespace, MemoryNamespace)
        check_after("history.after", after)
        check_page_limit("history.limit", limit)
        return await self._read(self._reads.history, namespace, check_node_id(node_id), min(after, LAST_NUMBER), limit)

    async def scan(self, request: ScanRequest) -> NodePage:
        """See `MemoryRepository.scan`."""
        check_type("scan", request, ScanRequest)
        return await self._read(self._reads.scan, request)

    async def namespaces(self) -> tuple[MemoryNamespace, ...]:
        """See `MemoryRepository.namespaces`."""
        return await self._read(self._reads.namespaces)

    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        """See `MemoryRepository.query`. Answered from the index; each hit is checked against its text."""
        check_type("query", query, MemoryQuery)
        return await self._read(self._reads.query, query)

    async def snapshot_namespace(self, request: SnapshotRequest) -> NamespaceSnapshot:
        """See `MemoryRepository.snapshot_namespace`. Checks every row and the recorded sums."""
        check_type("snapshot", request, SnapshotRequest)
        return await self._read(self._reads.snapshot, request)

    async def namespace_change_token(self, namespace: MemoryNamespace) -> NamespaceChangeToken:
        """See `MemoryRepository.namespace_change_token`."""
        check_type("namespace", namespace, MemoryNamespace)
        return await self._read(self._reads.change_token, namespace)

    async def usage_summary(self, namespace: MemoryNamespace, node_id: str) -> UsageSummary:
        """See `MemoryRepository.usage_summary`."""
        check_type("namespace", namespace, MemoryNamespace)
        return await self._read(self._reads.usage_summary, namespace, check_node_id(node_id))

    async def access_events(
        self,
        namespace: MemoryNamespace,
        node_id: str | None = None,
        after: AccessCursor = 0,
        limit: int = DEFAULT_PAGE_LIMIT,
    ) -> AccessPage:
        """See `MemoryRepository.access_events`."""
        check_type("namespace", namespace, MemoryNamespace)
        check_after("accessEvents.after", after)
        check_page_limit("accessEvents.limit", limit)
        wanted = None if node_id is None else check_node_id(node_id)
        return await self._read(self._reads.access_events, namespace, wanted, min(after, LAST_NUMBER), limit)

    # -- beyond the protocol -------------------------------------------------------------------------

    async def verify(self) -> tuple[Finding, ...]:
        """Check the whole file: pages, digests, sums, histories, graph rules, lexical index, audit counts.

        Returns:
            What is damaged; nothing when all is well. Reads only.
        """
        return await self._read(verify_file, self._writer.codec, check_cancelled)

    async def statistics(self) -> FileStatistics:
        """Return what the file holds: counts of each namespace, and its size."""
        return await self._read(read_statistics)

    async def backup(self, path: str | PathLike[str]) -> BackupReceipt:
        """Copy the whole file to a new one, while writers and readers go on; the copy is verified before it counts.

        The copy is of one point in time, compact, and opens like any repository. It holds everything that the
        file holds now: what is purged later has to be erased from old backups by the host.

        Args:
            path: the new file; nothing may be there.

        Raises:
            InvalidInput: something is there.
            Corruption: the copy does not verify, so this file is damaged.
            Persistence: the folder cannot be written.

        Cancellation: ends within a few thousand steps of SQLite; no file is left.
        """
        target = checked_path("backup.path", path)
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise RepositoryClosed("closed")
        return await self._read_runner.run(self._readers.backup, target)

    async def load_namespace(self, namespace: MemoryNamespace, nodes: Iterable[MemoryNode]) -> NamespaceChangeToken:
        """Store whole nodes, histories included, in a namespace that holds none: the way back from an export.

        All are checked first (complete histories, graph rules); the snapshot of the namespace then has the digest
        of the one they came from. Idempotency keys and access events do not come along.

        Raises:
            InvalidInput: the namespace holds memories, or a node is foreign, there twice or incomplete.
            RelationTargetNotFound, InvariantViolation, EvidenceRequired: a graph rule is broken.

        Cancellation: as for `apply`.
        """
        check_type("namespace", namespace, MemoryNamespace)
        whole = as_tuple("nodes", MemoryNode)(nodes)
        result = await self._mailbox.ask(UpkeepRequest(lambda db, codec: load_namespace(db, codec, namespace, whole)))
        assert isinstance(result, NamespaceChangeToken)
        return result

    async def roll_up_access_events(self, namespace: MemoryNamespace, before: Timestamp) -> int:
        """Keep access events from before an instant as counts alone, and return how many there were.

        `usage_summary` stays as it was. Later events of that time are refused with `InvalidInput`: whether one was
        recorded already could not be told any more.

        Cancellation: as for `apply`.
        """
        check_type("namespace", namespace, MemoryNamespace)
        check_type("before", before, Timestamp)
        result = await self._mailbox.ask(UpkeepRequest(lambda db, _codec: roll_up(db, namespace, before)))
        assert isinstance(result, int)
        return result

    async def rebuild_index(self) -> int:
        """Make the lexical index anew from the texts, and return how many there are. Cancellation: as for `apply`."""
        result = await self._mailbox.ask(UpkeepRequest(lambda db, _codec: rebuild_index(db)))
        assert isinstance(result, int)
        return result

    async def compact(self) -> bool:
        """Rewrite the file without its free space and empty the WAL; finishes a pending purge.

        Returns:
            Whether other users of the file let it happen; if not, nothing changed.

        Cancellation: as for `apply`.
        """
        result = await self._mailbox.ask(CompactRequest())
        assert isinstance(result, bool)
        return result

    async def log(self, after: LogCursor | None = None, limit: int = DEFAULT_PAGE_LIMIT) -> LogPage:
        """Return a page of all change sets and access events of the file, in the order they came."""
        if after is not None:
            check_type("log.after", after, LogCursor)
        check_page_limit("log.limit", limit)
        return await self._read(read_log, after or LogCursor(), limit)


@asynccontextmanager
async def open_sqlite_repository(
    path: str | PathLike[str],
    *,
    create: bool = True,
    synchronous: Literal["FULL", "EXTRA", "NORMAL"] = "FULL",
    capacity: int = 1024,
    settle: float = 5.0,
    write_runner: BlockingRunner | None = None,
    read_runner: BlockingRunner | None = None,
    vfs: str | None = None,
) -> AsyncIterator[SqliteMemoryRepository]:
    """Open (and by default make) a repository file for the length of the block.

    Leaving the block lets queued writes settle for up to `settle` seconds, then closes; later calls raise
    `RepositoryClosed`. Several processes, and several opens in one process, may use the same file.

    Args:
        path: the file; a new one and its folder get modes 0600 and 0700.
        create: make the file when it is missing.
        synchronous: SQLite's setting. FULL (default) syncs each commit; NORMAL can lose the last commits of
            a power cut, though never tear them.
        capacity: how many writes may wait before callers are held back.
        settle: total deadline of the close, in seconds.
        write_runner: seam for blocking writes; by default one thread.
        read_runner: seam for blocking reads; by default three threads.
        vfs: another SQLite VFS than the page-checksum one, for fault injection.

    Raises:
        Persistence: the file cannot be opened or made, is no repository, or is from a newer release.
        RepositoryLocked: another process holds it for more than ten seconds.
        Corruption: a page is damaged.

    Cancellation: before the block it leaves nothing open; a file that was just made stays.
    """
    file = checked_path("path", path)
    writes = write_runner or ThreadRunner("a3s-sqlite-write")
    reads = read_runner or ThreadRunner("a3s-sqlite-read", _READERS)
    mailbox: Mailbox[WriteRequest, WriteResult] = Mailbox("sqlite repository", capacity, RepositoryClosed)
    pool = _ReaderPool(file, vfs)
    writer = await writes.run(_open_writer, file, create, synchronous, vfs)
    repository = SqliteMemoryRepository(file, writer, mailbox, pool, reads)

    async def serve() -> None:
        while True:
            batch = await mailbox.receive(_MAX_BATCH)
            outcomes = await writes.run(writer.commit, [request.message for request in batch])
            for request, result in zip(batch, outcomes, strict=True):
                try:
                    value = result.unwrap()
                except Exception as error:  # noqa: BLE001 - it is the caller's, and goes there
                    request.fail(error)
                else:
                    request.succeed(value)

    try:
        async with open_actor("sqlite repository", serve, mailbox=mailbox, settle=settle):
            yield repository
    finally:
        repository._closed = True
        # Closing may checkpoint the WAL; it must happen even when the block was cancelled. Bounded by the
        # one checkpoint that it can be.
        with trio.CancelScope(shield=True):
            await writes.run(_close, writer, pool)


async def restore_sqlite_repository(
    backup: str | PathLike[str],
    path: str | PathLike[str],
    *,
    replace: bool = False,
    runner: BlockingRunner | None = None,
) -> RestoreReceipt:
    """Put a backup in the place of a repository file that nobody has open, after verifying it.

    The backup is only read. The file that was there is kept beside the new one. Change tokens never fall: each
    namespace goes on from the higher of both files, or far above when the old file cannot be read.

    Args:
        backup: what `SqliteMemoryRepository.backup` made, or any closed repository file.
        path: the file to restore.
        replace: whether a file may be there.
        runner: seam for the blocking work; by default one thread.

    Raises:
        InvalidInput: there is no backup, or a file is there and `replace` is False.
        Corruption: the backup does not verify; nothing was replaced.
        RepositoryLocked: somebody uses the file.
        Persistence: a file cannot be read or the folder not be written.

    Cancellation: while the backup is copied and checked it ends the restore, and nothing was replaced; after
    that the restore completes.
    """
    threads = runner or ThreadRunner("a3s-sqlite-restore")
    work = functools.partial(
        restore_file, checked_path("backup", backup), checked_path("path", path), replace=replace, check=check_cancelled
    )
    return await threads.run(work)


def _close(writer: Writer, pool: _ReaderPool) -> None:
    pool.close()
    try:
        with storage_errors("close"):
            writer.finish_purge()
            writer.db.close()
    except Persistence as error:
        # All commits are durable already; what failed is tidying up the WAL.
        warn("a3s_backends.sqlite", "sqlite_close_failed", error=str(error))


def _open_writer(path: Path, create: bool, synchronous: str, vfs: str | None) -> Writer:
    if synchronous not in ("FULL", "EXTRA", "NORMAL"):
        raise InvalidInput("synchronous", "must be FULL, EXTRA or NORMAL")
    with storage_errors("open"):
        if create:
            create_if_missing(path)
        if not path.exists():
            raise Persistence("open", "there is no such file; make it with create=True, or correct the path")
        remove_leftovers(path.parent)
        with being_opened(path.parent, BUSY_SECONDS):
            db = connect(path, synchronous=synchronous, vfs=vfs)
            try:
                writer = Writer(db, RowCodec(_take_into_use(db)))
            except BaseException:
                db.close()
                raise
        writer.finish_purge()
        return writer


def _take_into_use(db: apsw.Connection) -> bytes:
    """Bring a file up to date and into WAL mode; return its key.

    Backups come as a single file without a WAL. With one, the connection keeps SQLite's lock on the file from its
    first read on, so that no restore can replace the file.
    """
    version = schema_version(db)
    mode = db.execute("PRAGMA journal_mode = WAL").get
    if mode != "wal":
        raise Persistence("open", "the file system allows no write-ahead log; use a local disk")
    if version < SCHEMA_VERSION or read_meta(db, "tokenizer") != fingerprint():
        bring_up_to_date(db)
    return read_key(db)
