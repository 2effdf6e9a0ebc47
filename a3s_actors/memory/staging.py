"""Staging: what a change set would make of the current heads, decided without touching them.

`stage` is pure. It reads heads through a callable, stages the operations in order on a private view, checks
the graph, and returns the new heads. A backend then stores them in one step, or raises what `stage` raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from a3s_actors.memory import limits
from a3s_actors.memory.errors import (
    EvidenceRequired,
    InvalidInput,
    InvalidTransition,
    InvariantViolation,
    LimitExceeded,
    NamespaceMismatch,
    NodeAlreadyExists,
    NodeNotFound,
    RelationTargetNotFound,
    RevisionConflict,
)
from a3s_actors.memory.operations import (
    Activate,
    AddRelation,
    Corroborate,
    Create,
    MemoryChangeSet,
    RemoveRelation,
    Revise,
    SetStatus,
)
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.transitions import (
    CREATABLE,
    FINAL_BUT_RETAINED,
    OPERATION_STATUSES,
    REQUIRED_RELATION,
    REVISION_KINDS,
    STATUS_TRANSITIONS,
)
from a3s_actors.memory.values import (
    PURGED_PREFIX,
    EvidenceRef,
    MemoryNodeDraft,
    MemoryRelation,
    MemoryStatus,
    NodeHead,
    RelationKind,
    RevisionKind,
)

__all__ = ["HeadLookup", "StagedNode", "check_ending", "check_graph", "stage"]

HeadLookup = Callable[[str], "NodeHead | None"]
"""Reads the current head of a node in the change set's namespace, None where there is none."""

_Change = Activate | Corroborate | Revise | AddRelation | RemoveRelation | SetStatus


@attrs.frozen(kw_only=True)
class StagedNode:
    """One node as a change set leaves it.

    Attributes:
        before: the head that is stored now, None for a new node.
        states: every state that the change set gives it, oldest first; the last becomes the head, and
            `before` and the others become history.
    """

    before: NodeHead | None
    states: tuple[NodeHead, ...]

    @property
    def head(self) -> NodeHead:
        """The new current state."""
        return self.states[-1]

    @property
    def became_history(self) -> tuple[NodeHead, ...]:
        """The states that are history afterwards and were not before, oldest first."""
        old = () if self.before is None else (self.before,)
        return old + self.states[:-1]


def stage(change_set: MemoryChangeSet, lookup: HeadLookup) -> tuple[StagedNode, ...]:
    """Work out what a change set makes of the heads that `lookup` reads.

    Args:
        change_set: the operations; they see each other's effects in order.
        lookup: reads a head as it is stored now. Called at most once an id.

    Returns:
        The changed nodes, sorted by id (UTF-8 bytes).

    Raises:
        NamespaceMismatch, NodeAlreadyExists, NodeNotFound, RevisionConflict, InvalidTransition,
        EvidenceRequired, RelationTargetNotFound, InvariantViolation, InvalidInput, LimitExceeded: the first
        rule that the change set breaks. Nothing was changed.
    """
    for operation in change_set.operations:
        if isinstance(operation, Activate | Corroborate | Revise):
            if not operation.evidence:
                raise EvidenceRequired(operation.node_id, f"{operation.tag} needs at least one new evidence")
            _check_evidence_limit(len(operation.evidence))
    view = _View(change_set, lookup)
    for operation in change_set.operations:
        if isinstance(operation, Create):
            view.create(operation.node)
        else:
            view.change(operation)
    view.check()
    return view.result()


