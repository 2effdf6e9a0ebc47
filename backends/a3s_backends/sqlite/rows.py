"""Between kernel values and rows: codes, digests, packed names. No SQL."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import attrs
import msgspec

from a3s_actors.memory.codec import head_json, revision_json
from a3s_actors.memory.errors import Corruption, InvalidInput, MemoryRepositoryError
from a3s_actors.memory.fast_decoding import decode_head, decode_revision
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import AccessKind, MemoryKind, MemoryStatus, NodeHead, NodeRevision

__all__ = ["ACCESS_CODES", "KIND_CODES", "STATUS_CODES", "HeadRow", "RowCodec", "add_digests", "node_size"]

# Stored numbers: never change one, only add.
STATUS_CODES: Final = {
    MemoryStatus.CANDIDATE: 1,
    MemoryStatus.ACTIVE: 2,
    MemoryStatus.SUPERSEDED: 3,
    MemoryStatus.CONFLICTED: 4,
    MemoryStatus.TOMBSTONED: 5,
}
KIND_CODES: Final = {MemoryKind.EPISODIC: 0, MemoryKind.SEMANTIC: 1, MemoryKind.PROCEDURAL: 2}
ACCESS_CODES: Final = {AccessKind.ADMISSION: 0, AccessKind.USE: 1}
ACCESS_KINDS: Final = {code: kind for kind, code in ACCESS_CODES.items()}

ZERO_DIGESTS: Final = bytes(32)
_MODULUS: Final = 1 << 256
_HEAD: Final = struct.Struct("<cqqBBqq")
_references: Final = msgspec.json.Decoder(list[tuple[str, int]])
_REV: Final = struct.Struct("<cqqq")
# The engine's own event and context ids end in the hex of a SHA-256; stored as 33 bytes instead of 84.
_PREFIXES: Final = {1: "a3s-code-admission-", 2: "a3s-code-context-v2-"}
_HEX_TAIL: Final = re.compile(r"([a-z0-9-]*-)([0-9a-f]{64})", re.ASCII)
_PREFIX_CODES: Final = {prefix: code for code, prefix in _PREFIXES.items()}


class HeadRow(NamedTuple):
    """A row of `head`, in the order of its columns after ns and id."""

    seq: int
    rev: int
    status: int
    kind: int
    updated: bytes
    past_bytes: int
    past_digests: bytes
    digest: bytes
    json: bytes


HEAD_COLUMNS: Final = "seq, rev, status, kind, updated, past_bytes, past_digests, digest, json"


@attrs.frozen
class RowCodec:
    """Makes and checks rows of one file. `key` is the file's secret: its digests say nothing without it."""

    key: bytes = attrs.field(repr=False)
    _keyed: Any = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        # Copied for each digest: cheaper than taking in the key each time.
        object.__setattr__(self, "_keyed", hashlib.blake2b(digest_size=32, key=self.key))

    def head_row(self, ns: int, head: NodeHead, *, seq: int, past_bytes: int, past_digests: bytes) -> HeadRow:
        """Make the row of a head."""
        json = head_json(head).encode()
        status, kind = STATUS_CODES[head.status], KIND_CODES[head.kind]
        updated = sortable(head.updated_at)
        row = HeadRow(seq, head.revision, status, kind, updated, past_bytes, past_digests, b"", json)
        return row._replace(digest=self._head_digest(ns, head.id, row))

    def read_head(self, ns: int, node_id: str, row: HeadRow) -> NodeHead:
        """Decode a head after checking its row.

        Raises:
            Corruption: the row is not what was written.
        """
        self.check_head(ns, node_id, row)
        try:
            return decode_head(row.json)
        except MemoryRepositoryError:
            raise Corruption(f"namespace {ns}, node {node_id!r}", "the row is no node") from None

    def check_head(self, ns: int, node_id: str, row: HeadRow) -> None:
        """Raise Corruption unless the row is what was written."""
        if self._head_digest(ns, node_id, row) != row.digest:
            raise Corruption(f"namespace {ns}, node {node_id!r}", "its current revision does not match its digest")

    def _head_digest(self, ns: int, node_id: str, row: HeadRow) -> bytes:
        # `seq` is left out: it belongs to the index, which may be rebuilt, and every hit is checked anyway.
        name = node_id.encode()
        state = self._keyed.copy()
        try:
            fixed = _HEAD.pack(b"h", ns, row.rev, row.status, row.kind, row.past_bytes, len(name))
            state.update(b"".join((fixed, name, row.updated, row.past_digests, row.json)))
        except (struct.error, TypeError):
            raise Corruption(f"namespace {ns}, node {node_id!r}", "a column holds what is never written") from None
        digest: bytes = state.digest()
        return digest

    def rev_row(self, ns: int, node_id: str, revision: NodeRevision | NodeHead) -> tuple[bytes, bytes]:
        """Make digest and JSON of an earlier revision's row."""
        json = revision_json(revision).encode()
        return self._rev_digest(ns, node_id, revision.revision, json), json

    def check_rev(self, ns: int, node_id: str, rev: int, digest: bytes, json: bytes) -> None:
        """Raise Corruption unless the row is what was written."""
        if self._rev_digest(ns, node_id, rev, json) != digest:
            raise Corruption(f"namespace {ns}, node {node_id!r}", f"revision {rev} does not match its digest")

    def read_rev(self, ns: int, node_id: str, rev: int, digest: bytes, json: bytes) -> NodeRevision:
        """Decode an earlier revision after checking its row.

        Raises:
            Corruption: the row is not what was written.
        """
        self.check_rev(ns, node_id, rev, digest, json)
        try:
            return decode_revision(json)
        except MemoryRepositoryError:
            raise Corruption(f"namespace {ns}, node {node_id!r}", f"revision {rev} is no revision") from None

    def _rev_digest(self, ns: int, node_id: str, rev: int, json: bytes) -> bytes:
        name = node_id.encode()
        state = self._keyed.copy()
        try:
            state.update(b"".join((_REV.pack(b"r", ns, rev, len(name)), name, json)))
        except (struct.error, TypeError):
            raise Corruption(f"namespace {ns}, node {node_id!r}", "an earlier revision is no such row") from None
        digest: bytes = state.digest()
        return digest


