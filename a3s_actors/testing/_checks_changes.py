"""Change sets: what each operation needs and does, the life cycle, graph rules, atomicity, idempotency."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from a3s_actors.memory import limits
from a3s_actors.memory.errors import (
    EvidenceRequired,
    IdempotencyConflict,
    InvalidInput,
    InvalidTransition,
    InvariantViolation,
    LimitExceeded,
    NamespaceMismatch,
    NodeAlreadyExists,
    NodeNotFound,
    RelationTargetNotFound,
    RevisionConflict,
)
from a3s_actors.memory.operations import (
    Activate,
    Corroborate,
    MemoryOperation,
    Revise,
    RevisionMode,
)
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.transitions import CREATABLE, STATUS_TRANSITIONS
from a3s_actors.memory.values import (
    EvidenceKind,
    MemoryNode,
    MemoryRelation,
    MemoryStatus,
    RelationKind,
    RevisionKind,
)
from a3s_actors.testing._registry import check, expect, expect_equal, refused, unchanged
from a3s_actors.testing.building import (
    NS,
    OTHER,
    activate,
    add,
    at,
    change,
    corroborate,
    create,
    evidence,
    remove,
    revise,
    set_status,
    supersede,
)

_OPEN = (MemoryStatus.CANDIDATE, MemoryStatus.ACTIVE, MemoryStatus.CONFLICTED)
_SHUT = (MemoryStatus.SUPERSEDED, MemoryStatus.TOMBSTONED)


async def node_of(repository: MemoryRepository, node_id: str) -> MemoryNode:
    """Return a node that has to be there."""
    node = await repository.get(NS, node_id)
    expect(node is not None, f"node {node_id} is there")
    assert node is not None
    return node


async def put(repository: MemoryRepository, node_id: str, status: MemoryStatus) -> MemoryNode:
    """Bring a new node into a status, with the neighbour that the status requires."""
    start = MemoryStatus.CANDIDATE if status is MemoryStatus.CANDIDATE else MemoryStatus.ACTIVE
    await repository.apply(change(f"put-{node_id}", create(node_id, status=start)))
    if status is MemoryStatus.SUPERSEDED:
        await repository.apply(
            change(f"put2-{node_id}", create(f"{node_id}-new"), *supersede(node_id, f"{node_id}-new"))
        )
    elif status is MemoryStatus.CONFLICTED:
        rival = f"{node_id}-rival"
        await repository.apply(
            change(
                f"put2-{node_id}",
                create(rival),
                add(node_id, RelationKind.CONFLICTS_WITH, rival),
                add(rival, RelationKind.CONFLICTS_WITH, node_id),
                set_status(node_id, status, 2),
            )
        )
    elif status is MemoryStatus.TOMBSTONED:
        await repository.apply(change(f"put2-{node_id}", set_status(node_id, status)))
    node = await node_of(repository, node_id)
    expect(node.status is status, f"a node can become {status.value}")
    return node


# -- create ------------------------------------------------------------------------------------------------------------


@check
async def create_stores_every_field_as_it_was_given(repository: MemoryRepository) -> None:
    """A created node has revision 1, every field of its draft, and the draft's order of evidence and relations."""
    proofs = [evidence("z://1", EvidenceKind.TOOL_RESULT), evidence("a://1", EvidenceKind.ARTIFACT)]
    relations = [MemoryRelation(RelationKind.RELATED_TO, "z"), MemoryRelation(RelationKind.RELATED_TO, "b")]
    back = [MemoryRelation(RelationKind.RELATED_TO, "a")]
    operation = create(
        "a",
        "text\x00 with \u0000 and 中文 \U0001f600 \n end",
        proofs=proofs,
        relations=relations,
        labels={"z": "1", "a": "", "中": "文"},
        confidence=0.1,
        importance=1.0,
        second=-1.000000001,
    )
    result = await repository.apply(change("k", operation, create("z", relations=back), create("b", relations=back)))
    node = await node_of(repository, "a")
    stated = operation.node
    expect_equal([each.id for each in result.nodes], ["a", "b", "z"], "the result's nodes in the order of their ids")
    expect_equal(result.node("a"), node, "the node that the result holds")
    for name in ("content", "kind", "status", "confidence", "importance", "evidence", "relations", "labels"):
        expect_equal(getattr(node, name), getattr(stated, name), f"node.{name}")
    expect_equal((node.revision, node.revision_kind, node.history), (1, RevisionKind.CREATED, ()), "the first revision")
    expect_equal((node.created_at, node.updated_at), (at(-1.000000001), at(-1.000000001)), "the times")
    expect_equal((result.idempotency_key, result.occurred_at), ("k", at()), "the result's key and time")


