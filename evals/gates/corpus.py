"""A fixture's memories put into a repository, and how well a list of ids answers a labelled query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from a3s_actors.memory import MemoryNamespace, MemoryRepository, MemoryStatus, RelationKind
from a3s_actors.testing.building import add, change, create, set_status

__all__ = ["fill", "ranks"]


async def fill(
    repository: MemoryRepository,
    namespace: MemoryNamespace,
    memories: Iterable[dict[str, Any]],
    *,
    serving: str | None = None,
) -> None:
    """Store memories with their statuses.

    Args:
        repository: where.
        namespace: whose.
        memories: `id`, `content` and perhaps `status`, in order. A conflicted one is in conflict with the first one.
        serving: "candidates stay unseen" or "conflicted memories stay unseen" stores those as active instead.
    """
    first = ""
    for each in memories:
        name, status = each["id"], MemoryStatus(each.get("status", "active"))
        first = first or name
        if serving in (f"{status.value}s stay unseen", f"{status.value} memories stay unseen"):
            status = MemoryStatus.ACTIVE
        made = MemoryStatus.ACTIVE if status is MemoryStatus.CONFLICTED else status
        node = create(name, each["content"], status=made, namespace=namespace)
        await repository.apply(change(f"make-{name}", node, namespace=namespace))
        if status is MemoryStatus.CONFLICTED:
            head = (await repository.get_heads(namespace, [first]))[first]
            steps = (
                add(name, RelationKind.CONFLICTS_WITH, first),
                add(first, RelationKind.CONFLICTS_WITH, name, head.revision),
                set_status(name, MemoryStatus.CONFLICTED, 2),
            )
            await repository.apply(change(f"conflict-{name}", *steps, second=0.5, namespace=namespace))


def ranks(found: list[str], relevant: list[str]) -> tuple[float, float]:
    """Return what part of the relevant ids was found, and the reciprocal rank of the first one."""
    places = [found.index(each) + 1 for each in relevant if each in found]
    return len(places) / len(relevant), 1 / min(places) if places else 0.0
