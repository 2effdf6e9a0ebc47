"""Canonical JSON: field orders, the shortest floats, strict decoding, equality that ignores the sign of zero."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a3s_actors.memory import (
    AccessEvent,
    ChangeSetResult,
    EvidenceKind,
    EvidenceRef,
    InvalidInput,
    LimitExceeded,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNode,
    MemoryNodeDraft,
    MemoryRelation,
    MemoryRepositoryError,
    MemoryStatus,
    ReferenceState,
    RelationKind,
    Timestamp,
)
from a3s_actors.memory.codec import (
    access_event_json,
    canonical_change_set,
    change_set_json,
    draft_json,
    equality_digest,
    float_json,
    node_json,
    result_json,
    statuses_json,
    string_json,
)
from a3s_actors.memory.decoding import decode
from a3s_actors.memory.lexical import float32, is_blank
from a3s_actors.memory.limits import MAX_CHANGE_SET_BYTES
from a3s_actors.memory.values import RevisionKind
from a3s_actors.testing import building
from a3s_actors.testing.building import NS, access, activate, add, change, corroborate, create, revise, set_status

CHARACTERS = st.characters(codec="utf-8")
TEXT = st.text(CHARACTERS, min_size=1, max_size=20).filter(lambda text: not is_blank(text))
TIMES = st.builds(Timestamp, st.integers(-(2**62), 2**62))
NAMESPACES = st.builds(MemoryNamespace, TEXT, TEXT, TEXT)
EVIDENCE = st.builds(EvidenceRef, uri=TEXT, digest=TEXT, kind=st.sampled_from(EvidenceKind), occurred_at=TIMES)
RELATIONS = st.builds(MemoryRelation, st.sampled_from(RelationKind), TEXT)
DRAFTS = st.builds(
    MemoryNodeDraft,
    id=TEXT,
    namespace=NAMESPACES,
    kind=st.sampled_from(MemoryKind),
    status=st.sampled_from(MemoryStatus),
    content=TEXT,
    confidence=st.floats(0, 1),
    importance=st.floats(0, 1),
    evidence=st.lists(EVIDENCE, max_size=3),
    relations=st.lists(RELATIONS, max_size=3),
    labels=st.dictionaries(TEXT, TEXT, max_size=3),
    created_at=TIMES,
)
EVENTS = st.builds(
    AccessEvent,
    id=TEXT,
    namespace=NAMESPACES,
    node_id=TEXT,
    node_revision=st.integers(1, 2**40),
    occurred_at=TIMES,
    context_id=st.none() | TEXT,
)


@settings(max_examples=60, deadline=None)
@given(DRAFTS)
def test_a_draft_comes_back_from_its_json(draft: MemoryNodeDraft) -> None:
    text = draft_json(draft)
    assert decode(text, MemoryNodeDraft) == draft
    assert decode(text.encode(), MemoryNodeDraft) == draft
    assert draft_json(decode(text, MemoryNodeDraft)) == text
    assert json.loads(text)["content"] == draft.content


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_an_event_comes_back_from_its_json(event: AccessEvent) -> None:
    assert decode(access_event_json(event), AccessEvent) == event


def whole_change_set() -> MemoryChangeSet:
    related = RelationKind.RELATED_TO
    return change(
        "k",
        create("a", "text", labels={"b": "2", "a": "1"}),
        create("c", status=MemoryStatus.CANDIDATE),
        activate("c"),
        corroborate("a"),
        revise("a", "other", 2, confidence=0.1),
        add("a", related, "c", 3),
        add("c", related, "a", 2),
        set_status("c", MemoryStatus.TOMBSTONED, 3),
    )


def test_a_change_set_comes_back_from_its_json_with_every_operation() -> None:
    change_set = whole_change_set()
    assert decode(change_set_json(change_set), MemoryChangeSet) == change_set


def test_a_node_comes_back_from_its_json_with_its_history() -> None:
    state = ReferenceState()
    for node in state.apply(whole_change_set()).nodes:
        text = node_json(node)
        assert decode(text, MemoryNode) == node
        assert node_json(decode(text, MemoryNode)) == text


def test_a_result_comes_back_from_its_json() -> None:
    result = ReferenceState().apply(whole_change_set())
    assert decode(result_json(result), ChangeSetResult) == result
    assert list(json.loads(result_json(result))) == ["idempotencyKey", "occurredAt", "nodes"]


def test_fields_stand_in_their_one_order() -> None:
    state = ReferenceState()
    node = json.loads(node_json(state.apply(whole_change_set()).node("a")))
    assert list(node) == [
        "id", "namespace", "revision", "kind", "status", "content", "confidence", "importance", "evidence", "relations",
        "labels", "createdAt", "updatedAt", "revisionKind", "history",
    ]  # fmt: skip
    assert list(node["history"][0]) == [
        "revision", "kind", "status", "content", "confidence", "importance", "evidence", "relations", "labels",
        "updatedAt", "revisionKind",
    ]  # fmt: skip
    assert list(node["evidence"][0]) == ["uri", "digest", "kind", "occurredAt"]
    assert list(node["namespace"]) == ["tenantId", "principalId", "scopeId"]
    assert list(node["labels"]) == ["a", "b"]
    operations = json.loads(change_set_json(whole_change_set()))["operations"]
    assert [list(each) for each in operations][:3] == [
        ["operation", "node"],
        ["operation", "node"],
        ["operation", "node_id", "expected_revision", "evidence"],
    ]
    assert list(operations[4]) == [
        "operation", "node_id", "expected_revision", "content", "mode", "evidence", "confidence", "importance",
    ]  # fmt: skip
    assert operations[4]["importance"] is None
    assert list(json.loads(change_set_json(whole_change_set()))) == [
        "idempotencyKey", "namespace", "occurredAt", "operations",
    ]  # fmt: skip
    assert list(operations[0]["node"]) == [
        "id", "namespace", "kind", "status", "content", "confidence", "importance", "evidence", "relations", "labels",
        "createdAt",
    ]  # fmt: skip
    assert list(operations[5]) == ["operation", "node_id", "expected_revision", "relation"]
    assert list(operations[5]["relation"]) == ["kind", "targetId"]
    assert list(operations[7]) == ["operation", "node_id", "expected_revision", "status"]
    assert statuses_json(reversed(MemoryStatus)) == ('["candidate","active","superseded","conflicted","tombstoned"]')
    assert list(json.loads(access_event_json(access("e", "n")))) == [
        "id", "namespace", "nodeId", "nodeRevision", "occurredAt", "contextId",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (0.9, "0.9"), (0.00001, "0.00001"), (1e-7, "1e-7"), (0.1, "0.1"),
     (1 / 3, "0.33333334"), (1e-45, "1e-45"), (0.5, "0.5"), (1.1754944e-38, "1.1754944e-38")],
)  # fmt: skip
def test_floats_are_written_as_short_as_they_can_be(value: float, text: str) -> None:
    assert float_json(float32(value)) == text


@given(st.integers(0, 0x3F800000))
def test_every_float32_of_the_unit_interval_comes_back(bits: int) -> None:
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    text = float_json(value)
    assert float32(float(text)) == value
    shorter = [f"{value:.{digits}g}" for digits in range(1, sum(map(str.isdigit, text.split("e")[0].strip("0."))))]
    assert all(float32(float(each)) != value for each in shorter)


@given(st.text(CHARACTERS))
def test_texts_are_escaped_as_json_requires_and_no_further(text: str) -> None:
    written = string_json(text)
    assert json.loads(written) == text
    unescaped = [char for char in text if char >= " " and char not in '"\\']
    assert all(char in written for char in unescaped)


def test_equal_change_sets_have_equal_digests_and_others_do_not() -> None:
    def with_zeros(*zeros: float) -> MemoryChangeSet:
        first, second, third, fourth = zeros
        return change(
            "k",
            create("n", confidence=first, importance=second),
            revise("n", "x", confidence=third),
            revise("n", "x", 2, importance=fourth),
            corroborate("n", 3),
        )

    base = with_zeros(0.0, 0.0, 0.0, 0.0)
    for place in range(4):
        equal = with_zeros(*(-0.0 if place == number else 0.0 for number in range(4)))
        assert change_set_json(equal) != change_set_json(base)
        assert base == equal
        assert equality_digest(base) == equality_digest(equal)
    assert equality_digest(base) == hashlib.sha256(change_set_json(base).encode()).digest()
    others = [
        change("k2", *base.operations),
        change("k", *base.operations, second=1e-9),
        change("k", base.operations[0]),
        change("k", create("n", confidence=1e-45, importance=0.0), *base.operations[1:]),
        change("k", create("n", confidence=0.0, importance=1e-45), *base.operations[1:]),
        change("k", base.operations[0], revise("n", "x", confidence=0.0, importance=0.0), *base.operations[2:]),
        change("k", *reversed(base.operations)),
        attrs.evolve(base, namespace=building.OTHER),
    ]
    assert len({equality_digest(each) for each in [base, *others]}) == len(others) + 1


def test_a_change_set_may_fill_its_limit_to_the_byte() -> None:
    control = "\x01" * 60_000  # six bytes each in JSON

    def with_last(content: str) -> MemoryChangeSet:
        return change("k", *(create(f"n{number}", control) for number in range(46)), create("last", content))

    room = MAX_CHANGE_SET_BYTES - len(canonical_change_set(with_last("x"))) + 1
    tail = "\x01" * (room // 6) + "x" * (room % 6)
    assert len(canonical_change_set(with_last(tail))) == MAX_CHANGE_SET_BYTES
    with pytest.raises(LimitExceeded) as caught:
        canonical_change_set(with_last(f"{tail}x"))
    assert caught.value.fields() == {
        "resource": "change-set bytes",
        "limit": 16 * 1024 * 1024,
        "actual": 16 * 1024 * 1024 + 1,
    }


# -- decoding is strict ------------------------------------------------------------------------------------------------


def changed(path: str, value: Any = ..., *, rename: str | None = None) -> str:
    """Return the whole change set's JSON with one place changed, removed or renamed."""
    data = json.loads(change_set_json(whole_change_set()))
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = data
    for part in way:
        place = place[part]
    if rename is not None:
        place[rename] = place.pop(last)
    elif value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    "text",
    [
        changed("idempotencyKey"),
        changed("operations"),
        changed("operations.0.node.content"),
        changed("operations.2.evidence"),
        changed("namespace.scopeId"),
        changed("more", 1),
        changed("operations.0.more", 1),
        changed("operations.0.node.more", 1),
        changed("namespace.more", 1),
        changed("operations.0.node.evidence.0.more", 1),
        changed("occurredAt", rename="occurred_at"),
        changed("operations.2.node_id", rename="nodeId"),
        changed("operations.0.operation", "destroy"),
        changed("operations.0.operation", None),
        changed("operations.0.node.kind", "working"),
        changed("operations.0.node.status", "Active"),
        changed("operations.0.node.confidence", "0.5"),
        changed("operations.0.node.confidence", True),
        changed("operations.0.node.labels", []),
        changed("operations.0.node.labels", {"a": 1}),
        changed("operations.0.node.evidence", {}),
        changed("operations.0.node.evidence", "text"),
        changed("operations.2.expected_revision", 1.0),
        changed("operations.2.expected_revision", "1"),
        changed("operations.2.expected_revision", -1),
        changed("operations.2.expected_revision", 1 << 64),
        changed("operations.2.expected_revision", 10**400),
        changed("operations.0.node.confidence", 10**400),
        changed("operations.0.node.content", None),
        changed("operations.4.mode", "guess"),
        changed("operations.5.relation.kind", "likes"),
        changed("occurredAt", 0),
        changed("occurredAt", "2026-01-01"),
        changed("operations", {}),
        changed("operations", []),
        changed("namespace", None),
        changed("operations.0.node", None),
        "null", "[]", '"text"', "1", "", "{", "nonsense", "NaN", "\x00", "[" * 100_000, "{" * 100_000,
        '{"a":' * 50_000,
    ],
    ids=range(49),
)  # fmt: skip
def test_anything_but_a_change_set_is_refused_with_a_typed_error(text: str) -> None:
    with pytest.raises(MemoryRepositoryError) as caught:
        decode(text, MemoryChangeSet)
    assert isinstance(caught.value, InvalidInput)
    assert len(str(caught.value)) < 300


