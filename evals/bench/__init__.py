"""Benchmarks by name: a description, and a function of the scale that yields rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from evals.bench import actor, kernel, sessions
from evals.report import Row

__all__ = ["BENCHES"]

BENCHES: dict[str, tuple[str, Callable[[float], Iterator[Row]]]] = {
    "actor": ("one ask of an actor beside a bare pair of trio channels", actor.run),
    "kernel": ("the SQLite repository: query, snapshot, apply, open", kernel.run),
    "session": ("agent sessions: a turn, a large context, stored sessions", sessions.run),
}
