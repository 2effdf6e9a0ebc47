"""Purge: erasing memories for good, decided without touching them.

A purge is an administrative operation, never part of consolidation. It removes nodes with their histories,
the payloads of every change set that touched them and their access events, so that no byte of their content
is left. What stays is content-free: a receipt, and for each erased change set its key and a keyed digest, so
that a replay never brings content back.

Neighbours lose their relation to an erased node, as a revision of their own. Where their status requires that
relation (a superseded node's successor, a conflicted node's counterpart), a content-free mark takes its place:
a relation to a reserved id that names nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import attrs

from a3s_actors.memory import limits
from a3s_actors.memory._checks import check_text, instance_of, text
from a3s_actors.memory.codec import evidence_json, namespace_json, string_json
from a3s_actors.memory.errors import InvalidInput, NodeNotFound
from a3s_actors.memory.staging import HeadLookup, StagedNode
from a3s_actors.memory.timestamps import Timestamp, to_timestamp
from a3s_actors.memory.transitions import REQUIRED_RELATION
from a3s_actors.memory.values import (
    PURGED_PREFIX,
    EvidenceRef,
    MemoryNamespace,
    MemoryRelation,
    NodeHead,
    RevisionKind,
)

__all__ = [
    "MemoryPurge",
    "PurgePlan",
    "PurgeReceipt",
    "PurgedChangeSet",
    "check_key",
    "keyed_digest",
    "plan_purge",
    "purge_json",
    "receipt_json",
]


def to_node_ids(value: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return distinct ids in byte order, None (everything) as it is. Raises InvalidInput for an empty list."""
    if value is None:
        return None
    if isinstance(value, str):
        raise InvalidInput("purge.nodeIds", "must be a list of ids, or None for everything")
    try:
        ids = list(value)
    except TypeError:
        raise InvalidInput("purge.nodeIds", "must be a list of ids, or None for everything") from None
    for node_id in ids:
        check_text("purge.nodeIds", node_id, limits.MAX_IDENTIFIER_BYTES)
    if not ids:
        raise InvalidInput("purge.nodeIds", "must name at least one node; None means everything")
    return tuple(sorted(set(ids), key=str.encode))


@attrs.frozen(kw_only=True)
class MemoryPurge:
    """What to erase, and why.

    Args:
        idempotency_key: 1 to 256 bytes, scoped to the namespace's purges.
        namespace: the one exact namespace.
        node_ids: the nodes to erase; None erases everything in the namespace.
        reason: evidence of the decision; it is kept in the receipt, so it must not quote what is erased.
        occurred_at: the host's time; not before the reason or the last change of a neighbour.

    Raises:
        InvalidInput, LimitExceeded: a field is malformed or too large.
    """

    idempotency_key: str = attrs.field(validator=text("purge.idempotencyKey", limits.MAX_IDENTIFIER_BYTES))
    namespace: MemoryNamespace = attrs.field(validator=instance_of("purge.namespace", MemoryNamespace))
    node_ids: tuple[str, ...] | None = attrs.field(converter=to_node_ids)
    reason: EvidenceRef = attrs.field(validator=instance_of("purge.reason", EvidenceRef))
    occurred_at: Timestamp = attrs.field(converter=to_timestamp)

    def __attrs_post_init__(self) -> None:
        if self.reason.occurred_at > self.occurred_at:
            raise InvalidInput("purge.reason.occurredAt", "must not be later than the purge's occurredAt")


@attrs.frozen
class PurgedChangeSet:
    """What stays of an erased change set.

    Attributes:
        key: its idempotency key.
        digest: a digest of its values under the storage's secret key.
    """

    key: str
    digest: str


@attrs.frozen(kw_only=True)
class PurgeReceipt:
    """What a purge did. Holds no content, and no digest that could be guessed from short texts.

    Attributes:
        idempotency_key, namespace, occurred_at, reason: as asked.
        nodes: erased nodes.
        revisions: erased revisions, current ones included.
        access_events: erased audit records.
        change_sets: what stays of each erased change set, in the order they were applied.
        neighbours: ids of the nodes that lost a relation, each with a new revision.
        sequence: the namespace's change token after the purge.
        bytes_pending: True while bytes may be left in a file because a reader still needs them; the next
            open or close of the storage finishes the work.
    """

    idempotency_key: str
    namespace: MemoryNamespace
    occurred_at: Timestamp
    reason: EvidenceRef
    nodes: int
    revisions: int
    access_events: int
    change_sets: tuple[PurgedChangeSet, ...]
    neighbours: tuple[str, ...]
    sequence: int
    bytes_pending: bool = attrs.field(default=False, eq=False)


