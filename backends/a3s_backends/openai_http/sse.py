"""Server-sent events: bytes in, the data of whole events out. Does no I/O and holds no more than one event.

Written here, as httpx-sse reads text with damage replaced, and has no bound on a line. Whoever feeds the parser counts.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SseParser"]

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class SseParser:
    """Takes a stream apart, however its bytes were cut. Only `data` counts: a chat completion has no other field."""

    def __init__(self) -> None:
        self._line = bytearray()  # what is there of a line that has not ended
        self._data: list[bytes] = []  # the data lines of an event that has not ended
        self._first = True
        self._after_cr = False  # a line feed that comes now belongs to the carriage return before it

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the data of the events that end in them, as the server encoded it."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        self._after_cr = self._after_cr or data.endswith(b"\r")
        *ended, rest = _LINE_END.split(data)
        events: list[bytes] = []
        for line in ended:
            self._line += line
            self._take_line(events)
        self._line += rest
        return events

    def finish(self) -> list[bytes]:
        """Take the end; return the last event where no empty line ended it, as some servers leave it out."""
        events: list[bytes] = []
        if self._line:
            self._take_line(events)
        self._end_event(events)
        return events

    def _take_line(self, events: list[bytes]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            self._end_event(events)
            return
        name, _, value = line.partition(b":")  # a comment has an empty name
        if name == b"data":
            self._data.append(value.removeprefix(b" "))

    def _end_event(self, events: list[bytes]) -> None:
        data = b"\n".join(self._data)
        self._data.clear()
        if data:
            events.append(data)
