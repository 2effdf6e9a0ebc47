"""Runs gates: progress on a terminal, one line a check, JSON and a page."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence

import attrs
import trio

from evals.gates.gate import Gate, GateReport, Progress, check

__all__ = ["run_gates"]

_WIDTH = 30


class _Bar(Progress):
    """A progress bar on the standard error, where that is a terminal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown = sys.stderr.isatty()

    def step(self, done: int, total: int) -> None:
        if self._shown:
            filled = _WIDTH * done // max(total, 1)
            bar = "#" * filled + "." * (_WIDTH - filled)
            sys.stderr.write(f"\r{self._name:20} [{bar}] {done}/{total}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def run_gates(chosen: Sequence[Gate], broken: str | None = None) -> list[GateReport]:
    """Run gates one after the other, and print what each found.

    Args:
        chosen: which.
        broken: the rule to break; see `Gate.rules`.
    """
    return [_run(gate, broken) for gate in chosen]


def _run(gate: Gate, broken: str | None) -> GateReport:
    bar = _Bar(gate.name)
    start = time.perf_counter()
    try:
        report = trio.run(gate.run, bar, broken)
    except Exception as error:  # noqa: BLE001 - a gate that breaks off has failed, and the others still run
        traceback.print_exc()
        report = GateReport(gate=gate.name, checks=[check("how it ended", type(error).__name__, "=", "by itself")])
    finally:
        bar.end()
    report = attrs.evolve(report, seconds=time.perf_counter() - start)
    verdict = "passed" if report.passed else "FAILED"
    print(f"{gate.name}: {verdict}, {len(report.checks)} checks, {report.seconds:.1f} s {report.fixture}".rstrip())
    for each in report.checks:
        if not each.passed:
            print(f"  {each}")
    for name, value in report.figures.items():
        print(f"  {name}: {value:.4g}")
    sys.stdout.flush()
    return report
