"""`MemoryRepository`: what every backend does. The contract that the conformance suite checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from a3s_actors.memory.limits import DEFAULT_PAGE_LIMIT
from a3s_actors.memory.operations import ChangeSetResult, MemoryChangeSet
from a3s_actors.memory.purge import MemoryPurge, PurgeReceipt
from a3s_actors.memory.reads import (
    AccessCursor,
    AccessPage,
    HistoryPage,
    MemoryHit,
    MemoryQuery,
    NamespaceChangeToken,
    NodePage,
    ScanRequest,
)
from a3s_actors.memory.snapshot import NamespaceSnapshot, SnapshotRequest
from a3s_actors.memory.values import AccessEvent, MemoryNamespace, MemoryNode, NodeHead, UsageSummary

__all__ = ["MemoryRepository"]


@runtime_checkable
class MemoryRepository(Protocol):
    """A store of durable memories that keeps their integrity and judges none of them.

    A repository is an actor: a backend's `open_…` function gives it as an async context manager, and leaving
    the block closes it. Every method is a checkpoint, also when it answers at once. Every method may raise
    `RepositoryClosed` after the close, `Persistence` when storage fails, and `Corruption` when stored bytes
    are not what was written.

    Cancellation: a cancelled read changes nothing. A cancelled write either did not begin, and then nothing
    happened, or its commit had begun, and then it completes and its outcome is returned; trying again with
    the same key gives that outcome.

    Reads are pure: they change no counter, time, rank or retention. Nothing is ever read from, or found in,
    another namespace than the one named.
    """

    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        """Do all operations of a change set together, durably, or none.

        Returns:
            The changed nodes, whole, as of then. An exact replay of a known key returns the first result.

        Raises:
            IdempotencyConflict: the key is known with other values.
            ChangeSetPurged: the change set of that key was erased.
            InvalidInput, LimitExceeded, NamespaceMismatch, NodeNotFound, NodeAlreadyExists, RevisionConflict,
            InvalidTransition, EvidenceRequired, RelationTargetNotFound, InvariantViolation: a rule is broken;
            nothing changed.
        """
        ...

    async def record_admission(self, event: AccessEvent) -> None:
        """Record, durably, that the current revision of an active node enters a model's input.

        Raises:
            IdempotencyConflict: the event id is known with other values; an equal event is a no-op.
            AdmissionNotAllowed: the revision is not current, or the node is not active.
            NodeNotFound: no such node.
            InvalidInput: the event precedes the revision.
        """
        ...

    async def record_use(self, event: AccessEvent) -> None:
        """Record, durably, that an existing revision was cited, selected or otherwise used.

        Raises:
            IdempotencyConflict, NodeNotFound, InvalidInput: as for an admission.
            NodeRevisionNotFound: the node never had that revision.
        """
        ...

    async def purge(self, purge: MemoryPurge) -> PurgeReceipt:
        """Erase nodes (or everything in a namespace) for good: an operator's call; sessions never make it.

        Content, histories, lexical entries, payloads of change sets and access events go, from every file of
        the backend; what stays is content-free. Durable before it returns, like any write.

        Returns:
            The receipt. `bytes_pending` is True while a reader still holds old bytes; the next open or close
            of the storage finishes the work. A replay of the key returns the same receipt.

        Raises:
            IdempotencyConflict: the key was used with other values.
            NodeNotFound: a node to erase does not exist; nothing was erased.
            InvalidInput: the purge precedes the last change of a neighbour.
        """
        ...

    async def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        """Return a whole node with its history, None where there is none."""
        ...

    async def get_heads(self, namespace: MemoryNamespace, node_ids: Iterable[str]) -> dict[str, NodeHead]:
        """Return the heads that exist among `node_ids`, all read at one point."""
        ...

    async def history(
        self, namespace: MemoryNamespace, node_id: str, after: int = 0, limit: int = DEFAULT_PAGE_LIMIT
    ) -> HistoryPage:
        """Return the revisions after `after`, oldest first, the current one last; limit 1 to 1000.

        Raises:
            NodeNotFound: no such node.
        """
        ...

    async def scan(self, request: ScanRequest) -> NodePage:
        """Return one page of a namespace's nodes in id order (UTF-8 bytes)."""
        ...

    async def namespaces(self) -> tuple[MemoryNamespace, ...]:
        """Return every namespace that exists, in byte order. An operator's call; sessions never make it."""
        ...

    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        """Return hits of the lexical profile a3s.memory.lexical.word-cjk-bigram.v1.

        Ordered by score descending, updated_at descending, id ascending. A query with text returns only hits
        that score above 0; one without lists by time, each with score 0.
        """
        ...

    async def snapshot_namespace(self, request: SnapshotRequest) -> NamespaceSnapshot:
        """Return the complete view of a namespace at one point, never a part.

        Raises:
            LimitExceeded: the view is over a budget; nothing was copied.
        """
        ...

    async def namespace_change_token(self, namespace: MemoryNamespace) -> NamespaceChangeToken | None:
        """Return the namespace's change token, or None when this backend has none.

        Every novel change set changes it at the point where it becomes visible; reads, replays and access
        events do not. It survives restart and never repeats.
        """
        ...

    async def usage_summary(self, namespace: MemoryNamespace, node_id: str) -> UsageSummary:
        """Return how often a node was admitted and used.

        Raises:
            NodeNotFound: no such node.
        """
        ...

    async def access_events(
        self,
        namespace: MemoryNamespace,
        node_id: str | None = None,
        after: AccessCursor = 0,
        limit: int = DEFAULT_PAGE_LIMIT,
    ) -> AccessPage:
        """Return one page of a namespace's access events (of one node when named), in order of arrival."""
        ...
