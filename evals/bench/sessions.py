"""Agent sessions: what a turn costs beside its model, the assembly of a large context, and stored sessions."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from a3s_actors.agent import (
    ContextItem,
    ContextPolicy,
    ContextRequest,
    ModelMessage,
    Role,
    SessionOptions,
    SessionSnapshot,
    SessionStore,
    assemble,
    open_agent,
)
from a3s_actors.memory import MemoryRepository
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession
from a3s_actors.testing import ScriptedModelClient
from a3s_actors.testing.building import NS, at, change, create
from a3s_backends.file_sessions import open_file_session_store
from a3s_backends.sqlite import open_sqlite_repository
from a3s_backends.sqlite_sessions import open_sqlite_session_store
from evals.report import Row, median, p95

_TURNS: Final = 100
_WARM: Final = 10
_ADMITTED: Final = 5
_ITEMS: Final = 25_000
_UNIQUE: Final = 20_000
_PROVIDERS: Final = 10
_STORED_BYTES: Final = 1_310_720  # 1.25 MiB
_PUBLISHED: Final = {"assembly": 185.0, "save": 2.6, "load": 1.0}
"""What the Rust original published, p95 in ms."""


def run(scale: float) -> Iterator[Row]:
    """Yield every row; `scale` shrinks the context of 25,000 items."""
    with tempfile.TemporaryDirectory() as folder:
        yield from trio.run(_turns, Path(folder))
        yield from trio.run(_assembly, scale)
        yield from trio.run(_stores, Path(folder))


async def _milliseconds(call: Callable[[], Awaitable[Any]]) -> float:
    start = time.perf_counter()
    await call()
    return (time.perf_counter() - start) * 1e3


async def _fill(repository: MemoryRepository) -> None:
    for number in range(200):
        text = f"The parcel service of depot {number} is deployed on Tuesdays after the stand-up of team {number % 7}."
        await repository.apply(change(f"k{number}", create(f"n{number}", text)))


async def _samples(agent: Any, options: SessionOptions, prompt: str) -> list[float]:
    async with agent.open_session("bench", options) as session:
        times = [await _milliseconds(lambda: session.send(prompt)) for _ in range(_WARM + _TURNS)]
    return times[_WARM:]


async def _turns(place: Path) -> list[Row]:
    prompt = "when is the parcel service of depot 7 deployed"
    model = ScriptedModelClient(otherwise="On Tuesdays.")
    policy = DurableMemoryRecallPolicy(_ADMITTED, 0.3)
    async with (
        open_sqlite_repository(place / "memory.db") as repository,
        open_sqlite_session_store(place / "sessions.db") as store,
        open_agent(model) as agent,
    ):
        await _fill(repository)
        durable = DurableMemorySession.active_recall(repository, NS, policy)
        short = SessionOptions(max_history_messages=20)
        bare = await _samples(agent, short, prompt)
        by_hand = []
        for number in range(_WARM + _TURNS):
            turn = durable.turn(session_id="hand", run_id=f"r{number}")

            async def recall_and_admit(turn: Any = turn) -> None:
                await turn.admit(await turn.recall(prompt))

            by_hand.append(await _milliseconds(recall_and_admit))
        del by_hand[:_WARM]
        with_memory = await _samples(agent, attrs.evolve(short, durable_memory=durable), prompt)
        kept = await _samples(agent, attrs.evolve(short, durable_memory=durable, store=store), prompt)
    baseline = f"recall and admissions by hand {median(by_hand):.2f} ms, a turn without memory {median(bare):.2f} ms"
    return [
        Row(
            name="session turn, 5 memories admitted, p95",
            value=p95(with_memory),
            unit="ms",
            target=12,
            baseline=baseline,
            note=f"p50 {median(with_memory):.2f} ms, {_TURNS} turns",
        ),
        Row(
            name="session turn, 5 memories admitted, beside its parts",
            value=median(with_memory) / (median(by_hand) + median(bare)),
            unit="x",
            target=1.5,
            baseline=baseline,
        ),
        Row(
            name="session turn, 5 memories admitted, saved, p95",
            value=p95(kept),
            unit="ms",
            target=12,
            baseline=baseline,
            note=f"p50 {median(kept):.2f} ms, two marks and a save, all synced",
        ),
    ]


class _Provider:
    def __init__(self, name: str, items: Sequence[ContextItem]) -> None:
        self.name = name
        self._items = items

    async def provide(self, request: ContextRequest) -> Sequence[ContextItem]:  # noqa: ARG002 - it has one answer
        await trio.lowlevel.checkpoint()
        return self._items


def _items(count: int, unique: int) -> list[ContextItem]:
    chance = random.Random(3)
    made = []
    for number in range(count):
        which = number if number < unique else chance.randrange(unique)
        text = f"Item {which} says that the depot {which % 97} counts its parcels by the hour of the day."
        # The texts repeat, the ids do not: a duplicate costs the comparison of its text.
        made.append(
            ContextItem(id=f"i{number}", source="wiki", content=text, relevance=chance.random(), updated_at=at(number))
        )
    return made


async def _assembly(scale: float) -> list[Row]:
    count, unique = int(_ITEMS * scale), int(_UNIQUE * scale)
    items = _items(count, unique)
    policy = ContextPolicy(max_items=1000, max_tokens=100_000, provider_seconds=30.0)
    sorting, pure, whole = [], [], []
    share = -(-count // _PROVIDERS)
    providers = [_Provider(f"p{n}", items[n * share : (n + 1) * share]) for n in range(_PROVIDERS)]
    for _ in range(25):
        start = time.perf_counter()
        texts = {item.content for item in items}
        sorted(items, key=lambda item: (-item.relevance, item.id))
        sorting.append((time.perf_counter() - start) * 1e3)
        assert len(texts) == unique
        start = time.perf_counter()
        assembled = assemble(items, policy)
        pure.append((time.perf_counter() - start) * 1e3)
        assert assembled.duplicates == count - unique
    options = SessionOptions(context_providers=providers, context=policy)
    forgetful = attrs.evolve(options, max_history_messages=0)
    model = ScriptedModelClient(otherwise="ok")
    async with open_agent(model) as agent, agent.open_session("bench", forgetful) as session:
        whole = [await _milliseconds(lambda: session.send("which depot counts")) for _ in range(25)]
    note = f"{count} items of {_PROVIDERS} providers, {unique} unique"
    target = _PUBLISHED["assembly"] * scale
    return [
        Row(
            name="context assembly, p95",
            value=p95(pure),
            unit="ms",
            target=target,
            baseline=f"one sort and one set {median(sorting):.0f} ms",
            note=f"{note}, p50 {median(pure):.0f} ms",
        ),
        Row(name="a turn with that context, p95", value=p95(whole), unit="ms", target=target, note=note),
    ]


def _snapshot(size: int) -> SessionSnapshot:
    chance = random.Random(5)
    messages: list[ModelMessage] = []
    total = 0
    while total < size:
        role = Role.USER if len(messages) % 2 == 0 else Role.ASSISTANT
        text = " ".join(f"word{chance.randrange(5000)}" for _ in range(120))
        messages.append(ModelMessage(role=role, content=text))
        total += len(text) + 40
    return SessionSnapshot(session_id="s", generation=1, messages=tuple(messages), created_at=at(0), saved_at=at(1))


async def _stores(place: Path) -> list[Row]:
    snapshot = _snapshot(_STORED_BYTES)
    data = snapshot.to_json()
    rows: list[Row] = []
    async with (
        open_file_session_store(place / "files") as files,
        open_sqlite_session_store(place / "bench-sessions.db") as database,
    ):
        stores: dict[str, SessionStore] = {"file": files, "SQLite": database}
        written, read = [], []
        times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in stores}
        for number in range(1, 45):
            written.append(await _milliseconds(lambda: trio.to_thread.run_sync(_write, place / "bare", data)))
            read.append(await _milliseconds(lambda: trio.to_thread.run_sync((place / "bare").read_bytes)))
            for name, store in stores.items():
                fresh = attrs.evolve(snapshot, generation=number)
                times[name][0].append(await _milliseconds(lambda s=store, f=fresh: s.save(f)))  # type: ignore[misc]
                times[name][1].append(await _milliseconds(lambda s=store: s.load("s")))  # type: ignore[misc]
    for name, (saves, loads) in times.items():
        for what, samples, bare in (("save", saves[4:], written[4:]), ("load", loads[4:], read[4:])):
            rows.append(
                Row(
                    name=f"session {what}, {name}, p95",
                    value=p95(samples),
                    unit="ms",
                    target=_PUBLISHED[what],
                    baseline=f"the bare bytes in a thread, p50 {median(bare):.2f} ms",
                    note=f"{len(data) / 2**20:.2f} MiB, p50 {median(samples):.2f} ms",
                )
            )
    return rows


def _write(path: Path, data: bytes) -> None:
    """Write bytes beside, sync them, and put them in place."""
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
