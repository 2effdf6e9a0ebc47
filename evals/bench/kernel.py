"""The SQLite repository, each figure beside the same work done by hand."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import attrs
import trio

from a3s_actors.memory import AccessEvent, Create, MemoryChangeSet, MemoryQuery, SnapshotRequest, Timestamp
from a3s_backends.sqlite import open_sqlite_repository
from evals.bench.corpus import NAMESPACE, change_sets, texts
from evals.report import Row, median, p95

_SAMPLES = 200


def run(scale: float) -> Iterator[Row]:
    """Yield every row; `scale` shrinks the 100,000 nodes."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        small, large = int(10_000 * scale), int(100_000 * scale)
        for name, count in (("small", small), ("large", large)):
            trio.run(_fill, place / name, count)
        yield from trio.run(_query, place, small, large)
        yield from trio.run(_snapshot, place, small, large)
        yield trio.run(_after_another_wrote, place / "large", large)
        yield from trio.run(_apply, place)
        yield from _disk()
        yield from trio.run(_admissions, place)
        yield from _opening(place / "large", large)
        yield from _imports()


async def _fill(path: Path, count: int) -> None:
    async with open_sqlite_repository(path, synchronous="NORMAL") as repository:
        for change_set in change_sets(count):
            await repository.apply(change_set)


async def _timed(call: Callable[[], Awaitable[Any]]) -> float:
    start = time.perf_counter()
    await call()
    return (time.perf_counter() - start) * 1e3


async def _query(place: Path, small: int, large: int) -> list[Row]:
    queries = _queries()
    rows, warm = [], {}
    for name, count in (("small", small), ("large", large)):
        firsts = []
        for query in queries[:20]:
            async with open_sqlite_repository(place / name) as repository:
                firsts.append(await _timed(lambda r=repository, q=query: r.query(_question(q))))  # type: ignore[misc]
        async with open_sqlite_repository(place / name) as repository:
            for query in queries[:50]:
                await repository.query(_question(query))
            times = [await _timed(lambda q=query: repository.query(_question(q))) for query in queries[50:]]  # type: ignore[misc]
        warm[name] = times
        note = f"{count} nodes, 2-7 words, p50 {median(times):.2f} ms"
        if name == "large":
            rows.append(Row(name="lexical query, warm, p95", value=p95(times), unit="ms", target=3, note=note))
            first = f"{count} nodes, each in a new opening, p50 {median(firsts):.2f} ms"
            rows.append(
                Row(name="lexical query, first after opening, p95", value=p95(firsts), unit="ms", target=25, note=first)
            )
    growth = median(warm["large"]) / median(warm["small"])
    rows.append(
        Row(
            name="lexical query, growth of the median",
            value=growth,
            unit="x",
            target=large / small,
            baseline=f"{large / small:g} x the nodes",
            note=f"{small} to {large} nodes",
        )
    )
    return rows


def _queries() -> list[str]:
    chance = random.Random(7)
    sample = [text.split() for text in texts(400, seed=1)]
    return [" ".join(chance.sample(words, chance.randint(2, 7))) for words in sample]


async def _after_another_wrote(path: Path, count: int) -> Row:
    # Another opening shares nothing with the first, no more than another process does.
    times = []
    queries = _queries()[:20]
    async with open_sqlite_repository(path) as repository, open_sqlite_repository(path) as other:
        for number, query in enumerate(queries):
            await repository.query(_question(query))
            node = next(iter(change_sets(1, size=1, seed=900 + number)))
            await other.apply(_renamed(node, f"other-{number}"))
            times.append(await _timed(lambda q=query: repository.query(_question(q))))  # type: ignore[misc]
    return Row(
        name="lexical query, first after another process wrote, p95",
        value=p95(times),
        unit="ms",
        target=25,
        note=f"{count} nodes, p50 {median(times):.2f} ms",
    )


def _renamed(change_set: MemoryChangeSet, name: str) -> MemoryChangeSet:
    (operation,) = change_set.operations
    assert isinstance(operation, Create)
    node = attrs.evolve(operation.node, id=name)
    return attrs.evolve(change_set, idempotency_key=name, operations=(Create(node),))


def _question(text: str) -> MemoryQuery:
    return MemoryQuery(namespace=NAMESPACE, text=text, limit=5)


async def _snapshot(place: Path, small: int, large: int) -> list[Row]:
    request = SnapshotRequest(namespace=NAMESPACE)
    results = {}
    for name, rounds in (("small", 20), ("large", 5)):
        verified, decoded = [], []
        async with open_sqlite_repository(place / name) as repository:
            for _ in range(rounds):
                start = time.perf_counter()
                snapshot = await repository.snapshot_namespace(request)
                snapshot.verify(request)
                verified.append((time.perf_counter() - start) * 1e3)
                snapshot.nodes()
                decoded.append((time.perf_counter() - start) * 1e3)
        results[name] = (median(verified), median(decoded))
    scale = small / 10_000
    return [
        Row(name="snapshot, verified", value=results["small"][0], unit="ms", target=60 * scale, note=f"{small} nodes"),
        Row(
            name="snapshot, all decoded",
            value=results["small"][1],
            unit="ms",
            target=150 * scale,
            note=f"{small} nodes",
        ),
        Row(
            name="snapshot, growth",
            value=results["large"][0] / results["small"][0],
            unit="x",
            target=12,
            baseline=f"{large / small:g} x the nodes",
            note=f"{large} nodes in {results['large'][0]:.0f} ms",
        ),
    ]


