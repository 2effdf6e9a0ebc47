"""Two agents share one exact memory: nothing of them collapses, nothing foreign or undecided is seen."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from a3s_actors.agent import AgentSession, SessionOptions, open_agent
from a3s_actors.memory import AccessEvent, MemoryNamespace, MemoryRepository, MemoryStatus
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession
from a3s_actors.testing import ScriptedModelClient
from a3s_actors.testing.building import change, create, set_status
from evals.gates.gate import Broken, Check, Gate, GateReport, Progress, check
from evals.gates.opening import BACKENDS, counting_host, open_repository, read_admissions
from evals.gates.wrapping import Around

__all__ = ["GATE"]

_SHARED: Final = MemoryNamespace("acme", "platform", "deployments")
_FOREIGN: Final = MemoryNamespace("acme", "billing", "deployments")
_QUESTION: Final = "On which weekday do we deploy the parcel service?"
_FACT: Final = "We deploy the parcel service on the weekday Tuesday."
_UNDECIDED: Final = "We deploy the parcel service on the weekday Friday."
_THEIRS: Final = "They deploy the parcel service on the weekday Sunday."
_POLICY: Final = DurableMemoryRecallPolicy(5, 0.4)


class _Collapsing(Around):
    """Names a context by the run alone, as if run ids were unique."""

    async def record_admission(self, event: AccessEvent) -> None:
        same = attrs.evolve(event, id=f"{event.node_id}-once", context_id="run-1", occurred_at=event.occurred_at)
        if not await read_admissions(self.inner, event.namespace):
            await self.inner.record_admission(same)


def _prompts(model: ScriptedModelClient) -> str:
    return "\n".join(message.content for request in model.requests for message in request.messages)


@asynccontextmanager
async def _agent(durable: DurableMemorySession) -> AsyncIterator[tuple[AgentSession, ScriptedModelClient]]:
    model = ScriptedModelClient(otherwise="Noted.")
    # Each agent has a host of its own, and both count from one: their run and session ids are the same.
    async with (
        open_agent(model, host=counting_host(100)) as agent,
        agent.open_session("work", SessionOptions(durable_memory=durable)) as session,
    ):
        yield session, model


async def _share(repository: MemoryRepository, broken: str | None) -> tuple[list[Check], list[str]]:
    """Let two agents work on one memory; return the checks and the prompts that each one's model got."""
    await repository.apply(change("fact", create("fact", _FACT, namespace=_SHARED), namespace=_SHARED))
    undecided = create("undecided", _UNDECIDED, namespace=_SHARED, status=MemoryStatus.CANDIDATE)
    await repository.apply(change("undecided", undecided, namespace=_SHARED))
    if broken == "candidates stay unseen":
        await repository.apply(
            change("hasty", set_status("undecided", MemoryStatus.TOMBSTONED), namespace=_SHARED),
        )
        await repository.apply(change("again", create("u2", _UNDECIDED, namespace=_SHARED), namespace=_SHARED))
    await repository.apply(change("theirs", create("theirs", _THEIRS, namespace=_FOREIGN), namespace=_FOREIGN))
    served: MemoryRepository = _Collapsing(repository) if broken == "admissions stay distinct" else repository
    durable = DurableMemorySession.active_recall(served, _SHARED, _POLICY)
    other = durable
    if broken == "a binding is exact":
        other = DurableMemorySession.active_recall(served, _FOREIGN, _POLICY)
    checks: list[Check] = []
    async with _agent(durable) as (first, first_model):
        async with _agent(other) as (second, second_model):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first.send, _QUESTION)
                nursery.start_soon(second.send, _QUESTION)
            mine, yours = first.runs()[-1].run_id, second.runs()[-1].run_id
            checks.append(check("the agents' run ids are the same", mine, "=", yours))
            if broken == "a peer's end ends nobody else":
                await first.close()
        try:
            await first.send(_QUESTION)
            survived = "yes"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the gate reports
            survived = type(error).__name__
        checks.append(check("the peer of a closed agent goes on", survived, "=", "yes"))
    return checks, [_prompts(first_model), _prompts(second_model)]


async def _on(backend: str, folder: Path, broken: str | None) -> list[Check]:
    async with open_repository(backend, folder) as repository:
        checks, prompts = await _share(repository, broken)
        before = await read_admissions(repository, _SHARED)
        foreign = await read_admissions(repository, _FOREIGN)
    both = "\n".join(prompts)
    async with open_repository(backend, folder) as repository:
        after = await read_admissions(repository, _SHARED)
        summary = await repository.usage_summary(_SHARED, "fact")
    checks += [
        check("contexts that had the fact", both.count(_FACT), "=", 3),
        check("admissions", len(before), "=", 3),
        check("distinct contexts admitted", len({context for _, _, context in before}), "=", 3),
        check("contexts with the candidate", both.count(_UNDECIDED), "=", 0),
        check("contexts with the foreign memory", both.count(_THEIRS), "=", 0),
        check("admissions of the foreign memory", len(foreign), "=", 0),
        check("admissions after opening it again", len(after), "=", 3),
        check("the count after opening it again", summary.admissions, "=", 3),
    ]
    return [attrs.evolve(each, name=f"{backend}: {each.name}") for each in checks]


async def _run(progress: Progress, broken: str | None) -> GateReport:
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, backend in enumerate(BACKENDS):
            folder = Path(scratch) / backend
            folder.mkdir()
            checks += await _on(backend, folder, broken)
            progress.step(number + 1, len(BACKENDS))
    return GateReport(gate=GATE.name, checks=checks)


GATE: Final = Gate(
    name="multi-agent",
    description="two agents with the same local ids share one exact memory, on the journal and on SQLite",
    run=_run,
    rules=(
        Broken(name="admissions stay distinct", why="contexts are named by the run id alone"),
        Broken(name="a binding is exact", why="one agent is given the foreign namespace"),
        Broken(name="candidates stay unseen", why="what nobody verified is stored as active"),
        Broken(name="a peer's end ends nobody else", why="the other agent's session is closed with its peer"),
    ),
)
