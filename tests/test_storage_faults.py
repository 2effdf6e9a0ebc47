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

from a3s_actors.testing.building import NS
from a3s_backends.sqlite import open_sqlite_repository
from tests.test_sqlite_upkeep import old_file

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
def test_a_kill_at_any_sync_or_write_loses_nothing_acknowledged(tmp_path: Path) -> None:
    result = faults(tmp_path, "kills", "--stride", "3")
    assert result["tried"]["killed at a sync"] >= 5
    assert result["tried"]["killed at a write"] >= 5
    assert result["acknowledged"] >= 50


OPENER = """
import sys, trio
from a3s_actors.testing.building import change, create
from a3s_backends.sqlite import open_sqlite_repository

async def main():
    sys.stdin.readline()
    async with open_sqlite_repository(sys.argv[1]) as repository:
        await repository.apply(change(f"k{sys.argv[2]}", create(f"n{sys.argv[2]}")))

trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", ["no file", "schema 1"])
async def test_eight_processes_that_open_a_file_at_once_make_or_upgrade_it_once(start: str, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    if start == "schema 1":
        await old_file(path)
    children = [
        subprocess.Popen([sys.executable, "-c", OPENER, str(path), str(number)], stdin=subprocess.PIPE, cwd=ROOT)
        for number in range(8)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
        assert child.returncode == 0
    async with open_sqlite_repository(path, create=False) as repository:
        assert len(await repository.get_heads(NS, [f"n{number}" for number in range(8)])) == 8
        assert await repository.verify() == ()
    assert not [file.name for file in tmp_path.iterdir() if file.name != "memory.db"]


@pytest.mark.slow
def test_several_processes_share_a_file_while_others_are_killed(tmp_path: Path) -> None:
    result = faults(tmp_path, "processes", "--seconds", "6")
    assert result["tried"]["writer killed"] >= 3
    assert result["acknowledged"] >= 100
