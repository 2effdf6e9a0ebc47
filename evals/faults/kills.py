"""SIGKILL at named points of the workload: before and after each sync, and inside writes.

A child does the workload of `storage` on a disk that kills the process at the chosen operation, and tells each answer
as it comes. The parent then opens the file and checks what `storage` checks.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio

from a3s_backends.sqlite import open_sqlite_repository
from a3s_backends.sqlite.faults import Fault, install_faulty_disk
from evals.faults.report import FaultReport
from evals.faults.storage import check_afterwards, fresh, make_reference, prepare, work

__all__ = ["run"]

_SECONDS = 60


class _Telling(dict[str, Any]):
    """Prints the name of each step that was answered, at once."""

    def __setitem__(self, name: str, answer: object) -> None:
        super().__setitem__(name, answer)
        if not isinstance(answer, Exception):
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()


async def _be_killed(path: str, operation: str, number: int) -> None:
    disk = install_faulty_disk()
    disk.arm(Fault(operation, number, "kill"))  # type: ignore[arg-type]
    async with open_sqlite_repository(path, create=False) as repository:
        await work(repository, _Telling())


def _points(stride: int, seed: int) -> Iterator[tuple[str, int]]:
    # A sync is the commit: the process dies right before it, and at the next write, which is right after it or inside
    # the next transaction.
    yield from (("sync", number) for number in range(1 + seed % stride, 32, stride))
    yield from (("write", number) for number in range(1 + seed % stride, 400, 9 * stride))


async def _run(stride: int, seed: int, report: FaultReport) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        template = folder / "template.db"
        await prepare(template)
        reference = await make_reference(template, folder)
        for operation, number in _points(stride, seed):
            path = fresh(template, folder)
            words = [sys.executable, "-m", "evals.faults.kills", str(path), operation, str(number)]
            with trio.fail_after(_SECONDS):
                done = await trio.run_process(words, capture_stdout=True, check=False)
            if done.returncode != -signal.SIGKILL:
                if done.returncode != 0:
                    report.failures.append(f"{operation} {number}: the child ended with {done.returncode}")
                continue
            report.count(f"killed at a {operation}")
            said = done.stdout.decode().split("\n")[:-1]
            report.acknowledged += len(said)
            try:
                await check_afterwards(path, {each: reference.answers[each] for each in said}, reference)
            except (Exception, trio.TooSlowError) as error:  # noqa: BLE001 - each is a finding of the run
                report.failures.append(f"killed at {operation} {number}: {type(error).__name__}: {error}")


def run(stride: int = 1, seed: int = 0) -> FaultReport:
    """Kill a child at every `stride`-th point."""
    report = FaultReport("kills")
    trio.run(_run, stride, seed, report)
    return report


if __name__ == "__main__":
    trio.run(_be_killed, sys.argv[1], sys.argv[2], int(sys.argv[3]))
