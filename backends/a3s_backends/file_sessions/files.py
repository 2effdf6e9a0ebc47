"""How session files are replaced. Synchronous: for worker threads; several may be at it at once.

A session has up to three files: `NAME.session`, the one that counts, `NAME.previous`, the one before it, and
`NAME.marks`. A save writes and syncs a new file under a name of its own; then, alone in the folder, it compares the
generation, gives the current file its second name, lets the new file take the first, and syncs the folder. At every
moment `NAME.session` is a whole file, the old one or the new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from a3s_actors.agent.errors import (
    SessionNotFound,
    SessionStoreConflict,
    SessionStoreCorrupt,
    SessionStoreUnavailable,
)
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, StoredSession
from a3s_backends.file_sessions.disk import (
    FileOperations,
    aside,
    file_errors,
    folder_lock,
    make_folder,
    new_file,
    open_regular,
    remove_leftovers,
    sync_folder,
    write_all,
)
from a3s_backends.file_sessions.format import Header, mark_line, whole_lines
from a3s_backends.file_sessions.known import KnownFiles
from a3s_backends.file_sessions.reading import (
    SessionPaths,
    decode,
    identity_of,
    list_sessions,
    load_session,
    read_at,
    read_whole,
)
from a3s_backends.in_memory_sessions.checks import snapshot_body

__all__ = ["SessionFiles"]


class SessionFiles:
    """The session files of one folder.

    Args:
        folder: an absolute path; see `prepare`.
        system: the system calls that change it.
        check: called while a call waits for the folder, before it has changed anything; what it raises ends the call.
    """

    def __init__(self, folder: Path, system: FileOperations, check: Callable[[], None] | None = None) -> None:
        self.folder = folder
        self._system = system
        self._check = check
        self._known = KnownFiles()

    def prepare(self) -> None:
        """Make the folder when it is missing, and remove what killed processes were writing."""
        with file_errors("open"):
            make_folder(self.folder, self._system)
            # A folder that is read-only, or in use all the time, is left as it is.
            with contextlib.suppress(OSError, SessionStoreUnavailable), self._alone("open"):
                remove_leftovers(self.folder, self._system)

    def _alone(self, operation: str) -> AbstractContextManager[None]:
        return folder_lock(self.folder, operation, self._check)

    def list(self) -> tuple[str, ...]:
        """See `SessionStore.list`."""
        with file_errors("list"):
            return list_sessions(self.folder)

    def load(self, session_id: str) -> StoredSession:
        """See `SessionStore.load`."""
        paths = SessionPaths.of(self.folder, session_id)
        with file_errors("load"):
            stored, header, identity = load_session(paths)
        self._known.saw(paths, identity, header)
        return stored

    # -- saving --------------------------------------------------------------------------------------------------------

    def save(self, snapshot: SessionSnapshot) -> None:
        """See `SessionStore.save`."""
        paths = SessionPaths.of(self.folder, snapshot.session_id)
        body = snapshot_body(snapshot)
        with file_errors("save"):
            self._check_replaceable(paths, snapshot)
            header = Header.of(snapshot.session_id, snapshot.generation, body)
            with (
                new_file(self.folder, paths.name, (header.line, body), self._system) as (new, descriptor),
                self._alone("save"),
            ):
                self._replace(paths, new, self._check_replaceable(paths, snapshot))
                self._clear_marks(paths)
                self._known.saw(paths, identity_of(descriptor), header, durable=True)

    def _check_replaceable(self, paths: SessionPaths, snapshot: SessionSnapshot) -> Header | None:
        # Checked whole: a damaged file must not take the place of the previous one.
        stored = self._known.stored(paths, whole=True)
        actual = 0 if stored is None else stored.generation
        if actual != snapshot.generation - 1:
            raise SessionStoreConflict(snapshot.session_id, snapshot.generation - 1, actual)
        return stored

    def _replace(self, paths: SessionPaths, new: Path, stored: Header | None) -> None:
        if stored is None:
            self._unlink(paths.marks)  # of a session that was not wholly deleted
        else:
            self._link(paths, paths.current, paths.previous)
        try:
            self._system.rename(new, paths.current)
            sync_folder(self.folder, self._system)
        except OSError:
            # It must not count, so that the same save can be done again.
            with contextlib.suppress(OSError):
                if stored is None:
                    self._unlink(paths.current)
                else:
                    self._link(paths, paths.previous, paths.current)
            raise

    def _link(self, paths: SessionPaths, source: Path, target: Path) -> None:
        """Give a file a second name, which may be another file's until then."""
        between = aside(self.folder, paths.name, "old")
        try:
            self._system.link(source, between)
            self._system.rename(between, target)
        finally:
            # Renaming does nothing where both names are the same file's already.
            self._unlink(between)

    def _unlink(self, path: Path) -> bool:
        try:
            self._system.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def _clear_marks(self, paths: SessionPaths) -> None:
        # Marks of the snapshot before are ignored from now on, so this need not be durable and may fail. The file
        # stays: the next mark then needs no sync of the folder.
        with contextlib.suppress(OSError):
            descriptor = os.open(paths.marks, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                self._system.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)

    # -- marks ---------------------------------------------------------------------------------------------------------

    def mark(self, session_id: str, generation: int, mark: RunMark) -> None:
        """See `SessionStore.mark`."""
        paths = SessionPaths.of(self.folder, session_id)
        with file_errors("mark"), self._alone("mark"):
            stored = self._known.stored(paths, whole=False)
            actual = 0 if stored is None else stored.generation
            if stored is None or actual != generation:
                raise SessionStoreConflict(session_id, generation, actual)
            known = self._known.get(paths)
            named = known is not None and known.durable and paths.marks.exists()
            descriptor = open_regular(paths.marks, write=True)
            try:
                self._append(descriptor, stored, mark)
            finally:
                os.close(descriptor)
            if not named:
                sync_folder(self.folder, self._system)
                if known is not None and known.header == stored:
                    known.durable = True

    def _append(self, descriptor: int, header: Header, mark: RunMark) -> None:
        size = os.fstat(descriptor).st_size
        if size and read_at(descriptor, size - 1, 1) != b"\n":
            size = whole_lines(read_at(descriptor, 0, size), header.session_id)
            self._system.ftruncate(descriptor, size)
        os.lseek(descriptor, size, os.SEEK_SET)
        try:
            write_all(descriptor, mark_line(header, mark, size), self._system)
            self._system.fdatasync(descriptor)
        except BaseException:
            # After a failed sync nobody knows what is on the disk: the next mark must not follow it.
            with contextlib.suppress(OSError):
                self._system.ftruncate(descriptor, size)
            raise

    # -- the end, and the way back -------------------------------------------------------------------------------------

    def delete(self, session_id: str) -> bool:
        """See `SessionStore.delete`."""
        paths = SessionPaths.of(self.folder, session_id)
        with file_errors("delete"), self._alone("delete"):
            self._known.forget(paths)
            # In this order a killed process leaves the session, or marks that belong to none.
            found = [self._unlink(path) for path in (paths.previous, paths.current, paths.marks)]
            remove_leftovers(self.folder, self._system, paths.name)
            if any(found):
                sync_folder(self.folder, self._system)
            return found[0] or found[1]

    def restore_previous(self, session_id: str) -> int:
        """See `FileSessionStore.restore_previous`."""
        paths = SessionPaths.of(self.folder, session_id)
        with file_errors("restore"), self._alone("restore"):
            self._known.forget(paths)
            current = _whole_file(paths, paths.current)
            if current is not None:
                self._drop_damaged_marks(paths)
                return current.generation
            previous = _whole_file(paths, paths.previous)
            if previous is None:
                if paths.current.exists() or paths.previous.exists():
                    raise SessionStoreCorrupt(session_id, "the file before it is damaged or missing, too")
                raise SessionNotFound(session_id)
            self._link(paths, paths.previous, paths.current)
            sync_folder(self.folder, self._system)
            return previous.generation

    def _drop_damaged_marks(self, paths: SessionPaths) -> None:
        try:
            load_session(paths)
        except SessionStoreCorrupt:
            self._unlink(paths.marks)
            sync_folder(self.folder, self._system)


def _whole_file(paths: SessionPaths, path: Path) -> Header | None:
    """Return the header of a file that is there and whole."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return None
    try:
        header, body = read_whole(descriptor, paths)
        decode(header, body)
    except SessionStoreCorrupt:
        return None
    finally:
        os.close(descriptor)
    return header
