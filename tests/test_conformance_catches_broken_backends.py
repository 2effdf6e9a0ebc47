"""The conformance suite can fail: each way to break a backend is caught by the checks that name it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from a3s_actors.memory import (
    AccessEvent,
    AccessKind,
    AccessPage,
    ChangeSetResult,
    HistoryPage,
    MemoryChangeSet,
    MemoryHit,
    MemoryNamespace,
    MemoryNode,
    MemoryPurge,
    MemoryQuery,
    MemoryRepositoryError,
    MemoryStatus,
    NamespaceChangeToken,
    NamespaceSnapshot,
    NodeHead,
    NodePage,
    NodeRevision,
    PurgeReceipt,
    RevisionConflict,
    ScanRequest,
    SnapshotRequest,
    Timestamp,
    UsageSummary,
)
from a3s_actors.testing import run_conformance
from a3s_backends.in_memory import InMemoryRepository, open_in_memory_repository


class Plain:
    """Passes everything on."""

    def __init__(self, inner: InMemoryRepository) -> None:
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


class ForgetsHistory(Plain):
    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        node = await super().get(namespace, node_id)
        return None if node is None else attrs.evolve(node, history=())


class FoldsCase(Plain):
    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        return await super().get(namespace, node_id) or await super().get(namespace, node_id.lower())


class ServesForeignHits(Plain):
    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        hits = list(await super().query(query))
        for namespace in await self.inner.namespaces():
            if namespace != query.namespace:
                hits += await super().query(attrs.evolve(query, namespace=namespace))
        return tuple(hits[: query.limit])


class ServesCandidates(Plain):
    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        if isinstance(query, MemoryQuery):
            query = attrs.evolve(query, statuses={*query.statuses, MemoryStatus.CANDIDATE})
        return await super().query(query)


class SortsOldestFirst(Plain):
    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        hits = await super().query(query)
        return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.node.updated_at, hit.node.id)))


class AdmitsStaleRevisions(Plain):
    async def record_admission(self, event: AccessEvent) -> None:
        try:
            await super().record_admission(event)
        except MemoryRepositoryError:
            await trio.lowlevel.checkpoint()


class CountsReadsAsUses(Plain):
    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        node = await super().get(namespace, node_id)
        if node is not None:
            number = len((await self.inner.access_events(namespace, limit=1000)).records)
            event = AccessEvent(
                id=f"read-{number}",
                namespace=namespace,
                node_id=node_id,
                node_revision=node.revision,
                occurred_at=node.updated_at,
            )
            self.inner._state.record(AccessKind.USE, event)
        return node


class StandingToken(Plain):
    async def namespace_change_token(self, namespace: MemoryNamespace) -> NamespaceChangeToken | None:
        await super().namespace_change_token(namespace)
        return NamespaceChangeToken(0)


class AppliesInParts(Plain):
    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        try:
            return await super().apply(change_set)
        except RevisionConflict:
            for number, operation in enumerate(change_set.operations):
                part = attrs.evolve(change_set, idempotency_key=f"part-{number}", operations=(operation,))
                try:
                    self.inner._state.apply(part)
                except MemoryRepositoryError:
                    break
            raise


class ForgetsKeys(Plain):
    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        result = await super().apply(change_set)
        self.inner._state._spaces[change_set.namespace].applied.pop(change_set.idempotency_key)
        return result


class CutsSnapshots(Plain):
    async def snapshot_namespace(self, request: SnapshotRequest) -> NamespaceSnapshot:
        if isinstance(request, SnapshotRequest):
            request = SnapshotRequest(namespace=request.namespace, statuses=request.statuses)
        return await super().snapshot_namespace(request)


class LosesTheSecondHalfOfPages(Plain):
    async def scan(self, request: ScanRequest) -> NodePage:
        page = await super().scan(request)
        return attrs.evolve(page, next_after=None)


class RoundsTime(Plain):
    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        node = await super().get(namespace, node_id)
        if node is None:
            return None
        seconds = node.created_at.ns // 1_000_000_000 * 1_000_000_000
        return attrs.evolve(node, created_at=Timestamp(seconds))


class CutsAtNul(Plain):
    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        node = await super().get(namespace, node_id)
        return None if node is None else attrs.evolve(node, content=node.content.split("\0")[0] or "x")


class StaysOpen(Plain):
    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        await trio.lowlevel.checkpoint()
        return self.inner._state.get(namespace, node_id)


class NeverLetsOthersRun(Plain):
    async def get_heads(self, namespace: MemoryNamespace, node_ids: Iterable[str]) -> dict[str, NodeHead]:
        return self.inner._state.get_heads(namespace, node_ids)


class PurgesOnlyTheHead(Plain):
    async def purge(self, purge: MemoryPurge) -> PurgeReceipt:
        receipt = await super().purge(purge)
        for each in receipt.change_sets:
            self.inner._state._spaces[purge.namespace].erased.pop(each.key, None)
        return receipt


class OmitsTheCurrentRevision(Plain):
    async def history(self, namespace: MemoryNamespace, node_id: str, after: int = 0, limit: int = 100) -> HistoryPage:
        page = await super().history(namespace, node_id, after, limit)
        kept: tuple[NodeRevision, ...] = page.revisions
        return page if page.next_after is not None else attrs.evolve(page, revisions=kept[:-1])


@attrs.frozen
class Factory:
    wrapper: type[Plain]
    persistent: bool = False

    def __call__(self) -> AbstractAsyncContextManager[Any]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        async with open_in_memory_repository() as inner:
            yield self.wrapper(inner)


BROKEN: dict[type[Plain], str] = {
    ForgetsHistory: "get_returns_the_whole_node_or_none",
    FoldsCase: "get_returns_the_whole_node_or_none",
    ServesForeignHits: "namespaces_are_exact",
    ServesCandidates: "query_serves_active_memories_unless_told_otherwise",
    SortsOldestFirst: "query_orders_by_score_then_newest_then_id",
    AdmitsStaleRevisions: "admission_takes_the_current_revision_of_an_active_node_only",
    CountsReadsAsUses: "reads_change_nothing",
    StandingToken: "change_token_moves_with_every_novel_change_set_and_nothing_else",
    AppliesInParts: "a_refused_operation_undoes_the_whole_change_set",
    ForgetsKeys: "an_exact_replay_returns_the_first_result",
    CutsSnapshots: "snapshot_over_a_budget_is_refused_never_cut",
    LosesTheSecondHalfOfPages: "scan_pages_by_id_bytes_with_filters",
    RoundsTime: "create_stores_every_field_as_it_was_given",
    CutsAtNul: "create_stores_every_field_as_it_was_given",
    StaysOpen: "closing_wakes_everybody_with_the_typed_error",
    NeverLetsOthersRun: "every_method_is_a_checkpoint",
    PurgesOnlyTheHead: "purge_is_remembered",
    OmitsTheCurrentRevision: "history_pages_from_old_to_new",
}


@pytest.mark.parametrize("wrapper", BROKEN, ids=lambda wrapper: wrapper.__name__)
async def test_the_check_that_names_it_catches_the_breakage(wrapper: type[Plain]) -> None:
    results = await run_conformance(lambda: Factory(wrapper))
    failed = {result.check.name for result in results if result.error is not None}
    assert BROKEN[wrapper] in failed


async def test_a_wrapper_that_breaks_nothing_passes() -> None:
    results = await run_conformance(lambda: Factory(Plain))
    assert [result.check.name for result in results if result.error is not None] == []
