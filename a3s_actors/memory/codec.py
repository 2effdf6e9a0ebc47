"""Canonical JSON: the one spelling of every stored value, on which digests and checksums rest.

UTF-8, no spaces, camelCase keys in the kernel's field order (operation fields stay snake_case), maps sorted
by key bytes, None as null, floats as the shortest decimal that gives the float32 back, times as RFC 3339
with the fewest exact fraction digits. Byte-compatible with the a3s-memory crate (V2).

Encoding is plain string building: it is on the path of every write and every snapshot.
"""

from __future__ import annotations

import functools
import hashlib
import json.encoder
import math
from collections.abc import Iterable

import attrs

from a3s_actors.memory.errors import LimitExceeded
from a3s_actors.memory.lexical import float32
from a3s_actors.memory.limits import MAX_CHANGE_SET_BYTES
from a3s_actors.memory.operations import (
    Activate,
    AddRelation,
    ChangeSetResult,
    Corroborate,
    Create,
    MemoryChangeSet,
    MemoryOperation,
    RemoveRelation,
    Revise,
    SetStatus,
)
from a3s_actors.memory.values import (
    AccessEvent,
    EvidenceRef,
    Labels,
    MemoryNamespace,
    MemoryNode,
    MemoryNodeDraft,
    MemoryRelation,
    MemoryStatus,
    NodeHead,
    NodeRevision,
)

__all__ = [
    "access_event_json",
    "canonical_change_set",
    "change_set_json",
    "draft_json",
    "equality_digest",
    "evidence_json",
    "float_json",
    "head_json",
    "namespace_json",
    "node_json",
    "node_json_from_fragments",
    "result_json",
    "revision_json",
    "statuses_json",
    "string_json",
]

# json's C escaper: quotes, backslashes and U+0000..U+001F only, short forms where JSON has them.
string_json = json.encoder.encode_basestring
"""Return a text as a JSON string, escaped as JSON requires and no further."""


@functools.lru_cache(maxsize=8192)
def _float_json(value: float, negative_zero: bool) -> str:
    if value == 0.0:
        return "-0.0" if negative_zero else "0.0"
    for precision in range(9):
        shortest = f"{value:.{precision}e}"
        if float32(float(shortest)) == value:
            break
    mantissa, exponent_text = shortest.split("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    digits = mantissa.replace(".", "").rstrip("0")
    point = int(exponent_text) + 1
    if len(digits) <= point <= 13:
        return f"{sign}{digits.ljust(point, '0')}.0"
    if 0 < point <= 13:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -5 <= point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'+' if point > 0 else ''}{point - 1}"


def float_json(value: float) -> str:
    """Return a float32 value (held in a Python float) as its shortest decimal, as 1.0, 0.9, 0.00001, 1e-7."""
    return _float_json(value, math.copysign(1.0, value) < 0)


@functools.lru_cache(maxsize=1024)
def namespace_json(namespace: MemoryNamespace) -> str:
    """Return a namespace's canonical JSON."""
    return (
        f'{{"tenantId":{string_json(namespace.tenant_id)},"principalId":{string_json(namespace.principal_id)}'
        f',"scopeId":{string_json(namespace.scope_id)}}}'
    )


def evidence_json(item: EvidenceRef) -> str:
    """Return a piece of evidence's canonical JSON."""
    return (
        f'{{"uri":{string_json(item.uri)},"digest":{string_json(item.digest)},"kind":"{item.kind.value}"'
        f',"occurredAt":"{item.occurred_at}"}}'
    )


def _relation_json(item: MemoryRelation) -> str:
    return f'{{"kind":"{item.kind.value}","targetId":{string_json(item.target_id)}}}'


def _evidences_json(items: Iterable[EvidenceRef]) -> str:
    return f"[{','.join(map(evidence_json, items))}]"


def _labels_json(labels: Labels) -> str:
    if not labels:
        return "{}"
    return "{" + ",".join(f"{string_json(key)}:{string_json(labels[key])}" for key in labels) + "}"


def _body_json(value: MemoryNodeDraft | NodeHead | NodeRevision) -> str:
    # The run of fields that drafts, nodes and revisions share, in their one order.
    relations = ",".join(map(_relation_json, value.relations))
    return (
        f'"kind":"{value.kind.value}","status":"{value.status.value}","content":{string_json(value.content)}'
        f',"confidence":{float_json(value.confidence)},"importance":{float_json(value.importance)}'
        f',"evidence":{_evidences_json(value.evidence)},"relations":[{relations}]'
        f',"labels":{_labels_json(value.labels)}'
    )


def draft_json(draft: MemoryNodeDraft) -> str:
    """Return a draft's canonical JSON."""
    return (
        f'{{"id":{string_json(draft.id)},"namespace":{namespace_json(draft.namespace)},{_body_json(draft)}'
        f',"createdAt":"{draft.created_at}"}}'
    )


def revision_json(revision: NodeRevision | NodeHead) -> str:
    """Return the canonical JSON of one revision, as a node's history holds it."""
    return (
        f'{{"revision":{revision.revision},{_body_json(revision)},"updatedAt":"{revision.updated_at}"'
        f',"revisionKind":"{revision.revision_kind.value}"}}'
    )


