"""Copies of a repository file: made while it is in use, checked before they count, and put back.

A backup holds everything that the file held at one point, also what is purged later: erasing old ones is the host's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import attrs

from a3s_actors.memory.errors import Corruption, InvalidInput, Persistence, RepositoryLocked
from a3s_actors.memory.values import MemoryNamespace
from a3s_backends.sqlite.connection import arm, connect, patience, storage_errors
from a3s_backends.sqlite.copying import copy_rows
from a3s_backends.sqlite.rows import RowCodec
from a3s_backends.sqlite.schema import migrate, read_meta, schema_version, sync_folder
from a3s_backends.sqlite.statistics import read_statistics
from a3s_backends.sqlite.verifying import verify_file

__all__ = ["BackupReceipt", "RestoreReceipt", "backup_file", "restore_file"]

_WAIT_SECONDS = 2.0
_UNKNOWN_PAST = 1 << 32
_ENDS = ("", "-wal", "-shm", "-journal")


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
    if target.exists():
        raise InvalidInput("backup.path", "is there already; name a new file")
    with _building(target, "backup") as building:
        copy_rows(source, building, check, vfs=vfs)
        counts = _check_copy(building, check)
        _publish(building, target)
    return BackupReceipt(path=target, bytes=target.stat().st_size, namespaces=counts[0], nodes=counts[1])


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
    if not source.is_file():
        raise InvalidInput("restore.source", "there is no such file")
    if target.exists() and (not replace or source.samefile(target)):
        raise InvalidInput("restore.target", "is there already; say that it may be replaced, or name a new file")
    with _building(target, "restore") as building:
        wal = source.with_name(source.name + "-wal")
        used = wal.exists() and wal.stat().st_size > 0
        # Only reading: a backup on read-only media can be restored, too.
        copy_rows(source, building, check, read_only=True, immutable=not used)
        _check_copy(building, check)
        with _old_file(target) as old:
            _raise_tokens(building, old.tokens if old is not None else {})
            counts = _check_copy(building, check)
            replaced = None
            if old is not None:
                replaced = _aside(target, with_log=old.tokens is None)
                _publish(building, target, replace=True)
            else:
                _publish(building, target)
    return RestoreReceipt(path=target, namespaces=counts[0], nodes=counts[1], replaced=replaced)


@attrs.frozen
class _Old:
    tokens: dict[MemoryNamespace, int] | None  # None: the file cannot be read any more


@contextlib.contextmanager
def _building(target: Path, operation: str) -> Iterator[Path]:
    building = target.with_name(f".{target.name}.{secrets.token_hex(8)}.new")
    try:
        with storage_errors(operation):
            os.close(os.open(building, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
            yield building
    except OSError as error:
        raise Persistence(operation, f"{error.strerror}; check the folder and its permissions") from error
    finally:
        for end in _ENDS:
            building.with_name(building.name + end).unlink(missing_ok=True)


def _check_copy(path: Path, check: Callable[[], None]) -> tuple[int, int]:
    """Verify a copy wholly; return how many namespaces and nodes it has."""
    db = connect(path)
    try:
        arm(db, check)
        if schema_version(db) < 1:
            raise Corruption("backup", "it has no schema")
        db.execute("BEGIN IMMEDIATE")
        migrate(db)
        db.execute("COMMIT")
        key = read_meta(db, "file_key")
        assert isinstance(key, bytes)
        findings = verify_file(db, RowCodec(key), check)
        if findings:
            raise Corruption(f"backup, {findings[0].where}", findings[0].message)
        counts = read_statistics(db)
        # One file that can be read anywhere; the first opening as a repository turns the WAL on again.
        db.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        db.close()
    return len(counts.namespaces), sum(sum(each.nodes.values()) for each in counts.namespaces)


def _publish(building: Path, target: Path, *, replace: bool = False) -> None:
    descriptor = os.open(building, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if replace:
        building.rename(target)
    else:
        os.link(building, target)  # refuses when something has come there meanwhile
    sync_folder(target.parent)


@contextlib.contextmanager
def _old_file(target: Path) -> Iterator[_Old | None]:
    """Hold the file to be replaced for nobody else, its WAL emptied into it; None when there is none."""
    if not target.exists():
        yield None
        return
    try:
        db = connect(target)
    except apsw.Error:
        yield _Old(None)
        return
    try:
        try:
            with patience(db, _WAIT_SECONDS):
                db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
                # Leaving WAL needs to be the only user of the file; the lock then stays with this connection.
                mode = db.execute("PRAGMA journal_mode = DELETE").get
                db.execute("BEGIN EXCLUSIVE")
            old = _Old({each.namespace: each.sequence for each in read_statistics(db).namespaces})
        except (apsw.BusyError, apsw.LockedError):
            raise RepositoryLocked("restore", "somebody uses the file; close every user of it first") from None
        except apsw.Error:
            old = _Old(None)
        else:
            if mode != "delete":
                raise RepositoryLocked("restore", "somebody uses the file; close every user of it first")
        yield old
    finally:
        db.close()


def _aside(target: Path, *, with_log: bool) -> Path:
    for number in range(1, 10_000):
        aside = target.with_name(f"{target.name}.replaced-{number}")
        if not any(aside.with_name(aside.name + end).exists() for end in _ENDS):
            break
    else:
        raise Persistence("restore", "too many replaced files beside the repository; remove old ones")
    os.link(target, aside)
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
