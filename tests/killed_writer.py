"""A child process that writes until it is killed, and says on stdout what was acknowledged.

Run as `python -m tests.killed_writer BACKEND PATH SEED`. Several tasks create, revise, relate and admit at
once; each line on stdout is `create ID`, `revise ID REVISION`, `pair ID ID` or `admit EVENT`, written after the
repository has answered.
"""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from a3s_actors.memory import (
    AccessEvent,
    AddRelation,
    Create,
    EvidenceKind,
    EvidenceRef,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryRelation,
    MemoryRepository,
    MemoryStatus,
    RelationKind,
    Revise,
    RevisionMode,
    Timestamp,
)
from a3s_backends.journal import open_file_repository
from a3s_backends.sqlite import open_sqlite_repository

NS = MemoryNamespace("tenant", "principal", "scope")
AT = Timestamp.parse("2026-01-02T03:04:05Z")


@asynccontextmanager
async def opened(backend: str, path: Path) -> AsyncIterator[Any]:
    """Open one of the durable backends by name."""
    if backend == "sqlite":
        async with open_sqlite_repository(path / "memory.db") as repository:
            yield repository
    else:
        async with open_file_repository(path / "journal") as repository:
            yield repository


def evidence(uri: str) -> EvidenceRef:
    return EvidenceRef(uri=uri, digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=AT)


def draft(node_id: str, content: str) -> MemoryNodeDraft:
    return MemoryNodeDraft(
        id=node_id,
        namespace=NS,
        kind=MemoryKind.EPISODIC,
        status=MemoryStatus.ACTIVE,
        content=content,
        evidence=[evidence("test://first")],
        created_at=AT,
    )


def change(key: str, *operations: Any) -> MemoryChangeSet:
    return MemoryChangeSet(idempotency_key=key, namespace=NS, occurred_at=AT, operations=operations)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def work(repository: MemoryRepository, name: str, seed: random.Random) -> None:
    for number in range(1_000_000):
        one, two = f"{name}-{number}-a", f"{name}-{number}-b"
        text = f"memory {number} of {name} " * seed.randrange(1, 200)
        await repository.apply(change(f"{one}-create", Create(draft(one, text)), Create(draft(two, text))))
        say(f"create {one}")
        say(f"create {two}")
        revise = Revise(
            one,
            expected_revision=1,
            content=f"corrected {number}",
            mode=RevisionMode.CORRECTION,
            evidence=[evidence("test://second")],
        )
        await repository.apply(change(f"{one}-revise", revise))
        say(f"revise {one} 2")
        related = RelationKind.RELATED_TO
        await repository.apply(
            change(
                f"{one}-relate",
                AddRelation(one, expected_revision=2, relation=MemoryRelation(related, two)),
                AddRelation(two, expected_revision=1, relation=MemoryRelation(related, one)),
            )
        )
        say(f"pair {one} {two}")
        event = AccessEvent(id=f"{one}-event", namespace=NS, node_id=one, node_revision=3, occurred_at=AT)
        await repository.record_admission(event)
        say(f"admit {one}-event")


async def main(backend: str, path: Path, seed: int) -> None:
    async with opened(backend, path) as repository, trio.open_nursery() as nursery:
        for name in range(6):
            nursery.start_soon(work, repository, f"w{seed}-{name}", random.Random(seed * 100 + name))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
