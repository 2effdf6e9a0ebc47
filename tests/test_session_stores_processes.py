"""Several processes on one session store: killed at any moment, and racing for the same generation."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from a3s_actors.agent.errors import SessionNotFound, SessionStoreConflict
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.testing._session_registry import run_mark, small_snapshot
from a3s_backends.file_sessions import FileOperations
from a3s_backends.file_sessions.files import SessionFiles
from a3s_backends.sqlite_sessions.database import SessionDatabase

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = {"files": 60, "sqlite": 40}
GENERATIONS = 60

Store = SessionFiles | SessionDatabase


def opened(backend: str, folder: Path) -> Store:
    if backend == "sqlite":
        return SessionDatabase.open(folder / "sessions.db")
    files = SessionFiles(folder / "sessions", FileOperations())
    files.prepare()
    return files


def closed(store: Store) -> None:
    if isinstance(store, SessionDatabase):
        store.close()


def in_child(work: Callable[[int], None]) -> tuple[int, int]:
    """Run `work` in a process of its own; return its id, and where what it writes can be read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
    else:
        _work(work, writing)
    return child, reading


def _work(work: Callable[[int], None], writing: int) -> NoReturn:
    try:
        work(writing)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def answers(reading: int) -> list[list[str]]:
    with os.fdopen(reading) as stream:
        return [line.split() for line in stream.readlines() if line.endswith("\n")]


def snapshot(generation: int) -> SessionSnapshot:
    return small_snapshot("s", generation, f"generation {generation} " * (1 + generation * 7919 % 5000))


def kill_saves(backend: str, folder: Path) -> None:
    """Kill a saving process at random moments, again and again, and look at what it leaves."""
    chance = random.Random(f"{backend} 1")
    acknowledged = (0, 0)
    moments = 0
    for _ in range(ROUNDS[backend]):

        def save(writing: int, last: int = acknowledged[0]) -> None:
            store = opened(backend, folder)
            generation = last
            while True:
                generation += 1
                store.save(snapshot(generation))
                os.write(writing, b"%d 0\n" % generation)
                for number in range(1, 4):
                    store.mark("s", generation, run_mark(f"r-{number}"))
                    os.write(writing, b"%d %d\n" % (generation, number))

        child, reading = in_child(save)
        time.sleep(chance.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        lines = answers(reading)
        moments += len(lines)
        told = max([acknowledged, *((int(one), int(two)) for one, two in lines)])
        store = opened(backend, folder)
        try:
            stored = store.load("s")
        except SessionNotFound:
            assert told == (0, 0)
            continue
        finally:
            closed(store)
        generation, marks = stored.snapshot.generation, len(stored.marks)
        # Whole, and what was acknowledged or the one step after it.
        assert stored.snapshot == snapshot(generation)
        assert stored.marks == tuple(run_mark(f"r-{number}") for number in range(1, marks + 1))
        assert (generation, marks) in {told, (told[0], told[1] + 1), (told[0] + 1, 0)}, (generation, marks, told)
        acknowledged = (generation, marks)
        if backend == "files":
            left = {path.suffix for path in (folder / "sessions").iterdir()}
            assert left <= {"", ".session", ".previous", ".marks"}, left
    assert acknowledged[0] > 5, acknowledged
    assert moments > ROUNDS[backend], moments


def race(backend: str, folder: Path) -> None:
    """Let two processes save each generation; each has one winner, whose content is stored."""

    def save(name: str) -> Callable[[int], None]:
        def work(writing: int) -> None:
            store = opened(backend, folder)
            generation = 0
            while generation < GENERATIONS:
                generation += 1
                try:
                    store.save(small_snapshot("s", generation, name))
                except SessionStoreConflict as error:
                    os.write(writing, b"lost %d %d\n" % (generation, error.actual))
                else:
                    os.write(writing, b"won %d %d\n" % (generation, generation))
            closed(store)

        return work

    closed(opened(backend, folder))
    children = {name: in_child(save(name)) for name in ("one", "two")}
    results = {name: answers(reading) for name, (_, reading) in children.items()}
    for child, _ in children.values():
        assert os.waitpid(child, 0)[1] == 0
    winners = {int(line[1]): name for name, lines in results.items() for line in lines if line[0] == "won"}
    assert all(int(actual) >= int(wanted) for lines in results.values() for _, wanted, actual in lines)
    won = sum(line[0] == "won" for lines in results.values() for line in lines)
    assert sorted(winners) == list(range(1, GENERATIONS + 1))
    assert won == GENERATIONS
    store = opened(backend, folder)
    assert store.load("s").snapshot == small_snapshot("s", GENERATIONS, winners[GENERATIONS])
    closed(store)


JOBS = {"kill": kill_saves, "race": race}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["files", "sqlite"])
@pytest.mark.parametrize("job", JOBS)
def test_processes_on_one_store(job: str, backend: str, tmp_path: Path) -> None:
    # In a fresh process, whose children are forks of a process with one thread.
    command = [sys.executable, "-W", "error", "-m", "tests.test_session_stores_processes", job, backend, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    JOBS[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
