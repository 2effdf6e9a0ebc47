"""The documentation says what the code does: examples run, tables and diagrams come from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from evals.gates import gates
from tests import lifecycle_docs

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("make", ["operations_table", "diagram", "requirements_table"])
def test_the_memory_page_shows_the_kernels_own_tables(make: str) -> None:
    page = (ROOT / "a3s_actors" / "docs" / "memory.md").read_text(encoding="utf-8")
    assert getattr(lifecycle_docs, make)() in page


def test_the_agent_page_shows_the_runs_own_diagram() -> None:
    assert lifecycle_docs.run_diagram() in (ROOT / "a3s_actors" / "docs" / "agent.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_agent_pages_example_runs(tmp_path: Path) -> None:
    page = (ROOT / "a3s_actors" / "docs" / "agent.md").read_text(encoding="utf-8")
    script = tmp_path / "example.py"
    script.write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "On Tuesdays, I hear. []\n2 messages, completed\n"


CHECKS = """
    durable_memory durable_memory_shadow durable_memory_active durable_memory_restart durable_memory_retrieval_eval
    durable_memory_product_eval durable_memory_multilingual_eval durable_memory_semantic durable_memory_semantic_eval
    durable_memory_semantic_refresh durable_memory_semantic_refresh_cas durable_memory_semantic_refresh_failure
    memory_semantic_refresh_schedule memory_semantic_refresh_change_detection memory_semantic_refresh_checkpoint
    memory_semantic_index_observation memory_semantic_refresh_sqlite memory_semantic_refresh_metrics
    memory_maintenance_close durable_memory_multi_agent_eval durable_memory_restart_endurance_eval
    memory_maintenance_lifecycle
""".split()  # noqa: SIM905 - as readable as the page


def test_the_gates_page_maps_each_check_to_tests_that_exist() -> None:
    page = (ROOT / "a3s_actors" / "docs" / "gates.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (durable_memory\w*|memory_\w+)[^|]* \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == CHECKS
    for name, where in rows.items():
        files = re.findall(r"`(tests/\w+\.py)`", where)
        assert files or where.startswith("comes with "), name
        assert [each for each in files if not (ROOT / each).is_file()] == []
        assert not files or name == "durable_memory" or f"tests/test_{name}.py" in files
        if not files:
            assert not (ROOT / "tests" / f"test_{name}.py").exists()


def test_the_gates_page_has_a_section_for_each_gate() -> None:
    page = (ROOT / "a3s_actors" / "docs" / "gates.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## ([a-z-]+)$", page, re.MULTILINE)
    assert set(gates()) <= set(sections)


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


async def test_the_readmes_session_runs() -> None:
    from a3s_actors.testing import ScriptedModelClient
    from a3s_actors.testing.building import NS, change, create
    from a3s_backends.in_memory import open_in_memory_repository
    from a3s_backends.in_memory_sessions import open_in_memory_session_store

    example = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "open_agent" in block)
    body = "".join(f"    {line}\n" for line in example.splitlines())
    scope: dict[str, object] = {}
    exec(f"async def embed(repository, mine, store, model, prompt):\n{body}    return reply", scope)
    async with open_in_memory_repository() as repository, open_in_memory_session_store() as store:
        await repository.apply(change("k", create("n", "we deploy on tuesdays")))
        model = ScriptedModelClient(["on tuesdays"])
        reply = await scope["embed"](repository, NS, store, model, "when do we deploy")  # type: ignore[operator]
    assert [item.id for item in reply.context.items] == ["n"]
