"""The pure reads, each inside one read transaction of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import apsw
import attrs

from a3s_actors.memory.codec import namespace_json, statuses_json
from a3s_actors.memory.errors import Corruption, InvalidInput, LimitExceeded, NodeNotFound
from a3s_actors.memory.lexical import coverage, float32, tokens
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
)
from a3s_actors.memory.reference import access_page, history_page
from a3s_actors.memory.snapshot import NamespaceSnapshot, SnapshotRequest, check_budget
from a3s_actors.memory.values import (
    AccessEvent,
    MemoryNamespace,
    MemoryNode,
    NodeHead,
    NodeRevision,
    UsageSummary,
)
from a3s_backends.sqlite.lexical_index import hash_tokens
from a3s_backends.sqlite.lexical_search import LexicalReader
from a3s_backends.sqlite.rows import (
    ACCESS_KINDS,
    HEAD_COLUMNS,
    KIND_CODES,
    STATUS_CODES,
    ZERO_DIGESTS,
    HeadRow,
    RowCodec,
    digest_sum,
    node_size,
    order_key,
    unpack_name,
    unpack_time,
)

__all__ = ["Reads", "find_namespace", "find_node", "read_head_row", "read_node", "read_revision"]

_SNAPSHOT_FRAME: Final = len(
    '{"profile":"a3s.memory.namespace-snapshot.sha256.v1","namespace":,"statuses":,"nodes":[]}'
)


def find_namespace(db: apsw.Connection, namespace: MemoryNamespace) -> int | None:
    """Return the number of an exact namespace, None where it was never written."""
    ns: int | None = db.execute(
        "SELECT ns FROM namespace WHERE tenant = ? AND principal = ? AND scope = ?",
        (namespace.tenant_id, namespace.principal_id, namespace.scope_id),
    ).get
    return ns


def stored_namespace(tenant: str, principal: str, scope: str) -> MemoryNamespace:
    """Make a namespace of its columns.

    Raises:
        Corruption: they are not what was written.
    """
    try:
        return MemoryNamespace(tenant, principal, scope)
    except (InvalidInput, LimitExceeded):
        raise Corruption("namespace", "a stored name is damaged") from None


def read_head_row(db: apsw.Connection, ns: int, node_id: str) -> HeadRow | None:
    """Return a head's row, unchecked."""
    row = db.execute(f"SELECT {HEAD_COLUMNS} FROM head WHERE ns = ? AND id = ?", (ns, node_id)).fetchone()  # noqa: S608
    return None if row is None else HeadRow(*row)


def read_node(db: apsw.Connection, codec: RowCodec, ns: int, head: NodeHead) -> MemoryNode:
    """Return the whole node of a head, every earlier revision checked.

    Raises:
        Corruption: a revision is missing or damaged.
    """
    # To its end before anything can be refused: an error that somebody keeps must not keep a statement running.
    rows: list[tuple[int, bytes, bytes]] = db.execute(  # type: ignore[assignment]
        "SELECT rev, digest, json FROM rev WHERE ns = ? AND id = ? ORDER BY rev", (ns, head.id)
    ).fetchall()
    revisions = tuple(codec.read_rev(ns, head.id, *row) for row in rows)
    _check_complete(ns, head, [revision.revision for revision in revisions], 1)
    return head.with_history(revisions)


def _check_complete(ns: int, head: NodeHead, found: list[int], first: int) -> None:
    if found != list(range(first, first + len(found))) or first + len(found) != head.revision:
        raise Corruption(f"namespace {ns}, node {head.id!r}", "its history is not complete")


def find_node(db: apsw.Connection, codec: RowCodec, ns: int, node_id: str) -> MemoryNode | None:
    """Return a whole node, None where there is none."""
    row = read_head_row(db, ns, node_id)
    return None if row is None else read_node(db, codec, ns, codec.read_head(ns, node_id, row))


def read_revision(db: apsw.Connection, codec: RowCodec, ns: int, node_id: str, revision: int) -> NodeRevision:
    """Return an earlier revision that must exist.

    Raises:
        Corruption: it does not, or is damaged.
    """
    row = db.execute(
        "SELECT digest, json FROM rev WHERE ns = ? AND id = ? AND rev = ?", (ns, node_id, revision)
    ).fetchone()
    if row is None:
        raise Corruption(f"namespace {ns}, node {node_id!r}", f"revision {revision} is gone")
    return codec.read_rev(ns, node_id, revision, *row)