def test_a_value_over_a_limit_is_a_limit_error_when_decoded_too() -> None:
    with pytest.raises(LimitExceeded):
        decode(changed("operations.0.node.content", "x" * 70_000), MemoryChangeSet)


@given(st.binary(max_size=40))
def test_bytes_that_are_no_json_never_raise_anything_else(data: bytes) -> None:
    try:
        decode(data, MemoryChangeSet)
    except InvalidInput:
        return
    raise AssertionError("accepted")


def test_lone_surrogates_are_refused_when_decoded() -> None:
    text = change_set_json(change("k", create("n", "SURROGATE"))).replace("SURROGATE", "\\ud800")
    with pytest.raises(InvalidInput):
        decode(text, MemoryChangeSet)


def test_every_revision_kind_has_a_name_that_is_stored() -> None:
    assert [kind.value for kind in RevisionKind] == [
        "created", "activated", "corroborated", "refined", "corrected", "relation_changed", "status_changed",
    ]  # fmt: skip
    assert MemoryNamespace("tenant", "principal", "scope") == NS


def test_a_field_that_is_there_twice_is_refused_wherever_it_is() -> None:
    text = change_set_json(change("k", create("a")))
    for once in ('"idempotencyKey":"k"', '"tenantId":"tenant"', '"id":"a"', '"kind":'):
        at = text.index(once)
        key = once[: once.index(":") + 1]
        with pytest.raises(InvalidInput, match="twice"):
            decode(f"{text[:at]}{key}null,{text[at:]}", MemoryChangeSet)
    with pytest.raises(InvalidInput, match="twice"):
        decode('{"a":{"b":[{"c":1,"\\u0063":1}]}}', MemoryChangeSet)


def test_an_unknown_field_is_not_repeated_in_the_error() -> None:
    secret = "my secret memory"
    for text in (
        change_set_json(change("k", create("a"))).replace('"idempotencyKey"', f'"{secret}":1,"idempotencyKey"'),
        change_set_json(change("k", create("a"))).replace('"tenantId"', f'"{secret}":1,"tenantId"'),
    ):
        with pytest.raises(InvalidInput, match="not in the schema") as caught:
            decode(text, MemoryChangeSet)
        assert secret not in str(caught.value)
        assert secret not in repr(caught.value)
