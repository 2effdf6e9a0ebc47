"""Group commit on a disk whose syncs are counted and slowed. A process of its own: the counting disk lies below SQLite.

Run by the kernel's benchmark as `python -m evals.bench.disk`; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import trio

from a3s_backends.sqlite import SqliteMemoryRepository, open_sqlite_repository
from a3s_backends.sqlite.faults import FaultyDisk, install_faulty_disk
from evals.bench.corpus import change_sets

_CALLERS: Final = 64
_SLOW_SECONDS: Final = 0.005


async def _apply(repository: SqliteMemoryRepository, sets: list[Any], callers: int) -> float:
    """Apply change sets by so many callers; return how many there were a second."""

    async def caller(own: list[Any]) -> None:
        for change_set in own:
            await repository.apply(change_set)

    start = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for number in range(callers):
            nursery.start_soon(caller, sets[number::callers])
    return len(sets) / (time.perf_counter() - start)


async def _measure(disk: FaultyDisk, path: Path) -> dict[str, float]:
    sets = list(change_sets(4200, size=1, seed=11))
    async with open_sqlite_repository(path) as repository:
        await _apply(repository, [sets.pop() for _ in range(128)], _CALLERS)
        before = disk.syncs
        await _apply(repository, [sets.pop() for _ in range(2560)], _CALLERS)
        syncs = (disk.syncs - before) / 2560
        disk.delay = _SLOW_SECONDS
        one = await _apply(repository, [sets.pop() for _ in range(60)], 1)
        many = await _apply(repository, [sets.pop() for _ in range(1280)], _CALLERS)
        disk.delay = 0.0
    return {"syncs": syncs, "one": one, "many": many}


def main() -> None:
    """Measure and print."""
    disk = install_faulty_disk()
    with tempfile.TemporaryDirectory() as folder:
        json.dump(trio.run(_measure, disk, Path(folder) / "disk.db"), sys.stdout)


if __name__ == "__main__":
    main()
