"""One door to SQLite: connections with this project's settings, and its errors in our words.

Each small function sets one thing and says why.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw
import apsw.sqlite_extra

from a3s_actors.memory.errors import Corruption, MemoryRepositoryError, Persistence, RepositoryLocked
from a3s_backends.sqlite.lexical_schema import LexicalIndexDamaged

__all__ = ["arm", "connect", "file_uri", "patience", "storage_errors", "translated"]

BUSY_SECONDS: Final = 10.0
"""How long a writer waits for another process before it gives up."""


VFS_NAME: Final = "a3s-whole-reads"
"""The VFS under every repository: page checksums, and no read that is silently cut short."""


class _WholeFile(apsw.VFSFile):
    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        data = super().xRead(amount, offset)
        if len(data) < amount and super().xFileSize() > offset + len(data):
            raise apsw.IOError("a read gave fewer bytes than the file has")
        return data


class _WholeReads(apsw.VFS):
    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if flags[0] & (apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_WAL):
            return _WholeFile("cksmvfs", name, flags)
        return super().xOpen(name, flags)


@functools.cache
def _install_vfs() -> _WholeReads:
    # Registers SQLite's checksum VFS for the process: each page carries a checksum that is verified when it
    # is read. integrity_check alone does not notice a flipped bit in a row. What neither notices is a read that
    # gives fewer bytes than there are: SQLite takes the rest for zeros, and would build on them.
    db = apsw.Connection(":memory:")
    try:
        apsw.sqlite_extra.load(db, "cksumvfs")
    finally:
        db.close()
    return _WholeReads(VFS_NAME, base="cksmvfs")


_installing: Final = threading.Lock()


def _vfs() -> str:
    # Two first openings, each in its thread, would register it twice, and one of them would use freed memory.
    with _installing:
        _install_vfs()
    return VFS_NAME


def connect(
    path: Path, *, synchronous: str = "FULL", vfs: str | None = None, read_only: bool = False, immutable: bool = False
) -> apsw.Connection:
    """Open one connection to an existing file.

    Args:
        path: the database file.
        synchronous: SQLite's setting; FULL syncs each commit.
        vfs: another VFS than the checksum one, for fault injection.
        read_only: open it for reading alone.
        immutable: nobody writes to it meanwhile; then no file is made beside it, and its folder may be read-only.

    Raises:
        apsw.Error: as SQLite says; call it inside `storage_errors`.
    """
    mode = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    name = file_uri(path, read_only=read_only, immutable=immutable)
    flags = mode | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
    db = apsw.Connection(name, flags=flags, vfs=vfs or _vfs())
    try:
        _wait_fairly(db)
        _keep_strict(db)
        db.execute(f"PRAGMA synchronous = {synchronous}")
    except BaseException:
        db.close()
        raise
    return db


def file_uri(path: Path, *, read_only: bool = False, immutable: bool = False) -> str:
    """Name a file in the way that opening and ATTACH understand, whatever characters its path has."""
    end = "&immutable=1" if immutable else ""
    return f"file:{quote(str(path))}?mode={'ro' if read_only else 'rw'}{end}"


def _wait_fairly(db: apsw.Connection, seconds: float | None = None) -> None:
    # SQLite's own busy handler backs off up to 100 ms, so that one of two writers can wait for seconds while
    # the other takes the lock again and again. Short even sleeps keep the longest wait below half a second.
    start = 0.0

    def handler(prior_calls: int) -> bool:
        nonlocal start
        if prior_calls == 0:
            start = time.monotonic()
        elif time.monotonic() - start > (BUSY_SECONDS if seconds is None else seconds):
            return False
        time.sleep(0.0003 if prior_calls < 50 else 0.001)
        return True

    db.set_busy_handler(handler)


@contextmanager
def patience(db: apsw.Connection, seconds: float) -> Iterator[None]:
    """Wait for other users of the file for at most `seconds` inside the block."""
    _wait_fairly(db, seconds)
    try:
        yield
    finally:
        _wait_fairly(db)


def _keep_strict(db: apsw.Connection) -> None:
    # "x" is never a string; triggers and views of a foreign file cannot run functions; deleted bytes are
    # overwritten; temporary tables never reach the disk.
    db.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    db.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    db.execute("PRAGMA secure_delete = ON").fetchall()
    db.execute("PRAGMA temp_store = MEMORY")


def as_repository_error(operation: str, error: apsw.Error) -> MemoryRepositoryError:
    """Translate one of SQLite's errors. Its own text names tables and pages, never values."""
    extended = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError) or extended in {
        apsw.SQLITE_IOERR_DATA,
        apsw.SQLITE_IOERR_CORRUPTFS,
    }:
        return Corruption("database file", f"a page is not what was written ({type(error).__name__})")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return RepositoryLocked(operation, f"another process held the file for more than {BUSY_SECONDS:.0f} s")
    if isinstance(error, apsw.FullError):
        return Persistence(operation, "the disk is full; nothing of this operation was stored")
    if extended == apsw.SQLITE_READONLY_DBMOVED:
        return RepositoryLocked(operation, "another file lies in the place of the one that is open; open it again")
    if isinstance(error, apsw.ReadOnlyError):
        return Persistence(operation, "the file or its folder cannot be written; check permissions")
    if isinstance(error, apsw.CantOpenError) or extended == apsw.SQLITE_OK_SYMLINK:
        return Persistence(operation, "the file cannot be opened; check path and permissions (no symbolic links)")
    return Persistence(operation, f"SQLite failed ({type(error).__name__}, code {extended})")


def translated(operation: str, error: Exception) -> MemoryRepositoryError | None:
    """Say an error of SQLite, of the index or of the file system in the kernel's words; None for any other."""
    if isinstance(error, apsw.Error):
        return as_repository_error(operation, error)
    if isinstance(error, OSError):
        return Persistence(operation, f"{error.strerror or type(error).__name__}; check path, folder and permissions")
    if isinstance(error, UnicodeDecodeError):
        return Corruption("database file", "a stored text is not UTF-8")
    if isinstance(error, LexicalIndexDamaged):
        return Corruption("lexical index", error.where)
    return None


@contextmanager
def storage_errors(operation: str) -> Iterator[None]:
    """Turn the errors of SQLite, of the index and of the file system into the kernel's; everything else passes."""
    try:
        yield
    except UnicodeDecodeError as error:
        # Its own message quotes what it found.
        raise translated(operation, error) or error from None
    except (apsw.Error, OSError, LexicalIndexDamaged) as error:
        raise translated(operation, error) or error from error


def arm(db: apsw.Connection, check: Callable[[], None] | None, steps: int = 4000) -> None:
    """Let `check` run every few thousand steps of a statement; whatever it raises ends the statement."""

    def handler() -> bool:
        if check is not None:
            check()
        return False

    db.set_progress_handler(None if check is None else handler, steps)
