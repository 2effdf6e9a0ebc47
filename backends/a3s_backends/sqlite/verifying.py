"""Checking a whole file: pages, rows, sums, graph, index and audit trail. Reads only, and reports all it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import apsw
import attrs

from a3s_actors.memory.errors import Corruption, MemoryRepositoryError
from a3s_actors.memory.lexical import tokens
from a3s_actors.memory.staging import check_graph
from a3s_actors.memory.values import MemoryNamespace, NodeHead
from a3s_backends.sqlite import lexical_check
from a3s_backends.sqlite.lexical_index import hash_tokens
from a3s_backends.sqlite.lexical_schema import LexicalIndexDamaged
from a3s_backends.sqlite.reading import read_head_row, read_node, read_tallies, stored_namespace
from a3s_backends.sqlite.rows import (
    HEAD_COLUMNS,
    KIND_CODES,
    STATUS_CODES,
    ZERO_DIGESTS,
    HeadRow,
    RowCodec,
    add_digests,
    node_size,
    sortable,
    unpack_references,
)
from a3s_backends.sqlite.writing import index_time

__all__ = ["Finding", "verify_file"]


@attrs.frozen
class Finding:
    """One thing that is not as it was written.

    Attributes:
        where: the place, never content.
        message: what is wrong there.
    """

    where: str
    message: str


def verify_file(db: apsw.Connection, codec: RowCodec, check: Callable[[], None]) -> tuple[Finding, ...]:
    """Check everything inside the caller's read transaction; an empty result means that all is well."""
    return tuple(_findings(db, codec, check))


def _findings(db: apsw.Connection, codec: RowCodec, check: Callable[[], None]) -> Iterator[Finding]:
    try:
        for (line,) in db.execute("PRAGMA integrity_check(20)").fetchall():
            if line != "ok":
                yield Finding("database file", str(line))
    except apsw.Error as error:
        yield Finding("database file", f"a page cannot be read ({type(error).__name__})")
        return
    namespaces: list[tuple[int, int, str, str, str]] = db.execute(  # type: ignore[assignment]
        "SELECT ns, token, tenant, principal, scope FROM namespace ORDER BY ns"
    ).fetchall()
    for ns, token, *names in namespaces:
        try:
            namespace = stored_namespace(*names)
        except Corruption as error:
            yield Finding(f"namespace {ns}", error.message)
            continue
        yield from _Namespace(db, codec, ns, namespace, check).findings(token)
    yield from _orphans(db)