@check
async def create_takes_candidate_and_active_only(repository: MemoryRepository) -> None:
    """A node begins as a candidate or active; an active one has evidence."""
    for status in MemoryStatus:
        relation = [MemoryRelation(RelationKind.RELATED_TO, "x")]
        if status in CREATABLE:
            await repository.apply(change(f"k-{status.value}", create(status.value, status=status)))
            continue
        async with unchanged(repository):
            with refused(InvalidTransition, to_status=status.value):
                await repository.apply(change(f"k-{status.value}", create("n", status=status, relations=relation)))
    async with unchanged(repository):
        with refused(EvidenceRequired, node_id="n"):
            await repository.apply(change("k", create("n", proofs=[])))
    await repository.apply(change("k", create("bare", status=MemoryStatus.CANDIDATE, proofs=[])))


@check
async def create_refuses_a_taken_id_a_foreign_namespace_and_the_future(repository: MemoryRepository) -> None:
    """A draft needs an unused id, the change set's namespace, and times that are not after the change set's."""
    await repository.apply(change("k", create("n")))
    async with unchanged(repository, NS, OTHER):
        with refused(NodeAlreadyExists, node_id="n"):
            await repository.apply(change("k2", create("n", "other")))
        with refused(NodeAlreadyExists, node_id="m"):
            await repository.apply(change("k2", create("m"), create("m")))
        with refused(NamespaceMismatch, node_id="m"):
            await repository.apply(change("k2", create("m", namespace=OTHER)))
        with refused(InvalidInput):
            await repository.apply(change("k2", create("m", second=1)))
        with refused(InvalidInput):
            await repository.apply(change("k2", create("m", proofs=[evidence("u://1", second=1)])))
        with refused(InvariantViolation):
            await repository.apply(change("k2", create("m", proofs=[evidence("u://1"), evidence("u://1")])))
    await repository.apply(change("k3", create("n", namespace=OTHER), namespace=OTHER))


# -- the other operations ----------------------------------------------------------------------------------------------


@check
async def activate_makes_a_candidate_active(repository: MemoryRepository) -> None:
    """Activate needs a candidate and new evidence; it adds a revision, and the earlier one is kept."""
    await put(repository, "n", MemoryStatus.CANDIDATE)
    for status in (MemoryStatus.ACTIVE, MemoryStatus.CONFLICTED, *_SHUT):
        other = await put(repository, status.value, status)
        async with unchanged(repository):
            with refused(InvalidTransition, node_id=status.value, to_status="active"):
                await repository.apply(change("no", activate(status.value, other.revision, "new://1")))
    await repository.apply(change("yes", activate("n"), second=5))
    node = await node_of(repository, "n")
    expect_equal(
        (node.status, node.revision, node.revision_kind, node.updated_at),
        (MemoryStatus.ACTIVE, 2, RevisionKind.ACTIVATED, at(5)),
        "the activated node",
    )
    expect_equal(node.history[0].status, MemoryStatus.CANDIDATE, "the earlier revision")
    expect_equal(node.created_at, at(), "created_at stays")


def _with_evidence(node_id: str, revision: int, proofs: Iterable[str]) -> list[MemoryOperation]:
    items = tuple(evidence(uri) for uri in proofs)
    return [
        Activate(node_id, expected_revision=revision, evidence=items),
        Corroborate(node_id, expected_revision=revision, evidence=items),
        Revise(node_id, expected_revision=revision, content="x", mode=RevisionMode.CORRECTION, evidence=items),
    ]


