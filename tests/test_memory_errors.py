"""Errors: one tree, typed fields, messages that name field, limit and cure, and never what a memory says."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from typing import Any

import pytest

from a3s_actors.memory import errors
from a3s_actors.memory.codec import draft_json
from a3s_actors.memory.decoding import decode
from a3s_actors.memory.errors import ErrorFamily, MemoryRepositoryError
from a3s_actors.memory.operations import Create, MemoryChangeSet, Revise, RevisionMode
from a3s_actors.memory.reads import MemoryHit, MemoryQuery
from a3s_actors.memory.reference import ReferenceState
from a3s_actors.memory.snapshot import SnapshotRequest
from a3s_actors.memory.values import MemoryNodeDraft
from a3s_actors.testing import building

CANARY = "tangerine-canary-5519"

EXAMPLES: dict[str, MemoryRepositoryError] = {
    "AdmissionNotAllowed": errors.AdmissionNotAllowed("n", 1, 2, "active"),
    "ChangeSetPurged": errors.ChangeSetPurged("k", "blake2b:00"),
    "Corruption": errors.Corruption("page 7", "does not match its digest"),
    "EvidenceRequired": errors.EvidenceRequired("n", "needs evidence"),
    "IdempotencyConflict": errors.IdempotencyConflict("k"),
    "InvalidInput": errors.InvalidInput("node.content", "must not be blank"),
    "InvalidTransition": errors.InvalidTransition("n", "tombstoned", "active"),
    "InvariantViolation": errors.InvariantViolation("n", "a superseded memory needs a superseded_by relation"),
    "LimitExceeded": errors.LimitExceeded("node evidence", 64, 65),
    "NamespaceMismatch": errors.NamespaceMismatch("n"),
    "NodeAlreadyExists": errors.NodeAlreadyExists("n"),
    "NodeNotFound": errors.NodeNotFound("n"),
    "NodeRevisionNotFound": errors.NodeRevisionNotFound("n", 3),
    "Persistence": errors.Persistence("write", "the disk is full"),
    "RelationTargetNotFound": errors.RelationTargetNotFound("n", "m"),
    "RepositoryClosed": errors.RepositoryClosed("closed"),
    "RepositoryLocked": errors.RepositoryLocked("open", "held by another process"),
    "RevisionConflict": errors.RevisionConflict("n", 1, 2),
}
KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, MemoryRepositoryError) and kind is not MemoryRepositoryError
]


def test_every_error_has_an_example_here() -> None:
    assert {kind.__name__ for kind in KINDS} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_error_tells_its_fields_and_its_family(name: str) -> None:
    error = EXAMPLES[name]
    assert isinstance(error.family, ErrorFamily)
    fields = error.fields()
    assert fields
    text = str(error)
    identifying = [value for key, value in fields.items() if key in {"field", "limit", "actual", "expected", "node_id"}]
    assert all(str(value) in text for value in identifying)
    assert "\n" not in text


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("duplicate", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_an_error_survives_pickling_and_copying(name: str, duplicate: Any) -> None:
    error = EXAMPLES[name]
    again = duplicate(error)
    assert (type(again), again.fields(), str(again)) == (type(error), error.fields(), str(error))


def test_families_tell_what_a_caller_can_do() -> None:
    families: dict[str, set[str]] = {family.value: set() for family in ErrorFamily}
    for name, error in EXAMPLES.items():
        families[error.family.value].add(name)
    assert families == {
        "invalid": {"InvalidInput", "LimitExceeded", "NamespaceMismatch", "EvidenceRequired"},
        "refused": {
            "AdmissionNotAllowed", "ChangeSetPurged", "InvalidTransition", "InvariantViolation", "NodeNotFound",
            "NodeRevisionNotFound", "RelationTargetNotFound",
        },
        "conflict": {"IdempotencyConflict", "NodeAlreadyExists", "RevisionConflict"},
        "closed": {"RepositoryClosed"},
        "unavailable": {"Persistence", "RepositoryLocked"},
        "corrupt": {"Corruption"},
    }  # fmt: skip


FIELDS = {
    "AdmissionNotAllowed": ["node_id", "revision", "current_revision", "current_status"],
    "ChangeSetPurged": ["key", "digest"],
    "Corruption": ["where", "message"],
    "IdempotencyConflict": ["key"],
    "InvalidInput": ["field", "message"],
    "InvalidTransition": ["node_id", "from_status", "to_status"],
    "LimitExceeded": ["resource", "limit", "actual"],
    "NodeNotFound": ["node_id"],
    "NodeRevisionNotFound": ["node_id", "revision"],
    "Persistence": ["operation", "message"],
    "RelationTargetNotFound": ["node_id", "target_id"],
    "RevisionConflict": ["node_id", "expected", "actual"],
}


@pytest.mark.parametrize("name", FIELDS)
def test_an_error_carries_the_fields_of_the_contract_ready_for_json(name: str) -> None:
    fields = EXAMPLES[name].fields()
    assert list(fields) == FIELDS[name]
    assert json.loads(json.dumps(fields)) == fields


def test_locked_storage_is_a_failure_of_storage() -> None:
    assert issubclass(errors.RepositoryLocked, errors.Persistence)


def refusals() -> list[MemoryRepositoryError]:
    """Provoke refusals with a canary in every text that a memory can hold."""
    state = ReferenceState()
    proofs = [building.evidence(f"s://{CANARY}")]
    state.apply(building.change("k", building.create("n", CANARY, proofs=proofs, labels={"note": CANARY})))
    attempts: list[Any] = [
        lambda: building.draft("n", CANARY * 10_000),
        lambda: building.draft("n", CANARY, confidence=7),
        lambda: building.draft("n", CANARY, labels={"a" * 200: CANARY}),
        lambda: building.draft("n", CANARY, labels={"a": CANARY * 100}),
        lambda: building.draft("n", f"{CANARY}\ud800"),
        lambda: state.apply(building.change("k2", building.create("n", CANARY))),
        lambda: state.apply(building.change("k", building.create("n", f"{CANARY} other"))),
        lambda: state.apply(building.change("k3", building.revise("n", CANARY, 7))),
        lambda: state.apply(building.change("k4", building.revise("n", CANARY, uri=f"s://{CANARY}"))),
        lambda: state.apply(building.change("k5", building.activate("n"))),
        lambda: MemoryQuery(namespace=building.NS, text=f"{CANARY}\ud800"),
        lambda: building.revise("n", CANARY * 10_000),
        lambda: building.draft("n", CANARY, labels={CANARY * 10: ""}),
        lambda: building.evidence(f"s://{CANARY}" * 200),
        lambda: decode(draft_json(building.draft("n", CANARY)).replace('"active"', f'"{CANARY}"'), MemoryNodeDraft),
        lambda: decode(draft_json(building.draft("n", CANARY)).replace("0.5", f'"{CANARY}"'), MemoryNodeDraft),
        lambda: decode(draft_json(building.draft("n", CANARY)).replace("2026", CANARY), MemoryNodeDraft),
        lambda: decode(draft_json(building.draft("n", CANARY))[:-1], MemoryNodeDraft),
        lambda: state.snapshot(SnapshotRequest(namespace=building.NS, max_bytes=1)),
    ]
    found = []
    for attempt in attempts:
        with pytest.raises(MemoryRepositoryError) as caught:
            attempt()
        found.append(caught.value)
    return found


def test_no_refusal_tells_what_a_memory_says() -> None:
    for error in refusals():
        for text in (str(error), repr(error), repr(error.fields()), repr(error.args)):
            assert CANARY not in text


def test_no_repr_tells_what_a_memory_says() -> None:
    draft = building.draft("n", CANARY, labels={"note": CANARY}, proofs=[building.evidence("u://1")])
    change_set = building.change("k", Create(draft))
    state = ReferenceState()
    result = state.apply(change_set)
    revise = Revise(
        "n", expected_revision=1, content=CANARY, mode=RevisionMode.CORRECTION, evidence=(building.evidence("u://2"),)
    )
    state.apply(building.change("r", revise))
    node = state.get(building.NS, "n")
    assert node is not None
    values: list[object] = [
        draft,
        change_set,
        MemoryChangeSet(
            idempotency_key="x", namespace=building.NS, occurred_at=building.at(), operations=(Create(draft), revise)
        ),
        result,
        revise,
        node,
        node.head,
        node.history,
        MemoryHit(node.head, 1.0),
        MemoryQuery(namespace=building.NS, text=CANARY),
        draft.labels,
        state,
        state.query(MemoryQuery(namespace=building.NS, text="canary")),
    ]
    for value in values:
        assert CANARY not in repr(value)
        assert CANARY not in f"{value}"
