"""The reads of a repository whose whole state is in memory: a checkpoint, then one synchronous call.

No await lies between the reading of two things, so every answer is of one point.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from a3s_actors.memory.errors import RepositoryClosed
from a3s_actors.memory.limits import DEFAULT_PAGE_LIMIT
from a3s_actors.memory.reads import (
    AccessCursor,
    AccessPage,
    HistoryPage,
    MemoryHit,
    MemoryQuery,
    NamespaceChangeToken,
    NodePage,
    ScanRequest,
    check_node_id,
    check_type,
)
from a3s_actors.memory.reference import ReferenceState
from a3s_actors.memory.snapshot import NamespaceSnapshot, SnapshotRequest
from a3s_actors.memory.values import MemoryNamespace, MemoryNode, NodeHead, UsageSummary

__all__ = ["ReferenceReads"]


class ReferenceReads:
    """The reading half of `MemoryRepository` over a `ReferenceState`.

    Every method raises `InvalidInput` for an argument of the wrong type and `RepositoryClosed` after the close.
    Queries, scans and snapshots read every node of the namespace in the trio thread.

    Cancellation: each method is one checkpoint, before it reads anything.
    """

    def __init__(self, state: ReferenceState) -> None:
        self._state = state
        self._closed = False

    async def _enter(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise RepositoryClosed("closed")

    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        """See `MemoryRepository.get`."""
        check_type("namespace", namespace, MemoryNamespace)
        await self._enter()
        return self._state.get(namespace, node_id)

    async def get_heads(self, namespace: MemoryNamespace, node_ids: Iterable[str]) -> dict[str, NodeHead]:
        """See `MemoryRepository.get_heads`."""
        check_type("namespace", namespace, MemoryNamespace)
        await self._enter()
        return self._state.get_heads(namespace, node_ids)

    async def history(
        self, namespace: MemoryNamespace, node_id: str, after: int = 0, limit: int = DEFAULT_PAGE_LIMIT
    ) -> HistoryPage:
        """See `MemoryRepository.history`."""
        check_type("namespace", namespace, MemoryNamespace)
        await self._enter()
        return self._state.history(namespace, node_id, after, limit)

    async def scan(self, request: ScanRequest) -> NodePage:
        """See `MemoryRepository.scan`."""
        check_type("scan", request, ScanRequest)
        await self._enter()
        return self._state.scan(request)

    async def namespaces(self) -> tuple[MemoryNamespace, ...]:
        """See `MemoryRepository.namespaces`."""
        await self._enter()
        return self._state.namespaces()

    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        """See `MemoryRepository.query`. Reads every text; there is no index."""
        check_type("query", query, MemoryQuery)
        await self._enter()
        return self._state.query(query)

    async def snapshot_namespace(self, request: SnapshotRequest) -> NamespaceSnapshot:
        """See `MemoryRepository.snapshot_namespace`."""
        check_type("snapshot", request, SnapshotRequest)
        await self._enter()
        return self._state.snapshot(request)

    async def namespace_change_token(self, namespace: MemoryNamespace) -> NamespaceChangeToken:
        """See `MemoryRepository.namespace_change_token`."""
        check_type("namespace", namespace, MemoryNamespace)
        await self._enter()
        return self._state.change_token(namespace)

    async def usage_summary(self, namespace: MemoryNamespace, node_id: str) -> UsageSummary:
        """See `MemoryRepository.usage_summary`."""
        check_type("namespace", namespace, MemoryNamespace)
        await self._enter()
        return self._state.usage_summary(namespace, node_id)

    async def access_events(
        self,
        namespace: MemoryNamespace,
        node_id: str | None = None,
        after: AccessCursor = 0,
        limit: int = DEFAULT_PAGE_LIMIT,
    ) -> AccessPage:
        """See `MemoryRepository.access_events`."""
        check_type("namespace", namespace, MemoryNamespace)
        if node_id is not None:
            check_node_id(node_id)
        await self._enter()
        return self._state.access_events(namespace, node_id, after, limit)
