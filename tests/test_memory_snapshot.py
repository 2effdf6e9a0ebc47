"""Snapshots: whatever is altered, verification notices."""

from __future__ import annotations

import json
from collections.abc import Iterator

import attrs
import pytest

from a3s_actors.memory import (
    Corruption,
    LimitExceeded,
    MemoryStatus,
    NamespaceSnapshot,
    ReferenceState,
    SnapshotRequest,
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
    ],
    ids=range(3),
)
def test_a_deep_verification_notices_what_is_not_canonical(nodes: list[bytes]) -> None:
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


def test_building_stops_at_the_budget_and_reads_no_further() -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"x" * 1000

    with pytest.raises(LimitExceeded):
        NamespaceSnapshot.build(attrs.evolve(REQUEST, max_bytes=10_000), endless(), None)
    assert read <= 11
