"""Several processes on one file: writers beside each other, readers, and writers that are killed in the middle.

Each writer tells what was acknowledged. At the end everything acknowledged is there, nothing is half there, the file
verifies, and no writer waited long for another.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import trio

from a3s_actors.memory import (
    Create,
    EvidenceKind,
    EvidenceRef,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryQuery,
    MemoryRelation,
    MemoryStatus,
    RelationKind,
    ScanRequest,
    Timestamp,
)
from a3s_backends.sqlite import SqliteMemoryRepository, open_sqlite_repository
from evals.faults.report import FaultReport

__all__ = ["run"]

AT: Final = Timestamp.of("2026-01-01T00:00:00Z")
_WRITERS: Final = 2


def _namespace(name: str) -> MemoryNamespace:
    return MemoryNamespace("acme", "alice", name)


def _pair(writer: str, number: int, namespace: MemoryNamespace) -> MemoryChangeSet:
    """Two memories that relate to each other: half of it would show."""
    names = [f"{writer}-{number}-{end}" for end in "ab"]
    drafts = [
        MemoryNodeDraft(
            id=name,
            namespace=namespace,
            kind=MemoryKind.EPISODIC,
            status=MemoryStatus.ACTIVE,
            content=f"common words of writer {writer}, entry {number} {name}",
            evidence=[EvidenceRef(uri=f"s://{name}", digest="d", kind=EvidenceKind.TOOL_RESULT, occurred_at=AT)],
            relations=[MemoryRelation(RelationKind.RELATED_TO, other)],
            created_at=AT,
        )
        for name, other in (names, reversed(names))
    ]
    return MemoryChangeSet(
        idempotency_key=f"{writer}-{number}", namespace=namespace, occurred_at=AT, operations=map(Create, drafts)
    )


async def _write(path: str, writer: str, seconds: float) -> None:
    """In a child: write to a shared and an own namespace; a line for each answer, with how long it took."""
    own, shared = _namespace(writer), _namespace("shared")
    end = time.monotonic() + seconds
    number = 0
    async with open_sqlite_repository(path) as repository:
        while time.monotonic() < end:
            number += 1
            for namespace in (own, shared):
                start = time.monotonic()
                await repository.apply(_pair(writer, number, namespace))
                waited = time.monotonic() - start
                sys.stdout.write(f"{namespace.scope_id} {writer} {number} {waited:.4f}\n")
            sys.stdout.flush()
            # What was just written is found, whoever wrote before.
            words = f"writer {writer} entry {number} {writer}-{number}-a"
            hits = await repository.query(MemoryQuery(namespace=shared, text=words, limit=1))
            assert hits
            assert hits[0].node.namespace == shared


def _start(path: Path, writer: str, seconds: float) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "evals.faults.processes", str(path), writer, str(seconds)]
    # A file, not a pipe: nobody reads while they write.
    with _told(path, writer).open("wb") as told:
        return subprocess.Popen(words, stdout=told, stderr=subprocess.PIPE)  # noqa: S603 - this module


def _told(path: Path, writer: str) -> Path:
    return path.with_name(f"{writer}.said")


def _collect(
    child: subprocess.Popen[bytes], path: Path, writer: str, *, killed: bool, report: FaultReport
) -> list[list[str]]:
    _, err = child.communicate(timeout=120)
    if not killed and child.returncode != 0:
        report.failures.append(f"a writer ended with {child.returncode}: {err.decode().strip().splitlines()[-1:]}")
    lines = _told(path, writer).read_text().splitlines(keepends=True)
    return [line.split() for line in lines if line.endswith("\n") and len(line.split()) == 4]


async def _check(path: Path, said: list[list[str]], report: FaultReport) -> None:
    async with open_sqlite_repository(path, create=False) as repository:
        findings = await repository.verify()
        report.failures += [f"{each.where}: {each.message}" for each in findings]
        stored = {space.scope_id: await _ids(repository, space) for space in await repository.namespaces()}
        for scope, writer, number, _ in said:
            for end in "ab":
                if f"{writer}-{number}-{end}" not in stored.get(scope, set()):
                    report.failures.append(f"acknowledged and lost: {scope} {writer} {number}")
        for scope, ids in stored.items():
            halves = {name[:-2] for name in ids if not {f"{name[:-2]}-a", f"{name[:-2]}-b"} <= ids}
            report.failures += [f"half there: {scope} {name}" for name in sorted(halves)]
            foreign = {name for name in ids if scope != "shared" and name.split("-")[0] != scope}
            report.failures += [f"foreign: {scope} {name}" for name in sorted(foreign)]
    report.acknowledged += len(said)


async def _ids(repository: SqliteMemoryRepository, namespace: MemoryNamespace) -> set[str]:
    ids: set[str] = set()
    cursor = None
    while True:
        page = await repository.scan(ScanRequest(namespace=namespace, after=cursor, limit=1000))
        ids |= {head.id for head in page.nodes}
        if page.next_after is None:
            return ids
        cursor = page.next_after


def run(seconds: float = 60.0, seed: int = 0) -> FaultReport:
    """Let two writers work for so many seconds, while a third is started and killed again and again."""
    report = FaultReport("processes")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        # First opening by several processes at once: the file is made by exactly one of them.
        steady = {f"w{number}": _start(path, f"w{number}", seconds) for number in range(_WRITERS)}
        said: list[list[str]] = []
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            number += 1
            name = f"victim{number}"
            victim = _start(path, name, seconds + 60)
            time.sleep(chance.uniform(0.3, 1.2))
            victim.kill()
            said += _collect(victim, path, name, killed=True, report=report)
            report.count("writer killed")
        waits: list[float] = []
        for name, child in steady.items():
            lines = _collect(child, path, name, killed=False, report=report)
            if not lines:
                report.failures.append("a writer never got its turn")
            waits += [float(line[3]) for line in lines]
            said += lines
        report.notes["longest wait of a writer, s"] = max(waits, default=0.0)
        report.notes["writes a second, all writers"] = len(waits) / seconds
        trio.run(_check, path, said, report)
    return report


if __name__ == "__main__":
    trio.run(_write, sys.argv[1], sys.argv[2], float(sys.argv[3]))