@check
async def evidence_has_to_be_new_to_the_node(repository: MemoryRepository) -> None:
    """Activate, corroborate and revise need evidence, each with a uri that the node lacks."""
    await put(repository, "n", MemoryStatus.CANDIDATE)
    async with unchanged(repository):
        for operation in _with_evidence("n", 1, []):
            with refused(EvidenceRequired, node_id="n"):
                await repository.apply(change("k", operation))
        for uris in (["source://n"], ["new://1", "source://n"], ["new://1", "new://1"]):
            for operation in _with_evidence("n", 1, uris):
                with refused(InvariantViolation, node_id="n"):
                    await repository.apply(change("k", operation))


@check
async def evidence_is_merged_in_the_stored_order(repository: MemoryRepository) -> None:
    """After activate, corroborate and revise the evidence is sorted by uri, digest, kind and time."""
    proofs = [evidence("m://1"), evidence("b://1")]
    await repository.apply(change("k", create("n", status=MemoryStatus.CANDIDATE, proofs=proofs)))
    expect_equal([item.uri for item in (await node_of(repository, "n")).evidence], ["m://1", "b://1"], "a create")
    wanted = ["b://1", "m://1"]
    for revision, uri in enumerate(["z://1", "a://1", "é://1"], start=1):
        steps: list[MemoryOperation] = [
            activate("n", revision, uri),
            corroborate("n", revision, uri),
            revise("n", "x", revision, uri=uri),
        ]
        await repository.apply(change(f"k{revision}", steps[revision - 1]))
        wanted = sorted([*wanted, uri], key=str.encode)
        expect_equal([item.uri for item in (await node_of(repository, "n")).evidence], wanted, "the evidence's order")


@check
async def corroborate_adds_evidence_and_nothing_else(repository: MemoryRepository) -> None:
    """Corroborate works in every status but superseded and tombstoned, and changes evidence alone."""
    for status in MemoryStatus:
        node = await put(repository, status.value, status)
        operation = corroborate(status.value, node.revision, "new://1")
        if status in _SHUT:
            async with unchanged(repository):
                with refused(InvariantViolation, node_id=status.value):
                    await repository.apply(change(f"c-{status.value}", operation))
            continue
        await repository.apply(change(f"c-{status.value}", operation))
        after = await node_of(repository, status.value)
        expect_equal(after.revision_kind, RevisionKind.CORROBORATED, "the revision's kind")
        expect_equal(
            (after.status, after.content, after.relations, after.confidence),
            (node.status, node.content, node.relations, node.confidence),
            "what corroborate leaves",
        )
        expect_equal(len(after.evidence), len(node.evidence) + 1, "the evidence")


@check
async def revise_changes_the_text_and_keeps_the_earlier_one(repository: MemoryRepository) -> None:
    """Revise replaces the text, and the figures that are given; superseded and tombstoned nodes stay as they are."""
    for status in MemoryStatus:
        node = await put(repository, status.value, status)
        operation = revise(status.value, "other text", node.revision)
        if status in _SHUT:
            async with unchanged(repository):
                with refused(InvariantViolation, node_id=status.value):
                    await repository.apply(change(f"r-{status.value}", operation))
            continue
        await repository.apply(change(f"r-{status.value}", operation))
        after = await node_of(repository, status.value)
        expect_equal((after.content, after.status), ("other text", status), "the revised node")
        expect_equal(after.revision_kind, RevisionKind.CORRECTED, "a correction's kind")
        expect_equal((after.confidence, after.importance), (0.5, 0.5), "figures that were not given")
        expect_equal(after.at_revision(node.revision).content, node.content, "the earlier text")
    refine = revise("active", "finer", 2, mode=RevisionMode.REFINEMENT, confidence=0.25, importance=0.75)
    await repository.apply(change("refine", refine))
    after = await node_of(repository, "active")
    expect_equal(
        (after.revision_kind, after.confidence, after.importance), (RevisionKind.REFINED, 0.25, 0.75), "a refinement"
    )


