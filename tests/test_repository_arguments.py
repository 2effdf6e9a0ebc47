"""Arguments of the wrong type: every method of every backend names the field, and goes on serving everybody else."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from a3s_actors.memory import InvalidInput, MemoryRepositoryError, ScanRequest, SnapshotRequest, Timestamp
from a3s_actors.memory.reads import MemoryQuery
from a3s_actors.testing.building import NS, change, create
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.journal import open_file_repository
from a3s_backends.sqlite import LogCursor, open_sqlite_repository, restore_sqlite_repository
from a3s_backends.sqlite.upkeep import UpkeepRequest
from a3s_backends.sqlite.writing import apply_change_set

JUNK: tuple[Any, ...] = (None, 5, -1, 1 << 63, 1 << 70, 1.5, True, "x", "", b"x", [1], [None], {}, {"a": 1}, object())


def opened(backend: str, folder: Path) -> AbstractAsyncContextManager[Any]:
    if backend == "in_memory":
        return open_in_memory_repository()
    return open_file_repository(folder) if backend == "journal" else open_sqlite_repository(folder / "memory.db")


def arguments(name: str, method: Any) -> dict[str, Any]:
    """Make arguments of the right types."""
    known: dict[str, Any] = {
        "namespace": NS,
        "node_id": "n",
        "node_ids": ["n"],
        "request": SnapshotRequest(namespace=NS) if name == "snapshot_namespace" else ScanRequest(namespace=NS),
        "query": MemoryQuery(namespace=NS),
        "before": Timestamp(0),
        "nodes": (),
        "path": "copy.db",
        "limit": 10,
        "after": LogCursor() if name == "log" else 0,
    }
    return {each: known.get(each) for each in inspect.signature(method).parameters}


@pytest.mark.parametrize("backend", ["in_memory", "journal", "sqlite"])
async def test_an_argument_of_the_wrong_type_is_refused_and_the_repository_lives_on(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(backend, tmp_path / "store") as repository:
        await repository.apply(change("k", create("n")))
        tried = 0
        for name, method in inspect.getmembers(repository, inspect.iscoroutinefunction):
            if name.startswith("_"):
                continue
            right = arguments(name, method)
            for wrong in right:
                for junk in JUNK:
                    tried += 1
                    try:
                        await method(**{**right, wrong: junk})
                    except MemoryRepositoryError:
                        pass
                    except Exception as error:
                        pytest.fail(f"{name}({wrong}={junk!r}) raised {error!r}")
        assert tried > 200
        assert await repository.get(NS, "n") is not None
        await repository.apply(change("l", create("m")))


@pytest.mark.parametrize("junk", [each for each in JUNK if each != "x"])
async def test_a_path_that_is_none_is_refused(junk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def entered(manager: AbstractAsyncContextManager[Any]) -> None:
        async with manager:
            pass

    for work in (
        lambda: entered(open_sqlite_repository(junk, create=False)),
        lambda: entered(open_sqlite_repository("a.db", synchronous=junk)),
        lambda: restore_sqlite_repository(junk, "b.db"),
        lambda: restore_sqlite_repository("a.db", junk),
        lambda: entered(open_file_repository(junk)),
    ):
        with pytest.raises(MemoryRepositoryError):
            await work()


@pytest.mark.parametrize("nodes", [[1], None, 5, "text", [None], {"a": 1}])
async def test_what_is_no_node_is_not_loaded(nodes: Any, tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        with pytest.raises(InvalidInput, match="nodes"):
            await repository.load_namespace(NS, nodes)
        await repository.apply(change("k", create("n")))


async def test_an_error_that_nobody_expects_fails_its_own_write_alone(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        failures: list[Exception] = []

        def broken(db: Any, _codec: Any) -> int:
            db.execute("DELETE FROM head")
            raise ZeroDivisionError

        async def ask() -> None:
            try:
                await repository._mailbox.ask(UpkeepRequest(broken))
            except ZeroDivisionError as error:
                failures.append(error)

        async def write(numbers: Iterable[int]) -> None:
            for number in numbers:
                await repository.apply(change(f"k{number}", create(f"n{number}")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, range(5))
            nursery.start_soon(ask)
            nursery.start_soon(write, range(5, 10))
        assert len(failures) == 1
        assert len((await repository.scan(ScanRequest(namespace=NS))).nodes) == 10
        assert await repository.verify() == ()


async def test_an_error_that_nobody_expects_in_a_batch_leaves_its_neighbours_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(db: Any, codec: Any, request: Any) -> Any:
        result = apply_change_set(db, codec, request)
        if request.change_set.idempotency_key == "k3":
            raise ZeroDivisionError
        return result

    monkeypatch.setattr("a3s_backends.sqlite.batch.apply_change_set", broken)
    outcomes: dict[int, bool] = {}

    async with open_sqlite_repository(tmp_path / "memory.db") as repository:

        async def write(number: int) -> None:
            try:
                await repository.apply(change(f"k{number}", create(f"n{number}")))
                outcomes[number] = True
            except ZeroDivisionError:
                outcomes[number] = False

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(write, number)
        assert outcomes == {number: number != 3 for number in range(6)}
        ids = [head.id for head in (await repository.scan(ScanRequest(namespace=NS))).nodes]
        assert ids == ["n0", "n1", "n2", "n4", "n5"]
        assert await repository.verify() == ()
