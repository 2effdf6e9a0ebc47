"""Every public coroutine of every backend, cancelled at every scheduler step: all or nothing, and usable after."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from a3s_actors.memory import (
    AccessEvent,
    Create,
    EvidenceKind,
    EvidenceRef,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryQuery,
    MemoryStatus,
    ScanRequest,
    SnapshotRequest,
    Timestamp,
)
from a3s_actors.testing.cancellation import CancelledCall, sweep_cancellation
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.journal import open_file_repository
from a3s_backends.sqlite import open_sqlite_repository

NS = MemoryNamespace("tenant", "principal", "scope")
AT = Timestamp.parse("2026-01-02T03:04:05Z")
BACKENDS = ["in_memory", "sqlite", "journal"]


@asynccontextmanager
async def opened(backend: str, path: Path) -> AsyncIterator[Any]:
    if backend == "in_memory":
        async with open_in_memory_repository() as repository:
            yield repository
    elif backend == "sqlite":
        async with open_sqlite_repository(path / "memory.db") as repository:
            yield repository
    else:
        async with open_file_repository(path / "journal") as repository:
            yield repository


def creation(key: str) -> MemoryChangeSet:
    evidence = EvidenceRef(uri="test://e", digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=AT)
    drafts = [
        MemoryNodeDraft(
            id=f"{key}-{end}",
            namespace=NS,
            kind=MemoryKind.SEMANTIC,
            status=MemoryStatus.ACTIVE,
            content=f"memory {key}",
            evidence=[evidence],
            created_at=AT,
        )
        for end in "ab"
    ]
    return MemoryChangeSet(idempotency_key=key, namespace=NS, occurred_at=AT, operations=map(Create, drafts))


READS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "get": lambda repository: repository.get(NS, "base-a"),
    "get_heads": lambda repository: repository.get_heads(NS, ["base-a", "base-b", "none"]),
    "history": lambda repository: repository.history(NS, "base-a"),
    "scan": lambda repository: repository.scan(ScanRequest(namespace=NS)),
    "namespaces": lambda repository: repository.namespaces(),
    "query": lambda repository: repository.query(MemoryQuery(namespace=NS, text="memory base")),
    "snapshot_namespace": lambda repository: repository.snapshot_namespace(SnapshotRequest(namespace=NS)),
    "namespace_change_token": lambda repository: repository.namespace_change_token(NS),
    "usage_summary": lambda repository: repository.usage_summary(NS, "base-a"),
    "access_events": lambda repository: repository.access_events(NS),
}


@pytest.mark.parametrize("backend", BACKENDS)
async def test_apply_is_all_or_nothing_at_every_step_and_a_retry_gives_the_result(backend: str, tmp_path: Path) -> None:
    keys = (f"k{number}" for number in itertools.count())
    current: list[MemoryChangeSet] = []
    async with opened(backend, tmp_path) as repository:

        async def make_call() -> Callable[[], Awaitable[object]]:
            change_set = creation(next(keys))
            current[:] = [change_set]
            return lambda: repository.apply(change_set)

        async def check(call: CancelledCall[object]) -> None:
            assert call.error is None
            key = current[0].idempotency_key
            stored = [await repository.get(NS, f"{key}-{end}") for end in "ab"]
            if call.cancelled:
                assert stored == [None, None]
            else:
                assert None not in stored
                assert call.value is not None
            again = await repository.apply(current[0])
            assert call.cancelled or again == call.value

        assert await sweep_cancellation(make_call, check) > (1 if backend == "in_memory" else 3)


@pytest.mark.parametrize("kind", ["record_admission", "record_use"])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_access_events_are_recorded_once_or_not_at_all(backend: str, kind: str, tmp_path: Path) -> None:
    names = (f"e{number}" for number in itertools.count())
    current: list[AccessEvent] = []
    async with opened(backend, tmp_path) as repository:
        await repository.apply(creation("base"))
        record = getattr(repository, kind)

        async def make_call() -> Callable[[], Awaitable[object]]:
            event = AccessEvent(id=next(names), namespace=NS, node_id="base-a", node_revision=1, occurred_at=AT)
            current[:] = [event]
            return lambda: record(event)

        async def check(call: CancelledCall[object]) -> None:
            assert call.error is None
            page = await repository.access_events(NS, limit=1000)
            assert [r.event for r in page.records].count(current[0]) == (0 if call.cancelled else 1)
            await record(current[0])
            page = await repository.access_events(NS, limit=1000)
            assert [r.event for r in page.records].count(current[0]) == 1

        await sweep_cancellation(make_call, check)


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_cancelled_read_changes_nothing_and_the_next_one_answers(
    backend: str, name: str, tmp_path: Path
) -> None:
    async with opened(backend, tmp_path) as repository:
        await repository.apply(creation("base"))

        def plain(answer: Any) -> object:
            return answer.digest if hasattr(answer, "digest") else answer

        wanted = plain(await READS[name](repository))

        async def make_call() -> Callable[[], Awaitable[object]]:
            return lambda: READS[name](repository)

        async def check(call: CancelledCall[object]) -> None:
            assert call.error is None
            assert call.cancelled or plain(call.value) == wanted
            assert plain(await READS[name](repository)) == wanted

        await sweep_cancellation(make_call, check)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_opening_and_closing_can_be_cancelled_at_every_step(backend: str, tmp_path: Path) -> None:
    numbers = itertools.count()

    async def make_call() -> Callable[[], Awaitable[object]]:
        async def call() -> None:
            async with opened(backend, tmp_path) as repository:
                await repository.apply(creation(f"k{next(numbers)}"))

        return call

    async def check(call: CancelledCall[object]) -> None:
        assert call.error is None
        # Whatever happened, the storage can be opened again at once: no lock, lease or transaction is left.
        with trio.fail_after(5):
            async with opened(backend, tmp_path) as repository:
                await repository.apply(creation(f"after{next(numbers)}"))

    await sweep_cancellation(make_call, check)
