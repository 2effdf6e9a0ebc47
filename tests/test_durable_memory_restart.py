"""A session and its memory across full closes: the journal and the file session store, one story."""

from __future__ import annotations

import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from a3s_actors.agent import (
    ExtractionPolicy,
    RunIdentityConflict,
    RunState,
    SessionOptions,
    open_agent,
)
from a3s_actors.memory import EvidenceKind, MemoryNamespace, MemoryRepository, MemoryStatus, ScanRequest, UsageSummary
from a3s_actors.recall import (
    DurableMemoryActivation,
    DurableMemoryBindingMismatch,
    DurableMemorySession,
    DurableMemoryUse,
)
from a3s_actors.testing import ScriptedModelClient, proposals_reply
from a3s_actors.testing.building import NS, at, evidence
from a3s_backends.file_sessions import FileSessionStore, open_file_session_store
from a3s_backends.journal import open_file_repository
from tests.agents import POLICY, counting_host

FACT = "The parcel service is deployed on Tuesdays."
QUESTION = "On which day is the parcel service deployed?"
OTHER = MemoryNamespace(NS.tenant_id, NS.principal_id, NS.scope_id + "2")


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[MemoryRepository, FileSessionStore]]:
    async with (
        open_file_repository(folder / "memory") as repository,
        open_file_session_store(folder / "sessions") as store,
    ):
        yield repository, store


def options(repository: MemoryRepository, store: FileSessionStore, namespace: MemoryNamespace = NS) -> SessionOptions:
    durable = DurableMemorySession.active_recall(repository, namespace, POLICY)
    return SessionOptions(
        session_id="s", durable_memory=durable, store=store, extraction=ExtractionPolicy(), max_retained_runs=2
    )


def inputs(model: ScriptedModelClient) -> list[str]:
    return ["\n".join(message.content for message in request.messages) for request in model.turn_requests]


async def test_a_session_and_its_memory_survive_full_closes_exactly_or_not_at_all(tmp_path: Path) -> None:
    # What a turn teaches is a candidate, with the turn as its evidence; the next turn's model does not get it.
    model = ScriptedModelClient(
        turns=["On Tuesdays, I hear.", "I do not know."],
        extractions=[proposals_reply({"content": FACT, "source": "chat", "reason": "said", "scope": "project"})],
    )
    async with opened(tmp_path) as (repository, store), open_agent(model, host=counting_host()) as agent:
        async with agent.open_session("work", options(repository, store)) as session:
            await session.send("When?", run_id="r1")
            await session.wait_extracted()
            await session.send(QUESTION, run_id="r2")
            assert FACT not in inputs(model)[1]
        (learned,) = (await repository.scan(ScanRequest(namespace=NS))).nodes
        assert learned.status is MemoryStatus.CANDIDATE
        (turn,) = learned.evidence
        assert turn.kind is EvidenceKind.SESSION_TURN
        assert turn.uri == "a3s://session/s/turn/r1"

    # The binding is kept with the session, and anything but the same memory is refused before a model is called.
    async with opened(tmp_path) as (repository, store):
        assert (await store.load("s")).snapshot.durable_memory == options(repository, store).durable_memory.binding()  # type: ignore[union-attr]
        silent = ScriptedModelClient()
        stored = await store.load("s")
        async with open_agent(silent, host=counting_host(200)) as agent:
            right = options(repository, store)
            for wrong, field in (
                (attrs.evolve(right, durable_memory=None), "durableMemory"),
                (options(repository, store, OTHER), "namespace.scopeId"),
            ):
                with pytest.raises(DurableMemoryBindingMismatch) as refused:
                    async with agent.resume_session("s", wrong):
                        pass
                assert refused.value.field == field
        assert silent.requests == []
        assert await store.load("s") == stored
        decision = evidence("review://learned", EvidenceKind.VERIFICATION, 300)
        activation = DurableMemoryActivation(
            idempotency_key="decide",
            node_id=learned.id,
            expected_revision=1,
            decision_evidence=decision,
            occurred_at=at(300),
        )
        assert right.durable_memory is not None
        await right.durable_memory.activate_candidate(activation)

    # Verified, it reaches the resumed session's model, once; a run id that is retained is refused and changes nothing.
    model = ScriptedModelClient(turns=["On Tuesdays."])
    async with opened(tmp_path) as (repository, store), open_agent(model, host=counting_host(400)) as agent:
        resumed = options(repository, store)
        assert resumed.durable_memory is not None
        async with agent.resume_session("s", resumed) as session:
            assert [run.run_id for run in session.runs()] == ["r1", "r2"]
            reply = await session.send(QUESTION, run_id="r3")
            assert FACT in inputs(model)[0]
            (item,) = reply.context.items
            assert item.id == learned.id
            assert item.hit is not None
            use = DurableMemoryUse(
                event_id="used",
                node_id=learned.id,
                node_revision=item.hit.node_revision,
                occurred_at=at(500),
                context_id=reply.context.context_id,
            )
            await resumed.durable_memory.record_use(use)
            before = session.runs()
            with pytest.raises(RunIdentityConflict):
                await session.send(QUESTION, run_id="r3")
            assert session.runs() == before
        assert len(model.turn_requests) == 1
        assert await repository.usage_summary(NS, learned.id) == UsageSummary(1, 1)

    # Another replay knows all of it, and the lock is free for whoever comes next.
    async with opened(tmp_path) as (repository, store):
        node = await repository.get(NS, learned.id)
        assert node is not None
        assert node.status is MemoryStatus.ACTIVE
        assert [each.uri for each in node.evidence] == [turn.uri, decision.uri]
        assert await repository.usage_summary(NS, learned.id) == UsageSummary(1, 1)
        runs = (await store.load("s")).snapshot.runs
        assert [(run.run_id, run.state) for run in runs] == [("r2", RunState.COMPLETED), ("r3", RunState.COMPLETED)]
        assert runs[-1].contexts[-1].admitted == ((learned.id, 2),)
        assert runs[-1].contexts[-1].dispatched
    with (tmp_path / "memory" / "memory-v2.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert FACT.encode() in (tmp_path / "memory" / "memory-v2.journal").read_bytes()
