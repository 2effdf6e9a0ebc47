"""The command line `a3s-actors`. Needs the extra `cli`.

Modules: `app` (the commands' registry and global options), `running` (from a command to an exit code), `output`
(tables and JSON), `values` (options to kernel values), `reasons` (the texts of `--because`), `sources` (files to
memories), `export`, and the commands: `reading`, `changing`, `reviewing`, `files`, `admin`, `upkeep`, `demo`,
`chat` (with `chat_input`, `chat_talk`, `chat_commands`, `chat_show`, `chat_script`).
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line with the process's arguments; ends with `SystemExit`."""
    try:
        import markdown_it  # noqa: F401 - only looked for
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name not in {"markdown_it", "rich", "typer"}:
            raise
        sys.stderr.write(
            f"error: the command line needs {missing.name}, which is not installed; "
            "install the extra: pip install 'a3s-actors[cli]'\n"
        )
        raise SystemExit(2) from None
    from a3s_actors.cli.app import run

    run()
