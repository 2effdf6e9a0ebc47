"""What conversations teach: candidates only, each with evidence that can be found again, and none twice."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import attrs

from a3s_actors.agent import ExtractionPolicy, Redactor, Role, SessionOptions, SessionStore, open_agent
from a3s_actors.memory import (
    ChangeSetResult,
    Create,
    EvidenceKind,
    EvidenceRef,
    MemoryChangeSet,
    MemoryHit,
    MemoryNamespace,
    MemoryQuery,
    MemoryRepository,
    MemoryStatus,
    NodeHead,
    ScanRequest,
)
from a3s_actors.recall import (
    DurableMemoryActivation,
    DurableMemoryRecallPolicy,
    DurableMemorySession,
    DurableTurnEvidence,
)
from a3s_actors.testing import ScriptedModelClient
from a3s_actors.testing.building import at, evidence
from evals.gates.fixtures import load_fixture
from evals.gates.gate import Broken, Check, Gate, GateReport, Progress, check
from evals.gates.opening import BACKENDS, counting_host, open_repository, open_store
from evals.gates.reader import proposals_of
from evals.gates.wrapping import Around

__all__ = ["GATE"]

_POLICY: Final = DurableMemoryRecallPolicy(5, 0.3)
_SESSION: Final = "capture/one"
_START: Final = 1000.0


class _Hasty(Around):
    """Stores what is proposed as active at once."""

    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        made = [
            attrs.evolve(each, node=attrs.evolve(each.node, status=MemoryStatus.ACTIVE))
            if isinstance(each, Create)
            else each
            for each in change_set.operations
        ]
        return await self.inner.apply(attrs.evolve(change_set, operations=made))


class _Repeating(Around):
    """Knows no text again, and gives each proposal a name of its own."""

    _numbers = count()

    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        return () if MemoryStatus.CANDIDATE in query.statuses else await self.inner.query(query)

    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        number = next(self._numbers)
        made = [
            attrs.evolve(each, node=attrs.evolve(each.node, id=f"{each.node.id}-{number}"))
            if isinstance(each, Create)
            else each
            for each in change_set.operations
        ]
        key = f"{change_set.idempotency_key}-{number}"
        return await self.inner.apply(attrs.evolve(change_set, idempotency_key=key, operations=made))


async def _converse(
    fixture: dict[str, Any],
    durable: DurableMemorySession,
    store: SessionStore | None,
    policy: ExtractionPolicy | None,
) -> list[tuple[object, ...]]:
    """Let one session say all turns of the fixture; return what its model got for each."""
    turns = fixture["turns"]
    model = ScriptedModelClient(
        turns=[turn["reply"] for turn in turns], extractions=[proposals_of(turn) for turn in turns]
    )
    options = SessionOptions(session_id=_SESSION, durable_memory=durable, extraction=policy, store=store)
    # A replay is the same turns under the same names at the same times.
    async with (
        open_agent(model, host=counting_host(_START)) as agent,
        agent.open_session("work", options) as session,
    ):
        for number, turn in enumerate(turns):
            await session.send(turn["prompt"], run_id=f"turn {number}")
            await session.wait_extracted()
    return [request.messages for request in model.turn_requests]


async def _written(repository: MemoryRepository, namespace: MemoryNamespace) -> list[NodeHead]:
    return list((await repository.scan(ScanRequest(namespace=namespace))).nodes)


async def _resolves(store: SessionStore, reference: EvidenceRef) -> bool:
    """Whether evidence leads to a turn that is kept, and its digest is that turn's."""
    _, _, _, session, _, turn = reference.uri.split("/")
    session_id, run_id = unquote(session), unquote(turn)
    if reference.kind is not EvidenceKind.SESSION_TURN or session_id not in await store.list():
        return False
    snapshot = (await store.load(session_id)).snapshot
    places = [place for place, run in enumerate(snapshot.runs) if run.run_id == run_id]
    starts = [place for place, each in enumerate(snapshot.messages) if each.role is Role.USER]
    if not places:
        return False
    said = snapshot.messages[starts[places[0]] :][:2]
    redact = Redactor().redact
    transcript = redact("\n".join(f"{each.role.value}: {each.content}" for each in said)).text
    prompt, response = (redact(each.content).text for each in said)
    made = DurableTurnEvidence(
        session_id=session_id,
        turn_id=run_id,
        prompt=prompt,
        response=response,
        transcript=transcript,
        occurred_at=reference.occurred_at,
    )
    return made.reference() == reference


