"""Reading a file of lines, strictly: each line is a record's one canonical line, or the file is damaged.

Only what follows the last newline is not damage: a line whose writing was cut short was never acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final, Self

import attrs

from a3s_actors.memory.errors import Corruption, Persistence
from a3s_backends.journal.base import MAX_BASE_LINE_BYTES, BaseRecord
from a3s_backends.journal.format import MAX_LINE_BYTES, JournalRecord, LineDamaged, parse_line

__all__ = ["JournalReader", "TornTail", "read_journal"]

_CHUNK: Final = 1024 * 1024
_BASE_START: Final = b'{"version":2,'


@attrs.frozen
class TornTail:
    """What follows the last newline: a line that was being written.

    Attributes:
        offset: where it begins, in bytes from the start of the file.
        size: how many bytes it has.
    """

    offset: int
    size: int


class JournalReader(Iterator[JournalRecord | BaseRecord]):
    """An iterator over a journal's records, oldest first. Made by `read_journal`.

    A journal that was rewritten by a purge begins with the `BaseRecord`s of its base state.

    It closes its file at the end, at an error, and at the end of a `with` block.

    Attributes:
        line: the number of the line read last, from 1.
        offset: where that line begins, in bytes.
        end: where it ends: the length of all whole lines so far.
        torn_tail: what follows the last newline; None before the end is reached, and when there is nothing.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.line = 0
        self.offset = 0
        self.end = 0
        self.torn_tail: TornTail | None = None
        self._file = file
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def __next__(self) -> JournalRecord | BaseRecord:
        """Return the next record.

        Raises:
            Corruption: the line is damaged; byte offset and line number are named.
            Persistence: the file cannot be read.
        """
        if self._file.closed:
            raise StopIteration
        try:
            line = self._next_line()
            return parse_line(line)
        except LineDamaged as error:
            self.close()
            raise self.damaged(str(error)) from None
        except BaseException:
            self.close()
            raise

    def _next_line(self) -> bytes:
        data = self._read(MAX_LINE_BYTES)
        if data.startswith(_BASE_START) and not data.endswith(b"\n"):
            data += self._read(MAX_BASE_LINE_BYTES - len(data))
        size = len(data)
        self.line += 1
        self.offset = self.end
        if data.endswith(b"\n"):
            self.end += size
            return data
        while data and not data.endswith(b"\n"):
            data = self._read(_CHUNK)
            size += len(data)
        if data:
            raise LineDamaged("the line is longer than a record may be")
        if size:
            self.torn_tail = TornTail(self.offset, size)
        raise StopIteration

    def _read(self, limit: int) -> bytes:
        try:
            return self._file.readline(limit)
        except OSError as error:
            raise Persistence("read journal", f"{self._name}: {error.strerror}") from error

    def damaged(self, message: str) -> Corruption:
        """Return the error that says what is wrong with the line read last."""
        return Corruption(f"{self._name}, byte {self.offset}, line {self.line}", message)


def read_journal(path: str | PathLike[str]) -> JournalReader:
    """Read a journal file without a lock and without changing it.

    Each line is checked as at the opening of a repository; whether the records apply in their order shows when they
    are applied. A torn last line is reported by the reader's `torn_tail` and not cut off. While a repository
    has the file open, the last records read may not be synced yet.

    Synchronous: for a worker thread, where the file is large.

    Args:
        path: the journal file itself, as `…/memory-v2.journal`.

    Returns:
        An iterator of change sets and journal events; after a purge, with the base state before them.

    Raises:
        Persistence: the file cannot be opened.
    """
    file = Path(path)
    try:
        return JournalReader(file.open("rb"), file.name)
    except OSError as error:
        raise Persistence("read journal", f"{file.name}: {error.strerror}") from error
