"""How sessions are read and replaced in SQLite. Synchronous: for a worker thread; one transaction a call."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw

from a3s_actors.agent.errors import (
    SessionNotFound,
    SessionStoreConflict,
    SessionStoreCorrupt,
    SessionStoreUnavailable,
)
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, StoredSession
from a3s_actors.memory.errors import Corruption, Persistence, RepositoryLocked
from a3s_backends.in_memory_sessions.checks import snapshot_body, store_closed
from a3s_backends.in_memory_sessions.marks import mark_json, read_mark
from a3s_backends.sqlite.connection import connect, patience, storage_errors
from a3s_backends.sqlite_sessions.schema import SCHEMA_VERSION, check_is_session_file, create_if_missing, migrate

__all__ = ["SessionDatabase"]

_CHECKPOINT_PAGES: Final = 512
"""The log's size (16 MiB) at which it is copied to the file: a dozen saves of a long conversation."""
_ERASE_SECONDS: Final = 0.25
"""How long a delete waits for readers, so that the log can be emptied."""


@contextlib.contextmanager
def _store_errors(operation: str, name: str) -> Iterator[None]:
    try:
        with storage_errors(operation):
            yield
    except Corruption as error:
        raise SessionStoreCorrupt(name, error.message) from error
    except (Persistence, RepositoryLocked) as error:
        raise SessionStoreUnavailable(operation, error.message) from error


class SessionDatabase:
    """One open session file. Made by `open`. One thread at a time is in it; others wait.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, db: apsw.Connection) -> None:
        self.path = path
        self._db = db
        self._turn = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, path: Path) -> SessionDatabase:
        """Open a session file, making it when it is missing.

        Raises:
            SessionStoreUnavailable: it cannot be opened or made, or is no session file.
            SessionStoreCorrupt: it is damaged, or no SQLite file.
        """
        with _store_errors("open", path.name):
            create_if_missing(path)
            db = connect(path)
            try:
                _take_into_use(db)
            except BaseException:
                db.close()
                raise
            return cls(path, db)

    def close(self) -> None:
        """Close the file, after the call that is in it. Idempotent."""
        with self._turn:
            if not self._closed:
                self._closed = True
                with _store_errors("close", self.path.name):
                    self._db.close()

    @contextlib.contextmanager
    def _transaction(self, operation: str, name: str, how: str) -> Iterator[apsw.Connection]:
        with self._turn:
            if self._closed:
                raise store_closed(operation)
            db = self._db
            with _store_errors(operation, name):
                db.execute(f"BEGIN {how}")
                try:
                    yield db
                    db.execute("COMMIT")
                finally:
                    # After a full disk or an I/O error SQLite has rolled back by itself.
                    if db.in_transaction:
                        # If even this fails, the next BEGIN says so.
                        with contextlib.suppress(apsw.Error):
                            db.execute("ROLLBACK")

    def save(self, snapshot: SessionSnapshot) -> None:
        """See `SessionStore.save`."""
        session_id, generation = snapshot.session_id, snapshot.generation
        body = snapshot_body(snapshot)
        digest = hashlib.sha256(body).digest()
        with self._transaction("save", session_id, "IMMEDIATE") as db:
            found = _find(db, session_id)
            actual = 0 if found is None else found[1]
            if actual != generation - 1:
                raise SessionStoreConflict(session_id, generation - 1, actual)
            if found is None:
                insert = "INSERT INTO session(id, generation, digest, body) VALUES (?, ?, ?, ?)"
                db.execute(insert, (session_id, generation, digest, body))
            else:
                update = "UPDATE session SET generation = ?, digest = ?, body = ? WHERE no = ?"
                db.execute(update, (generation, digest, body, found[0]))
                db.execute("DELETE FROM mark WHERE session = ?", (found[0],))

    def mark(self, session_id: str, generation: int, mark: RunMark) -> None:
        """See `SessionStore.mark`."""
        with self._transaction("mark", session_id, "IMMEDIATE") as db:
            found = _find(db, session_id)
            actual = 0 if found is None else found[1]
            if found is None or actual != generation:
                raise SessionStoreConflict(session_id, generation, actual)
            last: int | None = db.execute("SELECT max(place) FROM mark WHERE session = ?", (found[0],)).get
            place = (last or 0) + 1
            data = mark_json(mark)
            digest = _mark_digest(session_id, generation, place, data)
            insert = "INSERT INTO mark(session, place, digest, json) VALUES (?, ?, ?, ?)"
            db.execute(insert, (found[0], place, digest, data))

    def load(self, session_id: str) -> StoredSession:
        """See `SessionStore.load`."""
        with self._transaction("load", session_id, "DEFERRED") as db:
            row: Any = db.execute(
                "SELECT no, generation, digest, body FROM session WHERE id = ?", (session_id,)
            ).fetchone()
            if row is None:
                raise SessionNotFound(session_id)
            no, generation, digest, body = row
            query = "SELECT place, digest, json FROM mark WHERE session = ? ORDER BY place"
            marks: list[Any] = db.execute(query, (no,)).fetchall()
        if hashlib.sha256(body).digest() != digest:
            raise SessionStoreCorrupt(session_id, "the stored bytes are not those that were written")
        snapshot = SessionSnapshot.from_json(body, session_id)
        if snapshot.generation != generation:
            raise SessionStoreCorrupt(session_id, "the row and the snapshot name different generations")
        for number, (place, mark_digest, data) in enumerate(marks, 1):
            if place != number or mark_digest != _mark_digest(session_id, generation, place, data):
                raise SessionStoreCorrupt(session_id, f"mark {number} is not what was written")
        return StoredSession(snapshot=snapshot, marks=tuple(read_mark(data, session_id) for _, _, data in marks))

    def delete(self, session_id: str) -> bool:
        """See `SessionStore.delete`."""
        with self._transaction("delete", session_id, "IMMEDIATE") as db:
            found = _find(db, session_id)
            if found is None:
                return False
            db.execute("DELETE FROM mark WHERE session = ?", (found[0],))
            db.execute("DELETE FROM session WHERE no = ?", (found[0],))
        self._empty_log()
        return True

    def _empty_log(self) -> None:
        # The session is gone. What is left of it in the log goes now, or, where others read, when SQLite starts the
        # log anew.
        with self._turn, contextlib.suppress(apsw.Error), patience(self._db, _ERASE_SECONDS):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def list(self) -> tuple[str, ...]:
        """See `SessionStore.list`."""
        with self._transaction("list", self.path.name, "DEFERRED") as db:
            rows: list[Any] = db.execute("SELECT id FROM session").fetchall()
        return tuple(sorted(session_id for (session_id,) in rows))


def _find(db: apsw.Connection, session_id: str) -> tuple[int, int] | None:
    """Return a session's number and generation."""
    found: tuple[int, int] | None = db.execute(
        "SELECT no, generation FROM session WHERE id = ?", (session_id,)
    ).fetchone()
    return found


def _mark_digest(session_id: str, generation: int, place: int, data: bytes) -> bytes:
    return hashlib.sha256(b"%b\0%d %d %b" % (session_id.encode(), generation, place, data)).digest()


def _take_into_use(db: apsw.Connection) -> None:
    version = check_is_session_file(db)
    if db.execute("PRAGMA journal_mode = WAL").get != "wal":
        raise Persistence("open", "the file system allows no write-ahead log; use a local disk")
    db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}").fetchall()
    if version < SCHEMA_VERSION:
        # Another process may be faster: `migrate` looks again inside the transaction.
        db.execute("BEGIN IMMEDIATE")
        try:
            migrate(db)
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
