"""Copying all rows of a repository file into a new one, as of one instant, while writers go on.

Row by row, not page by page: the copy is compact, and what the pages of the source still hold of erased rows
stays behind. SQLite's own VACUUM INTO would do the same, but writes pages of a larger file before the first one,
which says that pages carry checksums; those pages then have none. Here the first page is on disk before any row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from a3s_backends.sqlite.connection import arm, connect, file_uri
from a3s_backends.sqlite.schema import APPLICATION_ID, PAGE_CHECKSUM_BYTES, schema_version

__all__ = ["copy_rows"]

_STEPS = 100  # far fewer than elsewhere: a handful of steps copies a row, which may be large


def copy_rows(
    source: Path,
    building: Path,
    check: Callable[[], None],
    *,
    vfs: str | None = None,
    read_only: bool = False,
    immutable: bool = False,
) -> None:
    """Copy tables, indexes and rows of a repository file into an empty file that nobody else knows.

    One read transaction on the source: what is committed meanwhile is not in the copy, and never makes it begin
    anew. The copy has the source's schema version and is not synced.

    Args:
        source: a repository file.
        building: an empty file.
        check: called now and then; what it raises ends the copying.
        vfs: another VFS than the checksum one, for fault injection.
        read_only: the source is opened for reading alone.
        immutable: nobody writes to the source meanwhile; then no file is made beside it.

    Raises:
        Persistence: the source is no repository, or made by a newer release.
        apsw.Error: as SQLite says.
    """
    with contextlib.closing(connect(building, synchronous="OFF", vfs=vfs)) as db:
        db.reserve_bytes("main", PAGE_CHECKSUM_BYTES)
        # Only the first page is ever in the journal: all others are new.
        db.execute("PRAGMA journal_mode = MEMORY").fetchall()
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("ATTACH ? AS source", (file_uri(source, read_only=read_only, immutable=immutable),))
        arm(db, check, _STEPS)
        db.execute("BEGIN")
        version = schema_version(db, "source")
        # Only what has pages of its own: a repository has no triggers, views or virtual tables, and those of a
        # foreign file are not let in. Tables first, for the indexes name them.
        objects: list[tuple[str, str, str]] = db.execute(  # type: ignore[assignment]
            "SELECT type, name, sql FROM source.sqlite_schema"
            " WHERE rootpage > 0 AND sql IS NOT NULL AND name NOT GLOB 'sqlite_*' ORDER BY type DESC, rowid"
        ).fetchall()
        for _, _, sql in objects:
            db.execute(sql)
        for kind, name, _ in objects:
            if kind == "table":
                quoted = '"' + name.replace('"', '""') + '"'
                db.execute(f"INSERT INTO main.{quoted} SELECT * FROM source.{quoted}")  # noqa: S608 - from the schema
        # What a purge has left in the source's pages is not here.
        db.execute("DELETE FROM main.meta WHERE name = 'purge_pending'")
        db.execute(f"PRAGMA main.user_version = {version}")
        db.execute("COMMIT")
