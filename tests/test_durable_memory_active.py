"""Active recall in a session: only what is active right now, and recorded first, reaches the model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from a3s_actors.agent import SessionOptions
from a3s_actors.memory import (
    AccessEvent,
    MemoryHit,
    MemoryNamespace,
    MemoryOperation,
    MemoryQuery,
    MemoryRepository,
    MemoryStatus,
    Persistence,
    RelationKind,
    SnapshotRequest,
    UsageSummary,
)
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession, RemovalReason
from a3s_actors.testing import ScriptedModelClient
from a3s_actors.testing.building import NS, add, at, change, create, revise, set_status, supersede
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.journal import open_file_repository
from a3s_backends.sqlite import open_sqlite_repository
from evals.gates.wrapping import Around
from tests.agents import POLICY, open_both, remember

FACT = "The parcel service is deployed on Tuesdays."
QUESTION = "On which day is the parcel service deployed?"


@pytest.fixture(params=["in_memory", "journal", "sqlite"])
async def repository(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryRepository]:
    openings: dict[str, AbstractAsyncContextManager[MemoryRepository]] = {
        "in_memory": open_in_memory_repository(),
        "journal": open_file_repository(tmp_path / "journal"),
        "sqlite": open_sqlite_repository(tmp_path / "memory.db"),
    }
    async with openings[request.param] as opened:
        yield opened


def conflict(one: str, other: str) -> tuple[MemoryOperation, ...]:
    """Say that two memories contradict each other, and that the first is not to be served."""
    return (
        add(one, RelationKind.CONFLICTS_WITH, other),
        add(other, RelationKind.CONFLICTS_WITH, one),
        set_status(one, MemoryStatus.CONFLICTED, 2),
    )


async def ask(repository: MemoryRepository) -> tuple[str, list[RemovalReason]]:
    """Ask the question in a new session; return the model's input and why memories were removed from it."""
    model = ScriptedModelClient(otherwise="ok")
    durable = DurableMemorySession.active_recall(repository, NS, POLICY)
    async with open_both(model, SessionOptions(durable_memory=durable)) as (_, session):
        reply = await session.send(QUESTION)
    text = "\n".join(message.content for request in model.requests for message in request.messages)
    return text, [each.reason for each in reply.context.removed]


@pytest.mark.parametrize("status", [each for each in MemoryStatus if each is not MemoryStatus.ACTIVE])
async def test_a_memory_that_is_not_active_reaches_no_model(repository: MemoryRepository, status: MemoryStatus) -> None:
    candidate = status is MemoryStatus.CANDIDATE
    operations: tuple[MemoryOperation, ...] = ()
    await remember(repository, "fact", FACT, status if candidate else MemoryStatus.ACTIVE)
    await remember(repository, "new", "Something else entirely.")
    if status is MemoryStatus.SUPERSEDED:
        operations = supersede("fact", "new")
    elif status is MemoryStatus.CONFLICTED:
        operations = conflict("fact", "new")
    elif not candidate:
        operations = (set_status("fact", status),)
    if not candidate:
        await repository.apply(change("later", *operations, second=10))
    text, removed = await ask(repository)
    assert FACT not in text
    assert removed == []
    assert await repository.usage_summary(NS, "fact") == UsageSummary(0, 0)


async def test_an_active_memory_reaches_the_model_once_recorded_and_is_not_used_by_that(
    repository: MemoryRepository,
) -> None:
    await remember(repository, "fact", FACT)
    before = await repository.snapshot_namespace(SnapshotRequest(namespace=NS))
    text, removed = await ask(repository)
    assert text.count(FACT) == 1
    assert removed == []
    assert await repository.usage_summary(NS, "fact") == UsageSummary(1, 0)
    assert (await repository.snapshot_namespace(SnapshotRequest(namespace=NS))).digest == before.digest


@pytest.mark.parametrize(
    "other",
    [
        MemoryNamespace("Tenant", "principal", "scope"),
        MemoryNamespace("tenant", "principal", "scope "),
        MemoryNamespace("tenant", "principal", "scop"),
        MemoryNamespace("tenant", "scope", "principal"),
    ],
    ids=str,
)
async def test_a_namespace_that_is_nearly_the_same_is_another_one(
    repository: MemoryRepository, other: MemoryNamespace
) -> None:
    await repository.apply(change("theirs", create("fact", FACT, namespace=other), namespace=other))
    text, _ = await ask(repository)
    assert FACT not in text
    assert await repository.usage_summary(other, "fact") == UsageSummary(0, 0)


class ChangesAfterRecall(Around):
    """Another writer comes right after each query."""

    def __init__(self, inner: MemoryRepository, *operations: MemoryOperation) -> None:
        super().__init__(inner)
        self.operations = operations

    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        found = await super().query(query)
        await self.inner.apply(change("meanwhile", *self.operations, second=10))
        return found


@pytest.mark.parametrize(
    "operations",
    [
        (set_status("fact", MemoryStatus.TOMBSTONED),),
        conflict("fact", "new"),
        (revise("fact", "The parcel service is deployed on Fridays."),),
    ],
    ids=["tombstoned", "conflicted", "corrected"],
)
async def test_what_changes_between_recall_and_the_model_does_not_reach_it(
    repository: MemoryRepository, operations: tuple[MemoryOperation, ...]
) -> None:
    await remember(repository, "fact", FACT)
    await remember(repository, "new", "Something else entirely.")
    text, removed = await ask(ChangesAfterRecall(repository, *operations))
    assert FACT not in text
    assert removed == [RemovalReason.NOT_ADMISSIBLE]
    assert await repository.usage_summary(NS, "fact") == UsageSummary(0, 0)


class CannotRecord(Around):
    async def record_admission(self, event: AccessEvent) -> None:
        raise Persistence("record_admission", "the disk is full")


async def test_what_cannot_be_recorded_does_not_reach_the_model_and_the_turn_goes_on(
    repository: MemoryRepository,
) -> None:
    await remember(repository, "fact", FACT)
    text, removed = await ask(CannotRecord(repository))
    assert FACT not in text
    assert QUESTION in text
    assert removed == [RemovalReason.STORAGE]


async def test_a_related_memory_comes_with_its_seed_and_a_conflicting_one_never(repository: MemoryRepository) -> None:
    against = "Nobody may ship before noon."
    await repository.apply(
        change(
            "all",
            create("fact", FACT),
            create("near", "Its rollback takes four minutes."),
            create("against", against),
            add("fact", RelationKind.RELATED_TO, "near"),
            add("near", RelationKind.RELATED_TO, "fact"),
            add("fact", RelationKind.CONFLICTS_WITH, "against", 2),
            add("against", RelationKind.CONFLICTS_WITH, "fact"),
        )
    )
    model = ScriptedModelClient(otherwise="ok")
    durable = DurableMemorySession.active_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.3, 4))
    async with open_both(model, SessionOptions(durable_memory=durable)) as (_, session):
        reply = await session.send(QUESTION)
    found = {item.id: item.hit for item in reply.context.items}
    assert found.keys() == {"fact", "near"}
    assert found["near"] is not None
    assert found["near"].related_from == "fact"
    page = await repository.access_events(NS)
    assert {record.event.node_id for record in page.records} == {"fact", "near"}
    assert all(record.event.occurred_at >= at(100) for record in page.records)