@check
async def relations_are_added_with_their_inverse_and_sorted(repository: MemoryRepository) -> None:
    """Every relation carries its inverse when the change set ends; after an addition they are sorted."""
    await repository.apply(change("k", create("a"), create("b"), create("c")))
    related, conflict = RelationKind.RELATED_TO, RelationKind.CONFLICTS_WITH
    async with unchanged(repository):
        with refused(InvariantViolation):
            await repository.apply(change("half", add("a", related, "b")))
        with refused(InvariantViolation):
            await repository.apply(change("wrong", add("a", related, "b"), add("b", conflict, "a")))
        with refused(RelationTargetNotFound, target_id="nobody"):
            await repository.apply(change("nobody", add("a", related, "nobody")))
        with refused(InvariantViolation):
            await repository.apply(change("itself", add("a", related, "a")))
    await repository.apply(change("ac", add("a", related, "c"), add("c", related, "a")))
    await repository.apply(change("ab", add("a", related, "b", 2), add("b", related, "a")))
    await repository.apply(change("conflict", add("a", conflict, "b", 3), add("b", conflict, "a", 2)))
    node = await node_of(repository, "a")
    wanted = [(conflict, "b"), (related, "b"), (related, "c")]
    expect_equal([(each.kind, each.target_id) for each in node.relations], wanted, "the relations' order")
    expect_equal(node.revision_kind, RevisionKind.RELATION_CHANGED, "the revision's kind")
    async with unchanged(repository):
        with refused(InvariantViolation):
            await repository.apply(change("twice", add("a", related, "b", 4), add("b", related, "a", 3)))
        with refused(InvariantViolation):
            await repository.apply(change("half off", remove("a", related, "b", 4)))
        with refused(InvariantViolation):
            await repository.apply(change("absent", remove("b", related, "c", 3)))
    await repository.apply(change("off", remove("a", related, "b", 4), remove("b", related, "a", 3)))
    expect(not (await node_of(repository, "b")).has_relation(related), "a removed relation is gone")


@check
async def relations_of_superseded_and_tombstoned_nodes_stay(repository: MemoryRepository) -> None:
    """AddRelation and RemoveRelation refuse superseded and tombstoned nodes."""
    await repository.apply(change("k", create("other")))
    for status in _SHUT:
        node = await put(repository, status.value, status)
        async with unchanged(repository):
            with refused(InvariantViolation, node_id=status.value):
                await repository.apply(
                    change(
                        "k2",
                        add(status.value, RelationKind.RELATED_TO, "other", node.revision),
                        add("other", RelationKind.RELATED_TO, status.value),
                    )
                )
    async with unchanged(repository):
        with refused(InvariantViolation, node_id="superseded"):
            await repository.apply(change("k3", remove("superseded", RelationKind.SUPERSEDED_BY, "superseded-new", 3)))


# -- status ------------------------------------------------------------------------------------------------------------


@check
async def status_moves_only_along_the_life_cycle(repository: MemoryRepository) -> None:
    """SetStatus allows exactly the transitions of the life cycle, and never activates or demotes to candidate."""
    relations = {
        MemoryStatus.SUPERSEDED: (RelationKind.SUPERSEDED_BY, RelationKind.SUPERSEDES),
        MemoryStatus.CONFLICTED: (RelationKind.CONFLICTS_WITH, RelationKind.CONFLICTS_WITH),
    }
    for start in MemoryStatus:
        for end in MemoryStatus:
            name = f"{start.value}-{end.value}"
            node = await put(repository, name, start)
            operations: list[MemoryOperation] = []
            revision = node.revision
            if end in relations and start in _OPEN and not node.has_relation(relations[end][0]):
                kind, back = relations[end]
                operations = [
                    create(f"{name}-x"),
                    add(name, kind, f"{name}-x", revision),
                    add(f"{name}-x", back, name),
                ]
                revision += 1
            change_set = change(f"s-{name}", *operations, set_status(name, end, revision))
            if end in STATUS_TRANSITIONS[start]:
                await repository.apply(change_set)
                after = await node_of(repository, name)
                expect_equal((after.status, after.revision_kind), (end, RevisionKind.STATUS_CHANGED), name)
            elif end in CREATABLE:
                async with unchanged(repository):
                    with refused(InvalidInput, field="operation.status"):
                        await repository.apply(change_set)
            else:
                async with unchanged(repository):
                    with refused(InvalidTransition, node_id=name, from_status=start.value, to_status=end.value):
                        await repository.apply(change_set)


