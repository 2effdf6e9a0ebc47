"""How a gate is tested: as it is it passes, and with each of its rules broken it fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evals.gates import gates
from evals.gates.gate import GateReport, Progress


async def run(name: str, broken: str | None = None) -> GateReport:
    return await gates()[name].run(Progress(), broken)


def rules(name: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Run a test once for each rule of a gate."""
    named = [rule.name for rule in gates()[name].rules]
    return pytest.mark.parametrize("rule", named)
