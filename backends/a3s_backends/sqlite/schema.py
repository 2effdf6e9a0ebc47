"""The tables of a repository file, how a new file comes to be, and how an old one is brought up to date.

Layout. The truth is `head` (each node's current state) and `rev` (its earlier states), both as canonical
JSON with a keyed digest of the whole row. `tally` holds per namespace and status how many nodes there are,
their bytes and the sum of their row digests, changed in each commit: a lost or altered row shows. `change`
keeps what a replay needs, `access` the audit trail with counts in `usage`. The `lex_*` tables are a cache of
the texts' tokens and can be rebuilt at any time.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from a3s_actors.memory.errors import Corruption, Persistence
from a3s_actors.memory.lexical import fingerprint
from a3s_backends.sqlite import lexical_index
from a3s_backends.sqlite.connection import connect, storage_errors
from a3s_backends.sqlite.folder import building, check_no_log, sync_folder

__all__ = [
    "APPLICATION_ID",
    "PAGE_CHECKSUM_BYTES",
    "SCHEMA_VERSION",
    "create_if_missing",
    "migrate",
    "read_key",
    "read_meta",
    "schema_version",
]

APPLICATION_ID: Final = 0x61337361  # "a3sa"
SCHEMA_VERSION: Final = 2
PAGE_CHECKSUM_BYTES: Final = 8  # room at the end of each page; SQLite's checksum VFS wants exactly so many

_KEY_BYTES: Final = 32

_TABLES: Final = (
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE namespace(
        ns INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        principal TEXT NOT NULL,
        scope TEXT NOT NULL,
        token INTEGER NOT NULL,        -- change token: novel change sets so far
        UNIQUE(tenant, principal, scope)
    ) STRICT""",
    """CREATE TABLE tally(
        ns INTEGER NOT NULL,
        status INTEGER NOT NULL,
        nodes INTEGER NOT NULL,
        bytes INTEGER NOT NULL,        -- canonical JSON of the whole nodes, histories included
        digests BLOB NOT NULL,         -- sum modulo 2**256 of the digests of their rows
        PRIMARY KEY(ns, status)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE head(
        ns INTEGER NOT NULL,
        id TEXT NOT NULL,
        seq INTEGER NOT NULL,          -- the current text's number in the lexical index
        rev INTEGER NOT NULL,
        status INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        updated BLOB NOT NULL,         -- updated_at, ten bytes that sort as instants do
        past_bytes INTEGER NOT NULL,   -- canonical JSON of all earlier revisions
        past_digests BLOB NOT NULL,    -- sum modulo 2**256 of their rows' digests
        digest BLOB NOT NULL,          -- keyed, of this row
        json BLOB NOT NULL,            -- canonical, history left out
        PRIMARY KEY(ns, id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE UNIQUE INDEX head_by_seq ON head(ns, seq, updated)",
    "CREATE INDEX head_by_time ON head(ns, updated DESC, id, status, kind)",
    """CREATE TABLE rev(
        ns INTEGER NOT NULL,
        id TEXT NOT NULL,
        rev INTEGER NOT NULL,
        digest BLOB NOT NULL,
        json BLOB NOT NULL,
        PRIMARY KEY(ns, id, rev)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE change(
        no INTEGER PRIMARY KEY,        -- order of application in this file
        ns INTEGER NOT NULL,
        key TEXT NOT NULL,
        digest BLOB NOT NULL,          -- equality of values, so that a replay is told from a conflict
        result TEXT NOT NULL,          -- [[id, revision], ...]
        payload BLOB,                  -- canonical JSON; NULL once purged (then the digest is keyed)
        UNIQUE(ns, key)
    ) STRICT""",
    """CREATE TABLE usage(
        node INTEGER PRIMARY KEY,      -- a short name for the node in `access`
        ns INTEGER NOT NULL,
        id TEXT NOT NULL,
        admissions INTEGER NOT NULL,
        uses INTEGER NOT NULL,
        UNIQUE(ns, id)
    ) STRICT""",
    """CREATE TABLE access(
        no INTEGER PRIMARY KEY,        -- order of arrival in this file
        ns INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        id BLOB NOT NULL,              -- packed, see rows.pack_name
        node INTEGER NOT NULL,
        rev INTEGER NOT NULL,
        at ANY NOT NULL,               -- nanoseconds where they fit an integer, else RFC 3339
        context BLOB,                  -- packed
        change_no INTEGER NOT NULL     -- the last change set before it, for exports in order
    ) STRICT""",
    """CREATE TABLE purge(
        ns INTEGER NOT NULL,
        key TEXT NOT NULL,
        digest BLOB NOT NULL,          -- keyed, of what was asked
        receipt BLOB NOT NULL,
        PRIMARY KEY(ns, key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE UNIQUE INDEX access_by_id ON access(ns, kind, id)",
    "CREATE INDEX access_by_node ON access(node)",
    *lexical_index.SCHEMA,
)


def _create_tables(db: apsw.Connection) -> None:
    for statement in _TABLES:
        db.execute(statement)
    for name, value in (("file_key", secrets.token_bytes(_KEY_BYTES)), ("tokenizer", fingerprint())):
        db.execute("INSERT INTO meta(name, value) VALUES (?, ?)", (name, value))


def _add_raised_tokens_and_rolled_up_events(db: apsw.Connection) -> None:
    # How much of a change token does not come from change sets and purges of this file: restores raise it.
    db.execute("ALTER TABLE namespace ADD COLUMN token_raised INTEGER NOT NULL DEFAULT 0")
    # Audit events before this instant (ten bytes that sort as instants do) are kept as counts alone.
    db.execute("ALTER TABLE namespace ADD COLUMN rolled_up BLOB")
    db.execute("ALTER TABLE usage ADD COLUMN rolled_up INTEGER NOT NULL DEFAULT 0")


_MIGRATIONS: Final[dict[int, Callable[[apsw.Connection], None]]] = {
    0: _create_tables,
    1: _add_raised_tokens_and_rolled_up_events,
}
"""From a version to the next, each in one transaction."""


def create_if_missing(path: Path) -> bool:
    """Make a complete, synced file at `path` unless something is there; atomic among processes.

    The file is built under another name and linked into place, so nobody ever opens half a schema, and of
    several processes that come first exactly one wins.

    Returns:
        Whether this call made the file.

    Raises:
        Persistence: the folder cannot be written.
    """
    with storage_errors("create"):
        if path.exists():
            return False
        check_no_log(path, "create")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with building(path.parent) as new:
            _build(new)
            try:
                os.link(new, path)
            except FileExistsError:
                return False
            sync_folder(path.parent)
            return True


def _build(path: Path) -> None:
    db = connect(path)
    try:
        db.reserve_bytes("main", PAGE_CHECKSUM_BYTES)  # must precede the first page
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("BEGIN IMMEDIATE")
        migrate(db)
        db.execute("COMMIT")
    finally:
        db.close()


def schema_version(db: apsw.Connection, name: str = "main") -> int:
    """Return a file's schema version, or refuse a file that is not a repository of a known version.

    Args:
        db: the connection.
        name: under which the file is attached to it.

    Raises:
        Persistence: another application's database, or made by a newer release.
    """
    version: int = db.execute(f"PRAGMA {name}.user_version").get
    application: int = db.execute(f"PRAGMA {name}.application_id").get
    if application != APPLICATION_ID or version < 0:
        raise Persistence("open", "the file is no memory repository of this project; nothing was changed")
    if version > SCHEMA_VERSION:
        raise Persistence(
            "open",
            f"the file has schema {version}, this release knows up to {SCHEMA_VERSION}; use a newer release",
        )
    return version


def migrate(db: apsw.Connection) -> None:
    """Bring a file up to the current schema, inside the caller's write transaction."""
    version: int = db.execute("PRAGMA user_version").get
    if version == 0:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    while version < SCHEMA_VERSION:
        _MIGRATIONS[version](db)
        version += 1
    db.execute(f"PRAGMA user_version = {version}")


def read_key(db: apsw.Connection) -> bytes:
    """Return the file's secret key.

    Raises:
        Persistence: it is not there.
        Corruption: it is no key.
    """
    key = read_meta(db, "file_key")
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        raise Corruption("database file", "its key is damaged")
    return key


def read_meta(db: apsw.Connection, name: str) -> bytes | str:
    """Return a value of `meta`.

    Raises:
        Persistence: it is not there.
    """
    value = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).get
    if not isinstance(value, bytes | str):
        raise Persistence("open", f"the file lacks its {name}")
    return value
