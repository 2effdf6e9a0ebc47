"""`DurableMemorySession`: propose, activate, recall, admit, use; and nothing that was not decided enters a context."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
import trio

from a3s_actors.memory import (
    AccessKind,
    EvidenceKind,
    EvidenceRef,
    InvalidInput,
    InvalidTransition,
    LimitExceeded,
    MemoryRepository,
    MemoryStatus,
    Persistence,
    Timestamp,
)
from a3s_actors.recall import (
    DurableContextItem,
    DurableMemoryActivation,
    DurableMemoryProposal,
    DurableMemoryRecallPolicy,
    DurableMemorySession,
    DurableMemoryUse,
    DurableTurnEvidence,
    RemovalReason,
)
from a3s_actors.recall.identity import admission_event_id, candidate_id, content_digest, context_id
from a3s_actors.testing.building import NS, at, change, create, draft, revise, set_status
from a3s_actors.testing.cancellation import CancelledCall, sweep_cancellation
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.sqlite import open_sqlite_repository

CANARY = "persimmon-canary-8842"
POLICY = DurableMemoryRecallPolicy(5, 0.3)


@pytest.fixture(params=["in_memory", "sqlite"])
async def repository(request: pytest.FixtureRequest, tmp_path: object) -> AsyncIterator[MemoryRepository]:
    if request.param == "in_memory":
        async with open_in_memory_repository() as opened:
            yield opened
    else:
        async with open_sqlite_repository(f"{tmp_path}/memory.db") as on_disk:
            yield on_disk


@pytest.fixture
def durable(repository: MemoryRepository) -> DurableMemorySession:
    return DurableMemorySession.active_recall(repository, NS, POLICY)


def turn_evidence(**changes: Any) -> DurableTurnEvidence:
    fields: dict[str, Any] = {
        "session_id": "s 1/ü",
        "turn_id": "t1",
        "prompt": f"prompt {CANARY}",
        "response": f"response {CANARY}",
        "transcript": f"transcript {CANARY}",
        "occurred_at": at(),
    }
    return DurableTurnEvidence(**(fields | changes))


def activation(node_id: str, revision: int = 1) -> DurableMemoryActivation:
    decision = EvidenceRef(uri="review://1", digest="d", kind=EvidenceKind.MANUAL, occurred_at=at(1))
    return DurableMemoryActivation(
        idempotency_key=f"activate-{node_id}",
        node_id=node_id,
        expected_revision=revision,
        decision_evidence=decision,
        occurred_at=at(1),
    )


def begin(durable: DurableMemorySession, **changes: Any) -> Any:
    fields: dict[str, Any] = {"session_id": "s1", "run_id": "r1", "now": lambda: at(10)}
    return durable.turn(**(fields | changes))


# -- identities ----------------------------------------------------------------------------------------------------


def test_the_identities_are_digests_of_the_stated_preimages() -> None:
    assert context_id("session", "run", bytes(range(16)), 7) == (
        "a3s-code-context-v2-" + hashlib.sha256(
            b"a3s.code.memory.context.session-run-invocation-sequence-sha256.v2\0"
            + struct.pack("<Q", 7) + b"session" + struct.pack("<Q", 3) + b"run"
            + struct.pack("<Q", 16) + bytes(range(16)) + struct.pack("<Q", 7)
        ).hexdigest()
    )  # fmt: skip
    assert admission_event_id("ctx", "node", 258) == "a3s-code-admission-" + (
        hashlib.sha256(b"a3s.code.memory.admission.v1\0ctx\0node\0\x02\x01\0\0\0\0\0\0").hexdigest()
    )
    nameless = (
        '{"id":"","namespace":{"tenantId":"tenant","principalId":"principal","scopeId":"scope"},"kind":"semantic",'
        '"status":"candidate","content":"text","confidence":0.5,"importance":0.5,"evidence":[],"relations":[],'
        '"labels":{},"createdAt":"2026-01-01T00:00:00Z"}'
    )
    wanted = hashlib.sha256(b"a3s.code.memory.candidate.v1\0" + nameless.encode()).hexdigest()
    for node_id in ("x", '"id":""'):
        assert (
            candidate_id(draft(node_id, "text", status=MemoryStatus.CANDIDATE, proofs=[]))
            == f"a3s-code-candidate-{wanted}"
        )
    assert content_digest("é") == f"sha256:{hashlib.sha256('é'.encode()).hexdigest()}"


def test_the_persisted_identities_are_what_they_were() -> None:
    assert context_id("session", "run", bytes(range(16)), 7) == (
        "a3s-code-context-v2-c5500871cf72cd6309bc08df54c10afcbadb5d198eeb2dcdae9f0226f36fe3e0"
    )
    assert admission_event_id("ctx", "node", 258) == (
        "a3s-code-admission-1717020eeba4a5bec19f0508246ec81a9cd900edf3fd144bfa535fd0adf90099"
    )
    assert candidate_id(draft("x", "text", status=MemoryStatus.CANDIDATE, proofs=[])) == (
        "a3s-code-candidate-57ad9361dccfe375490a1109e21245cd6f09769ad09c9f52b0a2ea8153651385"
    )


def test_parts_of_a_context_never_run_into_each_other() -> None:
    ids = {
        context_id(session, run, incarnation, sequence)
        for session, run in (("a", "bc"), ("ab", "c"))
        for incarnation in (b"x", b"xy")
        for sequence in (0, 1)
    }
    assert len(ids) == 8
    for wrong in (
        ("", "r", b"x", 0),
        ("s", " ", b"x", 0),
        ("s", "r", b"", 0),
        ("s", "r", b"x", -1),
        ("s", "r", "x", 0),
    ):
        with pytest.raises(InvalidInput):
            context_id(*wrong)


def test_a_turns_evidence_names_the_turn_and_holds_no_text() -> None:
    reference = turn_evidence().reference()
    assert reference.uri == "a3s://session/s%201%2F%C3%BC/turn/t1"
    assert reference.kind is EvidenceKind.SESSION_TURN
    payload = (
        '{"schema":"a3s.code.memory.turn-evidence.v1","sessionId":"s 1/ü",'
        f'"prompt":"prompt {CANARY}","response":"response {CANARY}","transcript":"transcript {CANARY}"}}'
    )
    assert reference.digest == f"sha256:{hashlib.sha256(payload.encode()).hexdigest()}"
    assert CANARY not in repr(turn_evidence()) + repr(reference)
    with pytest.raises(LimitExceeded):
        turn_evidence(session_id="ü" * 1000).reference()
    for wrong in ({"session_id": ""}, {"turn_id": " "}, {"prompt": None}, {"response": "\ud800"}):
        with pytest.raises(InvalidInput):
            turn_evidence(**wrong)


# -- the session's own door --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["memory.db", None, open_sqlite_repository, object()])
async def test_a_session_binds_typed_objects_only(wrong: Any, repository: MemoryRepository) -> None:
    for arguments in ((wrong, NS, POLICY), (repository, wrong, POLICY), (repository, NS, wrong)):
        with pytest.raises(InvalidInput, match="durableMemory"):
            DurableMemorySession.active_recall(*arguments)
    assert not hasattr(DurableMemorySession, "shadow")


async def test_a_proposal_becomes_a_candidate_that_is_not_served_until_it_is_activated(
    durable: DurableMemorySession, repository: MemoryRepository
) -> None:
    proposal = DurableMemoryProposal(content="we deploy on thursday", confidence=1.0, importance=1.0)
    result = await durable.propose(proposal, turn_evidence())
    (node,) = result.nodes
    assert (node.status, node.id) == (MemoryStatus.CANDIDATE, result.idempotency_key)
    assert node.id.startswith("a3s-code-candidate-")
    assert node.evidence == (turn_evidence().reference(),)
    assert await durable.preview_recall("deploy thursday") == ()
    assert await durable.propose(proposal, turn_evidence()) == result
    other = await durable.propose(proposal, turn_evidence(turn_id="t2"))
    assert other.nodes[0].id != node.id
    await durable.activate_candidate(activation(node.id))
    assert [hit.node_id for hit in await durable.preview_recall("deploy thursday")] == [node.id]
    again = attrs.evolve(activation(node.id, 2), idempotency_key="again")
    with pytest.raises(InvalidTransition):
        await durable.activate_candidate(again)
    with pytest.raises(InvalidInput):
        await durable.activate_candidate({"node_id": node.id})  # type: ignore[arg-type]
    assert CANARY not in repr(durable) + repr(proposal)


async def test_only_the_host_records_use(durable: DurableMemorySession, repository: MemoryRepository) -> None:
    await repository.apply(change("k", create("n", "deploy on thursday")))
    turn = begin(durable)
    await turn.admit(await turn.recall("deploy"))
    await durable.preview_recall("deploy")
    assert (await repository.usage_summary(NS, "n")).uses == 0
    use = DurableMemoryUse(event_id="u1", node_id="n", node_revision=1, occurred_at=at(11))
    await durable.record_use(use)
    await durable.record_use(use)
    assert (await repository.usage_summary(NS, "n")).uses == 1
    with pytest.raises(InvalidInput):
        await durable.record_use(attrs.evolve(use, event_id=" "))


# -- admission ---------------------------------------------------------------------------------------------------------


async def test_each_context_is_admitted_anew_under_its_own_id(
    durable: DurableMemorySession, repository: MemoryRepository
) -> None:
    await repository.apply(change("k", create("a", "deploy on thursday"), create("b", "deploy needs two people")))
    turn = begin(durable)
    items = await turn.recall("deploy")
    assert (await repository.access_events(NS)).records == ()
    first, second = await turn.admit(items), await turn.admit(items[:1])
    assert first.admitted == items
    assert second.admitted == items[:1]
    assert first.removed == second.removed == ()
    assert first.context_id != second.context_id
    records = (await repository.access_events(NS)).records
    assert [(each.kind, each.event.context_id) for each in records] == [
        (AccessKind.ADMISSION, first.context_id),
        (AccessKind.ADMISSION, first.context_id),
        (AccessKind.ADMISSION, second.context_id),
    ]
    assert all(
        each.event.id == admission_event_id(each.event.context_id or "", each.event.node_id, 1) for each in records
    )
    assert all("s1" not in (each.event.context_id or "") for each in records)
    other = begin(durable)
    third = await other.admit(await other.recall("deploy"))
    assert third.context_id not in {first.context_id, second.context_id}


async def test_what_changed_since_the_recall_does_not_enter(
    durable: DurableMemorySession, repository: MemoryRepository
) -> None:
    names = ["revised", "gone", "kept"]
    await repository.apply(change("k", *(create(name, f"deploy {name}") for name in names)))
    turn = begin(durable)
    items = await turn.recall("deploy")
    await repository.apply(change("r", revise("revised", "deploy otherwise")))
    await repository.apply(change("t", set_status("gone", MemoryStatus.TOMBSTONED)))
    report = await turn.admit(items)
    assert [item.node_id for item in report.admitted] == ["kept"]
    assert {(each.node_id, each.reason) for each in report.removed} == {
        ("revised", RemovalReason.NOT_ADMISSIBLE),
        ("gone", RemovalReason.NOT_ADMISSIBLE),
    }
    assert [each.event.node_id for each in (await repository.access_events(NS)).records] == ["kept"]


async def test_what_the_host_altered_or_made_up_does_not_enter(
    durable: DurableMemorySession, repository: MemoryRepository
) -> None:
    await repository.apply(change("k", create("a", "deploy on thursday"), create("b", "deploy never")))
    turn = begin(durable)
    items = {item.node_id: item for item in await turn.recall("deploy thursday")}
    a = items["a"]
    foreign = attrs.evolve(a, node_id="nobody")
    altered = [
        attrs.evolve(a, content="deploy on friday"),
        attrs.evolve(a, content="deploy on friday", content_digest=content_digest("deploy on friday")),
        attrs.evolve(a, node_revision=2),
        attrs.evolve(a, source="elsewhere"),
    ]
    report = await turn.admit([*altered, foreign, "text", a, a])
    assert report.admitted == (a,)
    reasons = [each.reason for each in report.removed]
    assert reasons == [*[RemovalReason.CHANGED] * 4, *[RemovalReason.NOT_RECALLED] * 2, RemovalReason.REPEATED]
    assert len((await repository.access_events(NS)).records) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"now": lambda: None}, RemovalReason.NO_HOST_TIME),
        ({"session_id": None}, RemovalReason.NO_IDENTITY),
        ({"run_id": None}, RemovalReason.NO_IDENTITY),
        ({"session_id": ""}, RemovalReason.NO_IDENTITY),
        ({"now": lambda: at(-6)}, RemovalReason.CLOCK_BEHIND),
    ],
)
async def test_without_identity_or_host_time_nothing_enters(
    changes: dict[str, Any], reason: RemovalReason, durable: DurableMemorySession, repository: MemoryRepository
) -> None:
    await repository.apply(change("k", create("a", "deploy")))
    turn = begin(durable, **changes)
    report = await turn.admit(await turn.recall("deploy"))
    assert report.admitted == ()
    assert [each.reason for each in report.removed] == [reason]
    assert (await repository.access_events(NS)).records == ()


async def test_a_clock_slightly_behind_is_clamped_and_reported(
    durable: DurableMemorySession, repository: MemoryRepository
) -> None:
    await repository.apply(change("k", create("a", "deploy")))
    turn = begin(durable, now=lambda: at(-5))
    report = await turn.admit(await turn.recall("deploy"))
    assert [item.node_id for item in report.admitted] == ["a"]
    assert report.clamped == ("a",)
    assert (await repository.access_events(NS)).records[0].event.occurred_at == at()


async def test_a_storage_failure_removes_the_item_and_leaves_the_others(repository: MemoryRepository) -> None:
    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(repository, name)

        async def record_admission(self, event: Any) -> None:
            if event.node_id == "a":
                await trio.lowlevel.checkpoint()
                raise Persistence("write", "the disk is full")
            await repository.record_admission(event)

    for name in MemoryRepository.__dict__:
        if not name.startswith("_") and not hasattr(Failing, name):
            setattr(Failing, name, getattr(repository, name))
    await repository.apply(change("k", create("a", "deploy one"), create("b", "deploy two")))
    turn = begin(DurableMemorySession.active_recall(Failing(), NS, POLICY))
    report = await turn.admit(await turn.recall("deploy"))
    assert [item.node_id for item in report.admitted] == ["b"]
    assert [(each.node_id, each.reason) for each in report.removed] == [("a", RemovalReason.STORAGE)]


async def test_a_cancelled_admission_is_not_in_a_report_and_the_turn_stays_usable(
    durable: DurableMemorySession, repository: MemoryRepository
) -> None:
    await repository.apply(change("k", create("a", "deploy one"), create("b", "deploy two")))
    turn = begin(durable)
    items = await turn.recall("deploy")
    contexts: set[str] = set()

    async def make_call() -> Any:
        return lambda: turn.admit(items)

    async def check(call: CancelledCall[Any]) -> None:
        assert call.error is None
        if not call.cancelled:
            assert call.value is not None
            assert len(call.value.admitted) == 2
            contexts.add(call.value.context_id)

    with trio.fail_after(30):
        assert await sweep_cancellation(make_call, check) >= 2
    report = await turn.admit(items)
    assert report.context_id not in contexts
    stored = {each.event.context_id for each in (await repository.access_events(NS, limit=1000)).records}
    assert contexts <= stored


async def test_items_keep_their_text_out_of_reprs(durable: DurableMemorySession, repository: MemoryRepository) -> None:
    await repository.apply(change("k", create("a", f"deploy {CANARY}")))
    turn = begin(durable)
    (item,) = await turn.recall("deploy")
    report = await turn.admit([item])
    assert isinstance(item, DurableContextItem)
    assert CANARY in item.content
    assert CANARY not in repr(item) + repr(report) + repr(turn)
    assert isinstance(begin(durable, now=Timestamp.now), type(turn))
