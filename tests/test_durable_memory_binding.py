"""`DurableMemoryBindingV1`: the valid combinations and no others, and a resume that fails closed."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from a3s_actors.memory import InvalidInput, MemoryNamespace, MemoryRepositoryError
from a3s_actors.recall import (
    DurableMemoryBindingMismatch,
    DurableMemoryBindingV1,
    DurableMemoryRecallPolicy,
    check_resumed_binding,
)

NS = MemoryNamespace("t", "p", "s")
BINDING = DurableMemoryBindingV1(namespace=NS, policy=DurableMemoryRecallPolicy(5, 0.4, 8))
WORD = "a3s.memory.lexical.word.v1"
BIGRAM = "a3s.memory.lexical.word-cjk-bigram.v1"
HOST = "a3s.code.memory.context.host-id.v0"
SEQUENCE = "a3s.code.memory.context.session-run-sequence-sha256.v1"
INVOCATION = "a3s.code.memory.context.session-run-invocation-sequence-sha256.v2"
VALID = {1: (WORD, HOST), 2: (BIGRAM, HOST), 3: (BIGRAM, SEQUENCE), 4: (BIGRAM, INVOCATION)}


def test_a_new_binding_has_its_one_spelling() -> None:
    assert BINDING.to_json() == (
        '{"schemaVersion":4,"namespace":{"tenantId":"t","principalId":"p","scopeId":"s"},"mode":"active_recall",'
        '"recallPolicy":{"maxResults":5,"minLexicalScore":0.4,"maxRelatedLookups":8},'
        f'"retrievalProfile":"{BIGRAM}","contextIdProfile":"{INVOCATION}"}}'
    )
    assert DurableMemoryBindingV1.from_json(BINDING.to_json()) == BINDING


@pytest.mark.parametrize("schema", [1, 2, 3, 4])
def test_every_valid_combination_is_read_and_no_other(schema: int) -> None:
    data = json.loads(BINDING.to_json())
    for retrieval in (WORD, BIGRAM, "another"):
        for context in (HOST, SEQUENCE, INVOCATION, "another"):
            data |= {"schemaVersion": schema, "retrievalProfile": retrieval, "contextIdProfile": context}
            if (retrieval, context) == VALID[schema]:
                read = DurableMemoryBindingV1.from_json(json.dumps(data))
                assert DurableMemoryBindingV1.from_json(read.to_json()) == read
            else:
                with pytest.raises(InvalidInput):
                    DurableMemoryBindingV1.from_json(json.dumps(data))


def test_missing_profiles_are_those_of_schema_1() -> None:
    data = json.loads(BINDING.to_json())
    del data["retrievalProfile"], data["contextIdProfile"]
    read = DurableMemoryBindingV1.from_json(json.dumps(data | {"schemaVersion": 1}))
    assert (read.retrieval_profile, read.context_id_profile) == (WORD, HOST)
    with pytest.raises(InvalidInput):
        DurableMemoryBindingV1.from_json(json.dumps(data))


@pytest.mark.parametrize(
    "changes",
    [{"schemaVersion": 0}, {"schemaVersion": 5}, {"schemaVersion": 6}, {"schemaVersion": "4"}, {"schemaVersion": True},
     {"schemaVersion": 4.0}, {"mode": "shadow"}, {"mode": None}, {"more": 1}, {"namespace": {"tenantId": "t"}},
     {"namespace": None}, {"recallPolicy": None}, {"recallPolicy": {"maxResults": 5}}, {"retrievalProfile": None},
     {"recallPolicy": {"maxResults": 5, "minLexicalScore": 0.4, "maxRelatedLookups": 8, "more": 1}},
     {"recallPolicy": {"maxResults": 0, "minLexicalScore": 0.4, "maxRelatedLookups": 8}},
     {"recallPolicy": {"maxResults": 5, "minLexicalScore": "0.4", "maxRelatedLookups": 8}}],
)  # fmt: skip
def test_anything_else_is_refused(changes: dict[str, Any]) -> None:
    data = json.loads(BINDING.to_json()) | changes
    with pytest.raises(MemoryRepositoryError):
        DurableMemoryBindingV1.from_json(json.dumps(data))


@pytest.mark.parametrize("missing", ["schemaVersion", "namespace", "mode", "recallPolicy"])
def test_a_missing_field_is_refused(missing: str) -> None:
    data = json.loads(BINDING.to_json())
    del data[missing]
    with pytest.raises(InvalidInput, match=missing):
        DurableMemoryBindingV1.from_json(json.dumps(data))


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_binding_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        DurableMemoryBindingV1.from_json(data)


def test_a_resume_with_the_same_memory_passes() -> None:
    check_resumed_binding(BINDING, DurableMemoryBindingV1.from_json(BINDING.to_json()))
    check_resumed_binding(None, None)


@pytest.mark.parametrize(
    ("injected", "field"),
    [
        (attrs.evolve(BINDING, namespace=MemoryNamespace("T", "p", "s")), "namespace.tenantId"),
        (attrs.evolve(BINDING, namespace=MemoryNamespace("t", "p ", "s")), "namespace.principalId"),
        (attrs.evolve(BINDING, namespace=MemoryNamespace("t", "p", "s2")), "namespace.scopeId"),
        (attrs.evolve(BINDING, policy=DurableMemoryRecallPolicy(6, 0.4, 8)), "recallPolicy.maxResults"),
        (attrs.evolve(BINDING, policy=DurableMemoryRecallPolicy(5, 0.41, 8)), "recallPolicy.minLexicalScore"),
        (attrs.evolve(BINDING, policy=DurableMemoryRecallPolicy(5, 0.4, 7)), "recallPolicy.maxRelatedLookups"),
        (attrs.evolve(BINDING, schema_version=3, context_id_profile=SEQUENCE), "schemaVersion"),
        (None, "durableMemory"),
    ],
)
def test_a_resume_with_anything_else_names_the_first_difference(injected: Any, field: str) -> None:
    for saved, given in ((BINDING, injected), (injected, BINDING)):
        with pytest.raises(DurableMemoryBindingMismatch) as caught:
            check_resumed_binding(saved, given)
        assert caught.value.field == field
        assert field in str(caught.value)
