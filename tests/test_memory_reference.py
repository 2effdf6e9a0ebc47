"""The reference state machine by itself: deciding changes nothing, replays, purge plans and receipts, dump and load."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from a3s_actors.memory import (
    AccessKind,
    ChangeSetPurged,
    IdempotencyConflict,
    InvalidInput,
    LimitExceeded,
    MemoryNode,
    MemoryQuery,
    MemoryRelation,
    MemoryRepositoryError,
    MemoryStatus,
    NodeNotFound,
    ReferenceState,
    RelationKind,
    RevisionConflict,
)
from a3s_actors.memory.codec import equality_digest
from a3s_actors.memory.decoding import decode
from a3s_actors.memory.purge import MemoryPurge, PurgedChangeSet, PurgeReceipt, purge_json, receipt_json
from a3s_actors.memory.state_records import (
    StateEvent,
    StateHead,
    StateHeader,
    StateNamespace,
    StateRecord,
    StateRevision,
)
from a3s_actors.memory.values import PURGED_PREFIX, RevisionKind
from a3s_actors.testing.building import (
    NS,
    OTHER,
    access,
    activate,
    add,
    at,
    change,
    corroborate,
    create,
    evidence,
    purge,
    relate,
    remove,
    revise,
    set_status,
    supersede,
)

KEY = b"k" * 32
ADMISSION, USE = AccessKind.ADMISSION, AccessKind.USE


def filled(key: bytes = KEY) -> ReferenceState:
    """Return a state with histories, relations, audit records, a purge and a second namespace."""
    state = ReferenceState(key)
    state.apply(change("one", create("old", "first words"), create("new"), create("doomed"), create("a")))
    state.apply(change("two", *supersede("old", "new"), second=1))
    state.apply(change("three", add("a", RelationKind.CONFLICTS_WITH, "doomed"),
                       add("doomed", RelationKind.CONFLICTS_WITH, "a"),
                       set_status("a", MemoryStatus.CONFLICTED, 2), second=2))  # fmt: skip
    state.apply(change("four", create("apart", second=3), second=3))
    state.apply(change("one", create("old", namespace=OTHER), namespace=OTHER))
    state.record(ADMISSION, access("e1", "new", 2, second=4))
    state.record(USE, access("e1", "old", 1, second=4, context="c"))
    state.record(USE, access("e2", "doomed", 1, second=5))
    state.purge(purge("first purge", "doomed"))
    return state


def dumped(state: ReferenceState) -> list[StateRecord]:
    return list(state.dump())


def node_of(state: ReferenceState, node_id: str) -> MemoryNode:
    node = state.get(NS, node_id)
    assert node is not None
    return node


# -- deciding and doing ------------------------------------------------------------------------------------------------

DECISIONS: dict[str, Callable[[ReferenceState], Any]] = {
    "apply": lambda state: state.prepare_apply(change("next", revise("new", "other", 2), create("fresh"), second=9)),
    "replay": lambda state: state.prepare_apply(change("four", create("apart", second=3), second=3)),
    "admission": lambda state: state.prepare_event(ADMISSION, access("e9", "new", 2, second=9)),
    "use": lambda state: state.prepare_event(USE, access("e9", "old", 2, second=9)),
    "event again": lambda state: state.prepare_event(ADMISSION, access("e1", "new", 2, second=4)),
    "purge": lambda state: state.prepare_purge(purge("p", "old", "new")),
    "purge all": lambda state: state.prepare_purge(purge("p")),
    "purge again": lambda state: state.prepare_purge(purge("first purge", "doomed")),
    "in a new namespace": lambda state: state.prepare_apply(
        change("k", create("n", namespace=attrs.evolve(NS, scope_id="x")), namespace=attrs.evolve(NS, scope_id="x"))
    ),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_deciding_changes_nothing(name: str) -> None:
    state = filled()
    before = dumped(state)
    DECISIONS[name](state)
    assert dumped(state) == before


REFUSALS: dict[str, tuple[Callable[[ReferenceState], Any], type[MemoryRepositoryError]]] = {
    "a broken rule": (lambda state: state.apply(change("x", create("fresh"), revise("new", "z", 1))), RevisionConflict),
    "another under the key": (lambda state: state.apply(change("four", create("fresh"))), IdempotencyConflict),
    "an erased key": (lambda state: state.apply(change("three", create("fresh"))), ChangeSetPurged),
    "another event": (lambda state: state.record(USE, access("e1", "old", 1, second=4)), IdempotencyConflict),
    "an event of nobody": (lambda state: state.record(USE, access("e", "nobody", 1)), NodeNotFound),
    "a purge of nobody": (lambda state: state.purge(purge("p", "old", "nobody")), NodeNotFound),
    "another purge": (lambda state: state.purge(purge("first purge", "old")), IdempotencyConflict),
    "a purge too early": (lambda state: state.purge(purge("p", "old", second=0.5)), InvalidInput),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_changes_nothing(name: str) -> None:
    state = filled()
    before = dumped(state)
    call, kind = REFUSALS[name]
    with pytest.raises(kind):
        call(state)
    assert dumped(state) == before


def test_reads_change_nothing_and_make_no_namespace() -> None:
    state = filled()
    before = dumped(state)
    unknown = attrs.evolve(NS, tenant_id="unknown")
    for namespace in (NS, OTHER, unknown):
        state.get(namespace, "old")
        state.get_heads(namespace, ["old", "new"])
        state.query(MemoryQuery(namespace=namespace, text="words"))
        state.change_token(namespace)
        state.access_events(namespace, None, 0, 10)
        list(state.heads(namespace))
        list(state.change_sets(namespace))
    assert dumped(state) == before
    assert state.namespaces() == (NS, OTHER)


def test_a_result_is_as_of_its_change_set_also_when_it_is_replayed_later() -> None:
    state = ReferenceState()
    first = change("k", create("n", "one"), create("m"))
    result = state.apply(first)
    state.apply(change("later", revise("n", "two")))
    assert state.apply(first) == result
    assert [node.id for node in result.nodes] == ["m", "n"]
    assert (result.node("n").content, result.node("n").history) == ("one", ())
    with pytest.raises(KeyError):
        result.node("nobody")
    assert state.change_token(NS).sequence == 2


def test_a_key_belongs_to_its_namespace_and_equality_ignores_the_sign_of_zero() -> None:
    state = ReferenceState()
    state.apply(change("k", create("n", confidence=0.0)))
    state.apply(change("k", create("n", "other", namespace=OTHER), namespace=OTHER))
    state.apply(change("k", create("n", confidence=-0.0)))
    assert [state.change_token(each).sequence for each in (NS, OTHER)] == [1, 1]
    with pytest.raises(IdempotencyConflict):
        state.apply(change("k", create("n", confidence=1e-45)))


def test_the_size_of_a_change_set_is_checked_before_its_key_and_its_rules() -> None:
    state = filled()
    control = "\x01" * 60_000  # six bytes each in JSON
    huge = [create(f"n{number}", control) for number in range(47)]
    with pytest.raises(LimitExceeded, match="16777216") as caught:
        state.apply(change("four", *huge))
    assert caught.value.actual > 16 * 1024 * 1024
    assert len(state.apply(change("large", *huge[:40])).nodes) == 40


def test_an_events_id_is_used_once_a_kind() -> None:
    state = filled()
    state.record(ADMISSION, access("e1", "new", 2, second=4))
    assert state.usage_summary(NS, "new").admissions == 1
    assert state.usage_summary(NS, "old").uses == 1
    page = state.access_events(NS, None, 0, 10)
    assert [(record.kind, record.event.id) for record in page.records] == [(ADMISSION, "e1"), (USE, "e1")]


# -- purge -------------------------------------------------------------------------------------------------------------


def test_a_purge_is_planned_without_the_nodes_it_spares() -> None:
    state = filled()
    prepared = state.prepare_purge(purge("p", "new", "apart", "new"))
    assert [head.id for head in prepared.plan.doomed] == ["apart", "new"]
    (neighbour,) = prepared.plan.neighbours
    assert neighbour.head.id == "old"
    assert (neighbour.head.revision, neighbour.head.revision_kind) == (4, RevisionKind.RELATION_CHANGED)
    assert neighbour.head.updated_at == at(100)
    assert neighbour.before == node_of(state, "old").head


def test_a_receipt_counts_what_goes() -> None:
    state = filled()
    changes = {each.idempotency_key: each for each in state.change_sets(NS)}
    receipt = state.purge(purge("p", "new", second=101))

    def kept(key: str) -> PurgedChangeSet:
        # Written here anew: BLAKE2b under the storage's key, so that short texts cannot be guessed.
        made = hashlib.blake2b(equality_digest(changes[key]), digest_size=32, key=KEY, person=b"a3s-purge")
        return PurgedChangeSet(key, f"blake2b:{made.hexdigest()}")

    # "one" went with the first purge already.
    assert receipt == PurgeReceipt(
        idempotency_key="p",
        namespace=NS,
        occurred_at=at(101),
        reason=evidence("ticket://1"),
        nodes=1,
        revisions=2,
        access_events=1,
        change_sets=(kept("two"),),
        neighbours=("old",),
        sequence=6,
    )
    assert state.change_token(NS).sequence == 6
    assert state.get(NS, "new") is None
    assert node_of(state, "old").history[-1].relations == (MemoryRelation(RelationKind.SUPERSEDED_BY, "new"),)


def test_a_replayed_purge_gives_the_same_receipt_and_does_nothing() -> None:
    state = filled()
    receipt = state.purge(purge("p", "new", "apart"))
    before = dumped(state)
    assert state.purge(purge("p", "apart", "new")) == receipt
    assert state.purge(purge("p", "apart", "new", "apart")) == receipt
    assert dumped(state) == before
    for other in (purge("p", "new"), purge("p"), purge("p", "new", "apart", second=101)):
        with pytest.raises(IdempotencyConflict):
            state.purge(other)


def test_a_mark_takes_the_place_of_the_relation_that_a_status_needs() -> None:
    state = filled()
    conflicted = node_of(state, "a")
    (mark,) = conflicted.relations
    assert mark.kind is RelationKind.CONFLICTS_WITH
    assert mark.target_id.startswith(PURGED_PREFIX)
    assert "doomed" not in mark.target_id
    assert node_of(filled(b"x" * 32), "a").relations != (mark,)
    # The neighbour is usable as before, and an erasure of its own needs nobody.
    state.apply(change("after", corroborate("a", conflicted.revision), second=200))
    receipt = state.purge(purge("own", "a", second=300))
    assert (receipt.nodes, receipt.neighbours) == (1, ())


def test_a_purge_may_be_at_the_time_of_a_neighbours_last_change_and_not_before() -> None:
    with pytest.raises(InvalidInput) as caught:
        filled().prepare_purge(purge("p", "new", second=1 - 1e-9))
    assert caught.value.field == "purge.occurredAt"
    assert filled().prepare_purge(purge("p", "new", second=1)).receipt.neighbours == ("old",)


def test_neighbours_are_told_in_the_order_of_their_ids_bytes_and_keep_sorted_relations() -> None:
    state = ReferenceState(KEY)
    conflict, related = RelationKind.CONFLICTS_WITH, RelationKind.RELATED_TO
    names = ["é", "b", "B", "～", "\U0001f600"]
    pairs = [relate(conflict, name) for name in ("n", "m")]
    state.apply(
        change(
            "k",
            create("n", relations=[relate(conflict, name) for name in names]),
            create("m", relations=[relate(conflict, name) for name in names]),
            *(create(name, relations=[relate(related, "peer"), *pairs]) for name in names),
            create("peer", relations=[relate(related, name) for name in names]),
            *(set_status(name, MemoryStatus.CONFLICTED) for name in names),
        )
    )
    assert state.purge(purge("p", "n", "m")).neighbours == ("B", "b", "é", "～", "\U0001f600")
    marks = {node_of(state, name).relations[0].target_id for name in names}
    # One mark each, for the first of the two ids; the same everywhere, because it stands for the same node.
    assert len(marks) == 1
    assert all(node_of(state, name).relations[1:] == (relate(related, "peer"),) for name in names)
    expected = hashlib.blake2b(
        b'{"tenantId":"tenant","principalId":"principal","scopeId":"scope"}"m"',
        digest_size=32,
        key=KEY,
        person=b"a3s-purge",
    )
    assert marks == {PURGED_PREFIX + expected.hexdigest()}


def test_a_damaged_graph_does_not_stand_in_the_way_of_an_erasure() -> None:
    state, broken = filled(), ReferenceState()
    kept = (
        record
        for record in state.dump()
        if not (isinstance(record, StateHead) and record.head.id == "old" and record.head.namespace == NS)
        and not (isinstance(record, StateRevision) and record.revision.content == "first words")
        and not isinstance(record, StateEvent)
    )
    broken.load(kept)
    assert node_of(broken, "new").has_relation(RelationKind.SUPERSEDES)
    assert broken.purge(purge("p", "new")).neighbours == ()


def test_a_neighbour_whose_status_needs_no_relation_gets_no_mark() -> None:
    state = filled()
    state.purge(purge("p", "old"))
    assert node_of(state, "new").relations == ()


def test_a_neighbour_with_another_such_relation_gets_no_mark() -> None:
    state = ReferenceState(KEY)
    conflict = RelationKind.CONFLICTS_WITH
    state.apply(
        change("k", create("n", relations=[relate(conflict, "x"), relate(conflict, "y")]),
               create("x", relations=[relate(conflict, "n")]), create("y", relations=[relate(conflict, "n")]),
               set_status("n", MemoryStatus.CONFLICTED))
    )  # fmt: skip
    state.purge(purge("p", "x"))
    assert node_of(state, "n").relations == (relate(conflict, "y"),)


def test_a_neighbour_at_its_last_revision_still_loses_its_relation() -> None:
    state = ReferenceState(KEY)
    related = RelationKind.RELATED_TO
    state.apply(
        change(
            "k",
            create("n", relations=[relate(related, "x")]),
            create("x", relations=[relate(related, "n")]),
            create("y"),
        )
    )
    for number in range(1, 1025):
        turn = add if number % 2 else remove
        state.apply(change(f"k{number}", turn("n", related, "y", number), turn("y", related, "n", number)))
    with pytest.raises(LimitExceeded, match="1024"):
        state.apply(change("over", corroborate("n", 1025)))
    assert state.purge(purge("p", "x")).neighbours == ("n",)
    assert (node_of(state, "n").revision, node_of(state, "n").relations) == (1026, ())


def test_purging_everything_leaves_a_token_receipts_and_erased_keys_only() -> None:
    state = filled()
    before = state.change_token(NS).sequence
    receipt = state.purge(purge("all", second=200))
    assert (receipt.nodes, receipt.access_events, receipt.neighbours) == (4, 2, ())
    assert [item.key for item in receipt.change_sets] == ["two", "four"]
    assert state.change_token(NS).sequence == receipt.sequence == before + 1
    assert list(state.heads(NS)) == []
    assert list(state.change_sets(NS)) == []
    for key in ("one", "two", "three", "four"):
        with pytest.raises(ChangeSetPurged) as caught:
            state.apply(change(key, create("fresh")))
        assert caught.value.key == key
    assert state.get(OTHER, "old") is not None
    state.apply(change("five", create("old"), second=300))
    assert node_of(state, "old").revision == 1
    assert state.usage_summary(NS, "old").uses == 0


def test_a_purge_may_be_the_first_thing_in_a_namespace() -> None:
    state = ReferenceState(KEY)
    receipt = state.purge(purge("all"))
    assert (receipt.nodes, receipt.sequence) == (0, 1)
    assert state.purge(purge("all")) == receipt
    assert state.namespaces() == (NS,)


@pytest.mark.parametrize("asked", [purge("p", "n", "m"), purge("p")], ids=["some", "everything"])
def test_a_purge_and_its_receipt_come_back_from_their_json(asked: MemoryPurge) -> None:
    assert decode(purge_json(asked), MemoryPurge) == asked
    assert asked.node_ids in {None, ("m", "n")}
    state = filled()
    receipt = state.purge(attrs.evolve(asked, node_ids=None if asked.node_ids is None else ("new", "old")))
    assert receipt.change_sets
    assert decode(receipt_json(receipt), PurgeReceipt) == receipt


@pytest.mark.parametrize("ids", ["n", 5, [], [1], [""], b"n", ["n", "\ud800"], object()])
def test_a_purge_names_its_nodes_or_everything(ids: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        attrs.evolve(purge("p", "n"), node_ids=ids)
    assert caught.value.field == "purge.nodeIds"


def test_a_purge_is_not_before_its_reason() -> None:
    assert attrs.evolve(purge("p", "n", second=1), reason=evidence("ticket://1", second=1)).occurred_at == at(1)
    with pytest.raises(InvalidInput) as caught:
        attrs.evolve(purge("p", "n", second=1), reason=evidence("ticket://1", second=1 + 1e-9))
    assert caught.value.field == "purge.reason.occurredAt"


# -- the whole state as records ----------------------------------------------------------------------------------------


def test_a_loaded_dump_is_the_same_state_and_goes_on_the_same_way() -> None:
    state, again = filled(), ReferenceState()
    again.load(state.dump())
    assert dumped(again) == dumped(state)
    for each in (state, again):
        each.apply(change("next", revise("new", "more", 2), second=9))
        each.record(USE, access("e9", "new", 3, second=9))
        each.purge(purge("p", "apart"))
    assert dumped(again) == dumped(state)
    assert again.usage_summary(NS, "new") == state.usage_summary(NS, "new")
    assert again.change_token(NS) == state.change_token(NS)


def test_a_dump_holds_no_content_that_was_erased() -> None:
    state = filled()
    assert b"first words" in pickle.dumps(dumped(state))
    state.purge(purge("all"))
    assert b"first words" not in pickle.dumps(dumped(state))


def records(*chosen: int) -> list[StateRecord]:
    state = ReferenceState(KEY)
    state.apply(change("k", create("n", status=MemoryStatus.CANDIDATE), activate("n")))
    state.record(USE, access("e", "n"))
    kinds = [StateHeader, StateNamespace, StateHead, StateRevision, StateEvent]
    found = {kind: record for record in state.dump() for kind in kinds if isinstance(record, kind)}
    return [found[kinds[number]] for number in chosen]


@pytest.mark.parametrize("chosen", [(0, 2), (0, 1, 3), (0, 1, 2), (0, 1, 2, 3, 3), (0, 4), (0, 1, 4)], ids=str)
def test_records_out_of_place_are_refused(chosen: tuple[int, ...]) -> None:
    ReferenceState().load(records(0, 1, 2, 3, 4))
    with pytest.raises(ValueError):
        ReferenceState().load(records(*chosen))


def test_one_incomplete_history_among_complete_ones_is_refused() -> None:
    state = filled()
    kept = [
        record for record in state.dump() if not (isinstance(record, StateRevision) and record.revision.revision == 3)
    ]
    assert len(kept) < len(dumped(state))
    with pytest.raises(ValueError, match="incomplete"):
        ReferenceState().load(kept)


@pytest.mark.parametrize("key", [b"", b"x" * 15, b"x" * 65, "x" * 32, 5, bytearray(32)])
def test_a_key_that_is_no_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInput, match="16 to 64"):
        ReferenceState(key)
    if isinstance(key, bytes):
        with pytest.raises(ValueError, match="key"):
            ReferenceState().load([StateHeader(key=key, next_place=1)])
