"""The memory kernel: values, rules, reads and the `MemoryRepository` protocol. Pure; no I/O.

Modules, each importing only those above it:
errors, timestamps, lexical / values, operations / reads, codec, transitions / staging, purge / decoding,
snapshot, ranking, state_records / reference, repository. It knows no model, session, prompt or transport.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from a3s_actors.memory.errors import AdmissionNotAllowed as AdmissionNotAllowed
    from a3s_actors.memory.errors import ChangeSetPurged as ChangeSetPurged
    from a3s_actors.memory.errors import Corruption as Corruption
    from a3s_actors.memory.errors import ErrorFamily as ErrorFamily
    from a3s_actors.memory.errors import EvidenceRequired as EvidenceRequired
    from a3s_actors.memory.errors import IdempotencyConflict as IdempotencyConflict
    from a3s_actors.memory.errors import InvalidInput as InvalidInput
    from a3s_actors.memory.errors import InvalidTransition as InvalidTransition
    from a3s_actors.memory.errors import InvariantViolation as InvariantViolation
    from a3s_actors.memory.errors import LimitExceeded as LimitExceeded
    from a3s_actors.memory.errors import MemoryRepositoryError as MemoryRepositoryError
    from a3s_actors.memory.errors import NamespaceMismatch as NamespaceMismatch
    from a3s_actors.memory.errors import NodeAlreadyExists as NodeAlreadyExists
    from a3s_actors.memory.errors import NodeNotFound as NodeNotFound
    from a3s_actors.memory.errors import NodeRevisionNotFound as NodeRevisionNotFound
    from a3s_actors.memory.errors import Persistence as Persistence
    from a3s_actors.memory.errors import RelationTargetNotFound as RelationTargetNotFound
    from a3s_actors.memory.errors import RepositoryClosed as RepositoryClosed
    from a3s_actors.memory.errors import RepositoryLocked as RepositoryLocked
    from a3s_actors.memory.errors import RevisionConflict as RevisionConflict
    from a3s_actors.memory.operations import Activate as Activate
    from a3s_actors.memory.operations import AddRelation as AddRelation
    from a3s_actors.memory.operations import ChangeSetResult as ChangeSetResult
    from a3s_actors.memory.operations import Corroborate as Corroborate
    from a3s_actors.memory.operations import Create as Create
    from a3s_actors.memory.operations import MemoryChangeSet as MemoryChangeSet
    from a3s_actors.memory.operations import MemoryOperation as MemoryOperation
    from a3s_actors.memory.operations import RemoveRelation as RemoveRelation
    from a3s_actors.memory.operations import Revise as Revise
    from a3s_actors.memory.operations import RevisionMode as RevisionMode
    from a3s_actors.memory.operations import SetStatus as SetStatus
    from a3s_actors.memory.purge import MemoryPurge as MemoryPurge
    from a3s_actors.memory.purge import PurgedChangeSet as PurgedChangeSet
    from a3s_actors.memory.purge import PurgeReceipt as PurgeReceipt
    from a3s_actors.memory.reads import AccessPage as AccessPage
    from a3s_actors.memory.reads import AccessRecord as AccessRecord
    from a3s_actors.memory.reads import HistoryPage as HistoryPage
    from a3s_actors.memory.reads import MemoryHit as MemoryHit
    from a3s_actors.memory.reads import MemoryQuery as MemoryQuery
    from a3s_actors.memory.reads import NamespaceChangeToken as NamespaceChangeToken
    from a3s_actors.memory.reads import NodePage as NodePage
    from a3s_actors.memory.reads import ScanRequest as ScanRequest
    from a3s_actors.memory.reference import ReferenceState as ReferenceState
    from a3s_actors.memory.repository import MemoryRepository as MemoryRepository
    from a3s_actors.memory.snapshot import NamespaceSnapshot as NamespaceSnapshot
    from a3s_actors.memory.snapshot import SnapshotRequest as SnapshotRequest
    from a3s_actors.memory.timestamps import Timestamp as Timestamp
    from a3s_actors.memory.values import AccessEvent as AccessEvent
    from a3s_actors.memory.values import AccessKind as AccessKind
    from a3s_actors.memory.values import EvidenceKind as EvidenceKind
    from a3s_actors.memory.values import EvidenceRef as EvidenceRef
    from a3s_actors.memory.values import Labels as Labels
    from a3s_actors.memory.values import MemoryKind as MemoryKind
    from a3s_actors.memory.values import MemoryNamespace as MemoryNamespace
    from a3s_actors.memory.values import MemoryNode as MemoryNode
    from a3s_actors.memory.values import MemoryNodeDraft as MemoryNodeDraft
    from a3s_actors.memory.values import MemoryRelation as MemoryRelation
    from a3s_actors.memory.values import MemoryStatus as MemoryStatus
    from a3s_actors.memory.values import NodeHead as NodeHead
    from a3s_actors.memory.values import NodeRevision as NodeRevision
    from a3s_actors.memory.values import RelationKind as RelationKind
    from a3s_actors.memory.values import RevisionKind as RevisionKind
    from a3s_actors.memory.values import UsageSummary as UsageSummary

_HOMES = {
    "errors": (
        "AdmissionNotAllowed ChangeSetPurged Corruption ErrorFamily EvidenceRequired IdempotencyConflict InvalidInput "
        "InvalidTransition InvariantViolation LimitExceeded MemoryRepositoryError NamespaceMismatch NodeAlreadyExists "
        "NodeNotFound NodeRevisionNotFound Persistence RelationTargetNotFound RepositoryClosed RepositoryLocked "
        "RevisionConflict"
    ),
    "operations": (
        "Activate AddRelation ChangeSetResult Corroborate Create MemoryChangeSet MemoryOperation RemoveRelation "
        "Revise RevisionMode SetStatus"
    ),
    "purge": "MemoryPurge PurgeReceipt PurgedChangeSet",
    "reads": ("AccessPage AccessRecord HistoryPage MemoryHit MemoryQuery NamespaceChangeToken NodePage ScanRequest"),
    "reference": "ReferenceState",
    "repository": "MemoryRepository",
    "snapshot": "NamespaceSnapshot SnapshotRequest",
    "timestamps": "Timestamp",
    "values": (
        "AccessEvent AccessKind EvidenceKind EvidenceRef Labels MemoryKind MemoryNamespace MemoryNode MemoryNodeDraft "
        "MemoryRelation MemoryStatus NodeHead NodeRevision RelationKind RevisionKind UsageSummary"
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - a list of names, computed


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__]
