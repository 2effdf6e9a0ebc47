"""Short ways to the kernel's values, for tests. Everything is the same on every call; no clock, no chance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from a3s_actors.memory.operations import (
    Activate,
    AddRelation,
    Corroborate,
    Create,
    MemoryChangeSet,
    MemoryOperation,
    RemoveRelation,
    Revise,
    RevisionMode,
    SetStatus,
)
from a3s_actors.memory.purge import MemoryPurge
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import (
    AccessEvent,
    EvidenceKind,
    EvidenceRef,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryRelation,
    MemoryStatus,
    RelationKind,
)

__all__ = [
    "NS",
    "OTHER",
    "access",
    "activate",
    "add",
    "at",
    "change",
    "corroborate",
    "create",
    "draft",
    "evidence",
    "purge",
    "relate",
    "remove",
    "revise",
    "set_status",
    "supersede",
]

NS: Final = MemoryNamespace("tenant", "principal", "scope")
"""The namespace that builders use."""
OTHER: Final = MemoryNamespace("tenant", "principal", "scope2")
"""Another, of which the first is a prefix."""

_EPOCH: Final = Timestamp.of("2026-01-01T00:00:00Z").ns


def at(second: float = 0) -> Timestamp:
    """Return an instant, so many seconds after the first one."""
    return Timestamp(_EPOCH + round(second * 1_000_000_000))


def evidence(uri: str, kind: EvidenceKind = EvidenceKind.MANUAL, second: float = 0) -> EvidenceRef:
    """Return a piece of evidence."""
    digest = f"sha256:{hashlib.sha256(uri.encode()).hexdigest()}"
    return EvidenceRef(uri=uri, digest=digest, kind=kind, occurred_at=at(second))


def draft(
    node_id: str,
    content: str = "a plain memory",
    *,
    status: MemoryStatus = MemoryStatus.ACTIVE,
    kind: MemoryKind = MemoryKind.SEMANTIC,
    namespace: MemoryNamespace = NS,
    relations: Iterable[MemoryRelation] = (),
    labels: Mapping[str, str] | None = None,
    proofs: Iterable[EvidenceRef] | None = None,
    confidence: float = 0.5,
    importance: float = 0.5,
    second: float = 0,
) -> MemoryNodeDraft:
    """Return a draft, active with one piece of evidence unless told otherwise."""
    return MemoryNodeDraft(
        id=node_id,
        namespace=namespace,
        kind=kind,
        status=status,
        content=content,
        confidence=confidence,
        importance=importance,
        evidence=tuple([evidence(f"source://{node_id}")] if proofs is None else proofs),
        relations=tuple(relations),
        labels=labels,
        created_at=at(second),
    )


def create(node_id: str, content: str = "a plain memory", **fields: object) -> Create:
    """Return the creation of `draft(node_id, content, …)`."""
    return Create(draft(node_id, content, **fields))  # type: ignore[arg-type]


def change(
    key: str, *operations: MemoryOperation, second: float = 0, namespace: MemoryNamespace = NS
) -> MemoryChangeSet:
    """Return a change set."""
    return MemoryChangeSet(
        idempotency_key=key, namespace=namespace, occurred_at=at(second), operations=tuple(operations)
    )


def activate(node_id: str, revision: int = 1, uri: str = "review://1") -> Activate:
    """Return an activation."""
    return Activate(node_id, expected_revision=revision, evidence=(evidence(uri),))


def corroborate(node_id: str, revision: int = 1, uri: str = "more://1") -> Corroborate:
    """Return a corroboration."""
    return Corroborate(node_id, expected_revision=revision, evidence=(evidence(uri),))


def revise(
    node_id: str,
    content: str,
    revision: int = 1,
    *,
    mode: RevisionMode = RevisionMode.CORRECTION,
    uri: str | None = None,
    confidence: float | None = None,
    importance: float | None = None,
) -> Revise:
    """Return a revision, with evidence that is new for each revision."""
    return Revise(
        node_id,
        expected_revision=revision,
        content=content,
        mode=mode,
        evidence=(evidence(f"revision://{revision}" if uri is None else uri),),
        confidence=confidence,
        importance=importance,
    )


def relate(kind: RelationKind, target: str) -> MemoryRelation:
    """Return a relation."""
    return MemoryRelation(kind, target)


def add(node_id: str, kind: RelationKind, target: str, revision: int = 1) -> AddRelation:
    """Return the addition of a relation."""
    return AddRelation(node_id, expected_revision=revision, relation=MemoryRelation(kind, target))


def remove(node_id: str, kind: RelationKind, target: str, revision: int = 1) -> RemoveRelation:
    """Return the removal of a relation."""
    return RemoveRelation(node_id, expected_revision=revision, relation=MemoryRelation(kind, target))


def set_status(node_id: str, status: MemoryStatus, revision: int = 1) -> SetStatus:
    """Return a status change."""
    return SetStatus(node_id, expected_revision=revision, status=status)


def supersede(old: str, new: str, old_revision: int = 1, new_revision: int = 1) -> tuple[MemoryOperation, ...]:
    """Return the operations by which one memory takes the place of another."""
    return (
        add(new, RelationKind.SUPERSEDES, old, new_revision),
        add(old, RelationKind.SUPERSEDED_BY, new, old_revision),
        set_status(old, MemoryStatus.SUPERSEDED, old_revision + 1),
    )


def access(
    event_id: str,
    node_id: str,
    revision: int = 1,
    *,
    second: float = 0,
    context: str | None = None,
    namespace: MemoryNamespace = NS,
) -> AccessEvent:
    """Return an access event."""
    return AccessEvent(
        id=event_id,
        namespace=namespace,
        node_id=node_id,
        node_revision=revision,
        occurred_at=at(second),
        context_id=context,
    )


def purge(key: str, *node_ids: str, second: float = 100, namespace: MemoryNamespace = NS) -> MemoryPurge:
    """Return a purge of some nodes, of everything when none is named."""
    return MemoryPurge(
        idempotency_key=key,
        namespace=namespace,
        node_ids=node_ids or None,
        reason=evidence("ticket://1"),
        occurred_at=at(second),
    )
