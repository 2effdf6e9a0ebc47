"""One write, inside the writer's open transaction. Decide first, by pure reads; then write.

So a refused change set has written nothing, and needs no savepoint to be undone: what fails after the first
write is storage itself, and that ends the whole transaction (see `batch`).
"""

from __future__ import annotations

import apsw
import attrs

from a3s_actors.memory.codec import canonical_change_set, equality_digest
from a3s_actors.memory.errors import ChangeSetPurged, Corruption, IdempotencyConflict, InvalidInput
from a3s_actors.memory.lexical import tokens
from a3s_actors.memory.operations import ChangeSetResult, MemoryChangeSet
from a3s_actors.memory.reference import check_access
from a3s_actors.memory.staging import StagedNode, stage
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import AccessEvent, AccessKind, MemoryNamespace, NodeHead, NodeRevision
from a3s_backends.sqlite import lexical_index
from a3s_backends.sqlite.reading import (
    access_event,
    find_namespace,
    find_node,
    read_head_row,
    read_node,
    read_revision,
)
from a3s_backends.sqlite.rows import (
    ACCESS_CODES,
    KIND_CODES,
    STATUS_CODES,
    ZERO_DIGESTS,
    HeadRow,
    RowCodec,
    add_digests,
    node_size,
    pack_name,
    pack_references,
    pack_time,
    sortable,
    unpack_references,
)

__all__ = [
    "ApplyRequest",
    "EventRequest",
    "Tally",
    "apply_change_set",
    "index_time",
    "new_namespace",
    "record_event",
    "store_node",
]


@attrs.frozen(eq=False)
class ApplyRequest:
    """A change set on its way to the writer, with what the caller's task worked out for it."""

    change_set: MemoryChangeSet
    payload: bytes = attrs.field(repr=False)
    digest: bytes

    @classmethod
    def of(cls, change_set: MemoryChangeSet) -> ApplyRequest:
        """Encode a change set. Raises LimitExceeded over 16 MiB."""
        return cls(change_set, canonical_change_set(change_set), equality_digest(change_set))


@attrs.frozen(eq=False)
class EventRequest:
    """An access event on its way to the writer."""

    kind: AccessKind
    event: AccessEvent


def apply_change_set(db: apsw.Connection, codec: RowCodec, request: ApplyRequest) -> ChangeSetResult:
    """Apply a change set, or return the stored result of its replay.

    Raises:
        MemoryRepositoryError: a rule is broken; nothing was written.
        apsw.Error, LexicalIndexDamaged: storage failed; the transaction must be rolled back.
    """
    change_set = request.change_set
    ns = find_namespace(db, change_set.namespace)
    if ns is not None and (result := _replay(db, codec, ns, request)) is not None:
        return result
    rows: dict[str, HeadRow] = {}

    def lookup(node_id: str) -> NodeHead | None:
        row = None if ns is None else read_head_row(db, ns, node_id)
        if row is None or ns is None:
            return None
        rows[node_id] = row
        return codec.read_head(ns, node_id, row)

    staged = stage(change_set, lookup)
    # The whole nodes of the result, put together before the first write: reading may find damage.
    nodes = []
    for node in staged:
        past: tuple[NodeRevision, ...] = ()
        if node.before is not None and ns is not None:
            past = read_node(db, codec, ns, node.before).history
        nodes.append(node.head.with_history(past + tuple(state.as_revision() for state in node.became_history)))
    if ns is None:
        ns = new_namespace(db, change_set.namespace)
    tally = Tally()
    for node in staged:
        store_node(db, codec, ns, node, rows.get(node.head.id), tally)
    tally.store(db, ns)
    db.execute("UPDATE namespace SET token = token + 1 WHERE ns = ?", (ns,))
    changed = pack_references(node.head for node in staged)
    db.execute(
        "INSERT INTO change(ns, key, digest, result, payload) VALUES (?, ?, ?, ?, ?)",
        (ns, change_set.idempotency_key, request.digest, changed, request.payload),
    )
    return ChangeSetResult(
        idempotency_key=change_set.idempotency_key, occurred_at=change_set.occurred_at, nodes=tuple(nodes)
    )


