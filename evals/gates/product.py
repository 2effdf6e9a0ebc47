"""Real sessions with a scripted model: without memory, with V1 and with durable memory; and what they learn."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from a3s_actors.agent import (
    AgentMemory,
    ContextPolicy,
    ExtractionPolicy,
    MemoryItem,
    ModelUsage,
    Redacted,
    Redactor,
    RequestPurpose,
    SessionOptions,
    TurnReply,
    open_agent,
)
from a3s_actors.memory import (
    AccessEvent,
    ChangeSetResult,
    Create,
    MemoryChangeSet,
    MemoryNamespace,
    MemoryRepository,
    MemoryStatus,
    RelationKind,
    ScanRequest,
)
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession, DurableTurnEvidence
from a3s_actors.testing import ScriptedModelClient
from a3s_actors.testing.building import add, at, change, create
from evals.gates.fixtures import load_fixture
from evals.gates.gate import Broken, Check, Gate, GateReport, Progress, Series, check
from evals.gates.opening import BACKENDS, counting_host, open_repository, read_admissions
from evals.gates.reader import answer, proposals_of
from evals.gates.wrapping import Around

__all__ = ["GATE"]

_POLICY: Final = DurableMemoryRecallPolicy(5, 0.4)


class _Unaudited(Around):
    """Says that admissions are recorded, and records none."""

    async def record_admission(self, event: AccessEvent) -> None:  # noqa: ARG002 - that is what is wrong with it
        await trio.lowlevel.checkpoint()


class _Misquoting(Around):
    """Stores another digest than that of the turn as a candidate's evidence."""

    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        wrong = [
            attrs.evolve(
                each,
                node=attrs.evolve(
                    each.node, evidence=[attrs.evolve(one, digest="sha256:" + "0" * 64) for one in each.node.evidence]
                ),
            )
            if isinstance(each, Create)
            else each
            for each in change_set.operations
        ]
        return await self.inner.apply(attrs.evolve(change_set, operations=wrong))


class _Blind(Redactor):
    """Finds no secret."""

    def redact(self, text: str) -> Redacted:
        return Redacted(text)


@attrs.frozen(kw_only=True)
class _Arm:
    """What one arm of the tasks came to."""

    solved: int
    replies: list[TurnReply]
    calls: int


def _namespace(fixture: dict[str, Any], name: str) -> MemoryNamespace:
    return MemoryNamespace(*fixture[name])


async def _fill(repository: MemoryRepository, fixture: dict[str, Any], broken: str | None) -> None:
    for owner, name in (("namespace", "memories"), ("foreign", "foreignMemories")):
        space = _namespace(fixture, owner)
        for each in fixture[name]:
            status = MemoryStatus(each.get("status", "active"))
            if broken == "candidates stay unseen":
                status = MemoryStatus.ACTIVE
            made = create(each["id"], each["content"], status=status, namespace=space)
            await repository.apply(change(f"make-{each['id']}", made, namespace=space))
    mine = _namespace(fixture, "namespace")
    for one, other in fixture["conflicts"]:
        conflict = (add(one, RelationKind.CONFLICTS_WITH, other), add(other, RelationKind.CONFLICTS_WITH, one))
        await repository.apply(change(f"conflict-{one}", *conflict, second=1, namespace=mine))


def _v1_memory(fixture: dict[str, Any]) -> AgentMemory:
    """Return what a store without activation holds: the same texts, whether anybody verified them or not."""
    memory = AgentMemory()
    for number, each in enumerate(fixture["memories"]):
        memory.remember(MemoryItem(id=each["id"], content=each["content"], created_at=at(number)))
    return memory


async def _solve(fixture: dict[str, Any], options: SessionOptions) -> _Arm:
    model = ScriptedModelClient(otherwise=answer)
    solved, replies = 0, []
    # A session a task: nothing of one task's conversation helps with the next.
    async with open_agent(model, host=counting_host(1000)) as agent:
        for task in fixture["tasks"]:
            async with agent.open_session("work", options) as session:
                reply = await session.send(task["prompt"])
            right = all(each in reply.content for each in task["answers"])
            solved += right and not any(each in reply.content for each in task["never"])
            replies.append(reply)
    return _Arm(solved=solved, replies=replies, calls=len(model.turn_requests))


def _cost(fixture: dict[str, Any], usage: ModelUsage) -> float:
    prices = fixture["nominalPrices"]
    spent = (
        usage.input_tokens * prices["inputPerMillionTokens"] + usage.output_tokens * prices["outputPerMillionTokens"]
    )
    return float(spent / 1_000_000)