class _View:
    """The private view of one change set: heads read so far, states staged so far."""

    def __init__(self, change_set: MemoryChangeSet, lookup: HeadLookup) -> None:
        self._at = change_set.occurred_at
        self._namespace = change_set.namespace
        self._lookup = lookup
        self._stored: dict[str, NodeHead | None] = {}
        self._staged: dict[str, list[NodeHead]] = {}
        self._neighbours: set[str] = set()

    def head(self, node_id: str) -> NodeHead | None:
        if node_id in self._staged:
            return self._staged[node_id][-1]
        if node_id not in self._stored:
            self._stored[node_id] = self._lookup(node_id)
        return self._stored[node_id]

    def create(self, draft: MemoryNodeDraft) -> None:
        if draft.namespace != self._namespace:
            raise NamespaceMismatch(draft.id)
        if draft.status not in CREATABLE:
            raise InvalidTransition(draft.id, None, draft.status.value)
        if draft.created_at > self._at:
            raise InvalidInput("node.createdAt", "must not be later than the change set's occurredAt")
        _check_times(draft.evidence, self._at)
        _check_not_reserved("node.id", draft.id)
        for relation in draft.relations:
            _check_not_reserved("relation.targetId", relation.target_id)
        if self.head(draft.id) is not None:
            raise NodeAlreadyExists(draft.id)
        _check_unique_uris(draft.id, draft.evidence)
        if draft.status is MemoryStatus.ACTIVE and not draft.evidence:
            raise EvidenceRequired(draft.id, "an active memory needs at least one evidence")
        for relation in draft.relations:
            _check_not_to_itself(draft.id, relation)
        if len(set(draft.relations)) != len(draft.relations):
            raise InvariantViolation(draft.id, "a relation occurs twice")
        self._neighbours.update(relation.target_id for relation in draft.relations)
        self._staged[draft.id] = [
            NodeHead(
                id=draft.id,
                namespace=draft.namespace,
                revision=1,
                kind=draft.kind,
                status=draft.status,
                content=draft.content,
                confidence=draft.confidence,
                importance=draft.importance,
                evidence=draft.evidence,
                relations=draft.relations,
                labels=draft.labels,
                created_at=draft.created_at,
                updated_at=draft.created_at,
                revision_kind=RevisionKind.CREATED,
            )
        ]

    def change(self, operation: _Change) -> None:
        head = self.head(operation.node_id)
        if head is None:
            raise NodeNotFound(operation.node_id)
        if head.revision != operation.expected_revision:
            raise RevisionConflict(operation.node_id, operation.expected_revision, head.revision)
        if head.revision > limits.MAX_EARLIER_REVISIONS:
            raise LimitExceeded("node revisions", limits.MAX_EARLIER_REVISIONS, head.revision)
        if self._at < head.updated_at:
            raise InvalidInput("changeSet.occurredAt", "must not precede the node's updatedAt")
        if isinstance(operation, SetStatus):
            changes = self._status(head, operation)
        else:
            self._check_status(head, operation)
            if isinstance(operation, AddRelation | RemoveRelation):
                changes = self._relations(head, operation)
            else:
                changes = self._evidence(head, operation)
        reason = operation.mode if isinstance(operation, Revise) else type(operation)
        new = attrs.evolve(
            head,
            revision=head.revision + 1,
            updated_at=self._at,
            revision_kind=REVISION_KINDS[reason],
            **changes,
        )
        self._staged.setdefault(operation.node_id, []).append(new)

    def _status(self, head: NodeHead, operation: SetStatus) -> dict[str, Any]:
        if operation.status in CREATABLE:
            raise InvalidInput(
                "operation.status", "must be superseded, conflicted or tombstoned; only activate makes a memory active"
            )
        if operation.status not in STATUS_TRANSITIONS[head.status]:
            raise InvalidTransition(head.id, head.status.value, operation.status.value)
        return {"status": operation.status}

    def _check_status(self, head: NodeHead, operation: _Change) -> None:
        if head.status in OPERATION_STATUSES[type(operation)]:
            return
        if isinstance(operation, Activate):
            raise InvalidTransition(head.id, head.status.value, MemoryStatus.ACTIVE.value)
        raise InvariantViolation(head.id, f"a {head.status.value} memory cannot be changed by {operation.tag}")

    def _relations(self, head: NodeHead, operation: AddRelation | RemoveRelation) -> dict[str, Any]:
        relation = operation.relation
        self._neighbours.add(relation.target_id)
        if isinstance(operation, RemoveRelation):
            if relation not in head.relations:
                raise InvariantViolation(head.id, "the relation to remove is absent")
            return {"relations": tuple(item for item in head.relations if item != relation)}
        _check_not_reserved("relation.targetId", relation.target_id)
        _check_not_to_itself(head.id, relation)
        if relation in head.relations:
            raise InvariantViolation(head.id, "the relation to add is present already")
        if len(head.relations) >= limits.MAX_RELATIONS:
            raise LimitExceeded("node relations", limits.MAX_RELATIONS, len(head.relations) + 1)
        return {"relations": tuple(sorted((*head.relations, relation), key=MemoryRelation.sort_key))}

    def _evidence(self, head: NodeHead, operation: Activate | Corroborate | Revise) -> dict[str, Any]:
        new = operation.evidence
        _check_times(new, self._at)
        merged = (*head.evidence, *new)
        _check_evidence_limit(len(merged))
        _check_unique_uris(head.id, merged)
        changes: dict[str, Any] = {"evidence": tuple(sorted(merged, key=EvidenceRef.sort_key))}
        if isinstance(operation, Activate):
            changes["status"] = MemoryStatus.ACTIVE
        elif isinstance(operation, Revise):
            changes["content"] = operation.content
            if operation.confidence is not None:
                changes["confidence"] = operation.confidence
            if operation.importance is not None:
                changes["importance"] = operation.importance
        return changes

    def check(self) -> None:
        """Check the graph around everything that was touched, as the change set leaves it."""
        touched = sorted(self._neighbours.union(self._staged), key=str.encode)
        for node_id in touched:
            head = self.head(node_id)
            # A neighbour that does not exist is reported by the node whose relation names it. One that a
            # removed relation named exists: its inverse was there.
            if head is not None:
                check_graph(head, self.head)

        for node_id, states in self._staged.items():
            before = self._stored.get(node_id)
            check_ending(states if before is None else [before, *states])

    def result(self) -> tuple[StagedNode, ...]:
        return tuple(
            StagedNode(before=self._stored.get(node_id), states=tuple(self._staged[node_id]))
            for node_id in sorted(self._staged, key=str.encode)
        )


