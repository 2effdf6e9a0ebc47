"""Copies of a repository file: made while it is in use, checked before they count, and put back.

A backup holds everything that the file held at one point, also what is purged later: erasing old ones is the host's.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import attrs

from a3s_actors.memory.errors import Corruption, InvalidInput, MemoryRepositoryError, Persistence, RepositoryLocked
from a3s_actors.memory.values import MemoryNamespace
from a3s_backends.sqlite.connection import arm, connect, patience, storage_errors
from a3s_backends.sqlite.copying import copy_rows
from a3s_backends.sqlite.folder import being_replaced, building, check_no_log, sync_folder
from a3s_backends.sqlite.rows import RowCodec
from a3s_backends.sqlite.schema import read_key, schema_version
from a3s_backends.sqlite.statistics import read_statistics
from a3s_backends.sqlite.upkeep import bring_up_to_date
from a3s_backends.sqlite.verifying import verify_file

__all__ = ["BackupReceipt", "RestoreReceipt", "backup_file", "restore_file"]

_WAIT_SECONDS = 2.0
_UNKNOWN_PAST = 1 << 32
_ENDS = ("", "-wal", "-shm", "-journal")
_TAKEN = "is there already; say that it may be replaced, or name a new file"
_IN_USE = "somebody uses the file; close every user of it first"


@attrs.frozen(kw_only=True)
class BackupReceipt:
    """What a backup holds.

    Attributes:
        path: the new file.
        bytes: its size.
        namespaces: how many namespaces it has.
        nodes: how many memories, of every status.
    """

    path: Path
    bytes: int
    namespaces: int
    nodes: int


@attrs.frozen(kw_only=True)
class RestoreReceipt:
    """What a restore did.

    Attributes:
        path: the restored file.
        namespaces: how many namespaces it has.
        nodes: how many memories, of every status.
        replaced: where the file that was there before lies now; None when there was none.
    """

    path: Path
    namespaces: int
    nodes: int
    replaced: Path | None


def backup_file(source: Path, target: Path, check: Callable[[], None], *, vfs: str | None = None) -> BackupReceipt:
    """Copy a repository file to a new one, check the copy, and only then give it its name.

    Args:
        source: the file; writers go on meanwhile.
        target: the new file; nothing may be there.
        check: called now and then; what it raises ends the backup.
        vfs: another VFS than the checksum one, for fault injection.

    Raises:
        InvalidInput: something is there already.
        Corruption: the copy does not verify: the file itself is damaged.
        Persistence: the folder cannot be written.
    """
    with storage_errors("backup"):
        if target.exists():
            raise InvalidInput("backup.path", "is there already; name a new file")
        with building(target.parent) as new:
            copy_rows(source, new, check, vfs=vfs)
            namespaces, nodes = _check_copy(new, check)
            size = new.stat().st_size
            if not _publish(new, target):
                raise InvalidInput("backup.path", "is there already; name a new file")
    return BackupReceipt(path=target, bytes=size, namespaces=namespaces, nodes=nodes)


def restore_file(source: Path, target: Path, *, replace: bool, check: Callable[[], None]) -> RestoreReceipt:
    """Put a backup in the place of a repository file, after checking it.

    The backup is only read. Change tokens never fall: each goes on from the higher of both files. The file that was
    there is kept beside the new one, under another name.

    Args:
        source: the backup.
        target: the repository file.
        replace: whether a file may be there.
        check: called now and then before anything is replaced; what it raises ends the restore.

    Raises:
        InvalidInput: there is no backup, or a file is there and `replace` is False.
        Corruption: the backup does not verify; the file that is there stays as it is.
        RepositoryLocked: somebody uses the file.
        Persistence: the folder cannot be written.
    """
    with storage_errors("restore"):
        if not source.is_file():
            raise InvalidInput("restore.source", "there is no such file")
        if _identity(target) is not None and (not replace or source.samefile(target)):
            raise InvalidInput("restore.target", _TAKEN)
        with building(target.parent) as new:
            wal = source.with_name(source.name + "-wal")
            used = wal.exists() and wal.stat().st_size > 0
            # Only reading: a backup on read-only media can be restored, too.
            copy_rows(source, new, check, read_only=True, immutable=not used)
            _check_copy(new, check)
            with being_replaced(target.parent, _WAIT_SECONDS), _old_file(target) as old:
                if old is not None and not replace:
                    raise InvalidInput("restore.target", _TAKEN)
                check_no_log(target, "restore")
                _raise_tokens(new, old.tokens if old is not None else {})
                namespaces, nodes = _check_copy(new, check)
                replaced = None if old is None else _aside(target, with_log=not old.log_emptied)
                if not _publish(new, target, replace=old is not None):
                    raise InvalidInput("restore.target", _TAKEN)
    return RestoreReceipt(path=target, namespaces=namespaces, nodes=nodes, replaced=replaced)


def _check_copy(path: Path, check: Callable[[], None]) -> tuple[int, int]:
    """Verify a copy wholly; return how many namespaces and nodes it has."""
    db = connect(path)
    try:
        arm(db, check)
        if schema_version(db) < 1:
            raise Corruption("backup", "it has no schema")
        # Of an earlier release: what it says of its index holds by that release's profile.
        bring_up_to_date(db)
        findings = verify_file(db, RowCodec(read_key(db)), check)
        if findings:
            raise Corruption(f"backup, {findings[0].where}", findings[0].message)
        counts = read_statistics(db)
        # One file that can be read anywhere; the first opening as a repository turns the WAL on again.
        db.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        db.close()
    return len(counts.namespaces), sum(sum(each.nodes.values()) for each in counts.namespaces)


def _publish(new: Path, target: Path, *, replace: bool = False) -> bool:
    """Sync a file and give it its name; False when that is taken and must not be."""
    descriptor = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if replace:
        new.rename(target)
    else:
        try:
            os.link(new, target)
        except FileExistsError:
            return False
    sync_folder(target.parent)
    return True


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another of the same name; None when there is none.

    Raises:
        InvalidInput: it is no regular file: a folder, a pipe, a device, a symbolic link.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput("restore.target", "must be a regular file")
    return found.st_dev, found.st_ino


@attrs.frozen
class _Old:
    """The file to be replaced, held for nobody else. `tokens` is None when it cannot be read any more."""

    tokens: dict[MemoryNamespace, int] | None
    log_emptied: bool


@contextlib.contextmanager
def _old_file(target: Path) -> Iterator[_Old | None]:
    """Hold the file to be replaced for nobody else, its WAL emptied into it where it has one that can be read."""
    before = _identity(target)
    if before is None:
        yield None
        return
    with contextlib.ExitStack() as held:
        try:
            db = held.enter_context(contextlib.closing(connect(target)))
            with patience(db, _WAIT_SECONDS):
                db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
                # Leaving WAL needs to be the only user of the file; the lock then stays with this connection.
                mode = db.execute("PRAGMA journal_mode = DELETE").get
                db.execute("BEGIN EXCLUSIVE")
        except (apsw.BusyError, apsw.LockedError):
            raise RepositoryLocked("restore", _IN_USE) from None
        except apsw.Error:
            held.close()
            held.enter_context(_raw_lock(target))
            old = _Old(None, log_emptied=False)
        else:
            if mode != "delete":
                raise RepositoryLocked("restore", _IN_USE)
            old = _Old(_tokens(db), log_emptied=True)
        if _identity(target) != before:
            # The lock is on a file that lies elsewhere now; nothing is known of the one that is here.
            raise RepositoryLocked("restore", "somebody replaced the file meanwhile; look at it, then try again")
        yield old


def _tokens(db: apsw.Connection) -> dict[MemoryNamespace, int] | None:
    try:
        return {each.namespace: each.sequence for each in read_statistics(db).namespaces}
    except (apsw.Error, MemoryRepositoryError):
        return None


@contextlib.contextmanager
def _raw_lock(path: Path) -> Iterator[None]:
    """Take SQLite's exclusive lock on a file that SQLite cannot read: somebody may have it open all the same."""
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        try:
            file.xLock(apsw.SQLITE_LOCK_SHARED)
            file.xLock(apsw.SQLITE_LOCK_EXCLUSIVE)
        except apsw.BusyError:
            raise RepositoryLocked("restore", _IN_USE) from None
        yield
    finally:
        file.xUnlock(apsw.SQLITE_LOCK_NONE)
        file.xClose()