async def _tasks(
    repository: MemoryRepository, fixture: dict[str, Any], broken: str | None
) -> tuple[list[Check], dict[str, float]]:
    limits, count = fixture["limits"], len(fixture["tasks"])
    mine = _namespace(fixture, "namespace")
    served = _Unaudited(repository) if broken == "what enters a context is audited" else repository
    policy, context = _POLICY, ContextPolicy(max_tokens=limits["contextTokens"])
    if broken == "a context is bounded":
        policy, context = DurableMemoryRecallPolicy(100, 0.0), ContextPolicy(max_tokens=100_000)
    durable = DurableMemorySession.active_recall(served, mine, policy)
    none = await _solve(fixture, SessionOptions())
    v1 = await _solve(fixture, SessionOptions(memory=_v1_memory(fixture)))
    v2 = await _solve(fixture, SessionOptions(durable_memory=durable, context=context))
    entered = sum(item.hit is not None for reply in v2.replies for item in reply.context.items)
    admitted = await read_admissions(repository, mine)
    kept = 0
    for one, other in fixture["conflicts"]:
        heads = await repository.get_heads(mine, [one, other])
        both = all(head.status is MemoryStatus.ACTIVE for head in heads.values()) and len(heads) == 2
        kept += both and heads[one].has_relation(RelationKind.CONFLICTS_WITH)
    figures = {
        "task success without memory": none.solved / count,
        "task success with V1 memory": v1.solved / count,
        "task success with durable memory": v2.solved / count,
        "context tokens, largest": float(max(reply.context.tokens for reply in v2.replies)),
        "nominal cost a task, largest": max(_cost(fixture, reply.usage) for reply in v2.replies),
    }
    checks = [
        check("task success with durable memory", v2.solved / count, "=", limits["taskSuccess"]),
        check("task success without memory", none.solved / count, "<=", limits["noMemoryTaskSuccess"]),
        check("task success with V1 memory", v1.solved / count, "<=", v2.solved / count),
        check("context tokens, largest", figures["context tokens, largest"], "<=", limits["contextTokens"]),
        check("model calls a task", v2.calls / count, "=", limits["modelCallsPerTask"]),
        check(
            "nominal cost a task, largest", figures["nominal cost a task, largest"], "<=", limits["nominalCostPerTask"]
        ),
        check("durable items that entered a context", entered, ">=", count),
        check("admissions", len(admitted), "=", entered),
        check("conflicts kept", kept, "=", len(fixture["conflicts"])),
    ]
    return checks, figures


def _evidence_digest(request: str, session_id: str, run_id: str) -> str:
    """Return the digest that a turn's evidence must have, from what the extraction's model was shown."""
    seen = json.loads(request)
    texts = {name: seen[name] for name in ("prompt", "response", "transcript")}
    return DurableTurnEvidence(session_id=session_id, turn_id=run_id, occurred_at=at(0), **texts).reference().digest


async def _capture(repository: MemoryRepository, fixture: dict[str, Any], broken: str | None) -> list[Check]:
    limits, turns = fixture["limits"], fixture["capture"]
    mine = attrs.evolve(_namespace(fixture, "namespace"), scope_id="captured")
    stored = _Misquoting(repository) if broken == "evidence is the turn's" else repository
    policy = ExtractionPolicy()
    if broken == "secrets are refused":
        policy = attrs.evolve(policy, redactor=_Blind())
    if broken == "unsure proposals are refused":
        policy = attrs.evolve(policy, min_confidence=0.0)
    said = [proposals_of(turn) for turn in turns]
    model = ScriptedModelClient(turns=[turn["reply"] for turn in turns], extractions=said)
    durable = DurableMemorySession.active_recall(stored, mine, _POLICY)
    options = SessionOptions(session_id="capture", durable_memory=durable, extraction=policy)
    faithful = total = 0
    async with open_agent(model, host=counting_host(2000)) as agent, agent.open_session("work", options) as session:
        for turn in turns:
            await session.send(turn["prompt"])
            await session.wait_extracted()
        refused = sum(sum(report.refused.values()) for report in session.extractions())
        runs = [run.run_id for run in session.runs()]
    shown = [each.messages[-1].content for each in model.requests if each.purpose is RequestPurpose.EXTRACTION]
    digests = {_evidence_digest(text, "capture", run) for text, run in zip(shown, runs, strict=True)}
    nodes = (await repository.scan(ScanRequest(namespace=mine))).nodes
    for node in nodes:
        total += len(node.evidence)
        faithful += sum(each.digest in digests for each in node.evidence)
    wanted = {each["content"] for turn in turns for each in turn["proposals"] if each["keep"]}
    unwanted = [each for turn in turns for each in turn["proposals"] if not each["keep"]]
    right = sum(node.content in wanted for node in nodes)
    return [
        check("writes accepted", right, "=", len(wanted)),
        check("accepted-write precision", right / max(1, len(nodes)), "=", limits["acceptedWritePrecision"]),
        check("evidence fidelity", faithful / max(1, total), "=", limits["evidenceFidelity"]),
        check("proposals refused", refused, "=", len(unwanted)),
        check("writes that serve without activation", _serving(node.status for node in nodes), "=", 0),
        check("model calls a capture", len(model.requests) / len(turns), "=", limits["modelCallsPerCapture"]),
    ]


def _serving(statuses: Iterable[MemoryStatus]) -> int:
    return sum(status is not MemoryStatus.CANDIDATE for status in statuses)


async def _run(progress: Progress, broken: str | None) -> GateReport:
    fixture = load_fixture("product", 1)
    checks: list[Check] = []
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, backend in enumerate(BACKENDS):
            folder = Path(scratch) / backend
            folder.mkdir()
            async with open_repository(backend, folder) as repository:
                await _fill(repository, fixture, broken)
                found, figures = await _tasks(repository, fixture, broken)
                found += await _capture(repository, fixture, broken)
            checks += [attrs.evolve(each, name=f"{backend}: {each.name}") for each in found]
            progress.step(number + 1, len(BACKENDS))
    arms = ["without memory", "with V1 memory", "with durable memory"]
    success = Series("task success", "tasks solved", arms, [figures[f"task success {arm}"] for arm in arms])
    return GateReport(gate=GATE.name, fixture="product.v1", checks=checks, figures=figures, series=(success,))


GATE: Final = Gate(
    name="product",
    description="tasks of real sessions without memory, with V1 and with durable memory; what a conversation teaches",
    run=_run,
    rules=(
        Broken(name="candidates stay unseen", why="what nobody verified is stored as active"),
        Broken(name="what enters a context is audited", why="admissions are said to be recorded, and are not"),
        Broken(name="a context is bounded", why="a hundred results of any score, without a bound of tokens"),
        Broken(name="evidence is the turn's", why="another digest is stored as evidence"),
        Broken(name="secrets are refused", why="the redactor finds none"),
        Broken(name="unsure proposals are refused", why="the lowest confidence is zero"),
    ),
)
