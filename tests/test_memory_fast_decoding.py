"""Quick decoding gives what strict decoding gives: the same values, the same refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a3s_actors.memory import (
    InvalidInput,
    MemoryKind,
    MemoryNode,
    MemoryRepositoryError,
    MemoryStatus,
    NodeHead,
    NodeRevision,
)
from a3s_actors.memory.codec import head_json, node_json, revision_json
from a3s_actors.memory.decoding import decode
from a3s_actors.memory.fast_decoding import decode_head, decode_node, decode_revision
from a3s_actors.memory.values import RevisionKind
from a3s_actors.testing.building import NS
from tests.test_memory_codec import EVIDENCE, RELATIONS, TEXT, TIMES

BODY: dict[str, Any] = {
    "revision": st.integers(1, 2**40),
    "kind": st.sampled_from(MemoryKind),
    "status": st.sampled_from(MemoryStatus),
    "content": TEXT,
    "confidence": st.floats(0, 1) | st.sampled_from([0.0, -0.0, 1.0]),
    "importance": st.floats(0, 1),
    "evidence": st.lists(EVIDENCE, max_size=3),
    "relations": st.lists(RELATIONS, max_size=3),
    "labels": st.dictionaries(TEXT, st.just("") | TEXT, max_size=3),
    "updated_at": TIMES,
    "revision_kind": st.sampled_from(RevisionKind),
}
REVISIONS = st.builds(NodeRevision, **BODY)
HEADS = st.builds(NodeHead, id=TEXT, namespace=st.just(NS), created_at=TIMES, **BODY)


@settings(max_examples=100, deadline=None)
@given(HEADS, st.lists(REVISIONS, max_size=3))
def test_values_equal_those_of_strict_decoding(head: NodeHead, history: list[NodeRevision]) -> None:
    data = head_json(head).encode()
    assert decode_head(data) == decode(data, NodeHead) == head
    assert head_json(decode_head(data)).encode() == data
    node = head.with_history(tuple(history))
    data = node_json(node).encode()
    assert decode_node(data) == decode(data, MemoryNode) == node
    assert hash(decode_node(data)) == hash(node)
    for revision in history:
        data = revision_json(revision).encode()
        assert decode_revision(data) == decode(data, NodeRevision) == revision


SAMPLE = json.loads(
    node_json(
        decode(
            json.dumps(
                {
                    "id": "n", "namespace": {"tenantId": "t", "principalId": "p", "scopeId": "s"}, "revision": 2,
                    "kind": "semantic", "status": "active", "content": "text", "confidence": 0.5, "importance": 0.5,
                    "evidence": [{"uri": "u", "digest": "d", "kind": "manual", "occurredAt": "2026-01-01T00:00:00Z"}],
                    "relations": [{"kind": "related_to", "targetId": "m"}], "labels": {"a": "b"},
                    "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-02T00:00:00Z",
                    "revisionKind": "corrected", "history": [{
                        "revision": 1, "kind": "semantic", "status": "active", "content": "old", "confidence": 0.5,
                        "importance": 0.5, "evidence": [], "relations": [], "labels": {},
                        "updatedAt": "2026-01-01T00:00:00Z", "revisionKind": "created"}],
                }
            ),
            MemoryNode,
        )
    )
)  # fmt: skip


def both(data: bytes) -> tuple[Any, Any]:
    outcomes: list[Any] = []
    for call in (decode_node, lambda each: decode(each, MemoryNode)):
        try:
            outcomes.append(call(data))
        except MemoryRepositoryError as error:
            outcomes.append((type(error), error.fields()))
    return outcomes[0], outcomes[1]


PLACES = ["id", "namespace", "namespace.tenantId", "revision", "kind", "status", "content", "confidence", "importance",
          "evidence", "evidence.0", "evidence.0.uri", "evidence.0.digest", "evidence.0.kind", "evidence.0.occurredAt",
          "relations", "relations.0.kind", "relations.0.targetId", "labels", "labels.a", "createdAt", "updatedAt",
          "revisionKind", "history", "history.0", "history.0.content", "history.0.revision"]  # fmt: skip
VALUES: list[Any] = [None, "", " ", "\u3000", "x" * 70_000, "é" * 40_000, 0, -1, 1, 2.5, True, [], {}, [1], {"a": 1},
                     "active", "\ud800", "2026-02-30T00:00:00Z", 10**400, {"": "x"}, {"a": "  "}]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_refusals_equal_those_of_strict_decoding(place: str) -> None:
    for value in VALUES:
        data = json.loads(json.dumps(SAMPLE))
        *way, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        target = data
        for part in way:
            target = target[part]
        target[last] = value
        quick, strict = both(json.dumps(data).encode())
        assert quick == strict
        del target[last]
        quick, strict = both(json.dumps(data).encode())
        assert quick == strict
        if isinstance(target, dict):
            target["more"] = value
            quick, strict = both(json.dumps(data).encode())
            assert quick == strict


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"id":"\\ud800"}'])
def test_what_is_no_node_is_refused_alike(data: bytes) -> None:
    quick, strict = both(data)
    assert quick == strict
    assert isinstance(quick, tuple)


def test_a_field_that_is_there_twice_is_refused_and_a_text_that_looks_like_one_is_not() -> None:
    data = node_json(decode(json.dumps(SAMPLE), MemoryNode)).encode()
    for key in (b'"content":', b'"tenantId":', b'"history":', b'"updatedAt":'):
        at = data.index(key)
        end = data.index(b",", at) if key != b'"history":' else None
        again = data[at:end] + b"," if end else b'"history":[],'
        with pytest.raises(InvalidInput, match="twice"):
            decode_node(data[:at] + again + data[at:])
    quoted = json.dumps({**SAMPLE, "content": 'as in {"content":"x"}'}).encode()
    assert decode_node(quoted).content == 'as in {"content":"x"}'
