"""Staging: every need of every operation, broken one at a time; the order of checks; the graph as it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from a3s_actors.memory import (
    Activate,
    Corroborate,
    EvidenceKind,
    EvidenceRef,
    EvidenceRequired,
    InvalidInput,
    InvalidTransition,
    InvariantViolation,
    LimitExceeded,
    MemoryKind,
    MemoryOperation,
    MemoryRelation,
    MemoryRepositoryError,
    MemoryStatus,
    NamespaceMismatch,
    NodeAlreadyExists,
    NodeHead,
    NodeNotFound,
    RelationKind,
    RelationTargetNotFound,
    Revise,
    RevisionConflict,
    RevisionMode,
)
from a3s_actors.memory.staging import StagedNode, stage
from a3s_actors.memory.values import RevisionKind
from a3s_actors.testing.building import (
    OTHER,
    activate,
    add,
    at,
    change,
    corroborate,
    create,
    evidence,
    relate,
    remove,
    revise,
    set_status,
    supersede,
)

S = MemoryStatus
R = RelationKind
Heads = dict[str, NodeHead]
EMPTY: Heads = {}

EVERY_CHANGE: dict[str, Callable[[str, int], MemoryOperation]] = {
    "activate": activate,
    "corroborate": corroborate,
    "refine": lambda node_id, revision: revise(node_id, "other", revision, mode=RevisionMode.REFINEMENT),
    "correct": lambda node_id, revision: revise(node_id, "other", revision),
    "add": lambda node_id, revision: add(node_id, R.RELATED_TO, "other", revision),
    "remove": lambda node_id, revision: remove(node_id, R.RELATED_TO, "peer", revision),
    "set_status": lambda node_id, revision: set_status(node_id, S.TOMBSTONED, revision),
}
WITH_EVIDENCE: dict[str, Callable[..., MemoryOperation]] = {
    "activate": lambda proofs, revision=1: Activate("n", expected_revision=revision, evidence=proofs),
    "corroborate": lambda proofs, revision=1: Corroborate("n", expected_revision=revision, evidence=proofs),
    "revise": lambda proofs, revision=1: Revise(
        "n", expected_revision=revision, content="other", mode=RevisionMode.CORRECTION, evidence=proofs
    ),
}


def after(heads: Heads, *operations: MemoryOperation, second: float = 0) -> Heads:
    """Return the heads as a change set leaves them; `heads` itself stays as it is."""
    staged = stage(change("k", *operations, second=second), heads.get)
    return {**heads, **{node.head.id: node.head for node in staged}}


def refusal(heads: Heads, *operations: MemoryOperation, second: float = 0) -> MemoryRepositoryError:
    """Return what a change set is refused with."""
    before = dict(heads)
    with pytest.raises(MemoryRepositoryError) as caught:
        stage(change("k", *operations, second=second), heads.get)
    assert heads == before
    return caught.value


def said(error: MemoryRepositoryError) -> tuple[Any, ...]:
    return type(error), *error.fields().values()


def world() -> Heads:
    """A node of each status under the status's name, each live one related to `peer`; `other` stands alone."""
    related = (S.CANDIDATE, S.ACTIVE, S.CONFLICTED)
    heads = after(
        {},
        *(create(status.value, status=S.CANDIDATE if status is S.CANDIDATE else S.ACTIVE,
                 relations=[relate(R.RELATED_TO, "peer")] if status in related else []) for status in S),
        create("peer", relations=[relate(R.RELATED_TO, status.value) for status in related]),
        create("other"),
        create("successor"),
    )  # fmt: skip
    heads = after(heads, *supersede("superseded", "successor"), set_status("tombstoned", S.TOMBSTONED))
    heads = after(
        heads,
        add("conflicted", R.CONFLICTS_WITH, "other"),
        add("other", R.CONFLICTS_WITH, "conflicted"),
        set_status("conflicted", S.CONFLICTED, 2),
    )
    assert {heads[status.value].status for status in S} == set(S)
    return heads