def stored_digest(db: apsw.Connection, namespace: MemoryNamespace, key: str) -> bytes | None:
    """Return the equality digest under which a key was applied, None where it was not."""
    digest: bytes | None = db.execute(
        "SELECT digest FROM change JOIN namespace USING (ns)"
        " WHERE tenant = ? AND principal = ? AND scope = ? AND key = ?",
        (namespace.tenant_id, namespace.principal_id, namespace.scope_id, key),
    ).get
    return digest


def _replay(db: apsw.Connection, codec: RowCodec, ns: int, request: ApplyRequest) -> ChangeSetResult | None:
    change_set = request.change_set
    key = change_set.idempotency_key
    row = db.execute(
        "SELECT digest, result, payload IS NULL FROM change WHERE ns = ? AND key = ?", (ns, key)
    ).fetchone()
    if row is None:
        return None
    digest, result, purged = row
    if purged:
        raise ChangeSetPurged(key, f"blake2b:{digest.hex()}")
    if digest != request.digest:
        raise IdempotencyConflict(key)
    nodes = []
    where = f"namespace {ns}, change set {key!r}"
    for node_id, revision in unpack_references(where, result):
        node = find_node(db, codec, ns, node_id)
        if node is None or not 1 <= revision <= node.head.revision:
            raise Corruption(where, "a node that it changed is gone")
        nodes.append(node.at_revision(revision))
    return ChangeSetResult(idempotency_key=key, occurred_at=change_set.occurred_at, nodes=tuple(nodes))


def new_namespace(db: apsw.Connection, namespace: MemoryNamespace) -> int:
    """Insert a namespace's row and return its number."""
    db.execute(
        "INSERT INTO namespace(tenant, principal, scope, token) VALUES (?, ?, ?, 0)",
        (namespace.tenant_id, namespace.principal_id, namespace.scope_id),
    )
    return db.last_insert_rowid()


def store_node(
    db: apsw.Connection, codec: RowCodec, ns: int, node: StagedNode, old: HeadRow | None, tally: Tally
) -> None:
    """Write a node's new states: `old` is its row now, None for a new node."""
    head, node_id = node.head, node.head.id
    past_bytes = 0 if old is None else old.past_bytes
    past_digests = ZERO_DIGESTS if old is None else old.past_digests
    for state in node.became_history:
        digest, json = codec.rev_row(ns, node_id, state)
        db.execute(
            "INSERT INTO rev(ns, id, rev, digest, json) VALUES (?, ?, ?, ?, ?)",
            (ns, node_id, state.revision, digest, json),
        )
        past_bytes += len(json)
        past_digests = add_digests(past_digests, digest)
    meta = {
        "status": STATUS_CODES[head.status],
        "kind": KIND_CODES[head.kind],
        "updated_ns": index_time(head.updated_at),
    }
    if old is not None and node.before is not None and node.before.content == head.content:
        seq = old.seq
        lexical_index.set_meta(db, ns, seq, **meta)
    else:
        if old is not None:
            lexical_index.remove(db, ns, old.seq)
        seq = lexical_index.add(db, ns, lexical_index.hash_tokens(tokens(head.content), codec.key), **meta)
    row = codec.head_row(ns, head, seq=seq, past_bytes=past_bytes, past_digests=past_digests)
    db.execute(
        "INSERT OR REPLACE INTO head(ns, id, seq, rev, status, kind, updated, past_bytes, past_digests, digest, json)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (ns, node_id, *row),
    )
    if old is not None:
        tally.add(old, -1)
    tally.add(row, 1)


