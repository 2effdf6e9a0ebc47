"""Recall on top of a repository: activation, lexical hits, related hits, order, isolation, purity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest
import trio

from a3s_actors.memory import (
    AddRelation,
    Create,
    EvidenceKind,
    EvidenceRef,
    InvalidInput,
    LimitExceeded,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryQuery,
    MemoryRelation,
    MemoryRepository,
    MemoryStatus,
    RelationKind,
    SetStatus,
    SnapshotRequest,
    Timestamp,
)
from a3s_actors.memory.lexical import float32
from a3s_actors.recall import (
    DurableMemoryActivation,
    DurableMemoryRecallPolicy,
    RecallChannel,
    lexical_recall,
)
from a3s_actors.testing.cancellation import CancelledCall, sweep_cancellation
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.sqlite import open_sqlite_repository

NS = MemoryNamespace("acme", "alice", "project")
OTHER = MemoryNamespace("acme", "alice", "project2")
AT = Timestamp.of("2026-03-01T00:00:00Z")


def at(second: int) -> Timestamp:
    return Timestamp(AT.ns + second * 1_000_000_000)


def evidence(uri: str, kind: EvidenceKind = EvidenceKind.MANUAL, when: Timestamp = AT) -> EvidenceRef:
    return EvidenceRef(uri=uri, digest="sha256:0", kind=kind, occurred_at=when)


def draft(
    node_id: str,
    content: str,
    *,
    relations: Iterable[MemoryRelation] = (),
    namespace: MemoryNamespace = NS,
    status: MemoryStatus = MemoryStatus.ACTIVE,
    second: int = 0,
) -> MemoryNodeDraft:
    return MemoryNodeDraft(
        id=node_id,
        namespace=namespace,
        kind=MemoryKind.SEMANTIC,
        status=status,
        content=content,
        evidence=[evidence(f"test://{node_id}")],
        relations=list(relations),
        created_at=at(second),
    )


async def store(repository: MemoryRepository, *drafts: MemoryNodeDraft) -> None:
    await repository.apply(
        MemoryChangeSet(
            idempotency_key=f"store-{drafts[0].id}",
            namespace=drafts[0].namespace,
            occurred_at=at(9),
            operations=[Create(each) for each in drafts],
        )
    )


def related(node_id: str) -> MemoryRelation:
    return MemoryRelation(RelationKind.RELATED_TO, node_id)


@pytest.fixture(params=["in_memory", "sqlite"])
async def repository(request: pytest.FixtureRequest, tmp_path: object) -> AsyncIterator[MemoryRepository]:
    if request.param == "in_memory":
        async with open_in_memory_repository() as opened:
            yield opened
    else:
        async with open_sqlite_repository(f"{tmp_path}/memory.db") as on_disk:
            yield on_disk


async def test_hits_carry_the_exact_revision_its_score_and_channel(repository: MemoryRepository) -> None:
    await store(repository, draft("a", "deploys happen on tuesday"))
    hits = await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.5), "deploys on friday")
    assert [(hit.node_id, hit.node_revision, hit.score, hit.channel) for hit in hits] == [
        ("a", 1, float32(2 / 3), RecallChannel.LEXICAL)
    ]
    assert hits[0].kind is MemoryKind.SEMANTIC
    assert hits[0].content == "deploys happen on tuesday"
    assert hits[0].related_from is None


async def test_a_score_equal_to_the_threshold_is_served_in_float32(repository: MemoryRepository) -> None:
    await store(repository, draft("a", "one two three four five six seven eight nine"))
    text = "one two three four five six seven eight nine ten"
    policy = DurableMemoryRecallPolicy(5, 0.9)
    assert [hit.node_id for hit in await lexical_recall(repository, NS, policy, text)] == ["a"]
    assert await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.91), text) == ()


@pytest.mark.parametrize("text", ["", "   ", "?!…", "。、"])
async def test_a_text_without_letter_or_digit_recalls_nothing(repository: MemoryRepository, text: str) -> None:
    await store(repository, draft("a", "anything"))
    assert await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.0), text) == ()


async def test_a_text_that_is_no_unicode_is_refused(repository: MemoryRepository) -> None:
    with pytest.raises(InvalidInput, match=r"query\.text"):
        await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.0), "deploy \ud800")
    with pytest.raises(InvalidInput, match=r"recall\.text"):
        await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.0), None)  # type: ignore[arg-type]


async def test_only_active_memories_of_the_exact_namespace_are_served(repository: MemoryRepository) -> None:
    await store(repository, draft("candidate", "deploy day", status=MemoryStatus.CANDIDATE))
    await store(repository, draft("gone", "deploy day"))
    gone = SetStatus("gone", expected_revision=1, status=MemoryStatus.TOMBSTONED)
    await repository.apply(MemoryChangeSet(idempotency_key="t", namespace=NS, occurred_at=at(9), operations=[gone]))
    await store(repository, draft("foreign", "deploy day", namespace=OTHER))
    assert await lexical_recall(repository, NS, DurableMemoryRecallPolicy(100, 0.0, 100), "deploy day") == ()


async def test_related_memories_join_by_one_hop_with_three_quarters_of_the_seeds_score(
    repository: MemoryRepository,
) -> None:
    await store(
        repository,
        draft("a", "deploy day", relations=[related("b")]),
        draft("b", "rollback needs two people", relations=[related("a"), related("c")]),
        draft("c", "never reached", relations=[related("b")]),
    )
    hits = await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.1, 5), "deploy night")
    assert [(hit.node_id, hit.score, hit.channel, hit.related_from) for hit in hits] == [
        ("a", 0.5, RecallChannel.LEXICAL, None),
        ("b", 0.375, RecallChannel.RELATED, "a"),
    ]
    nothing = DurableMemoryRecallPolicy(5, 0.1)
    assert [hit.node_id for hit in await lexical_recall(repository, NS, nothing, "deploy night")] == ["a"]


async def test_conflicts_are_never_followed_and_inactive_targets_never_served(repository: MemoryRepository) -> None:
    conflict = MemoryRelation(RelationKind.CONFLICTS_WITH, "b")
    back = MemoryRelation(RelationKind.CONFLICTS_WITH, "a")
    await store(
        repository,
        draft("a", "deploy day", relations=[conflict, related("c")]),
        draft("b", "contrary", relations=[back]),
        draft("c", "only proposed", relations=[related("a")], status=MemoryStatus.CANDIDATE),
    )
    hits = await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.1, 100), "deploy day")
    assert [hit.node_id for hit in hits] == ["a"]


async def test_the_bound_on_related_reads_counts_unserved_targets_and_follows_rank_order(
    repository: MemoryRepository,
) -> None:
    await store(
        repository,
        draft("best", "deploy day", relations=[related("x1"), related("x2")]),
        draft("next", "deploy", relations=[related("x3")]),
        draft("x1", "first", relations=[related("best")], status=MemoryStatus.CANDIDATE),
        draft("x2", "second", relations=[related("best")]),
        draft("x3", "third", relations=[related("next")]),
    )
    for bound, found in [(1, []), (2, ["x2"]), (3, ["x2", "x3"])]:
        hits = await lexical_recall(repository, NS, DurableMemoryRecallPolicy(9, 0.1, bound), "deploy day")
        assert [hit.node_id for hit in hits if hit.channel is RecallChannel.RELATED] == found


async def test_hits_are_ordered_by_score_channel_time_and_id_then_cut(repository: MemoryRepository) -> None:
    # The related one gets three quarters of a full score, as much as the lexical hits before it.
    await store(repository, draft("b", "w1 w2 w3"), draft("c", "w1 w2 w4"), draft("newer", "w2 w3 w4", second=2))
    await store(
        repository, draft("full", "w1 w2 w3 w4", relations=[related("r")]), draft("r", "x", relations=[related("full")])
    )
    hits = await lexical_recall(repository, NS, DurableMemoryRecallPolicy(9, 0.1, 9), "w1 w2 w3 w4")
    assert [hit.node_id for hit in hits] == ["full", "newer", "b", "c", "r"]
    cut = await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.1, 9), "w1 w2 w3 w4")
    assert cut == hits


async def test_a_recall_changes_nothing(repository: MemoryRepository) -> None:
    await store(
        repository, draft("a", "deploy day", relations=[related("b")]), draft("b", "x", relations=[related("a")])
    )
    request = SnapshotRequest(namespace=NS, statuses=list(MemoryStatus))
    before = await repository.snapshot_namespace(request)
    await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.1, 5), "deploy day")
    after = await repository.snapshot_namespace(request)
    assert (after.digest, after.change_token) == (before.digest, before.change_token)
    assert (await repository.access_events(NS)).records == ()
    assert (await repository.usage_summary(NS, "a")).admissions == 0


async def test_a_cancelled_recall_returns_nothing_and_leaves_nothing(repository: MemoryRepository) -> None:
    await store(repository, draft("a", "deploy day"))
    policy = DurableMemoryRecallPolicy(5, 0.1, 5)

    async def make_call():  # type: ignore[no-untyped-def]
        return lambda: lexical_recall(repository, NS, policy, "deploy day")

    async def check(call: CancelledCall[object]) -> None:
        assert call.error is None
        if not call.cancelled:
            assert len(call.value) == 1  # type: ignore[arg-type]

    with trio.fail_after(30):
        assert await sweep_cancellation(make_call, check) >= 1


# -- activation ------------------------------------------------------------------------------------------------------


def activation(**changes: object) -> DurableMemoryActivation:
    values: dict[str, object] = {
        "idempotency_key": "activate-a",
        "node_id": "a",
        "expected_revision": 1,
        "decision_evidence": evidence("review://1"),
        "occurred_at": AT,
    }
    return DurableMemoryActivation(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [EvidenceKind.MANUAL, EvidenceKind.VERIFICATION])
async def test_manual_and_verification_evidence_activate(repository: MemoryRepository, kind: EvidenceKind) -> None:
    await store(repository, draft("a", "deploy day", status=MemoryStatus.CANDIDATE))
    decision = activation(decision_evidence=[evidence("review://1", kind)])
    result = await repository.apply(decision.change_set(NS))
    assert result.node("a").status is MemoryStatus.ACTIVE
    assert await repository.apply(decision.change_set(NS)) == result
    hits = await repository.query(MemoryQuery(namespace=NS, text="deploy"))
    assert [hit.node.revision for hit in hits] == [2]


@pytest.mark.parametrize("kind", sorted(set(EvidenceKind) - {EvidenceKind.MANUAL, EvidenceKind.VERIFICATION}, key=str))
def test_no_other_evidence_activates(kind: EvidenceKind) -> None:
    with pytest.raises(InvalidInput, match=f"not {kind.value}") as caught:
        activation(decision_evidence=[evidence("review://1"), evidence("review://2", kind)])
    assert caught.value.field == "activation.decisionEvidence"


def test_an_activation_needs_evidence_that_is_not_later_than_itself() -> None:
    with pytest.raises(InvalidInput, match="at least one"):
        activation(decision_evidence=[])
    with pytest.raises(InvalidInput, match="occurredAt"):
        activation(decision_evidence=[evidence("review://1", when=at(1))])


@pytest.mark.parametrize(
    ("field", "value"),
    [("idempotency_key", ""), ("node_id", " "), ("expected_revision", 0), ("expected_revision", True),
     ("decision_evidence", "text"), ("occurred_at", "yesterday")],
)  # fmt: skip
def test_a_malformed_activation_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidInput):
        activation(**{field: value})


# -- policy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [(0, 0.5), (5, -0.1), (5, 1.1), (5, float("nan")), (5, 0.5, -1), (True, 0.5)])
def test_a_policy_below_its_bounds_is_refused(values: tuple[object, ...]) -> None:
    with pytest.raises(InvalidInput):
        DurableMemoryRecallPolicy(*values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("values", "limit"), [((101, 0.5), 100), ((5, 0.5, 101), 100)])
def test_a_policy_above_its_bounds_is_refused(values: tuple[object, ...], limit: int) -> None:
    with pytest.raises(LimitExceeded) as caught:
        DurableMemoryRecallPolicy(*values)  # type: ignore[arg-type]
    assert caught.value.limit == limit


def test_a_policy_needs_its_two_bounds() -> None:
    with pytest.raises(TypeError):
        DurableMemoryRecallPolicy(5)  # type: ignore[call-arg]


async def test_a_relation_added_later_is_followed(repository: MemoryRepository) -> None:
    await store(repository, draft("a", "deploy day"), draft("b", "rollback"))
    operations = [
        AddRelation("a", expected_revision=1, relation=related("b")),
        AddRelation("b", expected_revision=1, relation=related("a")),
    ]
    await repository.apply(MemoryChangeSet(idempotency_key="r", namespace=NS, occurred_at=AT, operations=operations))
    hits = await lexical_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.1, 1), "deploy day")
    assert [(hit.node_id, hit.node_revision) for hit in hits] == [("a", 2), ("b", 2)]
