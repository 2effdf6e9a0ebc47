"""The reference state machine: what a repository does, without storage, tasks or clocks.

The in-memory backend is a thin actor over it, the journal replays into it, and other backends are tested
against it. Writes come in two steps so that a journal can put its record between them: `prepare_*` decides
and changes nothing, `commit_*` cannot fail.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence

import attrs

from a3s_actors.memory.codec import canonical_change_set, equality_digest, node_json
from a3s_actors.memory.errors import (
    AdmissionNotAllowed,
    ChangeSetPurged,
    IdempotencyConflict,
    InvalidInput,
    NodeNotFound,
    NodeRevisionNotFound,
)
from a3s_actors.memory.lexical import coverage, tokens
from a3s_actors.memory.operations import ChangeSetResult, MemoryChangeSet
from a3s_actors.memory.purge import (
    MemoryPurge,
    PurgedChangeSet,
    PurgePlan,
    PurgeReceipt,
    check_key,
    keyed_digest,
    plan_purge,
    purge_json,
)
from a3s_actors.memory.ranking import hit_order, recency_order
from a3s_actors.memory.reads import (
    AccessCursor,
    AccessPage,
    AccessRecord,
    HistoryPage,
    MemoryHit,
    MemoryQuery,
    NamespaceChangeToken,
    NodePage,
    ScanRequest,
    check_after,
    check_node_id,
    check_node_ids,
    check_page_limit,
)
from a3s_actors.memory.snapshot import NamespaceSnapshot, SnapshotRequest, check_budget
from a3s_actors.memory.staging import StagedNode, stage
from a3s_actors.memory.state_records import (
    StateApplied,
    StateErased,
    StateEvent,
    StateHead,
    StateHeader,
    StateNamespace,
    StatePurge,
    StateRecord,
    StateRevision,
)
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import (
    AccessEvent,
    AccessKind,
    MemoryNamespace,
    MemoryNode,
    MemoryStatus,
    NodeHead,
    NodeRevision,
    UsageSummary,
)

__all__ = ["PreparedApply", "PreparedEvent", "PreparedPurge", "ReferenceState", "check_access"]


@attrs.define(eq=False)
class _Namespace:
    heads: dict[str, NodeHead] = attrs.Factory(dict)
    history: dict[str, list[NodeRevision]] = attrs.Factory(dict)
    applied: dict[str, tuple[MemoryChangeSet, tuple[tuple[str, int], ...]]] = attrs.Factory(dict)
    erased: dict[str, str] = attrs.Factory(dict)  # keys of erased change sets, with their keyed digests
    purges: dict[str, tuple[bytes, PurgeReceipt]] = attrs.Factory(dict)
    usage: dict[str, UsageSummary] = attrs.Factory(dict)
    events: dict[tuple[AccessKind, str], AccessEvent] = attrs.Factory(dict)
    sequence: int = 0

    def node(self, node_id: str, revision: int | None = None) -> MemoryNode:
        whole = self.heads[node_id].with_history(tuple(self.history[node_id]))
        return whole if revision is None else whole.at_revision(revision)


@attrs.frozen
class PreparedApply:
    """A decided change set: either the stored result of a replay, or what a commit will do."""

    change_set: MemoryChangeSet
    replay: ChangeSetResult | None
    staged: tuple[StagedNode, ...]


@attrs.frozen
class PreparedPurge:
    """A decided purge: either the stored receipt of a replay, or what a commit will do."""

    purge: MemoryPurge
    receipt: PurgeReceipt
    replay: bool
    plan: PurgePlan


@attrs.frozen
class PreparedEvent:
    """A decided access event; `novel` is False for an exact replay."""

    kind: AccessKind
    event: AccessEvent
    novel: bool


class ReferenceState:
    """All namespaces of one repository, in memory. Synchronous; callers serialise writes."""

    def __init__(self, key: bytes | None = None) -> None:
        """Make an empty state.

        Args:
            key: the secret under which purge keeps digests, 16 to 64 bytes; by default a fresh random one.

        Raises:
            InvalidInput: the key is of another type or length.
        """
        self.key = secrets.token_bytes(32) if key is None else check_key(key)
        self._spaces: dict[MemoryNamespace, _Namespace] = {}
        self._records: list[AccessRecord] = []
        self._next_place = 1

    # -- change sets ---------------------------------------------------------------------------------

    def prepare_apply(self, change_set: MemoryChangeSet) -> PreparedApply:
        """Decide a change set against the current state; nothing changes.

        Raises:
            IdempotencyConflict: the key was used with other values.
            ChangeSetPurged: the change set of that key was erased.
            MemoryRepositoryError: whatever `stage` refuses; LimitExceeded over 16 MiB of canonical JSON.
        """
        canonical_change_set(change_set)
        space = self._spaces.get(change_set.namespace, _EMPTY)
        known = space.applied.get(change_set.idempotency_key)
        if known is not None:
            if known[0] != change_set:
                raise IdempotencyConflict(change_set.idempotency_key)
            return PreparedApply(change_set, self._result(space, change_set, known[1]), ())
        erased = space.erased.get(change_set.idempotency_key)
        if erased is not None:
            raise ChangeSetPurged(change_set.idempotency_key, erased)
        return PreparedApply(change_set, None, stage(change_set, space.heads.get))

    def commit_apply(self, prepared: PreparedApply) -> ChangeSetResult:
        """Make a prepared change set true and return its result. No other write may come between."""
        if prepared.replay is not None:
            return prepared.replay
        change_set = prepared.change_set
        space = self._spaces.setdefault(change_set.namespace, _Namespace())
        for node in prepared.staged:
            revisions = space.history.setdefault(node.head.id, [])
            revisions.extend(state.as_revision() for state in node.became_history)
            space.heads[node.head.id] = node.head
        changed = tuple((node.head.id, node.head.revision) for node in prepared.staged)
        space.applied[change_set.idempotency_key] = (change_set, changed)
        space.sequence += 1
        return self._result(space, change_set, changed)

    def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        """Prepare and commit in one step. Raises as `prepare_apply`."""
        return self.commit_apply(self.prepare_apply(change_set))

    @staticmethod
    def _result(space: _Namespace, change_set: MemoryChangeSet, changed: Iterable[tuple[str, int]]) -> ChangeSetResult:
        nodes = tuple(space.node(node_id, revision) for node_id, revision in changed)
        return ChangeSetResult(
            idempotency_key=change_set.idempotency_key, occurred_at=change_set.occurred_at, nodes=nodes
        )

    # -- access events -------------------------------------------------------------------------------

    def prepare_event(self, kind: AccessKind, event: AccessEvent) -> PreparedEvent:
        """Decide an access event; nothing changes.

        Raises:
            IdempotencyConflict: the id was used with other values.
            NodeNotFound, NodeRevisionNotFound, AdmissionNotAllowed, InvalidInput: see `check_access`.
        """
        space = self._spaces.get(event.namespace, _EMPTY)
        known = space.events.get((kind, event.id))
        if known is not None:
            if known != event:
                raise IdempotencyConflict(event.id)
            return PreparedEvent(kind, event, novel=False)
        head = space.heads.get(event.node_id)
        earlier = None
        if head is not None and 1 <= event.node_revision < head.revision:
            earlier = space.history[event.node_id][event.node_revision - 1].updated_at
        check_access(kind, event, head, earlier)
        return PreparedEvent(kind, event, novel=True)

    def commit_event(self, prepared: PreparedEvent) -> None:
        """Make a prepared access event true."""
        if not prepared.novel:
            return
        stored = AccessRecord(kind=prepared.kind, event=prepared.event, place=self._next_place)
        self._keep_event(self._spaces[prepared.event.namespace], stored)
        self._next_place += 1

    def record(self, kind: AccessKind, event: AccessEvent) -> None:
        """Prepare and commit an access event in one step. Raises as `prepare_event`."""
        self.commit_event(self.prepare_event(kind, event))

    # -- purge ---------------------------------------------------------------------------------------

    def prepare_purge(self, purge: MemoryPurge) -> PreparedPurge:
        """Decide a purge; nothing changes.

        Raises:
            IdempotencyConflict: the key was used with other values.
            NodeNotFound, InvalidInput: see `plan_purge`.
        """
        space = self._spaces.get(purge.namespace, _EMPTY)
        digest = keyed_digest(self.key, purge_json(purge).encode())
        known = space.purges.get(purge.idempotency_key)
        nothing = PurgePlan(doomed=(), neighbours=())
        if known is not None:
            if known[0] != digest:
                raise IdempotencyConflict(purge.idempotency_key)
            return PreparedPurge(purge, known[1], replay=True, plan=nothing)
        everything = purge.node_ids is None
        ids = sorted(space.heads, key=str.encode) if purge.node_ids is None else purge.node_ids
        plan = plan_purge(purge, ids, space.heads.get, self.key)
        doomed = {head.id for head in plan.doomed}
        erased = tuple(
            PurgedChangeSet(key, f"blake2b:{keyed_digest(self.key, equality_digest(change_set)).hex()}")
            for key, (change_set, changed) in space.applied.items()
            if everything or any(node_id in doomed for node_id, _ in changed)
        )
        receipt = PurgeReceipt(
            idempotency_key=purge.idempotency_key,
            namespace=purge.namespace,
            occurred_at=purge.occurred_at,
            reason=purge.reason,
            nodes=len(doomed),
            revisions=sum(head.revision for head in plan.doomed),
            access_events=sum(1 for record in self._records if self._is_of(record, purge.namespace, doomed)),
            change_sets=erased,
            neighbours=tuple(node.head.id for node in plan.neighbours),
            sequence=space.sequence + 1,
        )
        return PreparedPurge(purge, receipt, replay=False, plan=plan)

    def commit_purge(self, prepared: PreparedPurge) -> PurgeReceipt:
        """Make a prepared purge true and return its receipt. No other write may come between."""
        if prepared.replay:
            return prepared.receipt
        purge = prepared.purge
        space = self._spaces.setdefault(purge.namespace, _Namespace())
        doomed = {head.id for head in prepared.plan.doomed}
        for node_id in doomed:
            del space.heads[node_id]
            del space.history[node_id]
            space.usage.pop(node_id, None)
        for node in prepared.plan.neighbours:
            space.history[node.head.id].extend(state.as_revision() for state in node.became_history)
            space.heads[node.head.id] = node.head
        for change_set in prepared.receipt.change_sets:
            del space.applied[change_set.key]
            space.erased[change_set.key] = change_set.digest
        space.events = {name: event for name, event in space.events.items() if event.node_id not in doomed}
        self._records = [record for record in self._records if not self._is_of(record, purge.namespace, doomed)]
        space.sequence += 1
        digest = keyed_digest(self.key, purge_json(purge).encode())
        space.purges[purge.idempotency_key] = (digest, prepared.receipt)
        return prepared.receipt

    def purge(self, purge: MemoryPurge) -> PurgeReceipt:
        """Prepare and commit in one step. Raises as `prepare_purge`."""
        return self.commit_purge(self.prepare_purge(purge))

    @staticmethod
    def _is_of(record: AccessRecord, namespace: MemoryNamespace, doomed: set[str]) -> bool:
        return record.event.namespace == namespace and record.event.node_id in doomed

    # -- reads ---------------------------------------------------------------------------------------

    def get(self, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        """Return the whole node, None where there is none."""
        check_node_id(node_id)
        space = self._spaces.get(namespace, _EMPTY)
        return space.node(node_id) if node_id in space.heads else None

    def get_heads(self, namespace: MemoryNamespace, node_ids: Iterable[str]) -> dict[str, NodeHead]:
        """Return the heads that exist, by id."""
        space = self._spaces.get(namespace, _EMPTY)
        wanted = check_node_ids(node_ids)
        return {node_id: space.heads[node_id] for node_id in wanted if node_id in space.heads}

    def history(self, namespace: MemoryNamespace, node_id: str, after: int, limit: int) -> HistoryPage:
        """Return revisions `after`+1 onwards, the current one last. Raises NodeNotFound."""
        check_node_id(node_id)
        check_after("history.after", after)
        check_page_limit("history.limit", limit)
        space = self._spaces.get(namespace, _EMPTY)
        if node_id not in space.heads:
            raise NodeNotFound(node_id)
        revisions = [*space.history[node_id], space.heads[node_id].as_revision()]
        return history_page([revision for revision in revisions if revision.revision > after], limit)

    def scan(self, request: ScanRequest) -> NodePage:
        """Return one page of nodes in id order."""
        space = self._spaces.get(request.namespace, _EMPTY)
        after = b"" if request.after is None else request.after.encode()
        found = [
            space.heads[node_id]
            for node_id in sorted(space.heads, key=str.encode)
            if node_id.encode() > after and request.accepts(space.heads[node_id])
        ]
        more = len(found) > request.limit
        page = tuple(found[: request.limit])
        return NodePage(nodes=page, next_after=page[-1].id if more else None)

    def namespaces(self) -> tuple[MemoryNamespace, ...]:
        """Return every namespace that was ever written, in byte order of its parts."""
        return tuple(sorted(self._spaces, key=namespace_order))

    def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        """Return the hits in order; by reading every text."""
        space = self._spaces.get(query.namespace, _EMPTY)
        heads = [
            head
            for head in space.heads.values()
            if head.status in query.statuses and (not query.kinds or head.kind in query.kinds)
        ]
        if query.text is None:
            heads.sort(key=recency_order)
            return tuple(MemoryHit(head, 0.0) for head in heads[: query.limit])
        wanted = tokens(query.text)
        hits = [MemoryHit(head, score) for head in heads if (score := coverage(wanted, tokens(head.content))) > 0.0]
        return tuple(sorted(hits, key=hit_order)[: query.limit])

    def snapshot(self, request: SnapshotRequest) -> NamespaceSnapshot:
        """Return the complete view, or raise LimitExceeded."""
        space = self._spaces.get(request.namespace, _EMPTY)
        chosen = [node_id for node_id, head in space.heads.items() if head.status in request.statuses]
        check_budget(request, len(chosen), 0)
        nodes = (node_json(space.node(node_id)).encode() for node_id in sorted(chosen, key=str.encode))
        return NamespaceSnapshot.build(request, nodes, self.change_token(request.namespace))

    def change_token(self, namespace: MemoryNamespace) -> NamespaceChangeToken:
        """Return the namespace's token; sequence 0 where nothing was ever written."""
        return NamespaceChangeToken(self._spaces.get(namespace, _EMPTY).sequence)

    def usage_summary(self, namespace: MemoryNamespace, node_id: str) -> UsageSummary:
        """Return a node's counts. Raises NodeNotFound."""
        check_node_id(node_id)
        space = self._spaces.get(namespace, _EMPTY)
        if node_id not in space.heads:
            raise NodeNotFound(node_id)
        return space.usage.get(node_id, UsageSummary())

    def access_events(
        self, namespace: MemoryNamespace, node_id: str | None, after: AccessCursor, limit: int
    ) -> AccessPage:
        """Return one page of access events in the order of arrival."""
        check_after("accessEvents.after", after)
        check_page_limit("accessEvents.limit", limit)
        found = (
            record
            for record in self._records
            if record.place > after and record.event.namespace == namespace and node_id in {None, record.event.node_id}
        )
        return access_page(found, limit)

    # -- whole-state access for journals and checks ---------------------------------------------------

    def change_sets(self, namespace: MemoryNamespace) -> Iterator[MemoryChangeSet]:
        """Yield the namespace's change sets in the order they were applied."""
        for change_set, _ in self._spaces.get(namespace, _EMPTY).applied.values():
            yield change_set

    def dump(self) -> Iterator[StateRecord]:
        """Yield everything that the state holds, in the order of `state_records`. Nothing may change meanwhile."""
        yield StateHeader(key=self.key, next_place=self._next_place)
        for namespace, space in self._spaces.items():
            yield StateNamespace(namespace=namespace, sequence=space.sequence)
            for node_id, head in space.heads.items():
                yield StateHead(head)
                yield from map(StateRevision, space.history[node_id])
            for change_set, changed in space.applied.values():
                yield StateApplied(change_set, changed)
            for key, digest in space.erased.items():
                yield StateErased(key, digest)
            for asked, receipt in space.purges.values():
                yield StatePurge(digest=asked, receipt=receipt)
        yield from map(StateEvent, self._records)

    def load(self, records: Iterable[StateRecord]) -> None:
        """Fill an empty state with what `dump` yielded.

        Raises:
            ValueError: a record is out of place, or a node's history is not complete.
        """
        space: _Namespace | None = None
        head: NodeHead | None = None
        for record in records:
            match record:
                case StateHeader():
                    try:
                        self.key, self._next_place = check_key(record.key), record.next_place
                    except InvalidInput:
                        raise ValueError("a key of another length") from None
                case StateNamespace():
                    space = self._spaces[record.namespace] = _Namespace(sequence=record.sequence)
                case StateEvent(AccessRecord() as stored):
                    self._load_event(stored)
                case _ if space is None:
                    raise ValueError("a record without its namespace")
                case StateHead(head):
                    space.heads[head.id], space.history[head.id] = head, []
                case StateRevision(revision):
                    if head is None or len(space.history[head.id]) + 1 != revision.revision:
                        raise ValueError("a revision out of place")
                    space.history[head.id].append(revision)
                case StateApplied(change_set, changed):
                    space.applied[change_set.idempotency_key] = (change_set, changed)
                case StateErased(key, digest):
                    space.erased[key] = digest
                case StatePurge():
                    space.purges[record.receipt.idempotency_key] = (record.digest, record.receipt)
        for each in self._spaces.values():
            if any(head.revision != len(each.history[head.id]) + 1 for head in each.heads.values()):
                raise ValueError("an incomplete history")

    def _load_event(self, stored: AccessRecord) -> None:
        space = self._spaces.get(stored.event.namespace)
        if space is None or stored.event.node_id not in space.heads:
            raise ValueError("an access event without its node")
        self._keep_event(space, stored)

    def _keep_event(self, space: _Namespace, stored: AccessRecord) -> None:
        event = stored.event
        space.events[stored.kind, event.id] = event
        usage = space.usage.get(event.node_id, UsageSummary())
        if stored.kind is AccessKind.ADMISSION:
            usage = attrs.evolve(usage, admissions=usage.admissions + 1)
        else:
            usage = attrs.evolve(usage, uses=usage.uses + 1)
        space.usage[event.node_id] = usage
        self._records.append(stored)

    def heads(self, namespace: MemoryNamespace) -> Iterator[NodeHead]:
        """Yield the namespace's heads in no particular order."""
        yield from self._spaces.get(namespace, _EMPTY).heads.values()