class Tally:
    """What one change set adds to and takes from the sums of each status."""

    def __init__(self) -> None:
        self._changes: dict[int, list[int]] = {}

    def add(self, row: HeadRow, sign: int) -> None:
        """Count a node in (sign 1) or out (sign -1)."""
        change = self._changes.setdefault(row.status, [0, 0, 0])
        change[0] += sign
        change[1] += sign * node_size(row)
        change[2] += sign * (int.from_bytes(row.digest) + int.from_bytes(row.past_digests))

    def store(self, db: apsw.Connection, ns: int) -> None:
        """Write the changed sums."""
        for status, (nodes, size, digests) in self._changes.items():
            known = db.execute("SELECT digests FROM tally WHERE ns = ? AND status = ?", (ns, status)).get
            total = (int.from_bytes(known or ZERO_DIGESTS) + digests) % (1 << 256)
            db.execute(
                "INSERT INTO tally(ns, status, nodes, bytes, digests) VALUES (?1, ?2, ?3, ?4, ?5)"
                " ON CONFLICT(ns, status) DO UPDATE SET nodes = nodes + ?3, bytes = bytes + ?4, digests = ?5",
                (ns, status, nodes, size, total.to_bytes(32)),
            )


def record_event(db: apsw.Connection, codec: RowCodec, kind: AccessKind, event: AccessEvent) -> None:
    """Record an access event; an equal one that is there already changes nothing.

    Raises:
        MemoryRepositoryError: a rule is broken; nothing was written.
        apsw.Error: storage failed; the transaction must be rolled back.
    """
    ns = find_namespace(db, event.namespace)
    name = pack_name(event.id)
    if ns is not None:
        known = db.execute(
            "SELECT usage.id, rev, at, context FROM access JOIN usage USING (node)"
            " WHERE access.ns = ? AND access.kind = ? AND access.id = ?",
            (ns, ACCESS_CODES[kind], name),
        ).fetchone()
        if known is not None:
            node_id, revision, at, context = known
            if access_event(event.namespace, name, node_id, revision, at, context) != event:
                raise IdempotencyConflict(event.id)
            return
    _check_event(db, codec, ns, kind, event)
    assert ns is not None
    rolled_up: bytes | None = db.execute("SELECT rolled_up FROM namespace WHERE ns = ?", (ns,)).get
    if rolled_up is not None and sortable(event.occurred_at) < rolled_up:
        raise InvalidInput(
            "accessEvent.occurredAt", "precedes the last audit roll-up; such events are counts alone now"
        )
    node = db.execute(
        "INSERT INTO usage(ns, id, admissions, uses) VALUES (?1, ?2, ?3, ?4) ON CONFLICT(ns, id)"
        " DO UPDATE SET admissions = admissions + ?3, uses = uses + ?4 RETURNING node",
        (ns, event.node_id, int(kind is AccessKind.ADMISSION), int(kind is AccessKind.USE)),
    ).fetchall()[0][0]
    db.execute(
        "INSERT INTO access(ns, kind, id, node, rev, at, context, change_no)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT ifnull(max(no), 0) FROM change))",
        (
            ns,
            ACCESS_CODES[kind],
            name,
            node,
            event.node_revision,
            pack_time(event.occurred_at),
            None if event.context_id is None else pack_name(event.context_id),
        ),
    )


def _check_event(db: apsw.Connection, codec: RowCodec, ns: int | None, kind: AccessKind, event: AccessEvent) -> None:
    row = None if ns is None else read_head_row(db, ns, event.node_id)
    head = None if row is None or ns is None else codec.read_head(ns, event.node_id, row)
    earlier = None
    if head is not None and ns is not None and event.node_revision < head.revision:
        earlier = read_revision(db, codec, ns, event.node_id, event.node_revision).updated_at
    check_access(kind, event, head, earlier)


def index_time(instant: Timestamp) -> int:
    """Return nanoseconds for the index: a leap second counts as the last nanosecond before it."""
    return instant.ns - instant.ns % 1_000_000_000 - 1 if instant.leap else instant.ns
