"""Erasing memories from a file, to the last byte.

The rows go in one transaction, and with it a marker that bytes may be left: in free pages, in gaps inside pages
and in the WAL. Then the file is rewritten (VACUUM) and the WAL emptied. While a reader still needs the old
pages that cannot be done; the marker stays, and the next open or close finishes the work.
"""

from __future__ import annotations

import secrets
from typing import Final

import apsw
import attrs

from a3s_actors.memory.decoding import decode
from a3s_actors.memory.errors import Corruption, IdempotencyConflict, MemoryRepositoryError
from a3s_actors.memory.purge import (
    MemoryPurge,
    PurgedChangeSet,
    PurgeReceipt,
    keyed_digest,
    plan_purge,
    purge_json,
    receipt_json,
)
from a3s_actors.memory.values import NodeHead
from a3s_backends.sqlite import lexical_index
from a3s_backends.sqlite.connection import patience
from a3s_backends.sqlite.reading import find_namespace, read_head_row
from a3s_backends.sqlite.rows import HeadRow, RowCodec, unpack_references
from a3s_backends.sqlite.writing import Tally, new_namespace, store_node

__all__ = ["PurgeRequest", "bytes_pending", "finish_purge", "purge_rows"]

_WAIT_SECONDS: Final = 1.0


@attrs.frozen(eq=False)
class PurgeRequest:
    """A purge on its way to the writer."""

    purge: MemoryPurge


def purge_rows(db: apsw.Connection, codec: RowCodec, purge: MemoryPurge) -> PurgeReceipt:
    """Erase rows inside the writer's transaction, or return the stored receipt of a replay.

    Raises:
        IdempotencyConflict, NodeNotFound, InvalidInput: nothing was written.
        Corruption: a head or an index row cannot be read.
        apsw.Error, LexicalIndexDamaged: storage failed; the transaction must be rolled back.
    """
    ns = find_namespace(db, purge.namespace)
    digest = keyed_digest(codec.key, purge_json(purge).encode())
    if ns is not None and (known := _replay(db, ns, purge, digest)) is not None:
        return known
    rows: dict[str, HeadRow] = {}

    def lookup(node_id: str) -> NodeHead | None:
        row = None if ns is None else read_head_row(db, ns, node_id)
        if row is None or ns is None:
            return None
        rows[node_id] = row
        return codec.read_head(ns, node_id, row)

    ids: tuple[str, ...] | list[str] = purge.node_ids if purge.node_ids is not None else _all_ids(db, ns)
    plan = plan_purge(purge, ids, lookup, codec.key)
    doomed = {head.id for head in plan.doomed}
    erased = [] if ns is None else _change_sets(db, ns, None if purge.node_ids is None else doomed)
    if ns is None:
        ns = new_namespace(db, purge.namespace)
    tally = Tally()
    events = 0
    for head in plan.doomed:
        events += _erase_node(db, ns, head.id)
        tally.add(rows[head.id], -1)
    lexical_index.erase(db, ns, [rows[head.id].seq for head in plan.doomed])
    for node in plan.neighbours:
        store_node(db, codec, ns, node, rows[node.head.id], tally)
    lexical_index.compact(db, ns)  # postings of their earlier texts, too
    tally.store(db, ns)
    change_sets = []
    for number, key, equality in erased:
        kept = keyed_digest(codec.key, equality)
        db.execute("UPDATE change SET digest = ?, result = '[]', payload = NULL WHERE no = ?", (kept, number))
        change_sets.append(PurgedChangeSet(key, f"blake2b:{kept.hex()}"))
    moved: list[tuple[int]] = db.execute(  # type: ignore[assignment]
        "UPDATE namespace SET token = token + 1 WHERE ns = ? RETURNING token", (ns,)
    ).fetchall()
    receipt = PurgeReceipt(
        idempotency_key=purge.idempotency_key,
        namespace=purge.namespace,
        occurred_at=purge.occurred_at,
        reason=purge.reason,
        nodes=len(doomed),
        revisions=sum(head.revision for head in plan.doomed),
        access_events=events,
        change_sets=tuple(change_sets),
        neighbours=tuple(node.head.id for node in plan.neighbours),
        sequence=moved[0][0],
    )
    db.execute(
        "INSERT INTO purge(ns, key, digest, receipt) VALUES (?, ?, ?, ?)",
        (ns, purge.idempotency_key, digest, receipt_json(receipt).encode()),
    )
    _mark(db, secrets.token_bytes(16))
    return receipt