def check_graph(head: NodeHead, lookup: HeadLookup) -> None:
    """Check one node against the graph rules, reading its relation targets through `lookup`.

    Raises:
        RelationTargetNotFound: a relation's target does not exist.
        InvariantViolation: an inverse is missing, or a status lacks the relation it requires.
        EvidenceRequired: the node is active and has no evidence.
    """
    if head.status is MemoryStatus.ACTIVE and not head.evidence:
        raise EvidenceRequired(head.id, "an active memory needs at least one evidence")
    required = REQUIRED_RELATION.get(head.status)
    if required is not None and not head.has_relation(required):
        raise InvariantViolation(head.id, f"a {head.status.value} memory needs a {required.value} relation")
    for relation in head.relations:
        if relation.target_id.startswith(PURGED_PREFIX):
            continue  # the mark of an erased node: it names nobody, and nobody points back
        target = lookup(relation.target_id)
        if target is None:
            raise RelationTargetNotFound(head.id, relation.target_id)
        if MemoryRelation(relation.kind.inverse, head.id) not in target.relations:
            raise InvariantViolation(
                head.id,
                f"the target {relation.target_id!r} of {relation.kind.value} lacks the inverse "
                f"{relation.kind.inverse.value}; add both in one change set",
            )
        if relation.kind is RelationKind.SUPERSEDES and target.status not in FINAL_BUT_RETAINED:
            raise InvariantViolation(
                head.id, f"the target {relation.target_id!r} of supersedes must be superseded in the same change set"
            )


def check_ending(states: Sequence[NodeHead]) -> None:
    """Check that a node with a successor was superseded before it was tombstoned.

    A tombstone hides what the node was, so the graph alone cannot tell that the successor came honestly.

    Args:
        states: what is known of the node, the last one new.

    Raises:
        InvariantViolation: it was not.
    """
    head = states[-1]
    if head.status is not MemoryStatus.TOMBSTONED or not head.has_relation(RelationKind.SUPERSEDED_BY):
        return
    if not any(state.status is MemoryStatus.SUPERSEDED for state in states):
        raise InvariantViolation(head.id, "a memory with a successor must be superseded before it is tombstoned")


def _check_evidence_limit(count: int) -> None:
    if count > limits.MAX_EVIDENCE:
        raise LimitExceeded("node evidence", limits.MAX_EVIDENCE, count)


def _check_times(evidence: Sequence[EvidenceRef], at: Timestamp) -> None:
    if any(item.occurred_at > at for item in evidence):
        raise InvalidInput("evidence.occurredAt", "must not be later than the change set's occurredAt")


def _check_unique_uris(node_id: str, evidence: Sequence[EvidenceRef]) -> None:
    if len({item.uri for item in evidence}) != len(evidence):
        raise InvariantViolation(node_id, "evidence uris must be unique within a node; new evidence has a new uri")


def _check_not_reserved(field: str, node_id: str) -> None:
    if node_id.startswith(PURGED_PREFIX):
        raise InvalidInput(field, f"must not begin with {PURGED_PREFIX}, which marks erased nodes")


def _check_not_to_itself(node_id: str, relation: MemoryRelation) -> None:
    if relation.target_id == node_id:
        raise InvariantViolation(node_id, "a memory cannot be related to itself")
