"""The one order of query results."""

from __future__ import annotations

from a3s_actors.memory.reads import MemoryHit
from a3s_actors.memory.values import NodeHead

__all__ = ["hit_order", "recency_order"]


def recency_order(head: NodeHead) -> tuple[int, bytes]:
    """Sort key: newest first, then id ascending by UTF-8 bytes."""
    return -head.updated_at.order_key, head.id.encode()


def hit_order(hit: MemoryHit) -> tuple[float, int, bytes]:
    """Sort key: score descending, updated_at descending, id ascending."""
    return (-hit.score, *recency_order(hit.node))
