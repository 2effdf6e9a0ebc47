"""SIGKILL at any moment: nothing acknowledged is lost, nothing unacknowledged is half there."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from a3s_actors.memory import MemoryRelation, MemoryStatus, RelationKind, SnapshotRequest
from tests.killed_writer import NS, opened

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 3


def run_and_kill(backend: str, path: Path, seed: int, seconds: float) -> list[str]:
    """Start a writer, kill it some time after its first answer, and return the answers it had printed."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.killed_writer", backend, str(path), str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    lines = [child.stdout.readline()]
    assert lines[0], "the writer died by itself"
    time.sleep(seconds)
    child.kill()
    lines += child.stdout.readlines()
    child.stdout.close()
    assert child.wait() == -9
    # A last line without its end was being written when the kill came.
    return [line.strip() for line in lines if line.endswith("\n")]


async def check(repository: Any, answers: list[str]) -> None:
    for answer in answers:
        verb, *args = answer.split()
        if verb == "admit":
            continue
        node = await repository.get(NS, args[0])
        assert node is not None, answer
        if verb == "revise":
            assert node.revision >= 2
            assert node.at_revision(2).content.startswith("corrected")
        elif verb == "pair":
            other = await repository.get(NS, args[1])
            assert MemoryRelation(RelationKind.RELATED_TO, args[1]) in node.relations
            assert MemoryRelation(RelationKind.RELATED_TO, args[0]) in other.relations
    events: set[str] = set()
    after = 0
    while True:
        page = await repository.access_events(NS, after=after, limit=1000)
        events.update(record.event.id for record in page.records)
        if page.next_after is None:
            break
        after = page.next_after
    assert {answer.split()[1] for answer in answers if answer.startswith("admit")} <= events


async def check_whole(repository: Any) -> None:
    """Whatever was stored without an answer is stored whole: pairs are pairs, relations have inverses."""
    request = SnapshotRequest(namespace=NS, statuses=set(MemoryStatus))
    nodes = {node.id: node for node in (await repository.snapshot_namespace(request)).verify_deep(request)}
    for node in nodes.values():
        twin = node.id[:-1] + ("b" if node.id.endswith("a") else "a")
        assert twin in nodes
        for relation in node.relations:
            assert MemoryRelation(relation.kind.inverse, node.id) in nodes[relation.target_id].relations


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sqlite", "journal"])
async def test_a_killed_writer_loses_nothing_that_it_acknowledged(backend: str, tmp_path: Path) -> None:
    seed = random.Random(f"{backend}-1")
    answers: list[str] = []
    for number in range(ROUNDS):
        answers += await trio.to_thread.run_sync(run_and_kill, backend, tmp_path, number, seed.uniform(0.0, 0.5))
        async with opened(backend, tmp_path) as repository:
            await check(repository, answers)
            await check_whole(repository)
            if backend == "sqlite":
                assert await repository.verify() == ()
    assert len(answers) >= ROUNDS