@check
async def a_status_needs_the_relation_that_explains_it(repository: MemoryRepository) -> None:
    """A superseded node has superseded_by, a conflicted one conflicts_with; what is superseded is not active."""
    await repository.apply(change("k", create("a"), create("b")))
    async with unchanged(repository):
        for status in (MemoryStatus.SUPERSEDED, MemoryStatus.CONFLICTED):
            with refused(InvariantViolation, node_id="a"):
                await repository.apply(change("bare", set_status("a", status)))
        with refused(InvariantViolation):
            await repository.apply(
                change("open", add("a", RelationKind.SUPERSEDES, "b"), add("b", RelationKind.SUPERSEDED_BY, "a"))
            )
    await repository.apply(change("conflict", add("a", RelationKind.CONFLICTS_WITH, "b"),
                                  add("b", RelationKind.CONFLICTS_WITH, "a")))  # fmt: skip
    await repository.apply(change("mark", set_status("a", MemoryStatus.CONFLICTED, 2)))
    async with unchanged(repository):
        with refused(InvariantViolation):
            await repository.apply(
                change(
                    "off",
                    remove("a", RelationKind.CONFLICTS_WITH, "b", 3),
                    remove("b", RelationKind.CONFLICTS_WITH, "a", 2),
                )
            )


@check
async def a_successor_can_change_after_what_it_superseded_was_tombstoned(repository: MemoryRepository) -> None:
    """The target of supersedes may be tombstoned later, and the superseding node stays changeable."""
    await repository.apply(change("k", create("old"), create("new")))
    await repository.apply(change("s", *supersede("old", "new")))
    await repository.apply(change("t", set_status("old", MemoryStatus.TOMBSTONED, 3)))
    await repository.apply(change("r", revise("new", "still alive", 2)))
    expect_equal((await node_of(repository, "new")).content, "still alive", "the successor")


# -- the change set as a whole -----------------------------------------------------------------------------------------


@check
async def operations_see_each_other_in_order(repository: MemoryRepository) -> None:
    """The operations of a change set are staged in order on one view; each makes a revision of its own."""
    await repository.apply(
        change(
            "k",
            create("n", "first", status=MemoryStatus.CANDIDATE),
            activate("n", 1),
            revise("n", "second", 2),
            corroborate("n", 3),
        )
    )
    node = await node_of(repository, "n")
    expect_equal((node.revision, node.content, node.status), (4, "second", MemoryStatus.ACTIVE), "the last revision")
    kinds = [each.revision_kind for each in node.history]
    expect_equal(kinds, [RevisionKind.CREATED, RevisionKind.ACTIVATED, RevisionKind.CORRECTED], "the history")


@check
async def a_refused_operation_undoes_the_whole_change_set(repository: MemoryRepository) -> None:
    """Whatever is refused, nothing of the change set happened."""
    await repository.apply(change("k", create("n")))
    async with unchanged(repository):
        with refused(RevisionConflict, node_id="n", expected=7, actual=2):
            await repository.apply(change("bad", revise("n", "x", 1), corroborate("n", 7, "new://1")))
    async with unchanged(repository):
        with refused(NodeNotFound, node_id="nobody"):
            await repository.apply(change("bad", create("m"), corroborate("nobody")))
    expect(await repository.get(NS, "m") is None, "a create beside a refused operation did not happen")
    await repository.apply(change("bad", create("m")))  # the key of a refused change set is still free


