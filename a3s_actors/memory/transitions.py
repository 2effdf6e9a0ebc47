"""The life cycle of a memory as tables. Staging reads them, and so do the docs' diagrams.

A change set is refused, and changes nothing, when an operation meets a status that its row does not name.
"""

from __future__ import annotations

from typing import Any, Final

from a3s_actors.memory.operations import (
    Activate,
    AddRelation,
    Corroborate,
    RemoveRelation,
    Revise,
    RevisionMode,
    SetStatus,
)
from a3s_actors.memory.values import MemoryStatus, RelationKind, RevisionKind

__all__ = [
    "CREATABLE",
    "FINAL_BUT_RETAINED",
    "OPERATION_STATUSES",
    "REQUIRED_RELATION",
    "REVISION_KINDS",
    "STATUS_TRANSITIONS",
]

_S = MemoryStatus
_LIVE: Final = frozenset({_S.CANDIDATE, _S.ACTIVE, _S.CONFLICTED})

CREATABLE: Final = frozenset({_S.CANDIDATE, _S.ACTIVE})
"""The statuses that a create may give."""

OPERATION_STATUSES: Final[dict[type[Any], frozenset[MemoryStatus]]] = {
    Activate: frozenset({_S.CANDIDATE}),
    Corroborate: _LIVE,
    Revise: _LIVE,
    AddRelation: _LIVE,
    RemoveRelation: _LIVE,
}
"""The statuses a node may have for an operation to touch it. SetStatus has its own table."""

STATUS_TRANSITIONS: Final[dict[MemoryStatus, frozenset[MemoryStatus]]] = {
    _S.CANDIDATE: frozenset({_S.CONFLICTED, _S.TOMBSTONED}),
    _S.ACTIVE: frozenset({_S.SUPERSEDED, _S.CONFLICTED, _S.TOMBSTONED}),
    _S.CONFLICTED: frozenset({_S.SUPERSEDED, _S.TOMBSTONED}),
    _S.SUPERSEDED: frozenset({_S.TOMBSTONED}),
    _S.TOMBSTONED: frozenset(),
}
"""Where SetStatus leads from each status. Only Activate leads to active."""

REVISION_KINDS: Final[dict[Any, RevisionKind]] = {
    Activate: RevisionKind.ACTIVATED,
    Corroborate: RevisionKind.CORROBORATED,
    RevisionMode.REFINEMENT: RevisionKind.REFINED,
    RevisionMode.CORRECTION: RevisionKind.CORRECTED,
    AddRelation: RevisionKind.RELATION_CHANGED,
    RemoveRelation: RevisionKind.RELATION_CHANGED,
    SetStatus: RevisionKind.STATUS_CHANGED,
}
"""What kind of revision an operation (for a Revise, its mode) makes."""

REQUIRED_RELATION: Final = {
    _S.SUPERSEDED: RelationKind.SUPERSEDED_BY,
    _S.CONFLICTED: RelationKind.CONFLICTS_WITH,
}
"""The relation that a node of that status carries when a change set ends."""

FINAL_BUT_RETAINED: Final = frozenset({_S.SUPERSEDED, _S.TOMBSTONED})
"""The statuses that the target of a supersedes relation may have."""
