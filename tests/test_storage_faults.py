"""Disk faults, dead neighbours and full disks: nothing acknowledged is lost, nothing is half there.

Here with a stride; `python -m evals faults storage` tries every place.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def faults(tmp_path: Path, *words: str) -> Any:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "evals", "faults", *words, "--json", str(report)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stderr[-2000:]
    result = json.loads(report.read_text())
    assert (result["failures"], done.returncode) == ([], 0)
    return result


@pytest.mark.slow
def test_whatever_the_disk_does_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    result = faults(tmp_path, "storage", "--stride", "11", "--seed", "3")
    for sort in (
        "write fail",
        "write full",
        "write tear",
        "write cut",
        "sync fail",
        "sync cut",
        "read fail",
        "read short",
    ):
        assert result["tried"][sort] >= 1
    assert sum(result["tried"].values()) >= 150
    assert result["acknowledged"] >= 1000


@pytest.mark.slow
def test_several_processes_share_a_file_while_others_are_killed(tmp_path: Path) -> None:
    result = faults(tmp_path, "processes", "--seconds", "6")
    assert result["tried"]["writer killed"] >= 3
    assert result["acknowledged"] >= 100
