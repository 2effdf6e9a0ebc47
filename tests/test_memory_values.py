"""The values' limits, each at its edge, counted in UTF-8 bytes; and that values stay what they are."""

from __future__ import annotations

import copy
import math
import pickle
import struct
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3s_actors.memory import (
    InvalidInput,
    Labels,
    LimitExceeded,
    MemoryNamespace,
    MemoryQuery,
    MemoryRelation,
    MemoryStatus,
    RelationKind,
    ScanRequest,
    SnapshotRequest,
    UsageSummary,
)
from a3s_actors.memory.lexical import float32
from a3s_actors.memory.operations import Create
from a3s_actors.memory.values import PURGED_PREFIX
from a3s_actors.testing import building
from a3s_actors.testing.building import NS, access, at, change, create, draft, evidence

LONG = "é"  # two bytes

TEXTS: dict[str, tuple[Callable[[str], Any], int]] = {
    "namespace.tenantId": (lambda text: MemoryNamespace(text, "p", "s"), 256),
    "namespace.principalId": (lambda text: MemoryNamespace("t", text, "s"), 256),
    "namespace.scopeId": (lambda text: MemoryNamespace("t", "p", text), 256),
    "evidence.uri": (lambda text: attrs.evolve(evidence("u"), uri=text), 2048),
    "evidence.digest": (lambda text: attrs.evolve(evidence("u"), digest=text), 256),
    "node.id": (lambda text: attrs.evolve(draft("n"), id=text), 256),
    "node.content": (lambda text: draft("n", text), 64 * 1024),
    "relation.targetId": (lambda text: MemoryRelation(RelationKind.RELATED_TO, text), 256),
    "node.labels.key": (lambda text: Labels({text: ""}), 128),
    "changeSet.idempotencyKey": (lambda text: attrs.evolve(change("k", create("n")), idempotency_key=text), 256),
    "accessEvent.id": (lambda text: access(text, "n"), 256),
    "accessEvent.nodeId": (lambda text: access("e", text), 256),
    "accessEvent.contextId": (lambda text: access("e", "n", context=text), 256),
    "operation.nodeId": (building.corroborate, 256),
    "operation.content": (lambda text: building.revise("n", text), 64 * 1024),
    "scan.after": (lambda text: ScanRequest(namespace=NS, after=text), 256),
    "purge.nodeIds": (lambda text: building.purge("k", text), 256),
    "purge.idempotencyKey": (lambda text: building.purge(text, "n"), 256),
}


