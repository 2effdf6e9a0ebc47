"""Complete namespace snapshots and their identity.

A snapshot is the whole view or an error, never a part. It is carried as bytes: the canonical JSON of each
node, from which the identity is computed; values are decoded when they are read.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
import msgspec

from a3s_actors.memory import limits
from a3s_actors.memory._checks import instance_of, whole
from a3s_actors.memory.codec import namespace_json, node_json, statuses_json
from a3s_actors.memory.errors import Corruption, LimitExceeded, MemoryRepositoryError
from a3s_actors.memory.fast_decoding import decode_node
from a3s_actors.memory.reads import NamespaceChangeToken, some_status, to_statuses
from a3s_actors.memory.values import MemoryNamespace, MemoryNode, MemoryStatus

__all__ = ["SNAPSHOT_PROFILE", "NamespaceSnapshot", "SnapshotHasher", "SnapshotRequest", "check_budget"]

SNAPSHOT_PROFILE: Final = "a3s.memory.namespace-snapshot.sha256.v1"
_DOMAIN: Final = b"a3s.memory.namespace-snapshot.v1\0"
NODES_RESOURCE: Final = "namespace snapshot nodes"
BYTES_RESOURCE: Final = "namespace snapshot bytes"


@attrs.frozen(kw_only=True)
class SnapshotRequest:
    """What to take a complete view of, and how large it may be.

    Args:
        namespace: the one exact namespace.
        statuses: by default active only.
        max_nodes: 1 to 100,000.
        max_bytes: 1 byte to 256 MiB of canonical JSON.

    Raises:
        InvalidInput, LimitExceeded: a field is malformed or beyond the hard caps.
    """

    namespace: MemoryNamespace = attrs.field(validator=instance_of("snapshot.namespace", MemoryNamespace))
    statuses: frozenset[MemoryStatus] = attrs.field(
        default=frozenset({MemoryStatus.ACTIVE}), converter=to_statuses, validator=some_status("snapshot.statuses")
    )
    max_nodes: int = attrs.field(
        default=limits.MAX_SNAPSHOT_NODES,
        validator=whole("snapshot.maxNodes", 1, limits.MAX_SNAPSHOT_NODES, resource=NODES_RESOURCE),
    )
    max_bytes: int = attrs.field(
        default=limits.MAX_SNAPSHOT_BYTES,
        validator=whole("snapshot.maxBytes", 1, limits.MAX_SNAPSHOT_BYTES, resource=BYTES_RESOURCE),
    )


class SnapshotHasher:
    """Computes a snapshot's identity as a stream: feed each node's canonical JSON in id order."""

    def __init__(self, request: SnapshotRequest) -> None:
        self._request = request
        start = (
            f'{{"profile":"{SNAPSHOT_PROFILE}","namespace":{namespace_json(request.namespace)}'
            f',"statuses":{statuses_json(request.statuses)},"nodes":['
        ).encode()
        self._sha = hashlib.sha256(_DOMAIN + start)
        self.node_count = 0
        self.byte_count = len(start) + 2  # the closing "]}"

    def add(self, node: bytes) -> None:
        """Take in one node.

        Raises:
            LimitExceeded: the byte budget is used up; `actual` is the limit + 1, a lower bound.
        """
        if self.node_count:
            self._sha.update(b",")
            self.byte_count += 1
        self._sha.update(node)
        self.node_count += 1
        self.byte_count += len(node)
        check_budget(self._request, self.node_count, self.byte_count)

    def digest(self) -> str:
        """Return "sha256:" and the hex digest of all that was fed."""
        check_budget(self._request, self.node_count, self.byte_count)
        final = self._sha.copy()
        final.update(b"]}")
        return f"sha256:{final.hexdigest()}"


def check_budget(request: SnapshotRequest, nodes: int, byte_count: int) -> None:
    """Refuse a view that is over either budget. Backends call it with their counts before they read.

    Raises:
        LimitExceeded: over the node budget (actual: the count), or over the byte budget (actual: limit + 1).
    """
    if nodes > request.max_nodes:
        raise LimitExceeded(NODES_RESOURCE, request.max_nodes, nodes)
    if byte_count > request.max_bytes:
        raise LimitExceeded(BYTES_RESOURCE, request.max_bytes, request.max_bytes + 1)


class _Shape(msgspec.Struct):
    # What `verify` needs of a node; the rest of its JSON is skipped, not decoded.
    id: str
    namespace: dict[str, str]
    revision: int
    status: str
    history: list[msgspec.Raw]


_shape_decoder = msgspec.json.Decoder(_Shape)


@attrs.frozen(kw_only=True, eq=False)
class NamespaceSnapshot:
    """A complete view of one namespace at one point.

    Attributes:
        profile: names the identity scheme.
        namespace, statuses: what was asked for.
        digest: "sha256:…" over the canonical JSON of the whole view.
        byte_count: length of that JSON.
        change_token: the token that belongs to this very view, None where the backend has none.
        node_bytes: each node's canonical JSON, in id order.
    """

    namespace: MemoryNamespace
    statuses: frozenset[MemoryStatus]
    digest: str
    byte_count: int
    change_token: NamespaceChangeToken | None
    node_bytes: Sequence[bytes] = attrs.field(repr=lambda items: f"<{len(items)}>")
    profile: str = SNAPSHOT_PROFILE

    @classmethod
    def build(
        cls, request: SnapshotRequest, nodes: Iterable[bytes], change_token: NamespaceChangeToken | None
    ) -> NamespaceSnapshot:
        """Make a snapshot of nodes' canonical JSON, given in id order.

        Raises:
            LimitExceeded: over a budget of the request.
        """
        hasher = SnapshotHasher(request)
        kept: list[bytes] = []
        for node in nodes:
            hasher.add(node)
            kept.append(node)
        return cls(
            namespace=request.namespace,
            statuses=request.statuses,
            digest=hasher.digest(),
            byte_count=hasher.byte_count,
            change_token=change_token,
            node_bytes=kept,
        )

    @property
    def node_count(self) -> int:
        """How many nodes the view holds."""
        return len(self.node_bytes)

    def nodes(self) -> tuple[MemoryNode, ...]:
        """Decode all nodes, histories included.

        Raises:
            Corruption: the bytes are no canonical node.
        """
        with _collection_off():
            return tuple([_decode_node(data) for data in self.node_bytes])

    def verify(self, request: SnapshotRequest) -> None:
        """Recompute order, shape, bytes and digest; a backend's own claim is never trusted.

        Args:
            request: what the caller asked for.

        Raises:
            Corruption: anything differs from what the request and the bytes say.
            LimitExceeded: the view is larger than the request allows.
        """
        if self.profile != SNAPSHOT_PROFILE or self.namespace != request.namespace or self.statuses != request.statuses:
            raise Corruption("snapshot", "it answers another request")
        wanted = {status.value for status in request.statuses}
        space = request.namespace
        owner = {"tenantId": space.tenant_id, "principalId": space.principal_id, "scopeId": space.scope_id}
        hasher = SnapshotHasher(request)
        before = b""
        for place, data in enumerate(self.node_bytes):
            try:
                shape = _shape_decoder.decode(data)
            except (msgspec.MsgspecError, UnicodeError):
                raise Corruption(f"snapshot node {place}", "is no node") from None
            key = shape.id.encode()
            if key <= before or shape.namespace != owner or shape.status not in wanted:
                raise Corruption(f"snapshot node {place}", "is out of order, foreign, or of another status")
            if shape.revision != len(shape.history) + 1:
                raise Corruption(f"snapshot node {place}", "its history is not complete")
            before = key
            hasher.add(data)
        if hasher.byte_count != self.byte_count or hasher.digest() != self.digest:
            raise Corruption("snapshot", "digest or byte count differ from the content")

    def verify_deep(self, request: SnapshotRequest) -> tuple[MemoryNode, ...]:
        """Do all that `verify` does, decode every node, and check its bytes and the revisions of its history.

        Returns:
            The decoded nodes.

        Raises:
            Corruption, LimitExceeded: as `verify`; also when a node's bytes are not its canonical JSON, or its history
                does not count from 1 up to it.
        """
        self.verify(request)
        nodes = self.nodes()
        for place, (node, data) in enumerate(zip(nodes, self.node_bytes, strict=True)):
            if node_json(node).encode() != data:
                raise Corruption(f"snapshot node {place}", "is not canonical")
            if any(earlier.revision != number for number, earlier in enumerate(node.history, 1)):
                raise Corruption(f"snapshot node {place}", "its history is not complete")
        return nodes


@contextlib.contextmanager
def _collection_off() -> Iterator[None]:
    # Making very many objects that all stay makes the collector look at all of them again and again.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _decode_node(data: bytes) -> MemoryNode:
    try:
        return decode_node(data)
    except MemoryRepositoryError as error:
        raise Corruption("snapshot node", f"is no node ({type(error).__name__})") from None