_EMPTY = _Namespace()
"""What an unknown namespace looks like. Only ever read."""


def namespace_order(namespace: MemoryNamespace) -> tuple[bytes, bytes, bytes]:
    """Sort key: the parts' UTF-8 bytes."""
    return namespace.tenant_id.encode(), namespace.principal_id.encode(), namespace.scope_id.encode()


def check_access(
    kind: AccessKind, event: AccessEvent, head: NodeHead | None, earlier_updated_at: Timestamp | None
) -> None:
    """Check a novel access event against the node it names.

    Args:
        kind: admission or use.
        event: the event.
        head: the node's current head, None when it does not exist.
        earlier_updated_at: the time of the named revision when it exists and is not the current one.

    Raises:
        NodeNotFound: no such node.
        AdmissionNotAllowed: an admission of anything but the current revision of an active node.
        NodeRevisionNotFound: a use of a revision that never was.
        InvalidInput: it happened before the revision did.
    """
    if head is None:
        raise NodeNotFound(event.node_id)
    current = event.node_revision == head.revision
    if kind is AccessKind.ADMISSION and not (current and head.status is MemoryStatus.ACTIVE):
        raise AdmissionNotAllowed(event.node_id, event.node_revision, head.revision, head.status.value)
    updated_at = head.updated_at if current else earlier_updated_at
    if updated_at is None:
        raise NodeRevisionNotFound(event.node_id, event.node_revision)
    if event.occurred_at < updated_at:
        raise InvalidInput("accessEvent.occurredAt", "must not precede the revision's updatedAt")


def history_page(revisions: Sequence[NodeRevision], limit: int) -> HistoryPage:
    """Cut a page off `revisions`, which holds at least one more than the page where there is more."""
    more = len(revisions) > limit
    page = tuple(revisions[:limit])
    return HistoryPage(revisions=page, next_after=page[-1].revision if more else None)


def access_page(records: Iterable[AccessRecord], limit: int) -> AccessPage:
    """Cut a page off `records`, which yields at least one more than the page where there is more."""
    page: list[AccessRecord] = []
    for record in records:
        if len(page) == limit:
            return AccessPage(records=tuple(page), next_after=page[-1].place)
        page.append(record)
    return AccessPage(records=tuple(page), next_after=None)
