"""Who may import whom: read from the source, and seen in fresh processes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / "a3s_actors"
BACKENDS = ROOT / "backends" / "a3s_backends"

# Each layer may import those before it, and itself.
LAYERS = ["actor", "memory", "vector", "embedding", "recall", "agent", "maintenance", "testing", "cli"]
ALLOWED = {
    "actor": set(),
    "memory": {"actor"},
    "vector": {"actor", "memory"},
    "embedding": {"actor", "memory"},
    "recall": {"actor", "memory", "vector", "embedding"},
    "agent": {"actor", "memory", "vector", "embedding", "recall"},
    "maintenance": {"actor", "memory", "vector", "embedding", "recall"},
    "testing": set(LAYERS) - {"cli", "testing"},
    "cli": set(LAYERS) - {"cli", "testing"},
}
OPTIONAL = {"typer", "rich", "markdown_it", "sentence_transformers", "torch", "openai", "pytest", "hypothesis", "click"}
# What must not be loaded before it is used.
HEAVY = {"numpy", "usearch", "sentence_transformers", "torch"}


def imports(path: Path) -> set[str]:
    """Return the dotted names that a module imports, anywhere in it, type checking included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def layer_of(path: Path) -> str | None:
    parts = path.relative_to(ENGINE).parts
    return parts[0] if len(parts) > 1 else None


@pytest.mark.parametrize("path", modules(ENGINE), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_of_the_engine_imports_only_what_stands_below_it(path: Path) -> None:
    layer = layer_of(path)
    names = imports(path)
    own = {name.split(".")[1] for name in names if name.startswith("a3s_actors.") and name.count(".") >= 1}
    if layer is None:
        assert own <= {"_version", "cli"}
    else:
        assert layer in ALLOWED, "a new layer: say here what it may import"
        assert own & set(LAYERS) <= ALLOWED[layer] | {layer}
    if layer != "cli":
        assert not {name for name in names if name.split(".")[0] == "a3s_backends"}
        assert not {name.split(".")[0] for name in names} & OPTIONAL
    assert not {name.split(".")[0] for name in names} & HEAVY


@pytest.mark.parametrize("path", modules(BACKENDS), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_backend_uses_the_engine_below_recall_and_no_other_technology(path: Path) -> None:
    own = path.relative_to(BACKENDS).parts[0]
    names = imports(path)
    layers = {name.split(".")[1] for name in names if name.startswith("a3s_actors.")}
    assert layers <= {"actor", "memory", "vector", "embedding"}
    others = {name.split(".")[1] for name in names if name.startswith("a3s_backends.")} - {own}
    # The journal keeps its state in memory and answers reads as the in-memory backend does.
    assert others <= ({"in_memory"} if own == "journal" else set())
    assert not {name.split(".")[0] for name in names} & OPTIONAL


def test_the_actor_library_needs_nothing_but_trio_attrs_and_structlog() -> None:
    foreign = {name.split(".")[0] for path in modules(ENGINE / "actor") for name in imports(path)}
    assert foreign - set(sys.stdlib_module_names) == {"a3s_actors", "attrs", "structlog", "trio"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "absent"),
    [
        (
            "a3s_actors",
            {"trio", "attrs", "apsw", "cattrs", "numpy", "usearch", "typer", "rich", "structlog", "msgspec"},
        ),
        ("a3s_actors.actor", {"trio", "apsw", "numpy", "structlog"}),
        ("a3s_actors.memory", {"trio", "apsw", "numpy", "usearch", "typer", "rich"}),
        ("a3s_actors.recall", {"apsw", "numpy", "usearch", "typer", "rich", "structlog"}),
        ("a3s_actors.testing", {"apsw", "numpy", "pytest", "hypothesis", "typer", "rich"}),
        ("a3s_backends.sqlite", {"numpy", "usearch", "typer", "rich"}),
        ("a3s_actors.cli.app", {"numpy", "usearch", "rich", "apsw", "markdown_it"}),
    ],
)
def test_importing_loads_nothing_heavy(what: str, absent: set[str]) -> None:
    code = f"import sys, {what}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & absent


def test_no_module_is_longer_than_it_can_be_read() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in [*modules(ENGINE), *modules(BACKENDS)]
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 600 and "_unicode17" not in path.name
    }
    assert long == {}