@attrs.frozen(kw_only=True)
class PurgePlan:
    """What a purge will do to the heads: which go, and how neighbours change."""

    doomed: tuple[NodeHead, ...]
    neighbours: tuple[StagedNode, ...]


def plan_purge(purge: MemoryPurge, node_ids: Iterable[str], lookup: HeadLookup, key: bytes) -> PurgePlan:
    """Decide a purge against the current heads; nothing changes.

    Args:
        purge: what was asked.
        node_ids: the ids it comes down to (every id of the namespace, when it asked for everything).
        lookup: reads a head as it is stored now.
        key: the storage's secret, for marks that do not reveal whom they stand for.

    Raises:
        NodeNotFound: an id does not exist.
        InvalidInput: the purge precedes the last change of a neighbour.
    """
    doomed: dict[str, NodeHead] = {}
    for node_id in node_ids:
        head = lookup(node_id)
        if head is None:
            raise NodeNotFound(node_id)
        doomed[node_id] = head
    touched = {
        relation.target_id
        for head in doomed.values()
        for relation in head.relations
        if relation.target_id not in doomed and not relation.target_id.startswith(PURGED_PREFIX)
    }
    neighbours = []
    for node_id in sorted(touched, key=str.encode):
        before = lookup(node_id)
        if before is None:
            continue  # a damaged graph must not stand in the way of an erasure
        if purge.occurred_at < before.updated_at:
            raise InvalidInput("purge.occurredAt", "must not precede the last change of a neighbour")
        after = attrs.evolve(
            before,
            revision=before.revision + 1,
            relations=_without(before, doomed, key),
            updated_at=purge.occurred_at,
            revision_kind=RevisionKind.RELATION_CHANGED,
        )
        neighbours.append(StagedNode(before=before, states=(after,)))
    return PurgePlan(doomed=tuple(doomed.values()), neighbours=tuple(neighbours))


def _without(head: NodeHead, doomed: dict[str, NodeHead], key: bytes) -> tuple[MemoryRelation, ...]:
    kept = [relation for relation in head.relations if relation.target_id not in doomed]
    required = REQUIRED_RELATION.get(head.status)
    if required is None or any(relation.kind is required for relation in kept):
        return tuple(kept)
    gone = min(relation.target_id for relation in head.relations if relation.kind is required)
    mark = PURGED_PREFIX + keyed_digest(key, f"{namespace_json(head.namespace)}{string_json(gone)}".encode()).hex()
    return tuple(sorted((*kept, MemoryRelation(required, mark)), key=MemoryRelation.sort_key))


def check_key(key: object) -> bytes:
    """Refuse what cannot be the secret of a storage.

    Raises:
        InvalidInput: it is not bytes, or not 16 to 64 of them.
    """
    if not isinstance(key, bytes) or not 16 <= len(key) <= 64:
        raise InvalidInput("key", "must be 16 to 64 bytes")
    return key


def keyed_digest(key: bytes, data: bytes) -> bytes:
    """Return 32 bytes that say nothing about `data` to anybody without `key`."""
    return hashlib.blake2b(data, digest_size=32, key=key, person=b"a3s-purge").digest()


def purge_json(purge: MemoryPurge) -> str:
    """Return a purge's JSON, on which its idempotency rests; node ids included, so keep only digests of it."""
    ids = "null" if purge.node_ids is None else f"[{','.join(map(string_json, purge.node_ids))}]"
    return (
        f'{{"idempotencyKey":{string_json(purge.idempotency_key)},"namespace":{namespace_json(purge.namespace)}'
        f',"nodeIds":{ids},"reason":{evidence_json(purge.reason)},"occurredAt":"{purge.occurred_at}"}}'
    )


def receipt_json(receipt: PurgeReceipt) -> str:
    """Return a receipt's JSON, as backends store it (`bytes_pending` is not stored: it changes)."""
    erased = ",".join(
        f'{{"key":{string_json(item.key)},"digest":{string_json(item.digest)}}}' for item in receipt.change_sets
    )
    neighbours = ",".join(map(string_json, receipt.neighbours))
    return (
        f'{{"idempotencyKey":{string_json(receipt.idempotency_key)},"namespace":{namespace_json(receipt.namespace)}'
        f',"occurredAt":"{receipt.occurred_at}","reason":{evidence_json(receipt.reason)},"nodes":{receipt.nodes}'
        f',"revisions":{receipt.revisions},"accessEvents":{receipt.access_events},"changeSets":[{erased}]'
        f',"neighbours":[{neighbours}],"sequence":{receipt.sequence}}}'
    )
