"""What an operator does to a file, inside the writer's transaction: load, roll up, rebuild the index."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence

import apsw
import attrs

from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.lexical import fingerprint, tokens
from a3s_actors.memory.reads import NamespaceChangeToken
from a3s_actors.memory.staging import StagedNode, check_ending, check_graph
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import MemoryNamespace, MemoryNode, NodeHead, NodeRevision
from a3s_backends.sqlite import lexical_index, lexical_segments
from a3s_backends.sqlite.reading import find_namespace, read_head_row
from a3s_backends.sqlite.rows import RowCodec, sortable, unpack_time
from a3s_backends.sqlite.schema import migrate, read_key, read_meta
from a3s_backends.sqlite.writing import Tally, index_time, new_namespace, store_node

__all__ = ["UpkeepRequest", "UpkeepResult", "bring_up_to_date", "load_namespace", "rebuild_index", "roll_up"]

UpkeepResult = NamespaceChangeToken | int


@attrs.frozen(eq=False)
class UpkeepRequest:
    """An operator's work on its way to the writer; it gets a transaction of its own.

    Unlike a change set it has no key by which doing it again is a replay. Its mark, stored in the same transaction,
    tells afterwards whether that was committed.
    """

    work: Callable[[apsw.Connection, RowCodec], UpkeepResult]
    mark: bytes = attrs.field(factory=lambda: secrets.token_bytes(16))

    def perform(self, db: apsw.Connection, codec: RowCodec) -> UpkeepResult:
        """Do the work and leave the mark."""
        result = self.work(db, codec)
        db.execute("INSERT OR REPLACE INTO meta(name, value) VALUES ('last_upkeep', ?)", (self.mark,))
        return result

    def is_done(self, db: apsw.Connection) -> bool:
        """Tell, after this was performed last, whether it is stored."""
        return bool(db.execute("SELECT value IS ? FROM meta WHERE name = 'last_upkeep'", (self.mark,)).get)


def load_namespace(
    db: apsw.Connection, codec: RowCodec, namespace: MemoryNamespace, nodes: Sequence[MemoryNode]
) -> NamespaceChangeToken:
    """Store whole nodes, histories included, in a namespace that holds none.

    Everything is checked before anything is written.

    Raises:
        InvalidInput: a node is foreign or there twice, its history is not complete or goes back in time.
        MemoryRepositoryError: a graph rule is broken.
        apsw.Error: storage failed; the transaction must be rolled back.
    """
    staged = {node.id: _staged(node, namespace) for node in nodes}
    if len(staged) != len(nodes):
        raise InvalidInput("nodes", "a node is there twice")
    for each in staged.values():
        check_ending(each.states)
        check_graph(each.head, lambda node_id: staged[node_id].head if node_id in staged else None)
    ns = find_namespace(db, namespace)
    if ns is not None and db.execute("SELECT 1 FROM head WHERE ns = ? LIMIT 1", (ns,)).get:
        raise InvalidInput("namespace", "holds memories already; whole nodes are loaded into an empty one")
    if ns is None:
        ns = new_namespace(db, namespace)
    tally = Tally()
    for node_id in sorted(staged, key=str.encode):
        store_node(db, codec, ns, staged[node_id], None, tally)
    tally.store(db, ns)
    db.execute("UPDATE namespace SET token = token + 1, token_raised = token_raised + 1 WHERE ns = ?", (ns,))
    return NamespaceChangeToken(int(db.execute("SELECT token FROM namespace WHERE ns = ?", (ns,)).get))


def _staged(node: MemoryNode, namespace: MemoryNamespace) -> StagedNode:
    if node.namespace != namespace:
        raise InvalidInput("node.namespace", "differs from the namespace that is loaded")
    earlier = [_as_head(node, revision) for revision in node.history]
    states = (*earlier, node.head)
    if [state.revision for state in states] != list(range(1, len(states) + 1)):
        raise InvalidInput("node.history", "is not complete")
    if any(before.updated_at > after.updated_at for before, after in itertools.pairwise(states)):
        raise InvalidInput("node.history", "goes back in time")
    return StagedNode(before=None, states=states)


def _as_head(node: MemoryNode, revision: NodeRevision) -> NodeHead:
    fields = {field.name: getattr(revision, field.name) for field in attrs.fields(NodeRevision)}
    return NodeHead(id=node.id, namespace=node.namespace, created_at=node.created_at, **fields)


def roll_up(db: apsw.Connection, namespace: MemoryNamespace, before: Timestamp) -> int:
    """Keep a namespace's access events from before an instant as counts alone; return how many went.

    From then on an event of that time is refused: whether it was there could not be told any more.
    """
    ns = find_namespace(db, namespace)
    if ns is None:
        return 0
    gone: list[tuple[int, int]] = []
    for number, node, at in db.execute("SELECT no, node, at FROM access WHERE ns = ?", (ns,)):
        if unpack_time(at) < before:
            gone.append((number, node))
    counts: dict[int, int] = {}
    for _, node in gone:
        counts[node] = counts.get(node, 0) + 1
    db.executemany("DELETE FROM access WHERE no = ?", ((number,) for number, _ in gone))
    db.executemany(
        "UPDATE usage SET rolled_up = rolled_up + ? WHERE node = ?", ((count, node) for node, count in counts.items())
    )
    db.execute("UPDATE namespace SET rolled_up = max(ifnull(rolled_up, x''), ?) WHERE ns = ?", (sortable(before), ns))
    return len(gone)


def rebuild_index(db: apsw.Connection) -> int:
    """Tokenise every text anew; return how many there were."""
    key = read_key(db)
    codec = RowCodec(key)
    namespaces: list[tuple[int]] = db.execute("SELECT ns FROM namespace").fetchall()  # type: ignore[assignment]
    count = 0
    for (ns,) in namespaces:
        lexical_index.clear(db, ns)
        ids: list[tuple[str]] = db.execute(  # type: ignore[assignment]
            "SELECT id FROM head WHERE ns = ? ORDER BY seq", (ns,)
        ).fetchall()
        # Numbers start again at 0: move the old ones out of the way of the unique index.
        db.execute("UPDATE head SET seq = -1 - seq WHERE ns = ?", (ns,))
        for (node_id,) in ids:
            row = read_head_row(db, ns, node_id)
            assert row is not None
            head = codec.read_head(ns, node_id, row)
            seq = lexical_index.add(
                db,
                ns,
                lexical_index.hash_tokens(tokens(head.content), key),
                status=row.status,
                kind=row.kind,
                updated_ns=index_time(head.updated_at),
            )
            db.execute("UPDATE head SET seq = ? WHERE ns = ? AND id = ?", (seq, ns, node_id))
            count += 1
    lexical_segments.delete_strays(db)
    db.execute("UPDATE meta SET value = ? WHERE name = 'tokenizer'", (fingerprint(),))
    return count


def bring_up_to_date(db: apsw.Connection) -> None:
    """Give a file the current schema and an index by the current lexical profile, in one transaction.

    Raises:
        Corruption: a text cannot be read.
        apsw.Error: storage failed; nothing was changed.
    """
    # Another process may have been faster: everything is looked at inside the transaction.
    db.execute("BEGIN IMMEDIATE")
    try:
        migrate(db)
        if read_meta(db, "tokenizer") != fingerprint():
            rebuild_index(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
