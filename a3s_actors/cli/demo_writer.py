"""The process that `demo` kills: proposes memories as fast as it can and tells each one that was acknowledged."""

from __future__ import annotations

import sys
from itertools import count

import trio

from a3s_actors.cli.sources import text_id
from a3s_actors.memory.operations import Create, MemoryChangeSet
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import EvidenceKind, EvidenceRef, MemoryKind, MemoryNamespace, MemoryNodeDraft
from a3s_backends.sqlite import open_sqlite_repository


async def write_until_killed(file: str, tenant: str, principal: str, scope: str) -> None:
    """Write to a namespace for ever; a line with the id follows each acknowledgement."""
    namespace = MemoryNamespace(tenant, principal, scope)
    async with open_sqlite_repository(file, create=False) as repository:
        for number in count(1):
            text = f"Entry {number} of a writer that is about to be killed."
            node_id, now = text_id(text), Timestamp.now()
            source = EvidenceRef(
                uri=f"demo:writer/{number}", digest=f"sha256:{node_id}", kind=EvidenceKind.TOOL_RESULT, occurred_at=now
            )
            draft = MemoryNodeDraft(
                id=node_id,
                namespace=namespace,
                kind=MemoryKind.EPISODIC,
                content=text,
                evidence=(source,),
                created_at=now,
            )
            await repository.apply(
                MemoryChangeSet(
                    idempotency_key=node_id, namespace=namespace, occurred_at=now, operations=(Create(draft),)
                )
            )
            sys.stdout.write(f"{node_id}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    trio.run(write_until_killed, sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4])