# -- create ------------------------------------------------------------------------------------------------------------


def test_a_created_node_is_revision_1_with_the_drafts_fields_and_time() -> None:
    operation = create("n", "text", labels={"a": "b"}, confidence=0.9, kind=MemoryKind.EPISODIC, second=3)
    (staged,) = stage(change("k", operation, second=5), EMPTY.get)
    draft = operation.node
    assert staged.before is None
    assert staged.became_history == ()
    head = staged.head
    assert (head.revision, head.revision_kind) == (1, RevisionKind.CREATED)
    assert head.created_at == head.updated_at == at(3)
    for name in ("id", "namespace", "kind", "status", "content", "confidence", "evidence", "relations", "labels"):
        assert getattr(head, name) == getattr(draft, name)


def test_a_create_keeps_the_callers_order_of_evidence_and_relations() -> None:
    proofs = [evidence("z://"), evidence("a://"), evidence("m://")]
    relations = [relate(R.RELATED_TO, "z"), relate(R.CONFLICTS_WITH, "a"), relate(R.RELATED_TO, "b")]
    heads = after(
        {},
        create("n", proofs=proofs, relations=relations),
        *(create(each.target_id, relations=[relate(each.kind.inverse, "n")]) for each in relations),
    )
    assert heads["n"].evidence == tuple(proofs)
    assert heads["n"].relations == tuple(relations)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"namespace": OTHER}, (NamespaceMismatch, "n")),
        ({"status": S.SUPERSEDED}, (InvalidTransition, "n", None, "superseded")),
        ({"status": S.CONFLICTED}, (InvalidTransition, "n", None, "conflicted")),
        ({"status": S.TOMBSTONED}, (InvalidTransition, "n", None, "tombstoned")),
        ({"proofs": []}, (EvidenceRequired, "n")),
        ({"second": 6}, (InvalidInput, "node.createdAt")),
        ({"proofs": [evidence("u", second=5 + 1e-9)]}, (InvalidInput, "evidence.occurredAt")),
        ({"proofs": [evidence("u"), evidence("v"), evidence("u", EvidenceKind.ARTIFACT)]}, (InvariantViolation, "n")),
        ({"relations": [relate(R.RELATED_TO, "n")]}, (InvariantViolation, "n")),
        ({"relations": [relate(R.RELATED_TO, "other")] * 2}, (InvariantViolation, "n")),
        ({"relations": [relate(R.RELATED_TO, "a3s-purged-1")]}, (InvalidInput, "relation.targetId")),
        ({"relations": [relate(R.RELATED_TO, "nobody")]}, (RelationTargetNotFound, "n", "nobody")),
        ({"relations": [relate(R.RELATED_TO, "other")]}, (InvariantViolation, "n")),
    ],
)
def test_a_create_with_one_need_broken_is_refused(fields: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    assert said(refusal(world(), create("n", **fields), second=5))[: len(wanted)] == wanted


def test_an_id_is_taken_by_a_stored_node_of_any_status_and_by_a_staged_one() -> None:
    for status in S:
        assert said(refusal(world(), create(status.value))) == (NodeAlreadyExists, status.value)
    assert said(refusal({}, create("n"), create("n"))) == (NodeAlreadyExists, "n")


def test_a_create_takes_no_relation_twice_and_no_id_of_an_erased_node() -> None:
    twice = create("n", relations=[relate(R.RELATED_TO, "other")] * 2)
    heads = after({}, create("other"))
    assert said(refusal(heads, twice, add("other", R.RELATED_TO, "n")))[:2] == (InvariantViolation, "n")
    assert said(refusal(heads, create("a3s-purged-1")))[:2] == (InvalidInput, "node.id")


def test_times_may_equal_the_change_sets_time() -> None:
    heads = after({}, create("n", second=5, proofs=[evidence("u", second=5)]), second=5)
    heads = after(heads, WITH_EVIDENCE["corroborate"]([evidence("v", second=5)]), second=5)
    assert heads["n"].updated_at == at(5)


def test_a_candidate_needs_no_evidence() -> None:
    assert after({}, create("n", status=S.CANDIDATE, proofs=[]))["n"].evidence == ()


# -- what every change of a node needs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY_CHANGE)
def test_a_change_needs_the_node_and_its_current_revision(name: str) -> None:
    make, heads = EVERY_CHANGE[name], world()
    target = "candidate" if name == "activate" else "active"
    assert said(refusal(heads, make("nobody", 1))) == (NodeNotFound, "nobody")
    for expected in (0, 2, 2**63):
        assert said(refusal(heads, make(target, expected))) == (RevisionConflict, target, expected, 1)


@pytest.mark.parametrize("name", EVERY_CHANGE)
def test_a_change_never_precedes_the_nodes_last_one(name: str) -> None:
    target = "candidate" if name == "activate" else "active"
    heads = after(world(), corroborate(target, uri="later://"), second=5)
    error = refusal(heads, EVERY_CHANGE[name](target, 2), second=5 - 1e-9)
    assert said(error)[:2] == (InvalidInput, "changeSet.occurredAt")


@pytest.mark.parametrize("name", EVERY_CHANGE)
@pytest.mark.parametrize("status", S)
def test_a_change_meets_only_the_statuses_of_the_contract(name: str, status: MemoryStatus) -> None:
    heads = world()
    node = heads[status.value]
    operations = [EVERY_CHANGE[name](node.id, node.revision)]
    if name in {"add", "remove"}:
        neighbour = heads["other" if name == "add" else "peer"]
        back = add if name == "add" else remove
        operations.append(back(neighbour.id, R.RELATED_TO, node.id, neighbour.revision))
    allowed = {
        "activate": {S.CANDIDATE},
        "set_status": set(S) - {S.TOMBSTONED},
    }.get(name, {S.CANDIDATE, S.ACTIVE, S.CONFLICTED})
    if status in allowed:
        assert after(heads, *operations)[node.id].revision == node.revision + 1
        return
    error = refusal(heads, *operations)
    if name == "activate":
        assert said(error) == (InvalidTransition, node.id, status.value, "active")
    elif name == "set_status":
        assert said(error) == (InvalidTransition, node.id, status.value, "tombstoned")
    else:
        assert said(error)[:2] == (InvariantViolation, node.id)


@pytest.mark.parametrize("name", EVERY_CHANGE)
def test_at_1024_earlier_revisions_no_change_is_possible(name: str) -> None:
    heads = world()
    target = "candidate" if name == "activate" else "active"
    heads[target] = attrs.evolve(heads[target], revision=1024)
    last = after(heads, corroborate(target, 1024))
    assert last[target].revision == 1025
    assert said(refusal(last, EVERY_CHANGE[name](target, 1025))) == (LimitExceeded, "node revisions", 1024, 1025)


def test_a_change_keeps_everything_that_it_does_not_name() -> None:
    heads = after({}, create("n", labels={"a": "b"}, confidence=0.25, importance=0.75))
    before = heads["n"]
    head = after(heads, corroborate("n"), second=7)["n"]
    assert head == attrs.evolve(
        before,
        revision=2,
        revision_kind=RevisionKind.CORROBORATED,
        evidence=head.evidence,
        updated_at=at(7),
    )


# -- evidence ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_EVIDENCE)
def test_evidence_that_is_missing_known_twice_late_or_too_much_is_refused(name: str) -> None:
    make = WITH_EVIDENCE[name]
    status = S.CANDIDATE if name == "activate" else S.ACTIVE
    heads = after({}, create("n", status=status, proofs=[evidence("known://")]))
    many = [evidence(f"u://{number}") for number in range(66)]
    assert said(refusal(heads, make([])))[:2] == (EvidenceRequired, "n")
    assert said(refusal(heads, make([evidence("known://", EvidenceKind.ARTIFACT)])))[:2] == (InvariantViolation, "n")
    assert said(refusal(heads, make([many[0], many[0]])))[:2] == (InvariantViolation, "n")
    assert said(refusal(heads, make([evidence("u", second=1)])))[:2] == (InvalidInput, "evidence.occurredAt")
    assert said(refusal(heads, make(many[:64]))) == (LimitExceeded, "node evidence", 64, 65)
    assert len(after(heads, make(many[:63]))["n"].evidence) == 64


@pytest.mark.parametrize("name", WITH_EVIDENCE)
def test_merged_evidence_is_sorted_by_uri_bytes(name: str) -> None:
    status = S.CANDIDATE if name == "activate" else S.ACTIVE
    heads = after({}, create("n", status=status, proofs=[evidence("z"), evidence("B")]))
    head = after(heads, WITH_EVIDENCE[name]([evidence("é"), evidence("a"), evidence("\U0001f600"), evidence("～")]))[
        "n"
    ]
    assert [item.uri for item in head.evidence] == ["B", "a", "z", "é", "～", "\U0001f600"]


def test_the_order_of_evidence_is_uri_digest_kind_time() -> None:
    def item(uri: str, digest: str, kind: EvidenceKind, second: float) -> EvidenceRef:
        return EvidenceRef(uri=uri, digest=digest, kind=kind, occurred_at=at(second))

    kinds = list(EvidenceKind)
    assert [kind.value for kind in kinds] == [
        "user_statement", "tool_result", "artifact", "session_turn", "verification", "manual",
    ]  # fmt: skip
    backwards = [
        item("b", "z", kinds[2], 0),
        item("b", "z", kinds[1], 8 + 1e-9),
        item("b", "z", kinds[1], 8),
        item("b", "z", kinds[0], 9),
        item("b", "y", kinds[5], 9),
        item("a", "z", kinds[5], 9),
    ]
    assert sorted(backwards, key=EvidenceRef.sort_key) == backwards[::-1]


def test_an_activation_makes_a_candidate_active_and_changes_only_that() -> None:
    heads = after({}, create("n", "text", status=S.CANDIDATE, proofs=[]))
    head = after(heads, activate("n"))["n"]
    assert (head.status, head.revision, head.revision_kind, head.content) == (
        S.ACTIVE,
        2,
        RevisionKind.ACTIVATED,
        "text",
    )


def test_a_revision_takes_its_mode_and_only_the_figures_that_it_names() -> None:
    heads = after({}, create("n", "old", confidence=0.25, importance=0.75))
    for mode, kind in (
        (RevisionMode.REFINEMENT, RevisionKind.REFINED),
        (RevisionMode.CORRECTION, RevisionKind.CORRECTED),
    ):
        head = after(heads, revise("n", "new", mode=mode))["n"]
        assert (head.content, head.revision_kind, head.confidence, head.importance) == ("new", kind, 0.25, 0.75)
    assert after(heads, revise("n", "new", confidence=0.0))["n"].confidence == 0.0
    assert after(heads, revise("n", "new", importance=1.0))["n"].importance == 1.0


# -- relations ---------------------------------------------------------------------------------------------------------


def test_an_added_relation_leaves_all_of_them_sorted_by_kind_and_target() -> None:
    first = [relate(R.RELATED_TO, "b"), relate(R.CONFLICTS_WITH, "c"), relate(R.RELATED_TO, "B")]
    heads = after(
        {},
        create("n", relations=first),
        *(create(each.target_id, relations=[relate(each.kind, "n")]) for each in first),
        create("é"),
    )
    head = after(heads, add("n", R.CONFLICTS_WITH, "é"), add("é", R.CONFLICTS_WITH, "n"))["n"]
    assert head.relations == (
        relate(R.CONFLICTS_WITH, "c"),
        relate(R.CONFLICTS_WITH, "é"),
        relate(R.RELATED_TO, "B"),
        relate(R.RELATED_TO, "b"),
    )
    assert [kind.value for kind in R] == ["supersedes", "superseded_by", "conflicts_with", "related_to"]


def test_a_removed_relation_leaves_the_others_in_their_order() -> None:
    first = [relate(R.RELATED_TO, name) for name in ("z", "a", "m")]
    peers = [create(each.target_id, relations=[relate(R.RELATED_TO, "n")]) for each in first]
    heads = after({}, create("n", relations=first), *peers)
    head = after(heads, remove("n", R.RELATED_TO, "a"), remove("a", R.RELATED_TO, "n"))["n"]
    assert head.relations == (first[0], first[2])


@pytest.mark.parametrize(
    ("operations", "wanted"),
    [
        ([add("active", R.RELATED_TO, "peer")], (InvariantViolation, "active")),
        ([add("active", R.RELATED_TO, "active")], (InvariantViolation, "active")),
        ([add("active", R.RELATED_TO, "nobody")], (RelationTargetNotFound, "active", "nobody")),
        ([add("active", R.RELATED_TO, "a3s-purged-1")], (InvalidInput, "relation.targetId")),
        ([remove("active", R.RELATED_TO, "other")], (InvariantViolation, "active")),
        ([remove("active", R.CONFLICTS_WITH, "peer")], (InvariantViolation, "active")),
        ([add("active", R.RELATED_TO, "other")], (InvariantViolation, "active")),
        ([remove("active", R.RELATED_TO, "peer")], (InvariantViolation, "peer")),
        (
            [add("active", R.SUPERSEDES, "other"), add("other", R.SUPERSEDES, "active", 2)],
            (InvariantViolation, "active"),
        ),
        (
            [add("active", R.SUPERSEDES, "other"), add("other", R.SUPERSEDED_BY, "active", 2)],
            (InvariantViolation, "active"),
        ),
    ],
)
def test_relations_come_and_go_with_their_inverse(
    operations: Sequence[MemoryOperation], wanted: tuple[Any, ...]
) -> None:
    assert said(refusal(world(), *operations))[: len(wanted)] == wanted


def test_a_node_has_at_most_256_relations() -> None:
    (head,) = after({}, create("n")).values()
    peers = [attrs.evolve(head, id=f"p{number:03}", relations=[relate(R.RELATED_TO, "n")]) for number in range(255)]
    heads = {each.id: each for each in peers}
    heads["n"] = attrs.evolve(head, relations=[relate(R.RELATED_TO, each.id) for each in peers])
    heads["x"], heads["y"] = attrs.evolve(head, id="x"), attrs.evolve(head, id="y")
    full = after(heads, add("n", R.RELATED_TO, "x"), add("x", R.RELATED_TO, "n"))
    assert len(full["n"].relations) == 256
    error = refusal(full, add("n", R.RELATED_TO, "y", 2), add("y", R.RELATED_TO, "n"))
    assert said(error) == (LimitExceeded, "node relations", 256, 257)
    assert (
        len(after(full, remove("n", R.RELATED_TO, "p000", 2), remove("p000", R.RELATED_TO, "n"))["n"].relations) == 255
    )


# -- status and the graph as it ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [S.ACTIVE, S.CANDIDATE])
@pytest.mark.parametrize("start", S)
def test_a_status_change_never_leads_to_active_or_candidate(start: MemoryStatus, status: MemoryStatus) -> None:
    heads = world()
    error = refusal(heads, set_status(start.value, status, heads[start.value].revision))
    assert said(error)[:2] == (InvalidInput, "operation.status")


@pytest.mark.parametrize("status", [S.SUPERSEDED, S.CONFLICTED])
def test_a_status_needs_the_relation_that_explains_it(status: MemoryStatus) -> None:
    assert said(refusal(world(), set_status("active", status)))[:2] == (InvariantViolation, "active")


def test_a_conflict_may_be_explained_after_the_status_and_a_succession_only_before() -> None:
    heads = after({}, create("a"), create("b"))
    conflict = (set_status("a", S.CONFLICTED), add("a", R.CONFLICTS_WITH, "b", 2), add("b", R.CONFLICTS_WITH, "a"))
    assert after(heads, *conflict)["a"].status is S.CONFLICTED
    succession = (set_status("a", S.SUPERSEDED), add("a", R.SUPERSEDED_BY, "b", 2), add("b", R.SUPERSEDES, "a"))
    assert said(refusal(heads, *succession))[:2] == (InvariantViolation, "a")


def test_the_last_conflict_of_a_conflicted_node_cannot_be_removed() -> None:
    heads = world()
    error = refusal(
        heads,
        remove("conflicted", R.CONFLICTS_WITH, "other", 3),
        remove("other", R.CONFLICTS_WITH, "conflicted", heads["other"].revision),
    )
    assert said(error)[:2] == (InvariantViolation, "conflicted")


def test_a_conflicted_node_can_still_be_superseded() -> None:
    heads = after(world(), *supersede("conflicted", "active", 3, 1))
    assert heads["conflicted"].status is S.SUPERSEDED


def test_a_successor_is_not_removed_from_what_it_superseded() -> None:
    heads = world()
    error = refusal(heads, remove("successor", R.SUPERSEDES, "superseded", heads["successor"].revision))
    assert said(error)[:2] == (InvariantViolation, "superseded")


def test_what_was_superseded_may_be_tombstoned_and_its_successor_stays_changeable() -> None:
    heads = world()
    heads = after(heads, set_status("superseded", S.TOMBSTONED, heads["superseded"].revision))
    revision = heads["successor"].revision
    heads = after(heads, revise("successor", "other", revision))
    heads = after(
        heads, add("successor", R.RELATED_TO, "other", revision + 1), add("other", R.RELATED_TO, "successor", 2)
    )
    assert heads["successor"].revision == revision + 2


def test_it_may_be_superseded_and_tombstoned_in_one_change_set_but_not_tombstoned_instead() -> None:
    heads = after({}, create("old"), create("new"))
    edges = supersede("old", "new")[:2]
    both = (*edges, set_status("old", S.SUPERSEDED, 2), set_status("old", S.TOMBSTONED, 3))
    assert after(heads, *both)["old"].status is S.TOMBSTONED
    error = refusal(heads, *edges, set_status("old", S.TOMBSTONED, 2))
    assert said(error)[:2] == (InvariantViolation, "old")


def test_a_neighbour_that_is_only_pointed_at_is_checked_too() -> None:
    heads = world()
    # The graph was damaged behind the kernel's back: `peer` points at a node that is not there.
    heads["peer"] = attrs.evolve(heads["peer"], relations=[*heads["peer"].relations, relate(R.RELATED_TO, "gone")])
    operations = [remove("active", R.RELATED_TO, "peer"), remove("peer", R.RELATED_TO, "active")]
    assert said(refusal(heads, *operations)) == (RelationTargetNotFound, "peer", "gone")
    damaged = dict(heads, peer=attrs.evolve(world()["peer"], evidence=()))
    assert said(refusal(damaged, remove("active", R.RELATED_TO, "peer"), remove("peer", R.RELATED_TO, "active")))[
        :2
    ] == (
        EvidenceRequired,
        "peer",
    )
    # A node that nothing of the change set names is not looked at.
    assert after(heads, corroborate("other", heads["other"].revision))["other"].revision > heads["other"].revision


def test_marks_of_erased_nodes_need_no_target() -> None:
    heads = world()
    mark = MemoryRelation(R.CONFLICTS_WITH, "a3s-purged-0")
    heads["conflicted"] = attrs.evolve(heads["conflicted"], relations=[mark])
    assert after(heads, corroborate("conflicted", 3))["conflicted"].relations == (mark,)
    error = refusal(heads, remove("conflicted", R.CONFLICTS_WITH, "a3s-purged-0", 3))
    assert said(error)[:2] == (InvariantViolation, "conflicted")


# -- the change set as a whole -----------------------------------------------------------------------------------------


def test_limits_are_checked_before_anything_is_staged() -> None:
    too_much = [evidence(f"u://{number}") for number in range(65)]

    def never(node_id: str) -> NodeHead | None:
        raise AssertionError(f"read {node_id}")

    for name, operation in WITH_EVIDENCE.items():
        with pytest.raises(LimitExceeded, match="65"):
            stage(change("k", create("first"), operation(too_much)), never)
        with pytest.raises(EvidenceRequired, match=name):
            stage(change("k", create("first"), operation([])), never)


def test_the_first_broken_rule_is_the_one_that_is_told() -> None:
    heads = world()
    operations = (corroborate("nobody"), corroborate("active", 9), create("active"))
    assert said(refusal(heads, *operations)) == (NodeNotFound, "nobody")
    assert said(refusal(heads, *operations[1:])) == (RevisionConflict, "active", 9, 1)
    assert said(refusal(heads, *operations[2:])) == (NodeAlreadyExists, "active")
    assert said(refusal(heads, create("n", proofs=[]), create("other")))[:2] == (EvidenceRequired, "n")
    # A rule of one operation comes before a rule of the graph, wherever it stands.
    assert said(refusal(heads, add("active", R.RELATED_TO, "nobody"), create("other"))) == (NodeAlreadyExists, "other")


def test_operations_see_each_other_and_each_makes_a_state() -> None:
    heads = after({}, create("n", "first", status=S.CANDIDATE))
    (staged,) = stage(change("k", activate("n"), revise("n", "second", 2), corroborate("n", 3)), heads.get)
    assert staged.before == heads["n"]
    assert [(state.revision, state.revision_kind) for state in staged.states] == [
        (2, RevisionKind.ACTIVATED),
        (3, RevisionKind.CORRECTED),
        (4, RevisionKind.CORROBORATED),
    ]
    assert staged.head == staged.states[-1]
    assert [state.revision for state in staged.became_history] == [1, 2, 3]


def test_the_changed_nodes_come_sorted_by_id_bytes_and_neighbours_are_none() -> None:
    heads = after({}, create("peer"))
    names = ["é", "b", "B", "\U0001f600", "～", "a"]
    staged = stage(change("k", *map(create, names), corroborate("peer")), heads.get)
    assert [node.head.id for node in staged] == ["B", "a", "b", "peer", "é", "～", "\U0001f600"]
    heads = world()
    read_only = stage(change("k", revise("successor", "other", heads["successor"].revision)), heads.get)
    assert [node.head.id for node in read_only] == ["successor"]


def test_every_head_is_read_at_most_once_and_others_not_at_all() -> None:
    heads, read = world(), []

    def lookup(node_id: str) -> NodeHead | None:
        read.append(node_id)
        return heads.get(node_id)

    # `peer` is the neighbour of both.
    stage(
        change("k", create("new"), corroborate("active"), revise("active", "other", 2), corroborate("candidate")),
        lookup,
    )
    assert sorted(read) == ["active", "candidate", "new", "peer"]


def test_a_refused_change_set_leaves_no_trace_in_the_heads_it_read() -> None:
    heads = world()
    copies = {name: attrs.evolve(head) for name, head in heads.items()}
    error = refusal(heads, revise("active", "other"), corroborate("active", 1))
    assert said(error) == (RevisionConflict, "active", 1, 2)
    assert heads == copies


def test_a_staged_node_is_a_value() -> None:
    operation = change("k", create("n"))
    one: tuple[StagedNode, ...] = stage(operation, EMPTY.get)
    assert one == stage(operation, EMPTY.get)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one[0].before = None  # type: ignore[misc]
