"""Four agents, three epochs in processes of their own: what one process admitted, the next never repeats."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from a3s_actors.memory import MemoryRepository, SnapshotRequest
from a3s_actors.testing.building import change, create, revise
from evals.gates.gate import Broken, Check, Gate, GateReport, Progress, Series, check
from evals.gates.opening import BACKENDS, open_repository, read_admissions
from evals.gates.restart_epoch import AGENTS, FOREIGN, MINE, WAVES

__all__ = ["GATE"]

_EPOCHS: Final = 3
_CORRECTED_BEFORE: Final = 3
_SECONDS: Final = 60
_FIRST: Final = "Ines answers the pager of the parcel service."
_CORRECTED: Final = "Jonas answers the pager of the parcel service, Ines is on leave."
_THEIRS: Final = "Nobody of ours answers the pager of the parcel service."
_ROOT: Final = Path(__file__).resolve().parents[2]


async def _prepare(repository: MemoryRepository) -> None:
    await repository.apply(change("pager", create("pager", _FIRST, namespace=MINE), namespace=MINE))
    await repository.apply(change("theirs", create("theirs", _THEIRS, namespace=FOREIGN), namespace=FOREIGN))


async def _correct(repository: MemoryRepository) -> None:
    await repository.apply(change("corrected", revise("pager", _CORRECTED), second=2500, namespace=MINE))


async def _epoch(backend: str, folder: Path, epoch: int, broken: str) -> list[dict[str, Any]]:
    """Run an epoch in a process of its own, and return what its agents saw."""
    command = [sys.executable, "-m", "evals.gates.restart_epoch", backend, str(folder), str(epoch), broken]
    with trio.fail_after(_SECONDS):
        done = await trio.run_process(command, cwd=_ROOT, capture_stdout=True, stderr=subprocess.DEVNULL)
    found: list[dict[str, Any]] = json.loads(done.stdout)["agents"]
    return found


async def _on(backend: str, folder: Path, broken: str) -> tuple[list[Check], list[float]]:
    async with open_repository(backend, folder) as repository:
        await _prepare(repository)
    inputs: list[list[str]] = []
    counts: list[float] = []
    resumed, retained, collided = 0, set(), Counter[str]()
    for epoch in range(1, _EPOCHS + 1):
        if epoch == _CORRECTED_BEFORE and broken != "a correction is served":
            async with open_repository(backend, folder) as repository:
                await _correct(repository)
        agents = await _epoch(backend, folder, epoch, broken)
        inputs.append([text for each in agents for text in each["inputs"]])
        resumed += sum(each["resumed"] for each in agents)
        retained |= {len(each["runs"]) for each in agents}
        collided.update(each["runs"][-1] for each in agents)
        async with open_repository(backend, folder) as repository:
            counts.append(float(len(await read_admissions(repository, MINE))))
    async with open_repository(backend, folder) as repository:
        checks = await _judge(repository, inputs)
    checks += [
        check("sessions resumed", resumed, "=", AGENTS * (_EPOCHS - 1)),
        check("runs retained", ", ".join(map(str, sorted(retained))), "=", "1"),
        check("sessions that ended with the same run id", max(collided.values()), "=", AGENTS * _EPOCHS),
    ]
    return [attrs.evolve(each, name=f"{backend}: {each.name}") for each in checks], counts


async def _judge(repository: MemoryRepository, inputs: list[list[str]]) -> list[Check]:
    total = AGENTS * WAVES * _EPOCHS
    last = AGENTS * WAVES
    admissions = await read_admissions(repository, MINE)
    foreign = await read_admissions(repository, FOREIGN)
    node = await repository.get(MINE, "pager")
    snapshot = await repository.snapshot_namespace(SnapshotRequest(namespace=MINE))
    everything = [text for epoch in inputs for text in epoch]
    before = [text for epoch in inputs[: _CORRECTED_BEFORE - 1] for text in epoch]
    summary = await repository.usage_summary(MINE, "pager")
    return [
        check("contexts", len(everything), "=", total),
        check("contexts with the fact as it was", sum(_FIRST in text for text in before), "=", total - last),
        check("contexts with the correction", sum(_CORRECTED in text for text in inputs[-1]), "=", last),
        check("corrections served too early", sum(_CORRECTED in text for text in before), "=", 0),
        check("old facts served after the correction", sum(_FIRST in text for text in inputs[-1]), "=", 0),
        check("contexts with the foreign memory", sum(_THEIRS in text for text in everything), "=", 0),
        check("admissions", len(admissions), "=", total),
        check("distinct contexts admitted", len({context for _, _, context in admissions}), "=", total),
        check("admissions of the first revision", sum(each == 1 for _, each, _ in admissions), "=", total - last),
        check("admissions of the second revision", sum(each == 2 for _, each, _ in admissions), "=", last),
        check("admissions of the foreign memory", len(foreign), "=", 0),
        check("the count after the last opening", summary.admissions, "=", total),
        check("revisions kept", 0 if node is None else len(node.history) + 1, "=", 2),
        check("nodes of the last, verified snapshot", len(snapshot.nodes()), "=", 1),
    ]


async def _run(progress: Progress, broken: str | None) -> GateReport:
    checks: list[Check] = []
    series: list[Series] = []
    epochs = [float(epoch) for epoch in range(1, _EPOCHS + 1)]
    with tempfile.TemporaryDirectory() as scratch:
        for number, backend in enumerate(BACKENDS):
            folder = Path(scratch) / backend
            folder.mkdir()
            found, counts = await _on(backend, folder, broken or "")
            checks += found
            series.append(Series("admissions after each epoch", backend, epochs, counts))
            progress.step(number + 1, len(BACKENDS))
    return GateReport(gate=GATE.name, checks=checks, series=series)


GATE: Final = Gate(
    name="restart-endurance",
    description="four agents, three epochs in separate processes, on the journal and on SQLite",
    run=_run,
    rules=(
        Broken(name="every context is audited", why="admissions are said to be recorded, and are not"),
        Broken(name="sessions are resumed", why="each epoch gets an empty session store"),
        Broken(name="namespaces are exact", why="one agent is given the foreign namespace"),
        Broken(name="a correction is served", why="the correction before the last epoch is left out"),
    ),
)
