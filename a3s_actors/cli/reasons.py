"""The texts of `--because`: kept beside the repository, in a file of their own.

A repository holds references and digests, never the sources. The text of a reason is a source; for decisions made
at the command line this file is where it stays, so that `show` and `history` can tell it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw

from a3s_actors.memory.codec import namespace_json, string_json
from a3s_actors.memory.errors import InvalidInput, Persistence
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import EvidenceKind, EvidenceRef, MemoryNamespace

__all__ = ["ReasonStore"]

_PREFIX = "a3s-actors://because/"
_MAX_BYTES = 64 * 1024


class ReasonStore:
    """The reasons that belong to one repository file. Synchronous; nothing is held open between calls.

    Args:
        repository: the repository's file; the reasons are in the file of that name with `.evidence.db` added.
    """

    def __init__(self, repository: Path) -> None:
        self.path = repository.with_name(repository.name + ".evidence.db")

    def keep(self, text: str, namespace: MemoryNamespace, key: str, at: Timestamp) -> EvidenceRef:
        """Store a reason, synced, and return the manual evidence that names it.

        The same text under the same idempotency key is the same reason, so that a repeated command is an exact
        replay.

        Raises:
            InvalidInput: the reason is blank, no Unicode text, or longer than 64 KiB.
            Persistence: the file cannot be written.
        """
        if not text.strip():
            raise InvalidInput("because", "must not be blank; say why")
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise InvalidInput("because", "is no Unicode text") from None
        if len(data) > _MAX_BYTES:
            raise InvalidInput("because", f"must be at most {_MAX_BYTES} bytes; refer to a document with --evidence")
        identity = f"{namespace_json(namespace)}{string_json(key)}{string_json(text)}".encode()
        uri = _PREFIX + hashlib.sha256(identity).hexdigest()[:32]
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        with self._open(create=True) as db:
            db.execute("INSERT OR IGNORE INTO reason(uri, text) VALUES (?, ?)", (uri, text))
        return EvidenceRef(uri=uri, digest=digest, kind=EvidenceKind.MANUAL, occurred_at=at)

    def forget(self, evidence: EvidenceRef) -> None:
        """Remove a reason whose decision was refused. Raises Persistence."""
        with self._open(create=True) as db:
            db.execute("DELETE FROM reason WHERE uri = ?", (evidence.uri,))

    def erase(self, uris: Iterable[str]) -> None:
        """Remove reasons to the last byte; those that are not there are passed over. Raises Persistence."""
        own = [uri for uri in uris if uri.startswith(_PREFIX)]
        if own and self.path.exists():
            with self._open(create=False) as db:
                db.executemany("DELETE FROM reason WHERE uri = ?", ((uri,) for uri in own))
                db.execute("VACUUM")

    def add_from(self, other: ReasonStore) -> bool:
        """Add the reasons of another repository's file; those that are here stay. Return whether there were any.

        Raises:
            Persistence: a file cannot be read or written.
        """
        if not other.path.exists():
            return False
        with other._open(create=False) as source:
            rows = source.execute("SELECT uri, text FROM reason").fetchall()
        with self._open(create=True) as db, db:
            db.executemany("INSERT OR IGNORE INTO reason(uri, text) VALUES (?, ?)", rows)
        return True

    def texts(self, evidence: Iterable[EvidenceRef]) -> dict[str, str]:
        """Return the texts that are known, by uri; also when the file is missing. Raises Persistence."""
        wanted = [item.uri for item in evidence if item.uri.startswith(_PREFIX)]
        if not wanted or not self.path.exists():
            return {}
        with self._open(create=False) as db:
            found: dict[str, str] = {}
            for uri in wanted:
                for (text,) in db.execute("SELECT text FROM reason WHERE uri = ?", (uri,)):
                    found[uri] = str(text)
            return found

    @contextlib.contextmanager
    def _open(self, *, create: bool) -> Iterator[apsw.Connection]:
        try:
            if create:
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                db.set_busy_timeout(10_000)
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA secure_delete = ON")
                db.execute("CREATE TABLE IF NOT EXISTS reason(uri TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT")
                yield db
            finally:
                db.close()
        except (apsw.Error, OSError) as error:
            raise Persistence("reasons", f"{self.path.name}: {error}") from error
