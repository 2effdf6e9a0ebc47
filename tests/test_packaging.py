"""The wheel holds everything that an installed package needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_wheel_carries_both_packages_their_types_docs_and_demo_data(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the build backend is not installed here")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        "a3s_actors/py.typed",
        "a3s_backends/py.typed",
        "a3s_backends/sqlite/repository.py",
        "a3s_actors/docs/cli.md",
        "a3s_actors/cli/demo_data/script.json",
        "a3s_actors/__main__.py",
    }
    assert wanted <= names
    assert not [name for name in names if name.startswith(("tests/", "evals/", "backends/"))]
    data = {path.name for path in (ROOT / "a3s_actors" / "cli" / "demo_data").iterdir()}
    assert {f"a3s_actors/cli/demo_data/{name}" for name in data} <= names
