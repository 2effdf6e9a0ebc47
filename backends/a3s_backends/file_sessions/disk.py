"""The few ways in which session files touch a folder: its lock, new files, and what killed processes leave."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs

from a3s_actors.agent.errors import SessionStoreUnavailable

__all__ = [
    "FileOperations",
    "aside",
    "file_errors",
    "folder_lock",
    "make_folder",
    "new_file",
    "open_regular",
    "remove_leftovers",
    "sync_folder",
    "write_all",
]

LOCK_NAME: Final = ".lock"
LOCK_SECONDS: Final = 5.0
"""How long a call waits for other users of the folder before it gives up."""
_PAUSE: Final = 0.0005
_TRIES: Final = 100
_READ_ONLY: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LEFTOVER: Final = re.compile(r"([0-9a-f]{64})\.[0-9a-f]{16}\.(new|old)")
_CURES: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the folder cannot be written; check how its disk is mounted",
    errno.EACCES: "the folder or a file cannot be used; check permissions",
    errno.EPERM: "the folder or a file cannot be used; check permissions",
    errno.ELOOP: "a file is a symbolic link, which a store does not follow",
    errno.ENAMETOOLONG: "the folder's path is too long",
    errno.EMFILE: "this process has too many files open",
}


@attrs.frozen
class FileOperations:
    """The system calls that change a folder, so that tests can let each of them fail. By default those of `os`."""

    write: Callable[[int, memoryview], int] = os.write
    fdatasync: Callable[[int], None] = os.fdatasync
    fsync: Callable[[int], None] = os.fsync
    ftruncate: Callable[[int, int], None] = os.ftruncate
    link: Callable[[Path, Path], None] = os.link
    rename: Callable[[Path, Path], None] = os.replace
    unlink: Callable[[Path], None] = os.unlink


@contextlib.contextmanager
def file_errors(operation: str) -> Iterator[None]:
    """Turn the system's errors into `SessionStoreUnavailable`; everything else passes."""
    try:
        yield
    except OSError as error:
        message = _CURES.get(error.errno or 0) or error.strerror or type(error).__name__
        raise SessionStoreUnavailable(operation, message) from error


def make_folder(folder: Path, system: FileOperations) -> None:
    """Make a folder with mode 0700, and its parents, unless it is there.

    Raises:
        OSError: it cannot be made, or something else has its name.
    """
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        make_folder(folder.parent, system)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "the path is no folder")
    sync_folder(folder.parent, system)


def sync_folder(folder: Path, system: FileOperations) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        system.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def folder_lock(folder: Path, operation: str, check: Callable[[], None] | None = None) -> Iterator[None]:
    """Be the only one, among threads and processes, who changes a folder inside the block.

    Waits in this thread. The lock file has mode 0600, is empty and never removed.

    Args:
        folder: where.
        operation: for the error.
        check: called again and again while waiting; what it raises ends that.

    Raises:
        SessionStoreUnavailable: somebody else has it for more than five seconds.
        OSError: the lock file cannot be opened.
    """
    descriptor = _locked(folder / LOCK_NAME, operation, check)
    try:
        yield
    finally:
        _let_go(descriptor)


def _locked(path: Path, operation: str, check: Callable[[], None] | None) -> int:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        descriptor = _regular(os.open(path, os.O_RDWR | os.O_CREAT | _READ_ONLY, 0o600))
        try:
            while not _try_lock(descriptor):
                _wait(end, operation, check)
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # somebody has removed the lock file meanwhile


def _wait(end: float, operation: str, check: Callable[[], None] | None) -> None:
    if time.monotonic() > end:
        raise SessionStoreUnavailable(operation, f"the folder is in use for more than {LOCK_SECONDS:.0f} s; try again")
    if check is not None:
        check()
    time.sleep(_PAUSE)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _let_go(descriptor: int) -> None:
    try:
        # By name: closing is not enough while a forked child has the same open file.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)


def open_regular(path: Path, *, write: bool = False) -> int:
    """Open a file; made with mode 0600 when it is to be written and missing.

    Raises:
        OSError: it is missing, a symbolic link or no regular file, or cannot be opened.
    """
    return _regular(os.open(path, os.O_RDWR | os.O_CREAT | _READ_ONLY if write else _READ_ONLY, 0o600))


def _regular(descriptor: int) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "a file of the store is no regular file")


def write_all(descriptor: int, data: bytes, system: FileOperations) -> None:
    """Write all of `data` at the file's position."""
    rest = memoryview(data)
    while rest:
        rest = rest[system.write(descriptor, rest) :]


def aside(folder: Path, name: str, end: str) -> Path:
    """Return an unused path for a session's file that is about to take another name."""
    return folder / f"{name}.{secrets.token_hex(8)}.{end}"


@contextlib.contextmanager
def new_file(folder: Path, name: str, parts: tuple[bytes, ...], system: FileOperations) -> Iterator[tuple[Path, int]]:
    """Write and sync a new file of mode 0600, and yield its path and descriptor; it goes when the block fails.

    It is locked meanwhile, which tells it from what a killed process left.
    """
    path, descriptor = _create(folder, name)
    try:
        for part in parts:
            write_all(descriptor, part, system)
        system.fdatasync(descriptor)
        yield path, descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            system.unlink(path)
        raise
    finally:
        _let_go(descriptor)


def _create(folder: Path, name: str) -> tuple[Path, int]:
    for _ in range(_TRIES):
        path = aside(folder, name, "new")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        # Until it is locked it looks like a leftover, and may be removed as one.
        if _try_lock(descriptor) and os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)
    raise OSError(errno.EAGAIN, "another process removes each new file at once")


def remove_leftovers(folder: Path, system: FileOperations, name: str | None = None) -> None:
    """Remove what killed processes were writing, as far as this user may; inside `folder_lock`.

    Args:
        folder: where.
        system: the system calls.
        name: only what belongs to that session's files; None for all.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = _LEFTOVER.fullmatch(entry.name)
            if found is not None and name in {None, found[1]}:
                with contextlib.suppress(OSError):
                    _remove_leftover(folder / entry.name, found[2], system)


def _remove_leftover(path: Path, end: str, system: FileOperations) -> None:
    if end == "old":
        # A second name of a session's file, made and given up inside the folder's lock.
        system.unlink(path)
        return
    descriptor = open_regular(path)
    try:
        if _try_lock(descriptor):
            system.unlink(path)
    finally:
        _let_go(descriptor)
