"""Who may import whom: read from the source, and seen in fresh processes."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / "a3s_actors"
BACKENDS = ROOT / "backends" / "a3s_backends"

# Each layer may import those before it, and itself.
LAYERS = ["actor", "memory", "vector", "embedding", "recall", "agent", "maintenance", "testing", "cli"]
ALLOWED: dict[str, set[str]] = {
    "actor": set(),
    "memory": set(),  # pure: it needs no actor
    "vector": {"actor", "memory"},
    "embedding": {"actor", "memory"},
    "recall": {"actor", "memory", "vector", "embedding"},
    "agent": {"actor", "memory", "vector", "embedding", "recall"},
    "maintenance": {"actor", "memory", "vector", "embedding", "recall"},
    "testing": set(LAYERS) - {"cli", "testing"},
    "cli": set(LAYERS) - {"cli", "testing"},
}
OPTIONAL = {
    *("typer", "rich", "markdown_it", "click"),
    *("sentence_transformers", "torch", "openai", "httpx", "httpcore", "h11"),
    *("pytest", "hypothesis"),
}
# The one optional technology that a backend's folder is there for.
TECHNOLOGY = {"openai_http": {"httpx"}}
# A model client keeps to the agent's protocol, and to its errors, and knows nothing else of it.
_STORE = {f"a3s_actors.agent.{name}" for name in ("store", "snapshot", "errors", "runs", "model")}
PROTOCOLS: dict[str, set[str]] = {
    "openai_http": {"a3s_actors.agent.model", "a3s_actors.agent.errors"},
    "file_sessions": _STORE,
    "sqlite_sessions": _STORE,
    "in_memory_sessions": _STORE,
}
# The journal keeps its state in memory and answers reads as the in-memory backend does; the session stores share
# their checks, and the way to a checked SQLite file.
SHARED: dict[str, set[str]] = {
    "journal": {"in_memory"},
    "file_sessions": {"in_memory_sessions"},
    "sqlite_sessions": {"sqlite", "in_memory_sessions"},
}
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
    protocol = {name for name in names if name.rpartition(".")[0] in PROTOCOLS.get(own, ())}
    layers = {name.split(".")[1] for name in names - protocol if name.startswith("a3s_actors.")}
    assert layers <= {"actor", "memory", "vector", "embedding"}
    others = {name.split(".")[1] for name in names if name.startswith("a3s_backends.")} - {own}
    assert others <= SHARED.get(own, set())
    assert {name.split(".")[0] for name in names} & OPTIONAL <= TECHNOLOGY.get(own, set())


def module_name(path: Path) -> str:
    base = ENGINE.parent if path.is_relative_to(ENGINE) else BACKENDS.parent
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_when_loaded(path: Path, known: Set[str]) -> set[str]:
    """Return the known modules that one imports when it is loaded: not in functions, not for type checking only."""
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            dotted = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= dotted if dotted <= known else {node.module, *dotted}
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo.extend(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))
    return found & known


def test_no_modules_import_each_other_in_a_circle() -> None:
    paths = {module_name(path): path for path in [*modules(ENGINE), *modules(BACKENDS)]}
    graph = {name: imported_when_loaded(path, paths.keys()) - {name} for name, path in paths.items()}
    assert any(graph.values())
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(reversed(error.args[1]))}")
    assert set(order) == set(paths)


def test_the_memory_kernel_knows_no_event_loop_and_no_storage() -> None:
    own = modules(ENGINE / "memory")
    names = {path: {name.split(".")[0] for name in imports(path)} for path in own}
    everything = set().union(*names.values())
    assert everything - set(sys.stdlib_module_names) == {"a3s_actors", "attrs", "cattrs", "msgspec"}
    assert not everything & {
        "asyncio",
        "io",
        "logging",
        "random",
        "shutil",
        "socket",
        "sqlite3",
        "subprocess",
        "threading",
    }
    assert {name for path in own for name in imports(path) if name.startswith("a3s_actors.actor")} == set()
    # The kernel reads no clock: only `Timestamp.now`, which hosts call, does. It makes no identity: the one secret is
    # the key of a state that was given none.
    assert [path.name for path in own if "time" in names[path]] == ["timestamps.py"]
    assert [path.name for path in own if names[path] & {"secrets", "uuid"}] == ["reference.py"]


@pytest.mark.parametrize("package", ["actor", "memory", "recall", "testing"])
def test_every_name_that_a_layer_offers_is_there_and_no_other(package: str) -> None:
    module = importlib.import_module(f"a3s_actors.{package}")
    assert module.__all__ == sorted(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018


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
        ("a3s_backends.openai_http", {"httpx", "httpcore", "h11", "anyio", "certifi", "apsw", "numpy"}),
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
