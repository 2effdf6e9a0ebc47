"""Runs the command line in this process, as tests need it: quick, with the exit code, stdout and stderr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
from typer.testing import CliRunner

from a3s_actors.cli import admin, app, changing, chat, demo, files, reading, reviewing, upkeep

assert all((admin, changing, chat, demo, files, reading, reviewing, upkeep))  # they register commands

TENANT = ["--tenant", "acme", "--principal", "alice", "--scope", "project"]


@attrs.frozen
class Answer:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The only line of stdout, as JSON."""
        (line,) = self.out.splitlines()
        return json.loads(line)


class Cli:
    """One repository file and namespace, driven by commands."""

    def __init__(self, folder: Path) -> None:
        self.db = folder / "memory.db"

    def raw(self, *words: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Answer:
        """Run a command with these words alone."""
        cleared = {f"A3S_{name}": None for name in ("DB", "TENANT", "PRINCIPAL", "SCOPE", "DEBUG")}
        runner = CliRunner(env={**cleared, "COLUMNS": "200", **(env or {})})
        result = runner.invoke(app._app, list(words), input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def run(self, *words: str, stdin: str | bytes | None = None) -> Answer:
        """Run a command on the file and namespace."""
        return self.raw("--db", str(self.db), *TENANT, *words, stdin=stdin)

    def ok(self, *words: str, stdin: str | bytes | None = None) -> Answer:
        """Run a command that must succeed."""
        answer = self.run(*words, stdin=stdin)
        assert answer.code == 0, answer.err
        return answer

    def node(self, node_id: str) -> Any:
        """Return a whole memory as parsed JSON."""
        return self.ok("show", node_id, "--json").json