@attrs.define(eq=False)
class _Namespace:
    db: apsw.Connection
    codec: RowCodec
    ns: int
    namespace: MemoryNamespace
    check: Callable[[], None]

    def findings(self, token: int) -> Iterator[Finding]:
        where = f"namespace {self.ns}"
        sums = dict.fromkeys(STATUS_CODES.values(), (0, 0, ZERO_DIGESTS))
        entries: dict[int, lexical_check.Expected] = {}
        for place, (node_id, *columns) in enumerate(
            self.db.execute(f"SELECT id, {HEAD_COLUMNS} FROM head WHERE ns = ? ORDER BY id", (self.ns,))  # noqa: S608
        ):
            if place % 64 == 0:
                self.check()
            row = HeadRow(*columns)
            nodes, size, digests = sums.get(row.status, (0, 0, ZERO_DIGESTS))
            sums[row.status] = (
                nodes + 1,
                size + node_size(row),
                add_digests(digests, row.digest, row.past_digests),
            )
            try:
                head = self.codec.read_head(self.ns, node_id, row)
            except Corruption as error:
                yield Finding(error.where, error.message)
                continue
            hashes = hash_tokens(tokens(head.content), self.codec.key)
            if row.seq in entries or row.seq < 0:
                yield Finding(f"lexical index of {where}", f"a node names entry {row.seq}, which is not its own")
            else:
                entries[row.seq] = (row.seq, hashes, row.status, row.kind, index_time(head.updated_at))
            try:
                self._check_columns(head, row)
                read_node(self.db, self.codec, self.ns, head)
                self._check_past(head, row)
                check_graph(head, self._head)
            except Corruption as error:
                yield Finding(error.where, error.message)
            except MemoryRepositoryError as error:
                yield Finding(f"{where}, node {node_id!r}", f"breaks a graph rule ({type(error).__name__}): {error}")
        for (code,) in self.db.execute("SELECT status FROM tally WHERE ns = ?", (self.ns,)).fetchall():
            if code not in sums:
                yield Finding(where, "its sums name a status that there is not")
        tallies = read_tallies(self.db, self.ns, sums)
        for status, code in STATUS_CODES.items():
            if sums[code] != tallies[code]:
                yield Finding(
                    where,
                    f"{status.value} nodes: {sums[code][0]} found, {tallies[code][0]} recorded, or other digests",
                )
        try:
            for line in lexical_check.check(self.db, self.ns, sorted(entries.values())):
                yield Finding(f"lexical index of {where}", line)
        except LexicalIndexDamaged as error:
            yield Finding(f"lexical index of {where}", error.where)
        yield from self._change_findings(token)

    def _head(self, node_id: str) -> NodeHead | None:
        row = read_head_row(self.db, self.ns, node_id)
        return None if row is None else self.codec.read_head(self.ns, node_id, row)

    def _check_columns(self, head: NodeHead, row: HeadRow) -> None:
        if head.namespace != self.namespace:
            raise Corruption(f"namespace {self.ns}, node {head.id!r}", "it belongs to another namespace")
        columns = (row.rev, row.status, row.kind, row.updated)
        stated = (head.revision, STATUS_CODES[head.status], KIND_CODES[head.kind], sortable(head.updated_at))
        if columns != stated:
            raise Corruption(f"namespace {self.ns}, node {head.id!r}", "its columns differ from its text")

    def _check_past(self, head: NodeHead, row: HeadRow) -> None:
        past: list[tuple[bytes, int]] = self.db.execute(  # type: ignore[assignment]
            "SELECT digest, length(json) FROM rev WHERE ns = ? AND id = ?", (self.ns, head.id)
        ).fetchall()
        digests = add_digests(ZERO_DIGESTS, *(digest for digest, _ in past))
        if (digests, sum(size for _, size in past)) != (row.past_digests, row.past_bytes):
            raise Corruption(f"namespace {self.ns}, node {head.id!r}", "its history does not add up")

    def _change_findings(self, token: int) -> Iterator[Finding]:
        where = f"namespace {self.ns}"
        count = 0
        for key, result in self.db.execute("SELECT key, result FROM change WHERE ns = ? ORDER BY no", (self.ns,)):
            count += 1
            try:
                made = unpack_references(f"{where}, change set {key!r}", result)
            except Corruption as error:
                yield Finding(error.where, error.message)
                continue
            for node_id, revision in made:
                row = read_head_row(self.db, self.ns, node_id)
                if row is None or row.rev < revision:
                    yield Finding(f"{where}, change set {key!r}", f"made revision {revision} of a node that lacks it")
        purges = self.db.execute("SELECT count(*) FROM purge WHERE ns = ?", (self.ns,)).get
        raised = self.db.execute("SELECT token_raised FROM namespace WHERE ns = ?", (self.ns,)).get
        if count + purges + raised != token:
            yield Finding(where, f"{count} change sets and {purges} purges are stored, the change token counts {token}")
        for node_id, admissions, uses, events in self.db.execute(
            "SELECT id, admissions, uses, rolled_up + (SELECT count(*) FROM access WHERE access.node = usage.node)"
            " FROM usage WHERE ns = ?",
            (self.ns,),
        ):
            if admissions + uses != events:
                yield Finding(f"{where}, node {node_id!r}", f"{events} access events, {admissions + uses} counted")


def _orphans(db: apsw.Connection) -> Iterator[Finding]:
    for table, other in (("rev", "head"), ("usage", "head")):
        count = db.execute(
            f"SELECT count(*) FROM {table} t WHERE NOT EXISTS"  # noqa: S608 - names are constants
            f" (SELECT 1 FROM {other} o WHERE o.ns = t.ns AND o.id = t.id)"
        ).get
        if count:
            yield Finding(table, f"{count} rows belong to no node")
    for table in ("head", "change"):
        count = db.execute(
            f"SELECT count(*) FROM {table} t WHERE NOT EXISTS (SELECT 1 FROM namespace n WHERE n.ns = t.ns)"  # noqa: S608
        ).get
        if count:
            yield Finding(table, f"{count} rows belong to no namespace")
