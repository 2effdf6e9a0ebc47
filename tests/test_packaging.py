"""The wheel holds everything that an installed package needs."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from a3s_actors import __version__

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
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        described = {Path(name).name: name for name in names if ".dist-info/" in name}
        metadata = archive.read(described["METADATA"]).decode()
        commands = archive.read(described["entry_points.txt"]).decode()
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
    sources = {
        str(path.relative_to(base))
        for base, package in ((ROOT, "a3s_actors"), (ROOT / "backends", "a3s_backends"))
        for path in (base / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert "LICENSE" in described
    assert "a3s-actors = a3s_actors.cli:main" in commands
    assert f"Version: {__version__}\n" in metadata
    assert "Requires-Python: >=3.11\n" in metadata
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    # What only the command line needs comes with its extra, and what tests need does not come at all.
    assert all("extra == 'cli'" in line for line in needed if re.search(r"typer|rich|markdown", line))
    assert all("extra == 'openai'" in line for line in needed if re.search(r"httpx|httpcore", line))
    assert not [line for line in needed if re.search(r"trustme|pytest|hypothesis|mypy|ruff|hatchling", line)]
