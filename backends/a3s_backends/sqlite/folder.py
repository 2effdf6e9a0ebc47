"""The folder of a repository file: new files are built in it, and one that is replaced must not be opened meanwhile.

Building. A new file comes into being in a folder of its own, whose name begins with `BUILDING`, and gets its real
name when it is whole. The building process holds a lock on that folder; a folder that nobody holds was left by a
process that was killed, and may hold every text: whoever opens, purges, backs up or restores here removes it.

Replacing. SQLite knows a file's log by its name. A process that has opened the old file but not locked it yet would
take the new file's log for its own. So every opening holds the lock of the folder, shared, until SQLite's own lock
says that the file is in use, and a restore holds it alone while it replaces the file.

These are `flock`s on folders: they leave no file, end with the process, and SQLite's locks do not know them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from a3s_actors.memory.errors import Persistence, RepositoryLocked

__all__ = [
    "BUILDING",
    "being_opened",
    "being_replaced",
    "building",
    "check_no_log",
    "leftovers",
    "remove_leftovers",
    "sync_folder",
]

BUILDING: Final = ".a3s-building-"
_NEW: Final = "new.db"
_TRIES: Final = 100
_PAUSE: Final = 0.005


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """Make an empty file of mode 0600 that no other process touches; it goes when the block ends, unless renamed.

    Raises:
        OSError: the folder cannot be written.
    """
    remove_leftovers(folder)
    place, descriptor = _new_place(folder)
    try:
        new = place / _NEW
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        yield new
    finally:
        _remove(place, descriptor)
        _let_go(descriptor)


def _new_place(folder: Path) -> tuple[Path, int]:
    for _ in range(_TRIES):
        place = folder / f"{BUILDING}{secrets.token_hex(8)}"
        place.mkdir(0o700)
        # Until it is locked it looks like a leftover, and may be removed as one.
        descriptor = _hold(place)
        if descriptor is not None:
            return place, descriptor
    raise Persistence("build", "another process removes each new folder at once")


def _hold(place: Path) -> int | None:
    """Lock a building place for this process; None when somebody holds it or it is gone."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found, held = place.lstat(), os.fstat(descriptor)
        if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _let_go(descriptor: int) -> None:
    try:
        # By name: closing is not enough while a forked child has the same open file.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _remove(place: Path, descriptor: int) -> None:
    # What cannot be removed now is a leftover, and shows as one.
    with contextlib.suppress(OSError):
        for name in os.listdir(descriptor):
            os.unlink(name, dir_fd=descriptor)
        place.rmdir()


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes were building in a folder, as far as this user may."""
    with contextlib.suppress(OSError):
        for place in _places(folder):
            _remove_leftover(place)


def _remove_leftover(place: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = _hold(place)
        if descriptor is not None:
            try:
                _remove(place, descriptor)
            finally:
                _let_go(descriptor)


def leftovers(folder: Path) -> list[Path]:
    """Return the building places that nobody holds.

    Raises:
        OSError: the folder cannot be read.
    """
    found = []
    for place in _places(folder):
        try:
            descriptor = _hold(place)
        except OSError:
            found.append(place)  # not this user's: it is not known to be in use
            continue
        if descriptor is not None:
            _let_go(descriptor)
            found.append(place)
    return found


def _places(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return sorted(folder / entry.name for entry in entries if entry.name.startswith(BUILDING))


@contextlib.contextmanager
def being_opened(folder: Path, seconds: float) -> Iterator[None]:
    """Keep restores from replacing a file of this folder inside the block.

    Raises:
        RepositoryLocked: a restore goes on for longer than `seconds`.
        OSError: the folder cannot be read.
    """
    message = f"a file of this folder is being restored for more than {seconds:.0f} s; open it again later"
    with _folder_lock(folder, fcntl.LOCK_SH, seconds, RepositoryLocked("open", message)):
        yield


@contextlib.contextmanager
def being_replaced(folder: Path, seconds: float) -> Iterator[None]:
    """Keep everybody from opening or replacing a file of this folder inside the block.

    Raises:
        RepositoryLocked: somebody does, for longer than `seconds`.
        OSError: the folder cannot be read.
    """
    message = "somebody opens or restores a file of this folder; try again later"
    with _folder_lock(folder, fcntl.LOCK_EX, seconds, RepositoryLocked("restore", message)):
        yield


@contextlib.contextmanager
def _folder_lock(folder: Path, kind: int, seconds: float, refusal: RepositoryLocked) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise refusal from None
                time.sleep(_PAUSE)
        yield
    finally:
        _let_go(descriptor)


def check_no_log(path: Path, operation: str) -> None:
    """Refuse to make a file where SQLite would play the log of an earlier one into it.

    Raises:
        Persistence: a log lies there, and its file does not.
        OSError: the folder cannot be read.
    """
    for end in ("-wal", "-journal"):
        # In this order: of a file that another process makes meanwhile, the log comes last.
        if path.with_name(path.name + end).exists() and not path.exists():
            raise Persistence(operation, f"the log ({end}) of a file that is gone lies there; move it away")


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