def pack_references(states: Iterable[NodeHead]) -> str:
    """Return the stored form of what a change set made: ids and revisions."""
    return msgspec.json.encode([(head.id, head.revision) for head in states]).decode()


def unpack_references(where: str, stored: str) -> list[tuple[str, int]]:
    """Undo `pack_references`.

    Raises:
        Corruption: no such form.
    """
    try:
        return _references.decode(stored)
    except (msgspec.DecodeError, TypeError, UnicodeError):
        raise Corruption(where, "what it made is not recorded any more") from None


def node_size(row: HeadRow) -> int:
    """Return the bytes of a whole node's canonical JSON: its head, its history and what joins them."""
    return len(row.json) + len(',"history":[]') + row.past_bytes + max(0, row.rev - 2)


def add_digests(total: bytes, *digests: bytes, sign: int = 1) -> bytes:
    """Add digests to a sum modulo 2**256, or with sign -1 take them away."""
    value = int.from_bytes(total) + sign * sum(map(int.from_bytes, digests))
    return (value % _MODULUS).to_bytes(32)


def digest_sum(total: int) -> bytes:
    """Return a sum of digests, added up as whole numbers, in its stored form."""
    return (total % _MODULUS).to_bytes(32)


def sortable(instant: Timestamp) -> bytes:
    """Return ten bytes that sort as instants do."""
    return (instant.order_key + (1 << 79)).to_bytes(10)


def order_key(data: bytes) -> int:
    """Return the `Timestamp.order_key` that `sortable` wrote."""
    return int.from_bytes(data) - (1 << 79)


def pack_time(instant: Timestamp) -> int | str:
    """Return nanoseconds where they fit SQLite's integers and say it all, else the text."""
    return instant.ns if not instant.leap and -(1 << 63) <= instant.ns < 1 << 63 else str(instant)


def unpack_time(value: int | str) -> Timestamp:
    """Undo `pack_time`.

    Raises:
        Corruption: no such spelling.
    """
    if isinstance(value, int):
        return Timestamp(value)
    try:
        if isinstance(value, str):
            return Timestamp.parse(value)
    except InvalidInput:
        pass
    raise Corruption("access event", "a stored time is damaged")


def pack_name(name: str) -> bytes:
    """Return a short unique spelling of an event or context id."""
    match = _HEX_TAIL.fullmatch(name)
    if match is not None and match[1] in _PREFIX_CODES:
        return bytes([_PREFIX_CODES[match[1]]]) + bytes.fromhex(match[2])
    return b"\0" + name.encode()


def unpack_name(data: bytes) -> str:
    """Undo `pack_name`.

    Raises:
        Corruption: no such spelling.
    """
    try:
        return data[1:].decode() if data[0] == 0 else _PREFIXES[data[0]] + data[1:].hex()
    except (AttributeError, IndexError, KeyError, UnicodeDecodeError):
        raise Corruption("access event", "a stored name is damaged") from None
