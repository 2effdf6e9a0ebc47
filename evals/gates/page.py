"""Reports of gates as JSON, and as one page whose plots are drawn into it: nothing is loaded when it is viewed."""

from __future__ import annotations

import html
import io
import json
import platform
import re
from collections.abc import Sequence
from typing import Any

import attrs

from evals.gates.gate import GateReport, Series

__all__ = ["gates_to_html", "gates_to_json", "plot"]

_STYLE = (
    "body{font:14px system-ui;margin:2em;max-width:70em}td,th{padding:.2em .8em;text-align:left}"
    "tr:nth-child(even){background:#f4f4f4}.ok{color:#175}.fail{color:#b22;font-weight:bold}svg{max-width:100%}"
)


def gates_to_json(reports: Sequence[GateReport]) -> str:
    """Return reports and the machine as JSON."""
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    gates = [
        {
            **attrs.asdict(report),
            "passed": report.passed,
            "checks": [attrs.asdict(each) | {"passed": each.passed} for each in report.checks],
        }
        for report in reports
    ]
    return json.dumps({"machine": machine, "passed": all(each.passed for each in reports), "gates": gates}, indent=1)


def gates_to_html(reports: Sequence[GateReport], title: str = "a3s-actors gates") -> str:
    """Return reports as one page."""
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
        f"<p>Python {platform.python_version()} on {html.escape(platform.machine())}.</p>"
    ]
    for report in reports:
        verdict = '<span class="ok">passed</span>' if report.passed else '<span class="fail">FAILED</span>'
        parts.append(f"<h2>{html.escape(report.gate)}: {verdict}</h2>")
        parts.append(f"<p>{html.escape(report.fixture)} {report.seconds:.1f} s</p>")
        parts.extend(plot(title, group) for title, group in _by_title(report.series))
        rows = [
            f'<tr><td class="{"ok" if each.passed else "fail"}">{"ok" if each.passed else "FAIL"}<td>'
            f"{html.escape(each.name)}<td>{_number(each.actual)}<td>{html.escape(each.sign)} {_number(each.wanted)}"
            for each in report.checks
        ]
        rows += [f"<tr><td><td>{html.escape(name)}<td>{value:.4g}<td>" for name, value in report.figures.items()]
        parts.append(f"<table><tr><th><th>what<th>found<th>must be{''.join(rows)}</table>")
    return "\n".join(parts) + "\n"


def _number(value: float | str) -> str:
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def _by_title(series: Sequence[Series]) -> list[tuple[str, list[Series]]]:
    titles = dict.fromkeys(each.title for each in series)
    return [(title, [each for each in series if each.title == title]) for title in titles]


def plot(title: str, group: Sequence[Series]) -> str:
    """Draw series of one title: bars where the places are names, lines where they are numbers. Returns SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": title, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8, 3), layout="constrained")
        FigureCanvasSVG(figure)
        axes: Any = figure.subplots()
        if all(isinstance(place, str) for each in group for place in each.x):
            _bars(axes, group)
        else:
            for each in group:
                axes.plot(each.x, each.y, label=each.name, linewidth=1.2)
        axes.set_title(title)
        axes.grid(axis="y", alpha=0.3)
        if len(group) > 1:
            axes.legend(fontsize=8)
        else:
            axes.set_ylabel(group[0].name)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", drawn.getvalue(), flags=re.DOTALL)


def _bars(axes: Any, group: Sequence[Series]) -> None:
    names = list(dict.fromkeys(str(place) for each in group for place in each.x))
    width = 0.8 / len(group)
    for number, each in enumerate(group):
        places = [names.index(str(place)) + (number - (len(group) - 1) / 2) * width for place in each.x]
        axes.bar(places, each.y, width, label=each.name)
    axes.set_xticks(range(len(names)), names)
