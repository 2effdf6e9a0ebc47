"""The documentation says what the code does: examples run, tables and diagrams come from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import lifecycle_docs

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("make", ["operations_table", "diagram", "requirements_table"])
def test_the_memory_page_shows_the_kernels_own_tables(make: str) -> None:
    page = (ROOT / "a3s_actors" / "docs" / "memory.md").read_text(encoding="utf-8")
    assert getattr(lifecycle_docs, make)() in page


@pytest.mark.slow
def test_the_readmes_example_runs_and_prints_the_activated_memory(tmp_path: Path) -> None:
    example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    assert len(example.splitlines()) < 45
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "0.50 We deploy on Tuesdays. (2 pieces of evidence)\n"
    assert (tmp_path / "memory.db").exists()


def test_every_test_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"`(tests/\w+\.py)`", README))
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_page_that_the_readme_links_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


async def test_the_readmes_loop_free_door_runs() -> None:
    from a3s_actors.testing.building import NS, change, create
    from a3s_backends.in_memory import open_in_memory_repository

    example = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "durable.turn" in block)
    body = "".join(f"    {line}\n" for line in example.splitlines())
    scope: dict[str, object] = {}
    exec(f"async def embed(repository, mine, prompt):\n{body}    return report", scope)  # the project's own page
    async with open_in_memory_repository() as repository:
        await repository.apply(change("k", create("n", "we deploy on tuesdays")))
        report = await scope["embed"](repository, NS, "when do we deploy")  # type: ignore[operator]
    assert [item.node_id for item in report.admitted] == ["n"]