def _aside(target: Path, *, with_log: bool) -> Path:
    for number in range(1, 10_000):
        aside = target.with_name(f"{target.name}.replaced-{number}")
        if aside.exists() and aside.samefile(target):
            break  # by a restore that was killed before it had replaced the file
        if not any(os.path.lexists(aside.with_name(aside.name + end)) for end in _ENDS):
            os.link(target, aside)
            break
    else:
        raise Persistence("restore", "too many replaced files beside the repository; remove old ones")
    for end in _ENDS[1:] if with_log else ():
        left = target.with_name(target.name + end)
        if left.exists():
            left.rename(aside.with_name(aside.name + end))
    return aside


def _raise_tokens(path: Path, old: dict[MemoryNamespace, int] | None) -> None:
    """Let every change token go on from the higher of both files, so that none ever stands for two contents."""
    db = connect(path)
    try:
        db.execute("BEGIN IMMEDIATE")
        for each in read_statistics(db).namespaces:
            space = each.namespace
            if old is None:
                token = each.sequence + _UNKNOWN_PAST
            elif space in old:
                token = max(old[space], each.sequence) + 1
            else:
                continue
            db.execute(
                "UPDATE namespace SET token = ?, token_raised = token_raised + ?"
                " WHERE tenant = ? AND principal = ? AND scope = ?",
                (token, token - each.sequence, space.tenant_id, space.principal_id, space.scope_id),
            )
        for space, sequence in (old or {}).items():
            # A namespace that the backup does not know: its token must not begin at 0 again.
            db.execute(
                "INSERT OR IGNORE INTO namespace(tenant, principal, scope, token, token_raised) VALUES (?, ?, ?, ?, ?)",
                (space.tenant_id, space.principal_id, space.scope_id, sequence + 1, sequence + 1),
            )
        db.execute("COMMIT")
    finally:
        db.close()
