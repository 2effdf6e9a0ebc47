"""The one order of results: score, then newest, then id by its bytes."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from a3s_actors.memory import MemoryHit, MemoryKind, MemoryStatus, NodeHead, Timestamp
from a3s_actors.memory.lexical import float32
from a3s_actors.memory.ranking import hit_order, recency_order
from a3s_actors.memory.values import RevisionKind
from a3s_actors.testing.building import NS, at


def head(node_id: str, updated_at: Timestamp) -> NodeHead:
    return NodeHead(
        id=node_id,
        namespace=NS,
        revision=1,
        kind=MemoryKind.SEMANTIC,
        status=MemoryStatus.ACTIVE,
        content="text",
        created_at=at(-1000),
        updated_at=updated_at,
        revision_kind=RevisionKind.CREATED,
    )


def test_score_comes_before_time_and_time_before_the_id() -> None:
    ranked = [
        MemoryHit(head("z", at(0)), float32(0.9)),
        MemoryHit(head("y", at(9)), float32(0.5)),
        MemoryHit(head("x", at(8)), float32(0.5)),
        MemoryHit(head("a", at(7)), float32(0.5)),
        MemoryHit(head("b", at(7)), float32(0.5)),
        MemoryHit(head("c", at(99)), float32(0.1)),
    ]
    for seed in range(5):
        shuffled = random.Random(seed).sample(ranked, len(ranked))
        assert sorted(shuffled, key=hit_order) == ranked


def test_a_nanosecond_and_a_leap_second_decide() -> None:
    instants = [
        Timestamp.of(text)
        for text in ("2017-01-01T00:00:00.9Z", "2017-01-01T00:00:00Z", "2016-12-31T23:59:60.9Z",
                     "2016-12-31T23:59:59.000000001Z", "2016-12-31T23:59:59Z")
    ]  # fmt: skip
    oldest_first = [head("n", instant) for instant in reversed(instants)]
    assert sorted(oldest_first, key=recency_order) == oldest_first[::-1]


def test_ids_are_compared_by_their_utf_8_bytes() -> None:
    # UTF-16 would put the last before U+FF5E, and a locale would mix upper and lower case.
    ids = ["A", "B", "a", "a\x00", "aa", "é", "日", "\uff5e", "\U0001f600"]
    assert [each.id for each in sorted((head(name, at()) for name in reversed(ids)), key=recency_order)] == ids


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.25, 0.5, 1.0]), st.integers(0, 3), st.text(st.characters(codec="utf-8"), max_size=8)
        ),
        unique=True,
        max_size=12,
    )
)
def test_the_order_is_that_of_the_contract_spelled_out(rows: list[tuple[float, int, str]]) -> None:
    hits = [MemoryHit(head(f"n{name}", at(second)), score) for score, second, name in rows]

    def spelled(hit: MemoryHit) -> Any:
        return -hit.score, -hit.node.updated_at.ns, hit.node.id.encode()

    assert sorted(hits, key=hit_order) == sorted(hits, key=spelled)
