"""Faults that are provoked on purpose, and what has to hold all the same. Run by `python -m evals faults NAME`."""

from __future__ import annotations

from collections.abc import Callable

from evals.faults.report import FaultReport

__all__ = ["FAULTS"]


def _storage(stride: int, seed: int, _seconds: float) -> FaultReport:
    from evals.faults import storage

    return storage.run(stride, seed)


def _kills(stride: int, seed: int, _seconds: float) -> FaultReport:
    from evals.faults import kills

    return kills.run(stride, seed)


def _processes(_stride: int, seed: int, seconds: float) -> FaultReport:
    from evals.faults import processes

    return processes.run(seconds, seed)


FAULTS: dict[str, tuple[str, Callable[[int, int, float], FaultReport]]] = {
    "storage": (
        "each k-th read, write, sync and truncate of the SQLite file fails, tears, or is the last one",
        _storage,
    ),
    "kills": ("SIGKILL before and after each sync, and inside writes", _kills),
    "processes": ("two processes write and read one file, and others are killed in the middle", _processes),
}
"""Each takes the stride between two faults, a seed, and for how many seconds timed ones run."""