async def _apply(place: Path) -> list[Row]:
    sets = list(change_sets(8000, size=1, seed=3))
    one: list[float] = []
    many: list[float] = []
    bare: list[float] = []
    async with open_sqlite_repository(place / "apply") as repository:
        bench = await trio.to_thread.run_sync(_bare_connection, place / "bare")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(200):
                await repository.apply(sets.pop())
            one.append(200 / (time.perf_counter() - start))
            start = time.perf_counter()
            for number in range(200):
                await trio.to_thread.run_sync(_bare_commit, bench, len(bare) * 1000 + number)
            bare.append(200 / (time.perf_counter() - start))
            batch = [sets.pop() for _ in range(1280)]
            start = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for caller in range(64):
                    nursery.start_soon(_apply_all, repository, batch[caller::64])
            many.append(1280 / (time.perf_counter() - start))
        bench.close()
    return [
        Row(
            name="apply, one caller, synced",
            value=median(one) / median(bare),
            unit="x bare commits",
            target=0.5,
            at_most=False,
            baseline=f"bare {median(bare):.0f}/s",
            note=f"{median(one):.0f}/s",
        ),
        Row(
            name="apply, 64 callers, synced",
            value=median(many) / median(one),
            unit="x one caller",
            target=4,
            at_most=False,
            baseline=f"one caller {median(one):.0f}/s",
            note=f"{median(many):.0f}/s",
        ),
    ]


def _disk() -> Iterator[Row]:
    figures = json.loads(_child("-m", "evals.bench.disk"))
    yield Row(
        name="syncs a change set, 64 callers",
        value=figures["syncs"],
        unit="",
        target=1 / 16,
        note="counted below SQLite",
    )
    yield Row(
        name="apply, 64 callers, a disk of 5 ms a sync",
        value=figures["many"] / figures["one"],
        unit="x one caller",
        target=12,
        at_most=False,
        baseline=f"one caller {figures['one']:.0f}/s",
        note=f"{figures['many']:.0f}/s",
    )


async def _admissions(place: Path) -> list[Row]:
    count = 5000
    path = place / "admissions"
    async with open_sqlite_repository(path, synchronous="NORMAL") as repository:
        (change_set,) = change_sets(1, size=1)
        (node,) = (await repository.apply(change_set)).nodes
        await repository.compact()
        before = path.stat().st_size
        for number in range(count):
            names = [hashlib.sha256(f"{kind}{number}".encode()).hexdigest() for kind in ("event", "context")]
            await repository.record_admission(
                AccessEvent(
                    id=f"a3s-code-admission-{names[0]}",
                    namespace=node.namespace,
                    node_id=node.id,
                    node_revision=node.revision,
                    occurred_at=Timestamp(node.updated_at.ns + number),
                    context_id=f"a3s-code-context-v2-{names[1]}",
                )
            )
        await repository.compact()
        size = (path.stat().st_size - before) / count
    return [Row(name="bytes an admission", value=size, unit="bytes", target=300, note=f"{count} admissions, indexed")]


async def _apply_all(repository: Any, sets: list[Any]) -> None:
    for change_set in sets:
        await repository.apply(change_set)


def _bare_connection(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE node(ns INTEGER, id TEXT, json BLOB, PRIMARY KEY(ns, id)) WITHOUT ROWID")
    db.execute("CREATE TABLE change(no INTEGER PRIMARY KEY, key TEXT UNIQUE, payload BLOB)")
    return db


def _bare_commit(db: apsw.Connection, number: int) -> None:
    # The same rows by hand: the node and the change set, nothing checked, no index.
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO node VALUES (1, ?, ?)", (f"node-{number:07}", b"x" * 600))
    db.execute("INSERT INTO change(key, payload) VALUES (?, ?)", (f"key-{number}", b"x" * 600))
    db.execute("COMMIT")


_OPENING = """
import resource, sys, time, trio
from a3s_backends.sqlite import open_sqlite_repository
from a3s_actors.memory import MemoryNamespace, MemoryQuery
import numpy
async def main(path):
    before = int(open("/proc/self/statm").read().split()[1]) * 4096
    start = time.perf_counter()
    async with open_sqlite_repository(path) as repository:
        opened = time.perf_counter() - start
        await repository.query(MemoryQuery(namespace=MemoryNamespace("bench", "bench", "bench"), text="of the"))
        after = int(open("/proc/self/statm").read().split()[1]) * 4096
        print(opened * 1e3, (after - before) / 1e6)
trio.run(main, sys.argv[1])
"""


def _child(*command: str) -> str:
    return subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True).stdout  # noqa: S603


def _opening(path: Path, count: int) -> Iterator[Row]:
    opened, grown = [], []
    for _ in range(10):
        milliseconds, megabytes = map(float, _child("-c", _OPENING, str(path)).split())
        opened.append(milliseconds)
        grown.append(megabytes)
    yield Row(
        name="opening", value=p95(opened), unit="ms", target=200, note=f"{count} nodes, p50 {median(opened):.1f} ms"
    )
    yield Row(name="memory after opening and a query", value=max(grown), unit="MB", target=100, note=f"{count} nodes")


def _imports() -> Iterator[Row]:
    for name, command, target in (
        ("import a3s_actors", ("-c", "import a3s_actors"), 250),
        ("command line --help", ("-m", "a3s_actors", "--help"), 400),
    ):
        times, bare = [], []
        for _ in range(10):
            start = time.perf_counter()
            _child(*command)
            times.append((time.perf_counter() - start) * 1e3)
            start = time.perf_counter()
            _child("-c", "pass")
            bare.append((time.perf_counter() - start) * 1e3)
        yield Row(
            name=name, value=median(times), unit="ms", target=target, baseline=f"bare interpreter {median(bare):.0f} ms"
        )
