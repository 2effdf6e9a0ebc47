"""`python -m evals`: lists, runs, writes what it found, and says by its exit code whether a gate failed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from evals.__main__ import main
from evals.gates.gate import Check, Gate, GateReport, Progress, Series, check, named
from evals.gates.page import gates_to_html, gates_to_json
from evals.gates.running import run_gates


@pytest.mark.parametrize(
    ("actual", "sign", "wanted", "passed"),
    [
        (1.0, ">=", 0.9, True),
        (0.8, ">=", 0.9, False),
        (float("nan"), ">=", 0.0, False),
        (float("nan"), "<=", 0.0, False),
        (3, "<=", 3, True),
        ("yes", "=", "yes", True),
        ("no", "=", "yes", False),
    ],
)
def test_a_check_compares_what_came_out_with_what_was_wanted(
    actual: float | str, sign: str, wanted: float | str, passed: bool
) -> None:
    assert Check("x", actual, sign, wanted).passed is passed


def test_a_gate_without_checks_has_not_passed() -> None:
    assert not GateReport(gate="empty", checks=()).passed


def gate(name: str, *checks: Check, error: Exception | None = None) -> Gate:
    async def run(progress: Progress, broken: str | None) -> GateReport:
        progress.step(1, 1)
        if error is not None:
            raise error
        return GateReport(
            gate=name,
            checks=checks,
            figures={"mrr": 0.5},
            series=[
                Series("hits", "<lexical>", ["direct", "related"], [1, 0.5]),
                Series("growth", "n", [1.0, 2.0], [3, 4]),
            ],
        )

    return Gate(name=name, description="", run=run)


def test_two_gates_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="the name x"):
        named([gate("x"), gate("x")])


def test_a_gate_that_breaks_off_has_failed_and_the_next_one_still_runs(capsys: pytest.CaptureFixture[str]) -> None:
    reports = run_gates([gate("broken", error=OSError("gone")), gate("whole", check("a", 1, "=", 1))])
    assert [each.passed for each in reports] == [False, True]
    assert "broken: FAILED" in capsys.readouterr().out


def test_the_page_holds_its_plots_and_loads_nothing() -> None:
    reports = run_gates([gate("<b>", check("a < b", 1, "=", 2))])
    page = gates_to_html(reports)
    assert page.count("<svg") == 2
    assert "&lt;lexical&gt;" in page
    assert "<b>" not in page
    assert not re.search(r'(?:src|href)\s*=\s*"(?!#)', page)
    assert json.loads(gates_to_json(reports))["gates"][0]["checks"][0]["passed"] is False


def test_a_run_writes_json_and_a_page_and_succeeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, page = tmp_path / "found.json", tmp_path / "page.html"
    assert main(["run", "multi-agent", "--json", str(found), "--html", str(page)]) == 0
    assert json.loads(found.read_text())["passed"] is True
    assert "<h2>multi-agent" in page.read_text()
    assert "multi-agent: passed" in capsys.readouterr().out


def test_a_run_with_a_broken_rule_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "multi-agent", "--break", "a binding is exact"]) == 1
    assert "FAIL journal: contexts with the foreign memory" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["run"], ["run", "nothing"], ["run", "multi-agent", "--break", "nothing"], []])
def test_what_is_not_there_is_refused_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_the_list_names_every_gate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert "run    multi-agent" in capsys.readouterr().out
