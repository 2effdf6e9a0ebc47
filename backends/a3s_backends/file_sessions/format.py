"""What the files of a session say. Pure: bytes to values and back.

A session file is one header line and the body, the JSON of the snapshot:

    SEAL {"schema":"a3s.session-file.v1","sessionId":…,"generation":…,"bytes":…,"sha256":…}
    {"schema":"a3s.code.session.v1",…

SEAL is the hex SHA-256 of the rest of the header line; bytes and sha256 are the body's.

A marks file is lines that only ever grow in number until a save empties it:

    SEAL GENERATION SNAPSHOT MARK

SEAL is the hex SHA-256 of the line's place in the file (its byte offset) and the rest of the line, SNAPSHOT the
beginning of the SEAL of the snapshot that the mark belongs to, MARK its JSON. So a line that is lost, moved or altered
shows. A last line without its newline was being written when its process or the power ended: it was never acknowledged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import attrs
import msgspec

from a3s_actors.agent.errors import SessionStoreCorrupt
from a3s_actors.agent.store import RunMark
from a3s_backends.in_memory_sessions.checks import MAX_GENERATION
from a3s_backends.in_memory_sessions.marks import mark_json, read_mark

__all__ = [
    "FILE_SCHEMA",
    "MAX_HEADER_BYTES",
    "Header",
    "mark_line",
    "marks_of",
    "read_header",
    "session_name",
    "whole_lines",
]

FILE_SCHEMA: Final = "a3s.session-file.v1"
MAX_HEADER_BYTES: Final = 4096
"""More than a header with the longest session id, every character of it escaped, can have."""
_SEAL: Final = 64
_SNAPSHOT: Final = 16


def session_name(session_id: str) -> str:
    """Return what a session's files are called: a digest, so that no id can name another's file or leave the folder."""
    return hashlib.sha256(session_id.encode()).hexdigest()


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    sessionId: str  # noqa: N815 - the JSON's name
    generation: int
    bytes: int
    sha256: str


_decoder: Final = msgspec.json.Decoder(_Header)


@attrs.frozen
class Header:
    """The header of a session file.

    Attributes:
        session_id, generation: of the snapshot.
        size: the body's bytes.
        digest: the body's SHA-256, hex.
        line: the header as it stands in the file, its newline included.
    """

    session_id: str
    generation: int
    size: int
    digest: str
    line: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, session_id: str, generation: int, body: bytes) -> Header:
        """Return the header of a body."""
        digest = hashlib.sha256(body).hexdigest()
        rest = msgspec.json.encode(_Header(FILE_SCHEMA, session_id, generation, len(body), digest))
        line = b"%b %b\n" % (hashlib.sha256(rest).hexdigest().encode(), rest)
        return cls(session_id, generation, len(body), digest, line)

    @property
    def snapshot(self) -> bytes:
        """What marks call this snapshot."""
        return self.line[:_SNAPSHOT]

    def check_body(self, body: bytes) -> None:
        """Refuse a body that is not the header's.

        Raises:
            SessionStoreCorrupt: it is not.
        """
        if len(body) != self.size:
            raise SessionStoreCorrupt(
                self.session_id, f"the file has {len(body)} of {self.size} bytes after its header"
            )
        if hashlib.sha256(body).hexdigest() != self.digest:
            raise SessionStoreCorrupt(self.session_id, "the bytes after the header are not those that were written")


def read_header(start: bytes, name: str, session_id: str | None) -> Header:
    """Read the header at the beginning of a file.

    Args:
        start: the file's first bytes, up to `MAX_HEADER_BYTES`.
        name: what the file is called, without its ending.
        session_id: whose it should be, for errors; None where only the name is known.

    Raises:
        SessionStoreCorrupt: it is no header, an altered one, or of a session that the file is not called after.
    """
    known = session_id or name
    line = start[: start.find(b"\n") + 1]
    seal, rest = line[:_SEAL], line[_SEAL + 1 : -1]
    if line[_SEAL : _SEAL + 1] != b" " or hashlib.sha256(rest).hexdigest().encode() != seal:
        raise SessionStoreCorrupt(known, "its header is not what was written")
    try:
        stored = _decoder.decode(rest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SessionStoreCorrupt(known, "its header is malformed") from None
    if stored.schema != FILE_SCHEMA:
        raise SessionStoreCorrupt(known, f"the file's schema is not {FILE_SCHEMA}")
    if session_name(stored.sessionId) != name:
        raise SessionStoreCorrupt(known, "the file holds another session")
    if not 1 <= stored.generation <= MAX_GENERATION:
        raise SessionStoreCorrupt(known, "its generation is out of range")
    return Header(stored.sessionId, stored.generation, stored.bytes, stored.sha256, line)


def mark_line(header: Header, mark: RunMark, place: int) -> bytes:
    """Return the line of a mark of a snapshot.

    Args:
        header: the snapshot's.
        mark: what to keep.
        place: the byte offset at which the line will stand.
    """
    rest = b"%d %b %b" % (header.generation, header.snapshot, mark_json(mark))
    return b"%b %b\n" % (_seal_at(place, rest), rest)


def _seal_at(place: int, rest: bytes) -> bytes:
    return hashlib.sha256(b"%d %b" % (place, rest)).hexdigest().encode()


def whole_lines(data: bytes, session_id: str) -> int:
    """Return how many bytes of a marks file are whole lines; what follows is a torn line.

    Raises:
        SessionStoreCorrupt: what follows is a whole line whose end was altered.
    """
    end = data.rfind(b"\n") + 1
    tail = data[end:]
    if len(tail) > _SEAL and tail[:_SEAL] == _seal_at(end, tail[_SEAL + 1 : -1]):
        raise SessionStoreCorrupt(session_id, "the end of the last mark is not what was written")
    return end


def marks_of(header: Header, data: bytes) -> tuple[RunMark, ...]:
    """Return the marks of a snapshot in a marks file; those of other snapshots are checked and left out.

    Raises:
        SessionStoreCorrupt: a line is not what was written.
    """
    return tuple(_marks(header, data))


def _marks(header: Header, data: bytes) -> Iterator[RunMark]:
    wanted = b"%d %b " % (header.generation, header.snapshot)
    end = whole_lines(data, header.session_id)
    place = 0
    while place < end:
        line = data[place : data.index(b"\n", place)]
        rest = line[_SEAL + 1 :]
        if line[_SEAL : _SEAL + 1] != b" " or line[:_SEAL] != _seal_at(place, rest):
            raise SessionStoreCorrupt(header.session_id, f"the mark at byte {place} is not what was written")
        if rest.startswith(wanted):
            yield read_mark(rest[len(wanted) :], header.session_id)
        place += len(line) + 1
