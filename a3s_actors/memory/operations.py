"""Change sets and the operations in them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sized
from typing import Any, ClassVar

import attrs

from a3s_actors.memory import limits
from a3s_actors.memory._checks import as_tuple, instance_of, text, unit_interval, whole
from a3s_actors.memory.errors import InvalidInput, LimitExceeded
from a3s_actors.memory.timestamps import Timestamp, to_timestamp
from a3s_actors.memory.values import (
    EvidenceRef,
    MemoryNamespace,
    MemoryNode,
    MemoryNodeDraft,
    MemoryRelation,
    MemoryStatus,
)

__all__ = [
    "Activate",
    "AddRelation",
    "ChangeSetResult",
    "Corroborate",
    "Create",
    "MemoryChangeSet",
    "MemoryOperation",
    "RemoveRelation",
    "Revise",
    "RevisionMode",
    "SetStatus",
]


class RevisionMode(enum.Enum):
    """Why a text changes: it became more precise, or it was wrong."""

    REFINEMENT = "refinement"
    CORRECTION = "correction"


_to_evidence = as_tuple("operation.evidence", EvidenceRef)
_to_confidence = unit_interval("operation.confidence")
_to_importance = unit_interval("operation.importance")


def to_new_evidence(value: Iterable[EvidenceRef]) -> tuple[EvidenceRef, ...]:
    """Return evidence as a tuple. Raises InvalidInput for anything else."""
    return _to_evidence(value)


def to_new_confidence(value: float | None) -> float | None:
    """Return a confidence at float32 precision, None as it is. Raises InvalidInput outside 0 to 1."""
    return None if value is None else _to_confidence(value)


def to_new_importance(value: float | None) -> float | None:
    """Return an importance at float32 precision, None as it is. Raises InvalidInput outside 0 to 1."""
    return None if value is None else _to_importance(value)


def _count(items: Sized) -> str:
    return f"<{len(items)}>"


_valid_id = text("operation.nodeId", limits.MAX_IDENTIFIER_BYTES)
_valid_expected = whole("operation.expectedRevision", 0)
_valid_content = text("operation.content", limits.MAX_CONTENT_BYTES)
_valid_relation = instance_of("operation.relation", MemoryRelation)


@attrs.frozen
class Create:
    """Make a new node of a draft: status candidate or active, an unused id, the change set's namespace."""

    tag: ClassVar[str] = "create"
    node: MemoryNodeDraft = attrs.field(validator=instance_of("operation.node", MemoryNodeDraft))


@attrs.frozen
class Activate:
    """Make a candidate active. Needs at least one evidence whose uri the node lacks."""

    tag: ClassVar[str] = "activate"
    node_id: str = attrs.field(validator=_valid_id)
    expected_revision: int = attrs.field(kw_only=True, validator=_valid_expected)
    evidence: tuple[EvidenceRef, ...] = attrs.field(kw_only=True, converter=to_new_evidence, repr=_count)


@attrs.frozen
class Corroborate:
    """Add evidence to a node that is neither superseded nor tombstoned."""

    tag: ClassVar[str] = "corroborate"
    node_id: str = attrs.field(validator=_valid_id)
    expected_revision: int = attrs.field(kw_only=True, validator=_valid_expected)
    evidence: tuple[EvidenceRef, ...] = attrs.field(kw_only=True, converter=to_new_evidence, repr=_count)


@attrs.frozen
class Revise:
    """Change the text, as a refinement or a correction, with new evidence. None keeps a figure."""

    tag: ClassVar[str] = "revise"
    node_id: str = attrs.field(validator=_valid_id)
    expected_revision: int = attrs.field(kw_only=True, validator=_valid_expected)
    content: str = attrs.field(repr=False, kw_only=True, validator=_valid_content)
    mode: RevisionMode = attrs.field(kw_only=True, validator=instance_of("operation.mode", RevisionMode))
    evidence: tuple[EvidenceRef, ...] = attrs.field(kw_only=True, converter=to_new_evidence, repr=_count)
    confidence: float | None = attrs.field(default=None, kw_only=True, converter=to_new_confidence)
    importance: float | None = attrs.field(default=None, kw_only=True, converter=to_new_importance)