def _replay(db: apsw.Connection, ns: int, purge: MemoryPurge, digest: bytes) -> PurgeReceipt | None:
    row = db.execute(
        "SELECT digest, receipt FROM purge WHERE ns = ? AND key = ?", (ns, purge.idempotency_key)
    ).fetchone()
    if row is None:
        return None
    if row[0] != digest:
        raise IdempotencyConflict(purge.idempotency_key)
    try:
        return decode(row[1], PurgeReceipt)
    except MemoryRepositoryError:
        raise Corruption(f"namespace {ns}, purge {purge.idempotency_key!r}", "its receipt is damaged") from None


def _all_ids(db: apsw.Connection, ns: int | None) -> list[str]:
    return [node_id for (node_id,) in db.execute("SELECT id FROM head WHERE ns = ? ORDER BY id", (ns,))]


def _change_sets(db: apsw.Connection, ns: int, doomed: set[str] | None) -> list[tuple[int, str, bytes]]:
    """Return number, key and equality digest of each change set that touched a doomed node (None: of all)."""
    found = []
    for number, key, digest, result in db.execute(
        "SELECT no, key, digest, result FROM change WHERE ns = ? AND payload IS NOT NULL ORDER BY no", (ns,)
    ):
        made = () if doomed is None else unpack_references(f"namespace {ns}, change set {key!r}", result)
        if doomed is None or any(node_id in doomed for node_id, _ in made):
            found.append((number, key, digest))
    return found


def _erase_node(db: apsw.Connection, ns: int, node_id: str) -> int:
    events = 0
    node = db.execute("SELECT node FROM usage WHERE ns = ? AND id = ?", (ns, node_id)).get
    if node is not None:
        db.execute("DELETE FROM access WHERE node = ?", (node,))
        events = db.changes()
        db.execute("DELETE FROM usage WHERE node = ?", (node,))
    db.execute("DELETE FROM rev WHERE ns = ? AND id = ?", (ns, node_id))
    db.execute("DELETE FROM head WHERE ns = ? AND id = ?", (ns, node_id))
    return events


def _mark(db: apsw.Connection, marker: bytes | int) -> None:
    db.execute("INSERT OR REPLACE INTO meta(name, value) VALUES ('purge_pending', ?)", (marker,))


def _marker(db: apsw.Connection) -> bytes | int | None:
    # Files of earlier releases have the number 1 here.
    marker: bytes | int | None = db.execute("SELECT value FROM meta WHERE name = 'purge_pending'").get
    return marker


def bytes_pending(db: apsw.Connection) -> bool:
    """Tell whether erased bytes may still be in the file or its WAL."""
    return _marker(db) is not None


def finish_purge(db: apsw.Connection) -> bool:
    """Rewrite the file without its free space and empty the WAL, as far as other users of the file allow.

    Each purge has a marker of its own: one that another process commits meanwhile stays, for its bytes may have come
    after the rewriting.

    Returns:
        Whether every byte is gone now.

    Raises:
        apsw.Error: storage failed; the marker stays.
    """
    with patience(db, _WAIT_SECONDS):
        try:
            marker = _marker(db)
            # Statistics tables hold samples of keys, and survive VACUUM.
            for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE name GLOB 'sqlite_stat*'").fetchall():
                db.execute(f"DELETE FROM {table}")  # noqa: S608 - a name from the schema
            db.execute("VACUUM")
            if not _empty_wal(db):
                return False
            db.execute("DELETE FROM meta WHERE name = 'purge_pending' AND value IS ?", (marker,))
            if not _empty_wal(db):
                # Said to be pending, so it is to be found pending.
                if marker is not None and not bytes_pending(db):
                    _mark(db, marker)
                return False
        except apsw.BusyError:
            return False
    return not bytes_pending(db)


def _empty_wal(db: apsw.Connection) -> bool:
    busy: int = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]  # type: ignore[assignment]
    return busy == 0