async def _on(backend: str, folder: Path, fixture: dict[str, Any], broken: str | None) -> list[Check]:
    limits = fixture["limits"]
    mine, other = (MemoryNamespace(*each) for each in fixture["namespaces"])
    bound = other if broken == "namespaces are exact" else mine
    async with open_repository(backend, folder) as repository, open_store(backend, folder) as store:
        served: MemoryRepository = repository
        if broken == "extraction only proposes":
            served = _Hasty(repository)
        if broken == "a replay stores nothing twice":
            served = _Repeating(repository)
        kept_in = None if broken == "evidence can be found again" else store
        durable = DurableMemorySession.active_recall(served, bound, _POLICY)
        off = await _converse(fixture, durable, None, None)
        on = await _converse(fixture, durable, kept_in, ExtractionPolicy())
        first = await _written(repository, mine)
    # The same turns again, after everything was closed.
    async with open_repository(backend, folder) as repository, open_store(backend, folder) as store:
        served = _Repeating(repository) if broken == "a replay stores nothing twice" else repository
        durable = DurableMemorySession.active_recall(served, bound, _POLICY)
        await _converse(fixture, durable, None, ExtractionPolicy())
        again = await _written(repository, mine)
        foreign = await _written(repository, other)
        resolved = [await _resolves(store, each) for node in first for each in node.evidence]
        before, after = await _ask(fixture, durable, again)
    wanted = [each["content"] for turn in fixture["turns"] for each in turn["proposals"] if each["keep"]]
    right = sum(node.content in wanted for node in first)
    total = max(1, len(first))
    checks = [
        check("the model's inputs with extraction on", "the same" if on == off else "others", "=", "the same"),
        check("accepted precision", right / total, "=", limits["acceptedPrecision"]),
        check("accepted recall", right / len(wanted), "=", limits["acceptedRecall"]),
        check("writes that serve without activation", _active(first), "=", 0),
        check("duplicate rate after a replay", (len(again) - len(first)) / total, "=", limits["duplicateRate"]),
        check("evidence resolvable", sum(resolved) / max(1, len(resolved)), "=", limits["evidenceResolvable"]),
        check("writes in the other namespace", len(foreign), "=", 0),
        check("candidates in a context before activation", before, "=", 0),
        check("memories in a context after activation", after, ">=", 1),
    ]
    return [attrs.evolve(each, name=f"{backend}: {each.name}") for each in checks]


def _active(nodes: list[NodeHead]) -> int:
    return sum(node.status is not MemoryStatus.CANDIDATE for node in nodes)


async def _ask(fixture: dict[str, Any], durable: DurableMemorySession, nodes: list[NodeHead]) -> tuple[int, int]:
    """Ask the fixture's question before and after all candidates were activated; return how many memories entered."""
    counts = []
    async with open_agent(ScriptedModelClient(otherwise="So it is."), host=counting_host(5000)) as agent:
        for number in range(2):
            async with agent.open_session("work", SessionOptions(durable_memory=durable)) as session:
                reply = await session.send(fixture["question"])
            counts.append(len(reply.context.items))
            for node in nodes if number == 0 else ():
                if node.status is MemoryStatus.CANDIDATE and node.namespace == durable.namespace:
                    await durable.activate_candidate(
                        DurableMemoryActivation(
                            idempotency_key=f"decide-{node.id}",
                            node_id=node.id,
                            expected_revision=node.revision,
                            decision_evidence=evidence("review://capture", EvidenceKind.VERIFICATION, 4000),
                            occurred_at=at(4000),
                        )
                    )
    return counts[0], counts[1]


async def _run(progress: Progress, broken: str | None) -> GateReport:
    fixture = load_fixture("capture", 1)
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, backend in enumerate(BACKENDS):
            folder = Path(scratch) / backend
            folder.mkdir()
            checks += await _on(backend, folder, fixture, broken)
            progress.step(number + 1, len(BACKENDS))
    return GateReport(gate=GATE.name, fixture="capture.v1", checks=checks)


GATE: Final = Gate(
    name="capture",
    description="what conversations teach: candidates with evidence that resolves, once, in one namespace",
    run=_run,
    rules=(
        Broken(name="extraction only proposes", why="what is proposed is stored as active at once"),
        Broken(name="a replay stores nothing twice", why="no text is known again, and each proposal has another name"),
        Broken(name="evidence can be found again", why="the session whose turns are evidence is kept nowhere"),
        Broken(name="namespaces are exact", why="the session is bound to the other namespace"),
    ),
)