@attrs.frozen
class AddRelation:
    """Add a relation that the node lacks. The target's inverse must exist when the change set ends."""

    tag: ClassVar[str] = "add_relation"
    node_id: str = attrs.field(validator=_valid_id)
    expected_revision: int = attrs.field(kw_only=True, validator=_valid_expected)
    relation: MemoryRelation = attrs.field(kw_only=True, validator=_valid_relation)


@attrs.frozen
class RemoveRelation:
    """Remove a relation that the node has; the target's inverse must go in the same change set."""

    tag: ClassVar[str] = "remove_relation"
    node_id: str = attrs.field(validator=_valid_id)
    expected_revision: int = attrs.field(kw_only=True, validator=_valid_expected)
    relation: MemoryRelation = attrs.field(kw_only=True, validator=_valid_relation)


@attrs.frozen
class SetStatus:
    """Move a node to superseded, conflicted or tombstoned."""

    tag: ClassVar[str] = "set_status"
    node_id: str = attrs.field(validator=_valid_id)
    expected_revision: int = attrs.field(kw_only=True, validator=_valid_expected)
    status: MemoryStatus = attrs.field(kw_only=True, validator=instance_of("operation.status", MemoryStatus))


MemoryOperation = Create | Activate | Corroborate | Revise | AddRelation | RemoveRelation | SetStatus
OPERATION_TYPES: tuple[type[Any], ...] = (
    Create,
    Activate,
    Corroborate,
    Revise,
    AddRelation,
    RemoveRelation,
    SetStatus,
)


_to_operations = as_tuple("changeSet.operations", object)


def to_operations(value: Iterable[MemoryOperation]) -> tuple[MemoryOperation, ...]:
    """Return operations as a tuple. Raises InvalidInput or LimitExceeded for what is no list of 1 to 128."""
    items: tuple[Any, ...] = _to_operations(value)
    for item in items:
        if not isinstance(item, OPERATION_TYPES):
            raise InvalidInput("changeSet.operations", f"holds a {type(item).__name__}, which is no operation")
    if not items:
        raise InvalidInput("changeSet.operations", "must hold at least one operation")
    if len(items) > limits.MAX_OPERATIONS:
        raise LimitExceeded("change-set operations", limits.MAX_OPERATIONS, len(items))
    return items


@attrs.frozen(kw_only=True)
class MemoryChangeSet:
    """Operations that happen together or not at all, under one idempotency key.

    Args:
        idempotency_key: 1 to 256 bytes, scoped to the namespace.
        namespace: the exact owner of every node it touches.
        occurred_at: the host's time of the change; never before a touched node's updated_at.
        operations: 1 to 128, staged in order.

    Raises:
        InvalidInput: a field is malformed.
        LimitExceeded: too many operations, or the key is too long.
    """

    idempotency_key: str = attrs.field(validator=text("changeSet.idempotencyKey", limits.MAX_IDENTIFIER_BYTES))
    namespace: MemoryNamespace = attrs.field(validator=instance_of("changeSet.namespace", MemoryNamespace))
    occurred_at: Timestamp = attrs.field(converter=to_timestamp)
    operations: tuple[MemoryOperation, ...] = attrs.field(converter=to_operations)


@attrs.frozen(kw_only=True)
class ChangeSetResult:
    """What a change set made: the changed nodes by id, whole, as they were right after it."""

    idempotency_key: str
    occurred_at: Timestamp
    nodes: tuple[MemoryNode, ...]

    def node(self, node_id: str) -> MemoryNode:
        """Return one changed node.

        Raises:
            KeyError: the change set did not change that node.
        """
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise KeyError(node_id)
