"""Who owns a journal, how it is opened, and how it grows.

One owner at a time holds an exclusive lock on `memory-v2.lock`. The file only ever grows, except that opening cuts
off a torn last line, and that a purge writes the file anew. After a failed write or sync nobody knows what is on the
disk, so nothing more is written until the journal has been opened, and read, again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from a3s_actors.actor import LeaseHeld, hold_file_lock
from a3s_actors.actor.events import warn
from a3s_actors.memory.errors import Persistence, RepositoryLocked
from a3s_backends.journal.reading import JournalReader

__all__ = ["JOURNAL_NAME", "LOCK_NAME", "JournalFile", "Sync"]

JOURNAL_NAME: Final = "memory-v2.journal"
LOCK_NAME: Final = "memory-v2.lock"
NEW_NAME: Final = "memory-v2.journal.new"

Sync = Callable[[int], object]
"""Makes what was written to a file descriptor durable, or raises OSError; by default `os.fsync`."""


class JournalFile:
    """An owned, open journal. Synchronous; used by one thread at a time. Made by `open`."""

    def __init__(self, descriptor: int, directory: Path, name: str, sync: Sync, owned: ExitStack) -> None:
        self._descriptor = descriptor
        self._directory = directory
        self._name = name
        self._sync = sync
        self._owned = owned
        self._length = 0
        self._broken = False

    @classmethod
    def open(cls, directory: Path, sync: Sync, replay: Callable[[JournalReader], object]) -> JournalFile:
        """Take a journal into possession, making it when missing, and read it.

        Args:
            directory: its folder; made with mode 0700 when missing, with its parents.
            sync: see `Sync`.
            replay: is given the reader and exhausts it.

        Raises:
            RepositoryLocked: it has an owner, in this or another process.
            Persistence: folder, lock or journal cannot be opened or made, or is of the wrong sort.
            BaseException: what `replay` raises. Then the file is as it was, and has no owner.
        """
        with ExitStack() as owned:
            with _storage_errors("open", str(directory)):
                _make_directory(directory, sync)
            with _storage_errors("open", LOCK_NAME):
                owned.enter_context(hold_file_lock(directory / LOCK_NAME))
            with _storage_errors("open", JOURNAL_NAME):
                # What a rewriting left that was killed before its end; it never counted.
                (directory / NEW_NAME).unlink(missing_ok=True)
                descriptor = _open_regular(directory / JOURNAL_NAME, owned)
                # The owner before may have been killed between a write and its sync. What is read below is
                # served, so it has to be durable.
                sync(descriptor)
                _sync_directory(directory, sync)
                # After a failed sync the kernel may hold pages as clean that never reached the disk. Dropped,
                # they are read from the disk.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            file = cls(descriptor, directory, JOURNAL_NAME, sync, owned)
            with JournalReader(_reading(descriptor), JOURNAL_NAME) as reader:
                replay(reader)
            file._length = reader.end
            if reader.torn_tail is not None:
                file._cut(reader.end)
                warn(
                    "a3s_backends.journal",
                    "journal_torn_line_cut",
                    offset=reader.torn_tail.offset,
                    size=reader.torn_tail.size,
                )
            file._owned = owned.pop_all()
            return file

    def append(self, data: bytes) -> None:
        """Write whole lines to the end and make them durable.

        Raises:
            Persistence: it failed, or an earlier call did; some of the lines may be stored all the same.
        """
        self.check_usable()
        try:
            with _storage_errors("write", self._name):
                self._check_untouched()
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
                self._sync(self._descriptor)
        except BaseException:
            self._broken = True
            raise
        self._length += len(data)

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the whole content by other lines, atomically and durably.

        They are written to a file beside the journal, which then takes its name; at any moment the name stands for
        the old content or the new one.

        Raises:
            Persistence: it failed, or an earlier call did; which of the two is stored is not known.
        """
        self.check_usable()
        building = self._directory / NEW_NAME
        try:
            with _storage_errors("rewrite", self._name):
                self._check_untouched()
                descriptor = os.open(building, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
                self._owned.callback(os.close, descriptor)
                with os.fdopen(descriptor, "wb", closefd=False) as stream:
                    for line in lines:
                        stream.write(line)
                self._sync(descriptor)
                building.rename(self._directory / JOURNAL_NAME)
                _sync_directory(self._directory, self._sync)
        except BaseException:
            self._broken = True
            building.unlink(missing_ok=True)
            raise
        self._descriptor = descriptor
        self._length = os.fstat(descriptor).st_size

    def check_usable(self) -> None:
        """Refuse when an earlier append failed.

        Raises:
            Persistence: it did.
        """
        if self._broken:
            raise Persistence(
                "write", f"{self._name}: an earlier write failed; close the repository and open it again, then retry"
            )

    def close(self) -> None:
        """Close the file and give up its ownership. Idempotent."""
        self._owned.close()

    def _check_untouched(self) -> None:
        status = os.fstat(self._descriptor)
        if status.st_nlink == 0:
            raise Persistence("write", f"{self._name}: the file was removed or replaced while it was open")
        if status.st_size != self._length:
            raise Persistence("write", f"{self._name}: somebody else changed the file while it was open")

    def _cut(self, length: int) -> None:
        with _storage_errors("open", self._name):
            os.ftruncate(self._descriptor, length)
            self._sync(self._descriptor)


@contextlib.contextmanager
def _storage_errors(operation: str, name: str) -> Iterator[None]:
    try:
        yield
    except LeaseHeld as error:
        raise RepositoryLocked(
            operation, f"{name} is held by another owner; a journal has one at a time, close the other first"
        ) from error
    except OSError as error:
        raise Persistence(operation, f"{name}: {error.strerror}") from error


def _make_directory(directory: Path, sync: Sync) -> None:
    if directory.is_dir():
        return
    if directory.exists():
        raise Persistence("open", f"{directory}: is no folder; name the folder that holds the journal")
    if not directory.parent.is_dir():
        _make_directory(directory.parent, sync)
    directory.mkdir(mode=0o700, exist_ok=True)
    _sync_directory(directory.parent, sync)


def _sync_directory(directory: Path, sync: Sync) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _open_regular(path: Path, owned: ExitStack) -> int:
    # O_NONBLOCK: a pipe or device in the file's place must not hold up the opening.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    owned.callback(os.close, descriptor)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise Persistence("open", f"{path.name}: is no regular file")
    return descriptor


def _reading(descriptor: int) -> BinaryIO:
    return os.fdopen(descriptor, "rb", closefd=False)
