"""One figure of a benchmark, and rows of them as a table, as JSON and as a page."""

from __future__ import annotations

import html
import json
import platform
import statistics
from collections.abc import Sequence

import attrs

__all__ = ["Row", "median", "p95", "to_html", "to_json", "to_table"]


@attrs.frozen(kw_only=True)
class Row:
    """A measured figure, what it was measured against, and what it should reach.

    Attributes:
        name: what was measured.
        value: the figure, in `unit`.
        unit: ms, ratio, MB, …
        baseline: what the figure is compared with, measured in the same run; None where there is none.
        target: the bound to reach.
        at_most: whether the target is an upper bound.
        note: sizes and samples.
    """

    name: str
    value: float
    unit: str
    target: float
    at_most: bool = True
    baseline: str = ""
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether the figure reaches its target."""
        return self.value <= self.target if self.at_most else self.value >= self.target

    @property
    def figure(self) -> str:
        """The figure with its target, for people."""
        sign = "<=" if self.at_most else ">="
        verdict = "reached" if self.reached else "MISSED"
        return f"{self.value:.3g} {self.unit} (target {sign} {self.target:g}, {verdict}) {self.note}".rstrip()


def median(samples: Sequence[float]) -> float:
    """Return the middle of the samples."""
    return statistics.median(samples)


def p95(samples: Sequence[float]) -> float:
    """Return the sample that 95 of 100 do not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]


def to_table(rows: Sequence[Row]) -> str:
    """Return rows as aligned text."""
    lines = [("what", "value", "unit", "target", "", "baseline", "note")]
    lines += [
        (
            row.name,
            f"{row.value:.3g}",
            row.unit,
            f"{'<=' if row.at_most else '>='} {row.target:g}",
            "ok" if row.reached else "MISS",
            row.baseline,
            row.note,
        )
        for row in rows
    ]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def to_json(rows: Sequence[Row]) -> str:
    """Return rows and the machine as JSON."""
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    return json.dumps(
        {"machine": machine, "rows": [attrs.asdict(row) | {"reached": row.reached} for row in rows]}, indent=1
    )


def to_html(rows: Sequence[Row]) -> str:
    """Return rows as one page: a table and a bar a row, its length the figure relative to its target."""
    body = []
    for row in rows:
        share = row.value / row.target if row.at_most else row.target / max(row.value, 1e-9)
        colour = "#2a7" if row.reached else "#c33"
        bar = f'<div style="background:{colour};height:.8em;width:{min(share, 3) * 8:.2f}em"></div>'
        cells = (
            row.name,
            f"{row.value:.3g} {row.unit}",
            f"{'≤' if row.at_most else '≥'} {row.target:g}",
            row.baseline,
            row.note,
        )
        body.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + f"<td>{bar}</td></tr>")
    return (
        '<!doctype html><meta charset="utf-8"><title>a3s-actors benchmarks</title>'
        "<style>body{font:14px system-ui;margin:2em}td,th{padding:.3em .8em;text-align:left}"
        "tr:nth-child(even){background:#f4f4f4}</style><h1>a3s-actors benchmarks</h1>"
        f"<p>Python {platform.python_version()} on {html.escape(platform.machine())}. The bar shows the figure "
        "relative to its target: 8 em wide is the target, shorter is better.</p>"
        "<table><tr><th>what<th>figure<th>target<th>baseline<th>note<th>relative</tr>" + "".join(body) + "</table>\n"
    )
