"""What the in-memory backend promises beyond the conformance suite: checkpoints, closing, isolation of two opens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints

from a3s_actors.memory import (
    EvidenceKind,
    EvidenceRef,
    InvalidInput,
    MemoryPurge,
    MemoryQuery,
    MemoryRepository,
    NodeAlreadyExists,
    RepositoryClosed,
    ScanRequest,
    SnapshotRequest,
)
from a3s_backends.in_memory import InMemoryRepository, open_in_memory_repository
from tests.journal_data import AT, NS, change, create, event

Call = Callable[[MemoryRepository], Awaitable[Any]]

PURGE = MemoryPurge(
    idempotency_key="purge",
    namespace=NS,
    node_ids=("n",),
    reason=EvidenceRef(uri="ticket://1", digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=AT),
    occurred_at=AT,
)
CALLS: dict[str, Call] = {
    "apply": lambda r: r.apply(change("call", create("call"))),
    "record_admission": lambda r: r.record_admission(event("admission", "n")),
    "record_use": lambda r: r.record_use(event("use", "n")),
    "purge": lambda r: r.purge(PURGE),
    "get": lambda r: r.get(NS, "n"),
    "get_heads": lambda r: r.get_heads(NS, ["n"]),
    "history": lambda r: r.history(NS, "n"),
    "scan": lambda r: r.scan(ScanRequest(namespace=NS)),
    "namespaces": lambda r: r.namespaces(),
    "query": lambda r: r.query(MemoryQuery(namespace=NS, text="trains")),
    "snapshot_namespace": lambda r: r.snapshot_namespace(SnapshotRequest(namespace=NS)),
    "namespace_change_token": lambda r: r.namespace_change_token(NS),
    "usage_summary": lambda r: r.usage_summary(NS, "n"),
    "access_events": lambda r: r.access_events(NS),
}


def test_every_method_of_the_protocol_is_called_here() -> None:
    assert set(CALLS) == {name for name in vars(MemoryRepository) if not name.startswith("_")}


@pytest.mark.parametrize("name", CALLS)
async def test_every_method_is_a_checkpoint_and_answers(name: str) -> None:
    async with open_in_memory_repository() as repository:
        await repository.apply(change("k", create("n")))
        with assert_checkpoints():
            await CALLS[name](repository)


@pytest.mark.parametrize("name", CALLS)
async def test_every_method_says_so_after_the_close(name: str) -> None:
    async with open_in_memory_repository() as repository:
        await repository.apply(change("k", create("n")))
    with assert_checkpoints(), pytest.raises(RepositoryClosed, match="open it again"):
        await CALLS[name](repository)


@pytest.mark.parametrize("name", ["apply", "record_admission", "record_use", "purge"])
async def test_a_cancelled_write_leaves_nothing_behind(name: str) -> None:
    async with open_in_memory_repository() as repository:
        await repository.apply(change("k", create("n")))
        with trio.CancelScope() as scope:
            scope.cancel()
            await CALLS[name](repository)
        assert scope.cancelled_caught
        assert await repository.get(NS, "call") is None
        assert await repository.get(NS, "n") is not None
        assert (await repository.access_events(NS)).records == ()
        token = await repository.namespace_change_token(NS)
        assert token.sequence == 1


async def test_a_call_that_waits_at_its_checkpoint_while_the_repository_closes_gets_the_typed_error() -> None:
    outcomes: list[type[BaseException]] = []

    async def late(repository: InMemoryRepository) -> None:
        with pytest.raises(RepositoryClosed) as caught:
            await repository.apply(change("late", create("late")))
        outcomes.append(caught.type)

    # The repository closes first, before the task has made its first step.
    async with trio.open_nursery() as nursery, open_in_memory_repository() as repository:
        nursery.start_soon(late, repository)
    assert outcomes == [RepositoryClosed]


@pytest.mark.parametrize(
    "call",
    [
        lambda r: r.apply("x"),
        lambda r: r.record_use("x"),
        lambda r: r.record_admission(change("k", create("n"))),
        lambda r: r.get("tenant", "n"),
        lambda r: r.query("trains"),
        lambda r: r.scan(NS),
        lambda r: r.snapshot_namespace(NS),
        lambda r: r.access_events(NS, ""),
    ],
)
async def test_an_argument_of_the_wrong_sort_is_named(call: Callable[[Any], Awaitable[object]]) -> None:
    async with open_in_memory_repository() as repository:
        with pytest.raises(InvalidInput, match="must"):
            await call(repository)


async def test_two_repositories_share_nothing_and_nothing_outlives_its_block() -> None:
    async with open_in_memory_repository() as one, open_in_memory_repository() as two:
        await one.apply(change("k", create("n")))
        assert await two.get(NS, "n") is None
        with pytest.raises(NodeAlreadyExists):
            await one.apply(change("k2", create("n")))
    async with open_in_memory_repository() as three:
        assert await three.namespaces() == ()


async def test_an_exception_of_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_in_memory_repository():
            raise KeyError("mine")


def test_its_repr_says_whether_it_is_open() -> None:
    repository = InMemoryRepository()
    assert repr(repository) == "<InMemoryRepository>"
    assert isinstance(repository, MemoryRepository)