@pytest.mark.parametrize("field", TEXTS)
def test_a_text_may_be_as_long_as_its_limit_in_bytes_and_no_longer(field: str) -> None:
    make, limit = TEXTS[field]
    make("x")
    make(LONG * (limit // 2 - 1) + "x")
    make(LONG * (limit // 2))
    make("x" * limit)
    make("\U0001f600" * (limit // 4))
    for too_long in (LONG * (limit // 2) + "x", "x" * (limit + 1), "\U0001f600" * (limit // 4) + "x"):
        with pytest.raises(LimitExceeded) as caught:
            make(too_long)
        assert (caught.value.resource, caught.value.limit, caught.value.actual) == (field, limit, limit + 1)


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u3000", "\u00a0\u2003"])
def test_a_text_is_not_blank(field: str, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        TEXTS[field][0](text)
    assert caught.value.field == field


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", ["\ud800", "ok\udfff", 1, b"bytes", ("x",), True])
def test_a_text_is_unicode_text(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        TEXTS[field][0](value)
    assert caught.value.field == field


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("text", ["\x00", " padded ", "\u200b", "e\u0301", "\U0001f600", "\ufeff"])
def test_every_other_text_is_kept_as_it_is(field: str, text: str) -> None:
    assert text in repr_of_all(TEXTS[field][0](text))


def repr_of_all(value: Any) -> list[Any]:
    """Return every text inside a value, as it is."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Labels):
        return [*value, *value.values()]
    if isinstance(value, tuple):
        return [text for item in value for text in repr_of_all(item)]
    if attrs.has(type(value)):
        return [text for field in attrs.fields(type(value)) for text in repr_of_all(getattr(value, field.name))]
    return []


@pytest.mark.parametrize("name", ["confidence", "importance"])
def test_figures_are_finite_in_the_unit_interval_and_kept_as_float32(name: str) -> None:
    for value in (0, 1, 0.0, 1.0, 0.1, 1 - 1e-12, 1e-45):
        kept = getattr(draft("n", **{name: value}), name)  # type: ignore[arg-type]
        assert kept == float32(value)
        assert isinstance(kept, float)
    assert math.copysign(1, draft("n", **{name: -0.0}).confidence if name == "confidence" else -1) == -1  # type: ignore[arg-type]
    for wrong in (-1e-3, 1.001, math.nan, math.inf, -math.inf, True, "0.5", None, 10**400):
        with pytest.raises(InvalidInput, match=f"node.{name}"):
            draft("n", **{name: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["confidence", "importance"])
def test_the_figures_of_a_revision_follow_the_same_rule_and_may_be_left_out(name: str) -> None:
    assert getattr(building.revise("n", "x"), name) is None
    for value in (0, 1, 0.1):
        assert getattr(building.revise("n", "x", **{name: value}), name) == float32(value)  # type: ignore[arg-type]
    for wrong in (-1e-3, 1.001, math.nan, math.inf, True, "0.5"):
        with pytest.raises(InvalidInput, match=f"operation.{name}"):
            building.revise("n", "x", **{name: wrong})  # type: ignore[arg-type]


@given(st.floats(0, 1))
def test_a_figure_is_rounded_to_the_nearest_float32(value: float) -> None:
    kept = draft("n", confidence=value).confidence
    assert kept == struct.unpack("<f", struct.pack("<f", value))[0]
    assert draft("n", confidence=kept).confidence == kept


def test_collections_hold_up_to_their_limits() -> None:
    def proofs(count: int) -> list[Any]:
        return [evidence(f"u://{number}") for number in range(count)]

    def relations(count: int) -> list[Any]:
        return [MemoryRelation(RelationKind.RELATED_TO, f"m{number}") for number in range(count)]

    def labels(count: int) -> dict[str, str]:
        return {f"k{number}": "v" for number in range(count)}

    draft("n", proofs=proofs(64), relations=relations(256), labels=labels(64))
    for fields, limit in (
        ({"proofs": proofs(65)}, 64),
        ({"relations": relations(257)}, 256),
        ({"labels": labels(65)}, 64),
    ):
        with pytest.raises(LimitExceeded) as caught:
            draft("n", **fields)
        assert (caught.value.limit, caught.value.actual) == (limit, limit + 1)
    change("k", *(create(f"n{number}") for number in range(128)))
    with pytest.raises(LimitExceeded, match="128"):
        change("k", *(create(f"n{number}") for number in range(129)))
    with pytest.raises(InvalidInput, match="at least one"):
        change("k")
    Labels({"k": LONG * 512})
    with pytest.raises(LimitExceeded, match=r"node\.labels\.value"):
        Labels({"k": LONG * 512 + "x"})
    with pytest.raises(InvalidInput):
        Labels({"k": "  "})


@pytest.mark.parametrize("name", ["evidence", "relations"])
def test_heads_and_revisions_hold_no_more_than_drafts(name: str) -> None:
    from a3s_actors.memory import ReferenceState

    head = ReferenceState().apply(change("k", create("n"))).node("n").head
    items: list[Any] = [evidence(f"u://{number}") for number in range(65)]
    if name == "relations":
        items = [MemoryRelation(RelationKind.RELATED_TO, f"m{number}") for number in range(257)]
    full: dict[str, Any] = {name: items[:-1]}
    over: dict[str, Any] = {name: items}
    for value in (head, head.as_revision(), head.with_history(())):
        assert len(getattr(attrs.evolve(value, **full), name)) == len(items) - 1
        with pytest.raises(LimitExceeded, match=f"node {name}"):
            attrs.evolve(value, **over)


@pytest.mark.parametrize("wrong", ["text", b"bytes", {"a": 1}, {evidence("u"): 1}, 1, [1], [None]])
def test_what_is_no_list_of_the_right_values_is_refused(wrong: Any) -> None:
    for name in ("evidence", "relations"):
        with pytest.raises(InvalidInput):
            attrs.evolve(draft("n"), **{name: wrong})
    with pytest.raises(InvalidInput):
        attrs.evolve(change("k", create("n")), operations=wrong)


def test_labels_are_an_immutable_mapping_in_byte_order() -> None:
    labels = Labels({"é": "1", "b": "2", "B": "", "a": "x"})
    assert list(labels) == ["B", "a", "b", "é"]
    assert labels == Labels(dict(reversed(list(labels.items()))))
    assert hash(labels) == hash(Labels(dict(labels)))
    assert dict(labels) == {"é": "1", "b": "2", "B": "", "a": "x"}
    assert pickle.loads(pickle.dumps(labels)) == copy.deepcopy(labels) == labels
    assert Labels.of(labels) is labels
    assert Labels.of(None) == Labels() == Labels({})
    assert labels != dict(labels)
    with pytest.raises(TypeError):
        labels["a"] = "y"  # type: ignore[index]
    source = {"a": "1"}
    kept = draft("n", labels=source).labels
    source["a"] = "2"
    assert kept["a"] == "1"


@pytest.mark.parametrize("wrong", [5, "text", [("a", "b")], {"a"}, {1: "b"}, {"a": 1}, {"a": None}])
def test_labels_are_a_mapping_from_text_to_text(wrong: Any) -> None:
    for make in (Labels, Labels.of, lambda labels: draft("n", labels=labels)):
        with pytest.raises(InvalidInput, match=r"node\.labels"):
            make(wrong)


def test_values_cannot_be_changed() -> None:
    for value in (NS, evidence("u"), draft("n"), change("k", create("n")), access("e", "n")):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            value.anything = 1  # type: ignore[union-attr]
        assert pickle.loads(pickle.dumps(value)) == value
        assert hash(value) == hash(copy.deepcopy(value))


@pytest.mark.parametrize("revision", [0, -1, True, 1.0, "1", None])
def test_a_revision_is_a_whole_number(revision: Any) -> None:
    with pytest.raises(InvalidInput):
        access("e", "n", revision)
    # A change set may expect revision 0, which no node has: a conflict when it is applied.
    if revision != 0:
        with pytest.raises(InvalidInput):
            building.corroborate("n", revision)


def test_a_revision_has_at_most_64_bits() -> None:
    largest = (1 << 64) - 1
    assert access("e", "n", largest).node_revision == building.corroborate("n", largest).expected_revision == largest
    for beyond in (largest + 1, 10**400, 10**5000):  # the last is more than Python prints
        for make in (lambda number: access("e", "n", number), lambda number: building.corroborate("n", number)):
            with pytest.raises(InvalidInput, match="64 bits"):
                make(beyond)
        with pytest.raises(LimitExceeded, match="exceeds the limit of 100"):
            MemoryQuery(namespace=NS, limit=beyond)


NOT_OF_THE_KIND: dict[str, Callable[[Any], Any]] = {
    "evidence.kind": lambda value: attrs.evolve(evidence("u"), kind=value),
    "node.kind": lambda value: draft("n", kind=value),
    "node.status": lambda value: draft("n", status=value),
    "node.namespace": lambda value: draft("n", namespace=value),
    "relation.kind": lambda value: MemoryRelation(value, "n"),
    "operation.mode": lambda value: building.revise("n", "x", mode=value),
    "operation.status": lambda value: building.set_status("n", value),
    "operation.relation": lambda value: attrs.evolve(building.add("n", RelationKind.RELATED_TO, "m"), relation=value),
    "operation.node": Create,
    "changeSet.namespace": lambda value: change("k", create("n"), namespace=value),
    "accessEvent.namespace": lambda value: access("e", "n", namespace=value),
    "purge.namespace": lambda value: building.purge("k", "n", namespace=value),
    "purge.reason": lambda value: attrs.evolve(building.purge("k", "n"), reason=value),
}


@pytest.mark.parametrize("field", NOT_OF_THE_KIND)
@pytest.mark.parametrize("value", ["semantic", "active", "related_to", None, 1])
def test_a_field_takes_its_own_type_only(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        NOT_OF_THE_KIND[field](value)
    assert caught.value.field == field


def test_namespaces_are_compared_byte_for_byte() -> None:
    lookalikes = [
        "tenant",
        "Tenant",
        " tenant",
        "tenant ",
        "tenant\x00",
        "ténant",
        "te\u0301nant",
        "ｔenant",
        "tenan",
        "t",
    ]
    spaces = [MemoryNamespace(*parts) for name in lookalikes for parts in ((name, "p", "s"), ("p", name, "s"))]
    assert len(set(spaces)) == len(spaces)
    assert spaces[0] == MemoryNamespace("tenant", "p", "s")


def test_a_node_tells_each_of_its_revisions() -> None:
    from a3s_actors.memory import NodeRevisionNotFound, ReferenceState

    state = ReferenceState()
    firsts = state.apply(change("k", create("n", "one"))).node("n")
    seconds = state.apply(change("r", building.revise("n", "two"), second=1)).node("n")
    thirds = state.apply(change("c", building.corroborate("n", 2), second=2)).node("n")
    assert [thirds.at_revision(number) for number in (1, 2, 3)] == [firsts, seconds, thirds]
    assert thirds.history == (firsts.head.as_revision(), seconds.head.as_revision())
    assert thirds.head.with_history(thirds.history) == thirds
    for number in (0, 4):
        with pytest.raises(NodeRevisionNotFound):
            thirds.at_revision(number)


def query(**fields: Any) -> MemoryQuery:
    return MemoryQuery(**{"namespace": NS, **fields})


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: MemoryQuery(namespace=NS, limit=0), "query.limit"),
        (lambda: MemoryQuery(namespace=NS, statuses=[]), "query.statuses"),
        (lambda: query(statuses="active"), "statuses"),
        (lambda: query(kinds=["semantic"]), "kinds"),
        (lambda: query(namespace="ns"), "query.namespace"),
        (lambda: ScanRequest(namespace=NS, limit=True), "scan.limit"),
        (lambda: ScanRequest(namespace=NS, after=""), "scan.after"),
        (lambda: ScanRequest(namespace=NS, statuses=()), "scan.statuses"),
        (lambda: SnapshotRequest(namespace=NS, max_nodes=0), "snapshot.maxNodes"),
        (lambda: SnapshotRequest(namespace=NS, max_bytes=0), "snapshot.maxBytes"),
        (lambda: query(statuses=[1]), "statuses"),
        (lambda: UsageSummary(-1, 0), "usage.admissions"),
    ],
)
def test_a_malformed_request_names_its_field(make: Callable[[], Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("make", "resource", "limit"),
    [
        (lambda limit: MemoryQuery(namespace=NS, limit=limit), "query limit", 100),
        (lambda limit: ScanRequest(namespace=NS, limit=limit), "scan.limit", 1000),
    ],
)
def test_a_request_beyond_a_limit_names_it(make: Callable[[int], Any], resource: str, limit: int) -> None:
    assert make(1).limit == 1
    assert make(limit).limit == limit
    with pytest.raises(LimitExceeded) as caught:
        make(limit + 1)
    assert (caught.value.resource, caught.value.limit, caught.value.actual) == (resource, limit, limit + 1)


def test_relations_have_inverses() -> None:
    for kind in RelationKind:
        assert kind.inverse.inverse is kind
    assert RelationKind.SUPERSEDES.inverse is RelationKind.SUPERSEDED_BY
    assert {kind for kind in RelationKind if kind.inverse is kind} == {
        RelationKind.CONFLICTS_WITH,
        RelationKind.RELATED_TO,
    }


def test_the_ids_of_purge_marks_are_reserved() -> None:
    from a3s_actors.memory import ReferenceState

    state = ReferenceState()
    with pytest.raises(InvalidInput):
        state.apply(change("k", create(f"{PURGED_PREFIX}1")))
    with pytest.raises(InvalidInput):
        state.apply(change("k", create("n", relations=[MemoryRelation(RelationKind.RELATED_TO, f"{PURGED_PREFIX}1")])))
    assert state.get(NS, "n") is None


def test_a_draft_begins_as_a_candidate_with_middling_figures() -> None:
    from a3s_actors.memory import MemoryKind, MemoryNodeDraft

    made = MemoryNodeDraft(id="n", namespace=NS, kind=MemoryKind.SEMANTIC, content="x", created_at=at())
    assert (made.status, made.confidence, made.importance, made.evidence, dict(made.labels)) == (
        MemoryStatus.CANDIDATE,
        0.5,
        0.5,
        (),
        {},
    )
