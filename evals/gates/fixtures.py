"""Reads a gate's data: a versioned file that was written for this project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

__all__ = ["load_fixture"]

_FOLDER: Final = Path(__file__).resolve().parents[1] / "fixtures"


def load_fixture(name: str, version: int) -> dict[str, Any]:
    """Return a fixture's data.

    Raises:
        ValueError: the file says that it is another fixture or version.
    """
    data: dict[str, Any] = json.loads((_FOLDER / f"{name}.v{version}.json").read_text(encoding="utf-8"))
    if (data.get("fixture"), data.get("version")) != (name, version):
        raise ValueError(f"{name}.v{version}.json says that it is another fixture")
    return data
