"""Small change sets and events for the tests of the in-memory and the journal backend."""

from __future__ import annotations

from a3s_actors.memory import (
    AccessEvent,
    Create,
    EvidenceKind,
    EvidenceRef,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryOperation,
    MemoryStatus,
    Revise,
    RevisionMode,
    Timestamp,
)

NS = MemoryNamespace("tenant", "principal", "scope")
AT = Timestamp.parse("2026-01-02T03:04:05Z")


def evidence(name: str = "first") -> EvidenceRef:
    return EvidenceRef(uri=f"test://{name}", digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=AT)


def create(node_id: str, content: str = "a plain memory about trains") -> Create:
    return Create(
        MemoryNodeDraft(
            id=node_id,
            namespace=NS,
            kind=MemoryKind.SEMANTIC,
            status=MemoryStatus.ACTIVE,
            content=content,
            evidence=[evidence()],
            created_at=AT,
        )
    )


def revise(node_id: str, revision: int, content: str = "a corrected memory") -> Revise:
    return Revise(
        node_id,
        expected_revision=revision,
        content=content,
        mode=RevisionMode.CORRECTION,
        evidence=[evidence(f"revision-{revision}")],
    )


def change(key: str, *operations: MemoryOperation) -> MemoryChangeSet:
    return MemoryChangeSet(idempotency_key=key, namespace=NS, occurred_at=AT, operations=operations)


def event(event_id: str, node_id: str, revision: int = 1) -> AccessEvent:
    return AccessEvent(id=event_id, namespace=NS, node_id=node_id, node_revision=revision, occurred_at=AT)
