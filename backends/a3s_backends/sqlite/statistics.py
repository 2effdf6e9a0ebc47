"""Counts of a whole file, from its sums: nothing is scanned but the audit trail's ends."""

from __future__ import annotations

from collections.abc import Mapping

import apsw
import attrs

from a3s_actors.memory.errors import Corruption
from a3s_actors.memory.values import MemoryNamespace, MemoryStatus
from a3s_backends.sqlite.reading import stored_namespace
from a3s_backends.sqlite.rows import STATUS_CODES

__all__ = ["FileStatistics", "NamespaceStatistics", "read_statistics"]


@attrs.frozen(kw_only=True)
class NamespaceStatistics:
    """What one namespace holds.

    Attributes:
        namespace: which.
        nodes: how many memories there are of each status.
        bytes: their canonical JSON, histories included.
        sequence: the change token.
        change_sets: novel change sets that are kept for replays, purged ones included.
        access_events: admissions and uses.
        purges: purge receipts.
    """

    namespace: MemoryNamespace
    nodes: Mapping[MemoryStatus, int]
    bytes: int
    sequence: int
    change_sets: int
    access_events: int
    purges: int


@attrs.frozen(kw_only=True)
class FileStatistics:
    """What a repository file holds.

    Attributes:
        namespaces: in byte order of their parts.
        schema: the schema's version.
        database_bytes: the file's pages, free ones included.
        free_bytes: pages that hold nothing now.
        purge_pending: whether erased bytes may still be in the file because a reader needed them.
    """

    namespaces: tuple[NamespaceStatistics, ...]
    schema: int
    database_bytes: int
    free_bytes: int
    purge_pending: bool


def read_statistics(db: apsw.Connection) -> FileStatistics:
    """Read the counts inside the caller's read transaction.

    Raises:
        Corruption: a stored name or sum is damaged.
    """
    by_code = {code: status for status, code in STATUS_CODES.items()}
    spaces = []
    rows: list[tuple[int, str, str, str, int]] = db.execute(  # type: ignore[assignment]
        "SELECT ns, tenant, principal, scope, token FROM namespace ORDER BY tenant, principal, scope"
    ).fetchall()
    for ns, tenant, principal, scope, token in rows:
        nodes = dict.fromkeys(MemoryStatus, 0)
        size = 0
        for status, count, total in db.execute("SELECT status, nodes, bytes FROM tally WHERE ns = ?", (ns,)):
            if status not in by_code:
                raise Corruption(f"namespace {ns}", "its sums name a status that there is not")
            nodes[by_code[status]] = count
            size += total
        spaces.append(
            NamespaceStatistics(
                namespace=stored_namespace(tenant, principal, scope),
                nodes=nodes,
                bytes=size,
                sequence=token,
                change_sets=_count(db, "SELECT count(*) FROM change WHERE ns = ?", ns),
                access_events=_count(db, "SELECT total(admissions) + total(uses) FROM usage WHERE ns = ?", ns),
                purges=_count(db, "SELECT count(*) FROM purge WHERE ns = ?", ns),
            )
        )
    page = _count(db, "PRAGMA page_size")
    return FileStatistics(
        namespaces=tuple(spaces),
        schema=_count(db, "PRAGMA user_version"),
        database_bytes=page * _count(db, "PRAGMA page_count"),
        free_bytes=page * _count(db, "PRAGMA freelist_count"),
        purge_pending=bool(db.execute("SELECT 1 FROM meta WHERE name = 'purge_pending'").get),
    )


def _count(db: apsw.Connection, sql: str, *values: int) -> int:
    return int(db.execute(sql, values).get)
