"""A repository around another one: what a gate builds on to break a rule on purpose, through what it injects."""

from __future__ import annotations

from collections.abc import Iterable

from a3s_actors.memory import (
    AccessEvent,
    AccessPage,
    ChangeSetResult,
    HistoryPage,
    MemoryChangeSet,
    MemoryHit,
    MemoryNamespace,
    MemoryNode,
    MemoryPurge,
    MemoryQuery,
    MemoryRepository,
    NamespaceChangeToken,
    NamespaceSnapshot,
    NodeHead,
    NodePage,
    PurgeReceipt,
    ScanRequest,
    SnapshotRequest,
    UsageSummary,
)

__all__ = ["Around"]


class Around:
    """Does what the inner repository does; a subclass does one thing wrong."""

    def __init__(self, inner: MemoryRepository) -> None:
        self.inner = inner

    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        return await self.inner.apply(change_set)

    async def record_admission(self, event: AccessEvent) -> None:
        await self.inner.record_admission(event)

    async def record_use(self, event: AccessEvent) -> None:
        await self.inner.record_use(event)

    async def purge(self, purge: MemoryPurge) -> PurgeReceipt:
        return await self.inner.purge(purge)

    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        return await self.inner.get(namespace, node_id)

    async def get_heads(self, namespace: MemoryNamespace, node_ids: Iterable[str]) -> dict[str, NodeHead]:
        return await self.inner.get_heads(namespace, node_ids)

    async def history(self, namespace: MemoryNamespace, node_id: str, after: int = 0, limit: int = 100) -> HistoryPage:
        return await self.inner.history(namespace, node_id, after, limit)

    async def scan(self, request: ScanRequest) -> NodePage:
        return await self.inner.scan(request)

    async def namespaces(self) -> tuple[MemoryNamespace, ...]:
        return await self.inner.namespaces()

    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        return await self.inner.query(query)

    async def snapshot_namespace(self, request: SnapshotRequest) -> NamespaceSnapshot:
        return await self.inner.snapshot_namespace(request)

    async def namespace_change_token(self, namespace: MemoryNamespace) -> NamespaceChangeToken | None:
        return await self.inner.namespace_change_token(namespace)

    async def usage_summary(self, namespace: MemoryNamespace, node_id: str) -> UsageSummary:
        return await self.inner.usage_summary(namespace, node_id)

    async def access_events(
        self, namespace: MemoryNamespace, node_id: str | None = None, after: int = 0, limit: int = 100
    ) -> AccessPage:
        return await self.inner.access_events(namespace, node_id, after, limit)