@attrs.frozen(eq=False)
class Reads:
    """All reads of one file. Stateless but for the lexical reader's checked caches; safe in any thread.

    Every method takes a connection inside a read transaction, and sees exactly what that transaction sees.
    `check` is called now and then in long loops and may raise to end a read.
    """

    codec: RowCodec
    lexical: LexicalReader
    check: Callable[[], None]

    def get(self, db: apsw.Connection, namespace: MemoryNamespace, node_id: str) -> MemoryNode | None:
        """See `MemoryRepository.get`."""
        ns = find_namespace(db, namespace)
        return None if ns is None else find_node(db, self.codec, ns, node_id)

    def get_heads(self, db: apsw.Connection, namespace: MemoryNamespace, node_ids: list[str]) -> dict[str, NodeHead]:
        """See `MemoryRepository.get_heads`."""
        ns = find_namespace(db, namespace)
        heads: dict[str, NodeHead] = {}
        for node_id in node_ids if ns is not None else ():
            assert ns is not None
            row = read_head_row(db, ns, node_id)
            if row is not None:
                heads[node_id] = self.codec.read_head(ns, node_id, row)
        return heads

    def history(
        self, db: apsw.Connection, namespace: MemoryNamespace, node_id: str, after: int, limit: int
    ) -> HistoryPage:
        """See `MemoryRepository.history`."""
        ns = find_namespace(db, namespace)
        row = None if ns is None else read_head_row(db, ns, node_id)
        if ns is None or row is None:
            raise NodeNotFound(node_id)
        head = self.codec.read_head(ns, node_id, row)
        rows: list[tuple[int, bytes, bytes]] = db.execute(  # type: ignore[assignment]
            "SELECT rev, digest, json FROM rev WHERE ns = ? AND id = ? AND rev > ? ORDER BY rev LIMIT ?",
            (ns, node_id, after, limit + 1),
        ).fetchall()
        revisions = [self.codec.read_rev(ns, node_id, *row) for row in rows]
        if len(revisions) <= limit and after < head.revision:
            _check_complete(ns, head, [revision.revision for revision in revisions], max(after, 0) + 1)
            revisions.append(head.as_revision())
        return history_page(revisions, limit)

    def scan(self, db: apsw.Connection, request: ScanRequest) -> NodePage:
        """See `MemoryRepository.scan`."""
        ns = find_namespace(db, request.namespace)
        page: list[NodeHead] = []
        if ns is None:
            return NodePage(nodes=(), next_after=None)
        statuses = {STATUS_CODES[status] for status in request.statuses}
        kinds = {KIND_CODES[kind] for kind in request.kinds} or set(KIND_CODES.values())
        for place, (node_id, *columns) in enumerate(
            db.execute(
                f"SELECT id, {HEAD_COLUMNS} FROM head WHERE ns = ? AND id > ? ORDER BY id",  # noqa: S608
                (ns, request.after or ""),
            )
        ):
            if place % 256 == 0:
                self.check()
            row = HeadRow(*columns)
            if row.status not in statuses or row.kind not in kinds:
                continue
            head = self.codec.read_head(ns, node_id, row)
            if request.accepts(head):
                if len(page) == request.limit:
                    return NodePage(nodes=tuple(page), next_after=page[-1].id)
                page.append(head)
        return NodePage(nodes=tuple(page), next_after=None)

    def namespaces(self, db: apsw.Connection) -> tuple[MemoryNamespace, ...]:
        """See `MemoryRepository.namespaces`."""
        rows: list[tuple[str, str, str]] = db.execute(  # type: ignore[assignment]
            "SELECT tenant, principal, scope FROM namespace ORDER BY tenant, principal, scope"
        ).fetchall()
        return tuple(stored_namespace(*row) for row in rows)

    def query(self, db: apsw.Connection, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        """See `MemoryRepository.query`."""
        ns = find_namespace(db, query.namespace)
        if ns is None:
            return ()
        statuses = {STATUS_CODES[status] for status in query.statuses}
        kinds = {KIND_CODES[kind] for kind in query.kinds}
        if query.text is None:
            return tuple(MemoryHit(head, 0.0) for head in self._latest(db, ns, statuses, kinds, query.limit))
        wanted = tokens(query.text)
        found = self.lexical.search(
            db,
            ns,
            hash_tokens(wanted, self.codec.key),
            statuses=statuses,
            kinds=kinds or None,
            limit=query.limit,
            resolve=lambda seqs: _resolve(db, ns, seqs),
            walk_ids=lambda: db.execute("SELECT seq, id FROM head WHERE ns = ? ORDER BY id", (ns,)),
        )
        hits = []
        for seq, matched in found:
            head = self._by_seq(db, ns, seq)
            score = coverage(wanted, tokens(head.content))
            if score != float32(matched / len(wanted)) or head.status not in query.statuses:
                # An index is a hint: what it says of a text must be what the text says.
                raise Corruption(f"lexical index of namespace {ns}", f"entry {seq} does not match its text")
            hits.append(MemoryHit(head, score))
        return tuple(hits)

    def _by_seq(self, db: apsw.Connection, ns: int, seq: int) -> NodeHead:
        # Two steps, each by an index: in one, the planner prefers to walk the namespace.
        node_id: str | None = db.execute("SELECT id FROM head WHERE ns = ? AND seq = ?", (ns, seq)).get
        row = None if node_id is None else read_head_row(db, ns, node_id)
        if node_id is None or row is None:
            raise Corruption(f"lexical index of namespace {ns}", f"entry {seq} has no node")
        return self.codec.read_head(ns, node_id, row)

    def _latest(
        self, db: apsw.Connection, ns: int, statuses: set[int], kinds: set[int], limit: int
    ) -> Iterator[NodeHead]:
        found = 0
        ids = []
        for place, (node_id, status, kind) in enumerate(
            db.execute("SELECT id, status, kind FROM head WHERE ns = ? ORDER BY updated DESC, id", (ns,))
        ):
            if place % 4096 == 0:
                self.check()
            if status in statuses and (not kinds or kind in kinds):
                ids.append(node_id)
                found += 1
                if found == limit:
                    break
        for node_id in ids:
            row = read_head_row(db, ns, node_id)
            if row is None:
                raise Corruption(f"namespace {ns}", "the index by time names a node that is gone")
            yield self.codec.read_head(ns, node_id, row)

    def snapshot(self, db: apsw.Connection, request: SnapshotRequest) -> NamespaceSnapshot:
        """See `MemoryRepository.snapshot_namespace`."""
        ns = find_namespace(db, request.namespace)
        token = self.change_token(db, request.namespace)
        if ns is None:
            return NamespaceSnapshot.build(request, (), token)
        statuses = sorted(STATUS_CODES[status] for status in request.statuses)
        tallies = read_tallies(db, ns, statuses)
        nodes = sum(tally[0] for tally in tallies.values())
        size = sum(tally[1] for tally in tallies.values())
        frame = _SNAPSHOT_FRAME + len(namespace_json(request.namespace).encode()) + len(statuses_json(request.statuses))
        check_budget(request, nodes, frame + size + max(0, nodes - 1))
        return NamespaceSnapshot.build(request, self._whole_nodes(db, ns, tallies), token)

    def _whole_nodes(self, db: apsw.Connection, ns: int, tallies: dict[int, tuple[int, int, bytes]]) -> Iterator[bytes]:
        """Yield the canonical JSON of all nodes of the given statuses, in id order, and check their sums."""
        seen = {status: [0, 0, 0] for status in tallies}
        history = _History(db, ns)
        for place, (node_id, *columns) in enumerate(
            db.execute(f"SELECT id, {HEAD_COLUMNS} FROM head WHERE ns = ? ORDER BY id", (ns,))  # noqa: S608
        ):
            if place % 256 == 0:
                self.check()
            row = HeadRow(*columns)
            if row.status not in tallies:
                continue
            self.codec.check_head(ns, node_id, row)
            fragments = []
            digests = int.from_bytes(row.digest)
            for rev, digest, json in history.of(node_id) if row.rev > 1 else ():
                self.codec.check_rev(ns, node_id, rev, digest, json)
                fragments.append(json)
                digests += int.from_bytes(digest)
            if len(fragments) != row.rev - 1:
                raise Corruption(f"namespace {ns}, node {node_id!r}", "its history is not complete")
            sums = seen[row.status]
            sums[0] += 1
            sums[1] += node_size(row)
            sums[2] += digests
            yield row.json[:-1] + b',"history":[' + b",".join(fragments) + b"]}"
        found = {status: (nodes, size, digest_sum(total)) for status, (nodes, size, total) in seen.items()}
        if found != tallies:
            raise Corruption(f"namespace {ns}", "its rows do not add up to the recorded sums; some are lost or foreign")

    def change_token(self, db: apsw.Connection, namespace: MemoryNamespace) -> NamespaceChangeToken:
        """See `MemoryRepository.namespace_change_token`."""
        sequence: int | None = db.execute(
            "SELECT token FROM namespace WHERE tenant = ? AND principal = ? AND scope = ?",
            (namespace.tenant_id, namespace.principal_id, namespace.scope_id),
        ).get
        return NamespaceChangeToken(sequence or 0)

    def usage_summary(self, db: apsw.Connection, namespace: MemoryNamespace, node_id: str) -> UsageSummary:
        """See `MemoryRepository.usage_summary`."""
        ns = find_namespace(db, namespace)
        if ns is None or read_head_row(db, ns, node_id) is None:
            raise NodeNotFound(node_id)
        row = db.execute("SELECT admissions, uses FROM usage WHERE ns = ? AND id = ?", (ns, node_id)).fetchone()
        try:
            return UsageSummary() if row is None else UsageSummary(*row)
        except InvalidInput:
            raise Corruption(f"namespace {ns}, node {node_id!r}", "its recorded use is damaged") from None

    def access_events(
        self,
        db: apsw.Connection,
        namespace: MemoryNamespace,
        node_id: str | None,
        after: AccessCursor,
        limit: int,
    ) -> AccessPage:
        """See `MemoryRepository.access_events`."""
        ns = find_namespace(db, namespace)
        # By the order of arrival (the plus keeps the planner from sorting all events by another index).
        where, values = "+access.ns = ?", (ns,)
        if node_id is not None:
            node = db.execute("SELECT node FROM usage WHERE ns = ? AND id = ?", (ns, node_id)).get
            where, values = "access.node = ?", (node,)
        rows = db.execute(
            "SELECT no, kind, access.id, usage.id, rev, at, context FROM access JOIN usage USING (node)"  # noqa: S608
            f" WHERE {where} AND no > ? ORDER BY no LIMIT ?",
            (*values, after, limit + 1),
        ).fetchall()
        return access_page((access_record(namespace, row) for row in rows), limit)


def access_record(namespace: MemoryNamespace, row: Sequence[Any]) -> AccessRecord:
    """Make an access record of its columns.

    Raises:
        Corruption: they are not what was written.
    """
    no, kind, *columns = row
    if kind not in ACCESS_KINDS:
        raise Corruption(f"access event number {no}", "its kind is unknown")
    return AccessRecord(kind=ACCESS_KINDS[kind], event=access_event(namespace, *columns), place=no)


def access_event(
    namespace: MemoryNamespace, name: bytes, node_id: str, revision: int, at: int | str, context: bytes | None
) -> AccessEvent:
    """Make an access event of its columns.

    Raises:
        Corruption: they are not what was written.
    """
    try:
        return AccessEvent(
            id=unpack_name(name),
            namespace=namespace,
            node_id=node_id,
            node_revision=revision,
            occurred_at=unpack_time(at),
            context_id=None if context is None else unpack_name(context),
        )
    except (InvalidInput, LimitExceeded):
        raise Corruption("access event", "a stored value is damaged") from None


def read_tallies(db: apsw.Connection, ns: int, statuses: Iterable[int]) -> dict[int, tuple[int, int, bytes]]:
    """Return nodes, bytes and digest sum of each status; zeros where nothing was recorded."""
    tallies: dict[int, tuple[int, int, bytes]] = {}
    for status in statuses:
        row = db.execute("SELECT nodes, bytes, digests FROM tally WHERE ns = ? AND status = ?", (ns, status)).fetchone()
        tallies[status] = (0, 0, ZERO_DIGESTS) if row is None else tuple(row)
    return tallies


class _History:
    """The earlier revisions of a namespace, merged with an ordered walk over its heads."""

    def __init__(self, db: apsw.Connection, ns: int) -> None:
        self._rows = iter(db.execute("SELECT id, rev, digest, json FROM rev WHERE ns = ? ORDER BY id, rev", (ns,)))
        self._next = next(self._rows, None)

    def of(self, node_id: str) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield rev, digest and JSON of one node; nodes must be asked for in id order."""
        while self._next is not None and self._next[0] < node_id:
            self._next = next(self._rows, None)
        while self._next is not None and self._next[0] == node_id:
            yield self._next[1], self._next[2], self._next[3]
            self._next = next(self._rows, None)


def _resolve(db: apsw.Connection, ns: int, seqs: list[int]) -> list[tuple[int, int, str]]:
    # Answered from head_by_seq alone, which holds all three columns.
    found = []
    for seq in seqs:
        row = db.execute("SELECT updated, id FROM head WHERE ns = ? AND seq = ?", (ns, seq)).fetchone()
        if row is not None:
            found.append((seq, order_key(row[0]), row[1]))
    return found