def head_json(head: NodeHead) -> str:
    """Return the canonical JSON of a node with its history left out (the key too)."""
    return (
        f'{{"id":{string_json(head.id)},"namespace":{namespace_json(head.namespace)},"revision":{head.revision}'
        f',{_body_json(head)},"createdAt":"{head.created_at}","updatedAt":"{head.updated_at}"'
        f',"revisionKind":"{head.revision_kind.value}"}}'
    )


def node_json_from_fragments(head: str, history: Iterable[str]) -> str:
    """Join a `head_json` and the `revision_json` of each earlier revision into the whole node's JSON."""
    return f'{head[:-1]},"history":[{",".join(history)}]}}'


def node_json(node: MemoryNode) -> str:
    """Return a whole node's canonical JSON, history included."""
    return node_json_from_fragments(head_json(node), map(revision_json, node.history))


def _operation_json(operation: MemoryOperation) -> str:
    if isinstance(operation, Create):
        return f'{{"operation":"create","node":{draft_json(operation.node)}}}'
    start = (
        f'{{"operation":"{operation.tag}","node_id":{string_json(operation.node_id)}'
        f',"expected_revision":{operation.expected_revision}'
    )
    if isinstance(operation, Activate | Corroborate):
        return f'{start},"evidence":{_evidences_json(operation.evidence)}}}'
    if isinstance(operation, Revise):
        confidence = "null" if operation.confidence is None else float_json(operation.confidence)
        importance = "null" if operation.importance is None else float_json(operation.importance)
        return (
            f'{start},"content":{string_json(operation.content)},"mode":"{operation.mode.value}"'
            f',"evidence":{_evidences_json(operation.evidence)},"confidence":{confidence},"importance":{importance}}}'
        )
    if isinstance(operation, AddRelation | RemoveRelation):
        return f'{start},"relation":{_relation_json(operation.relation)}}}'
    assert isinstance(operation, SetStatus)
    return f'{start},"status":"{operation.status.value}"}}'


def change_set_json(change_set: MemoryChangeSet) -> str:
    """Return a change set's canonical JSON."""
    return (
        f'{{"idempotencyKey":{string_json(change_set.idempotency_key)}'
        f',"namespace":{namespace_json(change_set.namespace)},"occurredAt":"{change_set.occurred_at}"'
        f',"operations":[{",".join(map(_operation_json, change_set.operations))}]}}'
    )


def canonical_change_set(change_set: MemoryChangeSet) -> bytes:
    """Return a change set's canonical JSON in UTF-8, within the limit that every backend keeps.

    Raises:
        LimitExceeded: more than 16 MiB.
    """
    payload = change_set_json(change_set).encode()
    if len(payload) > MAX_CHANGE_SET_BYTES:
        raise LimitExceeded("change-set bytes", MAX_CHANGE_SET_BYTES, len(payload))
    return payload


def access_event_json(event: AccessEvent) -> str:
    """Return an access event's canonical JSON."""
    context = "null" if event.context_id is None else string_json(event.context_id)
    return (
        f'{{"id":{string_json(event.id)},"namespace":{namespace_json(event.namespace)}'
        f',"nodeId":{string_json(event.node_id)},"nodeRevision":{event.node_revision}'
        f',"occurredAt":"{event.occurred_at}","contextId":{context}}}'
    )


def result_json(result: ChangeSetResult) -> str:
    """Return a change set result's canonical JSON: idempotencyKey, occurredAt, nodes."""
    return (
        f'{{"idempotencyKey":{string_json(result.idempotency_key)},"occurredAt":"{result.occurred_at}"'
        f',"nodes":[{",".join(map(node_json, result.nodes))}]}}'
    )


def statuses_json(statuses: Iterable[MemoryStatus]) -> str:
    """Return a set of statuses as a JSON list, in the life cycle's order."""
    wanted = set(statuses)
    return "[" + ",".join(f'"{status.value}"' for status in MemoryStatus if status in wanted) + "]"


def equality_digest(change_set: MemoryChangeSet) -> bytes:
    """Return SHA-256 of a change set's canonical JSON with -0.0 written as 0.0.

    Two change sets have the same digest exactly when their values are equal, so a store that keeps the
    digest can tell a replay from a conflict without keeping the payload.
    """
    return hashlib.sha256(change_set_json(_without_negative_zeros(change_set)).encode()).digest()


def _without_negative_zeros(change_set: MemoryChangeSet) -> MemoryChangeSet:
    def plain(operation: MemoryOperation) -> MemoryOperation:
        # x + 0.0 turns -0.0 into 0.0 and leaves every other value alone.
        if isinstance(operation, Create):
            node = operation.node
            return Create(attrs.evolve(node, confidence=node.confidence + 0.0, importance=node.importance + 0.0))
        if isinstance(operation, Revise):
            return attrs.evolve(
                operation,
                confidence=None if operation.confidence is None else operation.confidence + 0.0,
                importance=None if operation.importance is None else operation.importance + 0.0,
            )
        return operation

    if not any(map(_has_negative_zero, change_set.operations)):
        return change_set
    return attrs.evolve(change_set, operations=tuple(map(plain, change_set.operations)))


def _has_negative_zero(operation: MemoryOperation) -> bool:
    if isinstance(operation, Create):
        figures = [operation.node.confidence, operation.node.importance]
    elif isinstance(operation, Revise):
        figures = [value for value in (operation.confidence, operation.importance) if value is not None]
    else:
        return False
    return any(value == 0.0 and math.copysign(1.0, value) < 0 for value in figures)
