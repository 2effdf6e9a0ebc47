"""What the demo does, read from `demo_data/script.json`. Schema a3s.demo.script.v1."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

__all__ = ["SCHEMA", "Script", "data_folder", "read_script"]

SCHEMA = "a3s.demo.script.v1"


@attrs.frozen(kw_only=True)
class Activation:
    """Activate a memory."""

    memory: str
    reason: str


@attrs.frozen(kw_only=True)
class Corroboration:
    """Support a memory with a source that says the same."""

    memory: str
    uri: str
    text: str


@attrs.frozen(kw_only=True)
class Revision:
    """Change a memory's text."""

    memory: str
    mode: str
    content: str
    reason: str


@attrs.frozen(kw_only=True)
class Supersession:
    """Let one memory take the place of another."""

    old: str
    new: str
    reason: str


@attrs.frozen(kw_only=True)
class Conflict:
    """Say that two memories contradict each other."""

    a: str
    b: str
    mark: bool
    reason: str


@attrs.frozen(kw_only=True)
class Relation:
    """Relate two memories."""

    a: str
    b: str
    reason: str


@attrs.frozen(kw_only=True)
class Tombstone:
    """End a memory's service."""

    memory: str
    reason: str


@attrs.frozen(kw_only=True)
class Question:
    """Something to recall, what has to come first, and what must not come at all."""

    question: str
    max_results: int
    min_score: float
    related: int
    expect_first: str
    absent: list[str]


@attrs.frozen(kw_only=True)
class Script:
    """All steps, in the order in which they are done. Memories are named by their exact texts."""

    schema: str = attrs.field(validator=attrs.validators.in_([SCHEMA]))
    files: list[str]
    activate: list[Activation]
    corroborate: list[Corroboration]
    revise: list[Revision]
    supersede: list[Supersession]
    conflict: list[Conflict]
    relate: list[Relation]
    tombstone: list[Tombstone]
    recall: list[Question]


def data_folder() -> Path:
    """Return the folder of the demo's files."""
    return Path(str(files("a3s_actors.cli") / "demo_data"))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def read_script() -> Script:
    """Read the script, strictly: an unknown or missing field is an error."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (Question, Script):
        names: dict[str, Any] = {field.name: override(rename=_camel(field.name)) for field in attrs.fields(kind)}
        hook = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **names)
        converter.register_structure_hook(kind, hook)
    data = json.loads((data_folder() / "script.json").read_text(encoding="utf-8"))
    return converter.structure(data, Script)
