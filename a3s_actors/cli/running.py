"""From a command to an exit code: 0 done, 1 refused, 2 bad input, 130 interrupted. Never a traceback."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import attrs
import trio

from a3s_actors.agent.errors import AgentError
from a3s_actors.cli.output import json_text, safe
from a3s_actors.memory.errors import ErrorFamily, MemoryRepositoryError
from a3s_actors.memory.values import MemoryNamespace

if TYPE_CHECKING:
    from a3s_backends.sqlite.repository import SqliteMemoryRepository

__all__ = ["BadInput", "Refused", "Where", "error_json", "execute", "exit_code"]


class BadInput(Exception):
    """The command was given something it cannot work with. The text says what, and the cure."""


class Refused(Exception):
    """The command was understood and not done, or found something wrong. The text says why."""


@attrs.frozen
class Where:
    """The file and namespace that a command works on, as far as options and environment name them."""

    db: str | None = None
    tenant: str | None = None
    principal: str | None = None
    scope: str | None = None

    @property
    def file(self) -> Path:
        """The repository file.

        Raises:
            BadInput: it is not named.
        """
        if not self.db:
            raise BadInput("no file: give --db FILE or set A3S_DB")
        return Path(self.db)

    @property
    def namespace(self) -> MemoryNamespace:
        """The exact namespace.

        Raises:
            BadInput: a part is not named; there is no default.
            InvalidInput, LimitExceeded: a part is malformed.
        """
        parts = {"tenant": self.tenant, "principal": self.principal, "scope": self.scope}
        missing = [name for name, value in parts.items() if value is None]
        if missing:
            cures = ", ".join(f"--{name} or A3S_{name.upper()}" for name in missing)
            raise BadInput(f"no {' and no '.join(missing)}: there is no default, give {cures}")
        return MemoryNamespace(*(value for value in parts.values() if value is not None))

    @property
    def names_part_of_namespace(self) -> bool:
        """Whether any part of a namespace is named."""
        return any(value is not None for value in (self.tenant, self.principal, self.scope))

    def existing(self) -> Path:
        """Return the repository file, which must be there.

        Raises:
            BadInput: it is not named, or missing.
        """
        file = self.file
        if not file.exists():
            raise BadInput(f"{file}: there is no such file; correct --db, or make it with: a3s-actors --db FILE init")
        return file

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SqliteMemoryRepository]:
        """Open the existing file for the length of the block. Raises as `open_sqlite_repository`."""
        from a3s_backends.sqlite import open_sqlite_repository

        async with open_sqlite_repository(self.existing(), create=False) as repository:
            yield repository


def exit_code(error: BaseException) -> int:
    """Return the exit code that an error stands for."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, BadInput):
        return 2
    if isinstance(error, MemoryRepositoryError) and error.family is ErrorFamily.INVALID:
        return 2
    return 1


def error_json(error: BaseException) -> str:
    """Return an error as one JSON object: its kind under "error", and its fields in camelCase."""
    fields = error.fields() if isinstance(error, MemoryRepositoryError | AgentError) else {"message": str(error)}
    known = isinstance(error, MemoryRepositoryError | AgentError | BadInput | Refused)
    kind = type(error).__name__ if known else "InternalError"
    return json_text({"error": kind, **{_camel(name): value for name, value in fields.items()}})


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def execute(body: Callable[[], Awaitable[None]], *, json: bool = False) -> NoReturn:
    """Run a command under trio and end the process's work with its exit code.

    Args:
        body: the command.
        json: whether errors are told as JSON, too.

    Raises:
        SystemExit: always.
    """
    try:
        trio.run(body)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except SystemExit:
        raise
    except BaseException as error:  # noqa: ASYNC103, BLE001 - this is the process's outermost door
        leaves = list(_leaves(error))
        _exit_with(next((leaf for leaf in leaves if isinstance(leaf, KeyboardInterrupt)), leaves[0]), json=json)
    raise SystemExit(0)


def _exit_with(error: BaseException, *, json: bool) -> NoReturn:
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    known = isinstance(error, MemoryRepositoryError | AgentError | BadInput | Refused)
    if os.environ.get("A3S_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        message = "interrupted"
    elif json:
        message = ""
        sys.stderr.write(error_json(error) + "\n")
    elif known:
        message = str(error) if isinstance(error, BadInput | Refused) else f"{type(error).__name__}: {error}"
    elif isinstance(error, OSError):
        message = f"{error.filename or 'input/output'}: {error.strerror or type(error).__name__}"
    else:
        message = f"internal error ({type(error).__name__}); run again with A3S_DEBUG=1 and report what it prints"
    if message:
        sys.stdout.flush()
        sys.stderr.write(f"error: {safe(message)}\n" if message != "interrupted" else "interrupted\n")
    raise SystemExit(exit_code(error)) from None
