"""Gates: evaluations that say whether the memory may serve. Each fails when a rule that it guards is broken.

A gate is a module that offers `GATE`. Its data is a versioned file in `evals/fixtures/`, written for this project; what
must hold is declared in the module and never bent to pass. Everything goes through the public API.
"""

from __future__ import annotations

from importlib import import_module

from evals.gates.gate import Gate, named

__all__ = ["gates"]

_MODULES: tuple[str, ...] = (
    "retrieval",
    "product",
    "capture",
    "multilingual",
    "multi_agent",
    "restart_endurance",
)


def gates() -> dict[str, Gate]:
    """Return all gates by name, in the order in which they are run."""
    return named(import_module(f"evals.gates.{module}").GATE for module in _MODULES)
