"""The tables of a session file, how a new file comes to be, and how an old one is brought up to date."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from a3s_actors.memory.errors import Persistence
from a3s_backends.sqlite.connection import connect
from a3s_backends.sqlite.folder import building, check_no_log, sync_folder

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "check_is_session_file", "create_if_missing", "migrate"]

APPLICATION_ID: Final = 0x61337373  # "a3ss"; a memory repository has another
SCHEMA_VERSION: Final = 1
_PAGE_CHECKSUM_BYTES: Final = 8  # room at the end of each page; SQLite's checksum VFS wants exactly so many
_PAGE_BYTES: Final = 32768  # snapshots are large: fewer pages to check and to write

_TABLES: Final = (
    """CREATE TABLE session(
        no INTEGER PRIMARY KEY,        -- a short name for the session in `mark`
        id TEXT NOT NULL UNIQUE,
        generation INTEGER NOT NULL,
        digest BLOB NOT NULL,          -- SHA-256 of the body
        body BLOB NOT NULL             -- the snapshot's JSON
    ) STRICT""",
    """CREATE TABLE mark(
        session INTEGER NOT NULL,
        place INTEGER NOT NULL,        -- from 1 since the snapshot, without a gap
        digest BLOB NOT NULL,          -- SHA-256 of session, generation, place and json
        json BLOB NOT NULL,
        PRIMARY KEY(session, place)
    ) STRICT, WITHOUT ROWID""",
)


def _create_tables(db: apsw.Connection) -> None:
    for statement in _TABLES:
        db.execute(statement)


_MIGRATIONS: Final[dict[int, Callable[[apsw.Connection], None]]] = {0: _create_tables}
"""From a version to the next, each in one transaction."""


def migrate(db: apsw.Connection) -> None:
    """Bring a file up to the current schema, inside the caller's write transaction."""
    version: int = db.execute("PRAGMA user_version").get
    if version == 0:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    while version < SCHEMA_VERSION:
        _MIGRATIONS[version](db)
        version += 1
    db.execute(f"PRAGMA user_version = {version}")


def check_is_session_file(db: apsw.Connection) -> int:
    """Return a file's schema version.

    Raises:
        Persistence: it is another application's database, a memory repository, or from a newer release.
    """
    version: int = db.execute("PRAGMA user_version").get
    application: int = db.execute("PRAGMA application_id").get
    if application != APPLICATION_ID:
        raise Persistence("open", "the file is no session store of this project; nothing was changed")
    if version > SCHEMA_VERSION:
        message = f"the file has schema {version}, this release knows up to {SCHEMA_VERSION}; use a newer release"
        raise Persistence("open", message)
    return version


def create_if_missing(path: Path) -> None:
    """Make a complete, synced file at `path` unless something is there; atomic among processes.

    Raises:
        Persistence: the log of a file that is gone lies there.
        OSError, apsw.Error: the folder cannot be written.
    """
    if path.exists():
        return
    check_no_log(path, "create")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with building(path.parent) as new:
        _build(new)
        try:
            os.link(new, path)
        except FileExistsError:
            return
        sync_folder(path.parent)


def _build(path: Path) -> None:
    db = connect(path)
    try:
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.reserve_bytes("main", _PAGE_CHECKSUM_BYTES)  # must precede the first page
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("BEGIN IMMEDIATE")
        migrate(db)
        db.execute("COMMIT")
    finally:
        db.close()
