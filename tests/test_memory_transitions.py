"""The tables of the life cycle: complete, without ways back, and equal to the written contract."""

from __future__ import annotations

import pytest

from a3s_actors.memory import (
    Activate,
    AddRelation,
    Corroborate,
    MemoryStatus,
    RelationKind,
    RemoveRelation,
    Revise,
    RevisionMode,
    SetStatus,
)
from a3s_actors.memory.operations import OPERATION_TYPES, Create
from a3s_actors.memory.transitions import (
    CREATABLE,
    FINAL_BUT_RETAINED,
    OPERATION_STATUSES,
    REQUIRED_RELATION,
    REVISION_KINDS,
    STATUS_TRANSITIONS,
)
from a3s_actors.memory.values import RevisionKind

CONTRACT = {
    "candidate": {"conflicted", "tombstoned"},
    "active": {"superseded", "conflicted", "tombstoned"},
    "conflicted": {"superseded", "tombstoned"},
    "superseded": {"tombstoned"},
    "tombstoned": set(),
}


def test_status_changes_are_those_of_the_contract() -> None:
    table = {start.value: {end.value for end in ends} for start, ends in STATUS_TRANSITIONS.items()}
    assert table == CONTRACT


def test_a_new_memory_is_a_candidate_or_active() -> None:
    assert {MemoryStatus.CANDIDATE, MemoryStatus.ACTIVE} == CREATABLE


@pytest.mark.parametrize("start", MemoryStatus)
def test_no_way_of_status_changes_leads_back(start: MemoryStatus) -> None:
    reached: set[MemoryStatus] = set()
    todo = [start]
    while todo:
        for end in STATUS_TRANSITIONS[todo.pop()] - reached:
            reached.add(end)
            todo.append(end)
    assert start not in reached
    assert not reached & CREATABLE
    assert start is MemoryStatus.TOMBSTONED or MemoryStatus.TOMBSTONED in reached


def test_every_operation_has_its_row_and_its_kind_of_revision() -> None:
    changing = set(OPERATION_TYPES) - {Create, SetStatus}
    assert set(OPERATION_STATUSES) == changing
    assert set(REVISION_KINDS) == {*changing, SetStatus, *RevisionMode} - {Revise}
    assert set(REVISION_KINDS.values()) == set(RevisionKind) - {RevisionKind.CREATED}


def test_operations_touch_the_statuses_of_the_contract() -> None:
    assert OPERATION_STATUSES[Activate] == {MemoryStatus.CANDIDATE}
    live = set(MemoryStatus) - {MemoryStatus.SUPERSEDED, MemoryStatus.TOMBSTONED}
    for operation in (Corroborate, Revise, AddRelation, RemoveRelation):
        assert OPERATION_STATUSES[operation] == live


def test_a_status_that_needs_a_relation_can_be_reached_only_by_one_that_can_still_get_it() -> None:
    assert REQUIRED_RELATION == {
        MemoryStatus.SUPERSEDED: RelationKind.SUPERSEDED_BY,
        MemoryStatus.CONFLICTED: RelationKind.CONFLICTS_WITH,
    }
    for needing in REQUIRED_RELATION:
        starts = {start for start, ends in STATUS_TRANSITIONS.items() if needing in ends}
        assert starts
        assert starts <= OPERATION_STATUSES[AddRelation]


def test_what_was_superseded_can_never_be_served_again() -> None:
    assert FINAL_BUT_RETAINED.isdisjoint(CREATABLE)
    for status in FINAL_BUT_RETAINED:
        assert STATUS_TRANSITIONS[status] <= FINAL_BUT_RETAINED
        assert all(status not in touched for touched in OPERATION_STATUSES.values())
