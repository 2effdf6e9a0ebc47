"""What a fault run tried, and what did not hold."""

from __future__ import annotations

import json

import attrs

__all__ = ["FaultReport"]


@attrs.define
class FaultReport:
    """Counts of a run. It is good when `failures` is empty.

    Attributes:
        name: which run.
        tried: how many faults were provoked, by sort.
        acknowledged: how many answers were checked for loss.
        failures: what did not hold, each with what is needed to see it again.
        notes: measured figures.
    """

    name: str
    tried: dict[str, int] = attrs.Factory(dict)
    acknowledged: int = 0
    failures: list[str] = attrs.Factory(list)
    notes: dict[str, float] = attrs.Factory(dict)

    def count(self, sort: str) -> None:
        """Count one fault."""
        self.tried[sort] = self.tried.get(sort, 0) + 1

    def to_json(self) -> str:
        """Return all of it as JSON."""
        return json.dumps(attrs.asdict(self) | {"good": not self.failures}, indent=1)

    def to_text(self) -> str:
        """Return it for people."""
        lines = [f"{sort:32} {count}" for sort, count in sorted(self.tried.items())]
        lines += [f"{name:32} {value:.3g}" for name, value in self.notes.items()]
        lines += [f"{'answers checked for loss':32} {self.acknowledged}"]
        lines += [f"FAILED: {failure}" for failure in self.failures]
        lines += [f"{self.name}: {len(self.failures)} failures in {sum(self.tried.values())} faults"]
        return "\n".join(lines)
