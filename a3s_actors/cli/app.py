"""The registry of commands, and the options that all of them share."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, get_type_hints

import typer

from a3s_actors._version import __version__
from a3s_actors.cli.running import Where, execute

__all__ = ["AsJson", "command", "run"]

_app = typer.Typer(
    name="a3s-actors",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Durable memories with evidence, in one SQLite file.\n\n"
    "File and namespace: --db, --tenant, --principal and --scope, before or after the command, or the environment "
    "variables A3S_DB, A3S_TENANT, A3S_PRINCIPAL and A3S_SCOPE. Exit codes: 0 done, 1 refused, 2 bad input.",
)

_ORDER: Final = [
    *("demo", "init", "import", "propose", "review"),
    *("activate", "corroborate", "revise", "supersede", "conflict", "relate", "unrelate", "tombstone"),
    "chat",
    *("recall", "query", "list", "show", "history", "audit", "use"),
    *("stats", "namespaces", "verify", "doctor", "snapshot", "backup", "restore", "export", "apply"),
    *("purge", "roll-up"),
]
"""The order of the commands in the help: as a newcomer meets them."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
"""The option of commands that can answer in JSON."""

_groups: Final = {"journal": typer.Typer(help="Exchange with journals of the a3s-memory crate's format.")}
for _name, _group in _groups.items():
    _app.add_typer(_group, name=_name)

_Db = Annotated[str | None, typer.Option("--db", metavar="FILE", help="The repository file. [env: A3S_DB]")]
_Tenant = Annotated[str | None, typer.Option("--tenant", metavar="T", help="Tenant. [env: A3S_TENANT]")]
_Principal = Annotated[str | None, typer.Option("--principal", metavar="P", help="Principal. [env: A3S_PRINCIPAL]")]
_Scope = Annotated[str | None, typer.Option("--scope", metavar="S", help="Scope. [env: A3S_SCOPE]")]
_SHARED: Final = {"db": _Db, "tenant": _Tenant, "principal": _Principal, "scope": _Scope}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@_app.callback()
def _root(
    context: typer.Context,
    db: _Db = None,
    tenant: _Tenant = None,
    principal: _Principal = None,
    scope: _Scope = None,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    context.obj = {"db": db, "tenant": tenant, "principal": principal, "scope": scope}


def command(name: str) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
    """Register an async function as a command; "journal import" is the command import of the group journal.

    Its first parameter is the `Where`; the others become arguments and options. The shared options are added, so
    that they may stand before or after the command's name; what stands after goes first, the environment last.
    """

    def register(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        hints = get_type_hints(function, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        ]
        shared = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for each, kind in _SHARED.items()
        ]

        @functools.wraps(function)
        def run_command(typer_context: typer.Context, **values: Any) -> None:
            where = _where(typer_context.obj or {}, {each: values.pop(each) for each in _SHARED})
            execute(lambda: function(where, **values), json=bool(values.get("json")))

        context = inspect.Parameter("typer_context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        parameters = [context, *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *shared]
        run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run_command.__annotations__ = {each.name: each.annotation for each in parameters}
        del run_command.__wrapped__  # or inspection would look behind the wrapper
        group, _, own_name = name.rpartition(" ")
        # Given, or the list of commands would cut the first sentence off in the middle.
        short = (function.__doc__ or "").split("\n")[0]
        (_groups[group] if group else _app).command(own_name, short_help=short)(run_command)
        return function

    return register


def _where(before: dict[str, str | None], after: dict[str, str | None]) -> Where:
    def value(name: str) -> str | None:
        for given in (after[name], before.get(name), os.environ.get(f"A3S_{name.upper()}")):
            if given is not None:
                return given
        return None

    return Where(**{name: value(name) for name in _SHARED})


def run() -> None:
    """Run the command line with the process's arguments; ends with `SystemExit`."""
    for stream in (sys.stdout, sys.stderr):
        # JSON is UTF-8 whatever the locale says, and a strange path must not end in a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    from a3s_actors.cli import admin, changing, chat, demo, files, reading, reviewing, upkeep  # noqa: F401 - they register commands

    _app.registered_commands.sort(key=lambda each: _ORDER.index(each.name or ""))
    try:
        _app()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