@check
async def time_never_goes_back_for_a_node(repository: MemoryRepository) -> None:
    """A change set's time is not before the last change of any node that it touches."""
    await repository.apply(change("k", create("n", second=5), second=5))
    async with unchanged(repository):
        with refused(InvalidInput):
            await repository.apply(change("early", corroborate("n"), second=4.999999999))
        with refused(InvalidInput):
            late = Corroborate("n", expected_revision=1, evidence=(evidence("l://1", second=6),))
            await repository.apply(change("late proof", late, second=5))
    await repository.apply(change("same", corroborate("n"), second=5))


@check
async def an_exact_replay_returns_the_first_result(repository: MemoryRepository) -> None:
    """The same key with equal values gives an equal result and changes nothing, also after later changes."""
    first = change("k", create("n", "first", confidence=0.0))
    result = await repository.apply(first)
    again = change("k", create("n", "first", confidence=-0.0))
    await repository.apply(change("later", revise("n", "second")))
    async with unchanged(repository):
        expect_equal(await repository.apply(first), result, "a replay's result")
        expect_equal(await repository.apply(again), result, "a replay with -0.0 for 0.0")
    expect_equal(result.node("n").content, "first", "the result is as of then")


@check
async def a_key_with_other_values_is_a_conflict(repository: MemoryRepository) -> None:
    """The same key with any difference, the time included, is an IdempotencyConflict; another namespace is free."""
    await repository.apply(change("k", create("n")))
    async with unchanged(repository):
        for other in (
            change("k", create("n", "other text")),
            change("k", create("n"), second=1),
            change("k", create("n"), create("m")),
            change("k", create("n", labels={"a": "b"})),
            change("k", corroborate("n")),
        ):
            with refused(IdempotencyConflict, key="k"):
                await repository.apply(other)
    await repository.apply(change("k", create("n", namespace=OTHER), namespace=OTHER))


@check
async def a_change_set_has_a_largest_size(repository: MemoryRepository) -> None:
    """A change set's canonical form is at most 16 MiB; the largest number of the largest nodes is refused whole."""
    text = "\x01" * limits.MAX_CONTENT_BYTES  # six bytes each in JSON
    operations = [create(f"n{number}", text) for number in range(64)]
    async with unchanged(repository):
        with refused(LimitExceeded, limit=limits.MAX_CHANGE_SET_BYTES):
            await repository.apply(change("huge", *operations))
    await repository.apply(change("large", *operations[:8]))
    expect_equal((await node_of(repository, "n7")).content, text, "64 KiB of control characters")


@check
async def a_node_has_at_most_1024_earlier_revisions(repository: MemoryRepository) -> None:
    """At 1024 earlier revisions every operation on the node is refused."""
    await repository.apply(change("k", create("n"), create("m")))
    related = RelationKind.RELATED_TO
    revision = 1
    while revision <= limits.MAX_EARLIER_REVISIONS:
        steps: list[MemoryOperation] = []
        while len(steps) < limits.MAX_OPERATIONS and revision <= limits.MAX_EARLIER_REVISIONS:
            add_or_remove = add if revision % 2 else remove
            steps += [add_or_remove("n", related, "m", revision), add_or_remove("m", related, "n", revision)]
            revision += 1
        await repository.apply(change(f"k{revision}", *steps))
    node = await node_of(repository, "n")
    expect_equal(len(node.history), limits.MAX_EARLIER_REVISIONS, "the longest history")
    async with unchanged(repository):
        for operation in (corroborate("n", revision), revise("n", "x", revision),
                          set_status("n", MemoryStatus.TOMBSTONED, revision)):  # fmt: skip
            with refused(LimitExceeded, limit=limits.MAX_EARLIER_REVISIONS):
                await repository.apply(change("more", operation))


@check
async def a_change_set_that_is_none_is_refused(repository: MemoryRepository) -> None:
    """An argument of another type is InvalidInput, and nothing happens."""
    async with unchanged(repository):
        wrong: tuple[Any, ...] = (None, {}, "change", 1)
        for each in wrong:
            with refused(InvalidInput):
                await repository.apply(each)
