"""What a gate is: checks that were declared before the run, figures that were measured, and series for plots."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import attrs

__all__ = ["Broken", "Check", "Gate", "GateReport", "Progress", "Series", "check"]

_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
}


def _to_checks(value: Iterable[Check]) -> tuple[Check, ...]:
    return tuple(value)


def _to_series(value: Iterable[Series]) -> tuple[Series, ...]:
    return tuple(value)


def _to_rules(value: Iterable[Broken]) -> tuple[Broken, ...]:
    return tuple(value)


@attrs.frozen
class Check:
    """One thing that must hold.

    Attributes:
        name: what.
        actual: what came out.
        sign: "=", ">=" or "<=".
        wanted: what it is compared with.
    """

    name: str
    actual: float | str
    sign: str
    wanted: float | str

    @property
    def passed(self) -> bool:
        """Whether it holds. A number that is none does not."""
        return _SIGNS[self.sign](self.actual, self.wanted)

    def __str__(self) -> str:
        actual = f"{self.actual:.4g}" if isinstance(self.actual, float) else self.actual
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name}: {actual} (must be {self.sign} {self.wanted})"


def check(name: str, actual: float | str, sign: str, wanted: float | str) -> Check:
    """Return a check; see `Check`."""
    return Check(name, actual, sign, wanted)


@attrs.frozen
class Series:
    """Numbers to plot.

    Attributes:
        title: of the plot that it belongs to; series of one title share a plot.
        name: of the series.
        x: names (a bar a name) or numbers (a line).
        y: the values.
    """

    title: str
    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]


@attrs.frozen(kw_only=True)
class GateReport:
    """What a run of a gate found.

    Attributes:
        gate: its name.
        fixture: name and version of the data it ran on; empty when it makes its own.
        checks: what had to hold.
        figures: what was measured beside; nothing is judged by it.
        series: for the plots.
        seconds: how long it took.
    """

    gate: str
    fixture: str = ""
    checks: tuple[Check, ...] = attrs.field(converter=_to_checks)
    figures: dict[str, float] = attrs.field(factory=dict)
    series: tuple[Series, ...] = attrs.field(default=(), converter=_to_series)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether all checks hold, and there was one."""
        return bool(self.checks) and all(each.passed for each in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that do not hold."""
        return tuple(each for each in self.checks if not each.passed)


class Progress:
    """Told by a gate how far it is. This one shows nothing."""

    def step(self, done: int, total: int) -> None:
        """Say that `done` of `total` steps are done."""


@attrs.frozen(kw_only=True)
class Broken:
    """A rule to break on purpose, so that a run shows that the gate sees it.

    Attributes:
        name: the rule.
        why: what is done to it.
    """

    name: str
    why: str


@attrs.frozen(kw_only=True)
class Gate:
    """An evaluation that says whether the memory may serve.

    Attributes:
        name: what it is called on the command line.
        description: one line.
        run: does it. Takes where to say the progress, and the name of the rule to break (None: none).
        rules: the rules it guards, each of which can be broken; broken, the gate must fail.
    """

    name: str
    description: str
    run: Callable[[Progress, str | None], Awaitable[GateReport]]
    rules: tuple[Broken, ...] = attrs.field(default=(), converter=_to_rules)


def named(gates: Iterable[Gate]) -> dict[str, Gate]:
    """Return gates by name.

    Raises:
        ValueError: two have the same name.
    """
    found: dict[str, Gate] = {}
    for gate in gates:
        if gate.name in found:
            raise ValueError(f"two gates have the name {gate.name}")
        found[gate.name] = gate
    return found
