"""Snapshots: whatever is altered, verification notices."""

from __future__ import annotations

import enum
import gc
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import pytest

from a3s_actors.memory import (
    Corruption,
    LimitExceeded,
    MemoryStatus,
    NamespaceSnapshot,
    ReferenceState,
    SnapshotRequest,
    Timestamp,
)
from a3s_actors.testing.building import NS, OTHER, change, create, revise, set_status

REQUEST = SnapshotRequest(namespace=NS)


def view() -> NamespaceSnapshot:
    state = ReferenceState()
    state.apply(change("k", create("a", "first"), create("b"), create("c")))
    state.apply(change("r", revise("a", "second")))
    state.apply(change("t", set_status("c", MemoryStatus.TOMBSTONED)))
    return state.snapshot(REQUEST)


def altered(place: int, old: bytes, new: bytes) -> list[bytes]:
    nodes = list(view().node_bytes)
    assert old in nodes[place]
    nodes[place] = nodes[place].replace(old, new)
    return nodes


def rebuilt(nodes: list[bytes]) -> NamespaceSnapshot:
    """Return a snapshot whose digest is right for the altered nodes: the claim of a dishonest backend."""
    return NamespaceSnapshot.build(REQUEST, nodes, None)


def plain(value: Any) -> Any:
    """Return a value of the kernel as JSON data, by the written field order and not by the codec."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Timestamp):
        return str(value)
    if isinstance(value, Mapping):
        return {key: value[key] for key in sorted(value, key=str.encode)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if not attrs.has(type(value)):
        return value
    names = [field.name for field in attrs.fields(type(value))]
    words = [(name.split("_"), name) for name in names]
    return {first + "".join(map(str.title, rest)): plain(getattr(value, name)) for (first, *rest), name in words}


@pytest.mark.parametrize(
    "statuses", [{MemoryStatus.ACTIVE}, {MemoryStatus.TOMBSTONED, MemoryStatus.ACTIVE}, set(MemoryStatus)], ids=len
)
def test_the_identity_is_the_digest_of_the_canonical_json_of_the_whole_view(statuses: set[MemoryStatus]) -> None:
    state = ReferenceState()
    labels = {"é": "1", "a": '"quoted"'}
    state.apply(change("k", create("é", "日本 \x00 \\"), create("b", labels=labels), create("B"), create("c")))
    state.apply(change("r", revise("b", "second"), second=1e-9))
    state.apply(change("t", set_status("c", MemoryStatus.TOMBSTONED)))
    request = SnapshotRequest(namespace=NS, statuses=statuses)
    nodes = [state.get(NS, node_id) for node_id in ("B", "b", "c", "é")]
    view = {
        "profile": "a3s.memory.namespace-snapshot.sha256.v1",
        "namespace": plain(NS),
        "statuses": [status.value for status in MemoryStatus if status in statuses],
        "nodes": [plain(node) for node in nodes if node is not None and node.status in statuses],
    }
    payload = json.dumps(view, ensure_ascii=False, separators=(",", ":")).encode()
    digest = hashlib.sha256(b"a3s.memory.namespace-snapshot.v1" + b"\x00" + payload).hexdigest()
    snapshot = state.snapshot(request)
    assert (snapshot.digest, snapshot.byte_count) == (f"sha256:{digest}", len(payload))
    assert snapshot.change_token == state.change_token(NS)
    snapshot.verify_deep(request)


def test_a_view_of_nothing_has_an_identity_too() -> None:
    empty = ReferenceState().snapshot(REQUEST)
    empty.verify_deep(REQUEST)
    assert empty.node_count == 0
    assert empty.digest != ReferenceState().snapshot(SnapshotRequest(namespace=OTHER)).digest
    with pytest.raises(LimitExceeded):
        ReferenceState().snapshot(attrs.evolve(REQUEST, max_bytes=empty.byte_count - 1))


def test_an_honest_snapshot_verifies_and_decodes() -> None:
    snapshot = view()
    snapshot.verify(REQUEST)
    nodes = snapshot.verify_deep(REQUEST)
    assert [node.id for node in nodes] == ["a", "b"]
    assert nodes == snapshot.nodes()
    assert snapshot.node_count == 2


@pytest.mark.parametrize(
    "change_it",
    [
        lambda snapshot: attrs.evolve(snapshot, digest="sha256:" + "0" * 64),
        lambda snapshot: attrs.evolve(snapshot, byte_count=snapshot.byte_count + 1),
        lambda snapshot: attrs.evolve(snapshot, node_bytes=snapshot.node_bytes[:1]),
        lambda snapshot: attrs.evolve(snapshot, node_bytes=[*snapshot.node_bytes, snapshot.node_bytes[0]]),
        lambda snapshot: attrs.evolve(snapshot, node_bytes=altered(0, b"second", b"seconD")),
        lambda snapshot: attrs.evolve(snapshot, profile="another"),
        lambda snapshot: attrs.evolve(snapshot, namespace=OTHER),
        lambda snapshot: attrs.evolve(snapshot, statuses=frozenset(MemoryStatus)),
    ],
)
def test_a_claim_that_does_not_fit_the_bytes_is_noticed(change_it: object) -> None:
    with pytest.raises(Corruption):
        change_it(view()).verify(REQUEST)  # type: ignore[operator]
    with pytest.raises(Corruption):
        change_it(view()).verify_deep(REQUEST)  # type: ignore[operator]


@pytest.mark.parametrize(
    "nodes",
    [
        list(reversed(view().node_bytes)),
        [view().node_bytes[0], view().node_bytes[0]],
        altered(1, b'"scopeId":"scope"', b'"scopeId":"scope2"'),
        altered(1, b'"status":"active"', b'"status":"candidate"'),
        altered(0, b'"revision":2', b'"revision":3'),
        [*view().node_bytes, b"{}"],
        [*view().node_bytes, b"null"],
        [*view().node_bytes, b"\xff"],
        [*view().node_bytes, b"[" * 100_000],
    ],
    ids=range(9),
)
def test_a_wrong_shape_under_a_right_digest_is_noticed(nodes: list[bytes]) -> None:
    with pytest.raises(Corruption):
        rebuilt(nodes).verify(REQUEST)


@pytest.mark.parametrize(
    "nodes",
    [
        [json.dumps(json.loads(view().node_bytes[0])).encode(), view().node_bytes[1]],
        altered(1, b'"confidence":0.5', b'"confidence":0.50'),
        altered(1, b'"kind":"semantic"', b'"kind":"working"'),
        altered(0, b'"history":[{"revision":1', b'"history":[{"revision":9'),
        altered(0, b'"labels":{}', b'"labels":{"b":"","a":""}'),
    ],
    ids=range(5),
)
def test_a_deep_verification_notices_what_is_not_canonical_or_no_whole_history(nodes: list[bytes]) -> None:
    snapshot = rebuilt(nodes)
    snapshot.verify(REQUEST)
    with pytest.raises(Corruption):
        snapshot.verify_deep(REQUEST)


def test_a_view_over_the_callers_budget_is_refused_also_when_the_backend_gives_it() -> None:
    snapshot = view()
    for tight in (attrs.evolve(REQUEST, max_nodes=1), attrs.evolve(REQUEST, max_bytes=snapshot.byte_count - 1)):
        with pytest.raises(LimitExceeded):
            snapshot.verify(tight)
    snapshot.verify(attrs.evolve(REQUEST, max_nodes=2, max_bytes=snapshot.byte_count))


def test_over_a_budget_is_refused_with_the_figures_and_at_the_budget_is_not() -> None:
    state = ReferenceState()
    state.apply(change("k", create("a"), create("b")))
    size = state.snapshot(REQUEST).byte_count
    assert state.snapshot(attrs.evolve(REQUEST, max_nodes=2, max_bytes=size)).byte_count == size
    with pytest.raises(LimitExceeded) as nodes:
        state.snapshot(attrs.evolve(REQUEST, max_nodes=1, max_bytes=1))
    assert (nodes.value.resource, nodes.value.limit, nodes.value.actual) == ("namespace snapshot nodes", 1, 2)
    with pytest.raises(LimitExceeded) as space:
        state.snapshot(attrs.evolve(REQUEST, max_bytes=size - 1))
    fields = (space.value.resource, space.value.limit, space.value.actual)
    assert fields == ("namespace snapshot bytes", size - 1, size)


def test_no_request_goes_beyond_the_hard_caps() -> None:
    assert (REQUEST.max_nodes, REQUEST.max_bytes) == (100_000, 256 * 1024 * 1024)
    makes: list[tuple[Callable[[int], SnapshotRequest], int, str]] = [
        (lambda number: attrs.evolve(REQUEST, max_nodes=number), 100_000, "namespace snapshot nodes"),
        (lambda number: attrs.evolve(REQUEST, max_bytes=number), 256 * 1024 * 1024, "namespace snapshot bytes"),
    ]
    for make, cap, resource in makes:
        make(cap)
        with pytest.raises(LimitExceeded) as caught:
            make(cap + 1)
        assert (caught.value.resource, caught.value.limit, caught.value.actual) == (resource, cap, cap + 1)


@pytest.mark.parametrize("on", [True, False])
def test_decoding_leaves_the_collector_as_it_was(on: bool) -> None:
    before = gc.isenabled()
    damaged = attrs.evolve(view(), node_bytes=[b"{}"])
    try:
        (gc.enable if on else gc.disable)()
        view().nodes()
        assert gc.isenabled() is on
        with pytest.raises(Corruption):
            damaged.nodes()
        assert gc.isenabled() is on
    finally:
        (gc.enable if before else gc.disable)()


def test_building_stops_at_the_budget_and_reads_no_further() -> None:
    read = 0

    def many() -> Iterator[bytes]:
        nonlocal read
        for _ in range(1000):
            read += 1
            yield b"x" * 1000

    with pytest.raises(LimitExceeded):
        NamespaceSnapshot.build(attrs.evolve(REQUEST, max_bytes=10_000), many(), None)
    assert read <= 11
