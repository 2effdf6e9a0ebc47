"""How session files are found and read. Synchronous; changes nothing on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import attrs

from a3s_actors.agent.errors import SessionNotFound, SessionStoreCorrupt, SessionStoreUnavailable
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import StoredSession
from a3s_backends.file_sessions.disk import open_regular
from a3s_backends.file_sessions.format import MAX_HEADER_BYTES, Header, marks_of, read_header, session_name

__all__ = ["Identity", "SessionPaths", "identity_of", "list_sessions", "load_session", "read_at", "read_whole"]

_ENDING: Final = ".session"
_TRIES: Final = 100

Identity = tuple[int, int, int, int, int]
"""What tells an unchanged file from any other: device, number, size and times."""


@attrs.frozen
class SessionPaths:
    """Where a session's files are.

    Attributes:
        folder: the store's.
        name: what the files are called, without their endings.
        session_id: whose; None where only the name is known.
    """

    folder: Path
    name: str
    session_id: str | None

    @classmethod
    def of(cls, folder: Path, session_id: str) -> SessionPaths:
        """Return a session's paths."""
        return cls(folder, session_name(session_id), session_id)

    @property
    def current(self) -> Path:
        """The file that counts."""
        return self.folder / f"{self.name}{_ENDING}"

    @property
    def previous(self) -> Path:
        """The one before it."""
        return self.folder / f"{self.name}.previous"

    @property
    def marks(self) -> Path:
        """The marks."""
        return self.folder / f"{self.name}.marks"


def identity_of(descriptor: int) -> Identity:
    """Return what tells an open file from any other, and from itself when it is changed."""
    return _identity(os.fstat(descriptor))


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_at(descriptor: int, place: int, size: int) -> bytes:
    """Read `size` bytes at a place, fewer only where the file ends."""
    data = os.pread(descriptor, size, place)
    if len(data) == size or not data:
        return data
    parts = [data]
    read = len(data)
    while read < size and (data := os.pread(descriptor, size - read, place + read)):
        parts.append(data)
        read += len(data)
    return b"".join(parts)


def read_start(descriptor: int, paths: SessionPaths) -> Header:
    """Read an open session file's header.

    Raises:
        SessionStoreCorrupt: it is not what was written.
    """
    return read_header(read_at(descriptor, 0, MAX_HEADER_BYTES), paths.name, paths.session_id)


def read_whole(descriptor: int, paths: SessionPaths) -> tuple[Header, bytes]:
    """Read an open session file and check its body's digest.

    Raises:
        SessionStoreCorrupt: it is not what was written.
    """
    header = read_start(descriptor, paths)
    place = len(header.line)
    body = read_at(descriptor, place, max(os.fstat(descriptor).st_size - place, 0))
    header.check_body(body)
    return header, body


def decode(header: Header, body: bytes) -> SessionSnapshot:
    """Return the snapshot of a checked body.

    Raises:
        SessionStoreCorrupt: it is none, or not the header's.
    """
    snapshot = SessionSnapshot.from_json(body, header.session_id)
    if snapshot.generation != header.generation:
        raise SessionStoreCorrupt(header.session_id, "the header and the snapshot name different generations")
    return snapshot


def is_missing(paths: SessionPaths) -> bool:
    """Return whether there is no session, after its file was not found; False when it has just come.

    Raises:
        SessionStoreCorrupt: its file has been taken away.
        OSError: the folder cannot be read.
    """
    os.stat(paths.folder)  # noqa: PTH116 - raises when the folder is gone
    if paths.current.exists():
        return False
    if paths.previous.exists():
        raise SessionStoreCorrupt(paths.session_id or paths.name, "its file is missing; the one before is there")
    return True


def load_session(paths: SessionPaths) -> tuple[StoredSession, Header, Identity]:
    """Read a session and its marks as they are at one moment. Takes no lock, so that it never waits.

    Raises:
        SessionNotFound: there is none.
        SessionStoreCorrupt: a file is not what was written.
        SessionStoreUnavailable: it is replaced all the time.
        OSError: a file cannot be read.
    """
    assert paths.session_id is not None
    for _ in range(_TRIES):
        try:
            descriptor = open_regular(paths.current)
        except FileNotFoundError:
            if is_missing(paths):
                raise SessionNotFound(paths.session_id) from None
            continue
        try:
            found = identity_of(descriptor)
            damage: SessionStoreCorrupt | None = None
            try:
                header, body = read_whole(descriptor, paths)
                marks = marks_of(header, _read_marks(paths))
            except SessionStoreCorrupt as error:
                damage = error
            if not _is_at(paths.current, descriptor):
                continue  # replaced meanwhile, and its marks with it
            if damage is not None:
                raise damage
        finally:
            os.close(descriptor)
        return StoredSession(snapshot=decode(header, body), marks=marks), header, found
    raise SessionStoreUnavailable("load", "the session is saved again and again meanwhile; try again")


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)


def _read_marks(paths: SessionPaths) -> bytes:
    try:
        descriptor = open_regular(paths.marks)
    except FileNotFoundError:
        return b""
    try:
        return read_at(descriptor, 0, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def list_sessions(folder: Path) -> tuple[str, ...]:
    """Return the ids of a folder's sessions, sorted. Reads headers only.

    Raises:
        SessionStoreCorrupt: a header is not what was written; where the id is not known, the error has the file's name.
        OSError: the folder or a file cannot be read.
    """
    with os.scandir(folder) as entries:
        names = [entry.name.removesuffix(_ENDING) for entry in entries if entry.name.endswith(_ENDING)]
    ids = (_id_of(SessionPaths(folder, name, None)) for name in names)
    return tuple(sorted(each for each in ids if each is not None))


def _id_of(paths: SessionPaths) -> str | None:
    try:
        descriptor = open_regular(paths.current)
    except FileNotFoundError:
        return None  # deleted meanwhile
    try:
        return read_start(descriptor, paths).session_id
    finally:
        os.close(descriptor)
