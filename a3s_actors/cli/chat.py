"""The command `chat`: a conversation in the terminal with a model and with the memories of one namespace."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import attrs
import trio
import typer

from a3s_actors.agent.agent import Agent, open_agent
from a3s_actors.agent.errors import SessionNotFound
from a3s_actors.agent.extraction import ExtractionPolicy
from a3s_actors.agent.host import random_id
from a3s_actors.agent.model import ModelClient
from a3s_actors.agent.options import SessionOptions
from a3s_actors.agent.runs import RunState
from a3s_actors.agent.session import AgentSession
from a3s_actors.agent.store import StoredSession
from a3s_actors.cli.app import command
from a3s_actors.cli.chat_commands import Commands
from a3s_actors.cli.chat_input import Lines
from a3s_actors.cli.chat_script import ScriptClient, read_chat_script
from a3s_actors.cli.chat_show import note, tell_interrupted
from a3s_actors.cli.chat_talk import Interrupts, Talk
from a3s_actors.cli.output import namespace_text, one_line
from a3s_actors.cli.running import BadInput, Refused, Where
from a3s_actors.recall import DurableMemoryBindingMismatch, DurableMemoryRecallPolicy, DurableMemorySession

if TYPE_CHECKING:
    from a3s_actors.agent.store import SessionStore

__all__ = ["sessions_file"]

_KEY: Final = "OPENAI_API_KEY"
_CLOSE_SECONDS: Final = 2.0


def sessions_file(repository: Path) -> Path:
    """Return the file of the sessions that belong to a repository's file."""
    return repository.with_name(repository.name + ".sessions.db")


@attrs.frozen
class _Model:
    """Who answers, as options say it."""

    model: str | None
    base_url: str | None
    key_env: str | None
    script: str | None

    def __attrs_post_init__(self) -> None:
        if self.script is not None:
            if self.model or self.base_url or self.key_env:
                raise BadInput("give either --script or --model with --base-url")
        elif not self.model or not self.base_url:
            raise BadInput("no model: give --model M and --base-url URL; or try it with: --script example")
        elif self.key_env is not None and not os.environ.get(self.key_env, "").strip():
            raise BadInput("--key-env: that environment variable is not set, or empty")

    @property
    def key(self) -> str | None:
        """The environment variable that has the key, if any has."""
        return self.key_env or (_KEY if os.environ.get(_KEY, "").strip() else None)

    def __str__(self) -> str:
        if self.script is not None:
            return f"script {one_line(self.script)}"
        key = "no key" if self.key is None else f"key from {one_line(self.key)}"
        return f"model {one_line(self.model or '')}, {key}"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ModelClient]:
        """Open the client for the length of the block.

        Raises:
            BadInput: the script is none, or the extra is not installed.
            InvalidInput: the model, the address or the key is malformed.
        """
        await trio.lowlevel.checkpoint()
        if self.script is not None:
            yield ScriptClient(read_chat_script(self.script))
            return
        from a3s_backends.openai_http import api_key_from_environment, open_openai_http

        key = None if self.key is None else api_key_from_environment(self.key)
        async with AsyncExitStack() as stack:
            try:
                opened = open_openai_http(self.base_url or "", self.model or "", api_key=key)
                client = await stack.enter_async_context(opened)
            except ModuleNotFoundError as missing:
                if "[openai]" not in str(missing):
                    raise
                raise BadInput(str(missing)) from None
            yield client


async def _stored(store: SessionStore, name: str) -> StoredSession | None:
    try:
        return await store.load(name)
    except SessionNotFound:
        return None


@asynccontextmanager
async def _session(agent: Agent, options: SessionOptions, name: str | None) -> AsyncIterator[AgentSession]:
    """Resume the session of that name, or begin it, and say which."""
    assert options.store is not None
    chosen = random_id("session") if name is None else name
    stored = await _stored(options.store, chosen)
    if stored is None:
        async with agent.open_session("chat", attrs.evolve(options, session_id=chosen)) as session:
            resume = f"; resume it with: a3s-actors chat {one_line(chosen)}" if name is None else ""
            note(f"session {one_line(chosen)}, new{resume}")
            yield session
        return
    known = {run.run_id for run in stored.snapshot.runs if run.state is RunState.INTERRUPTED}
    try:
        async with agent.resume_session(chosen, options) as session:
            note(f"session {one_line(chosen)}, resumed: {len(session.messages)} messages")
            for run in session.runs():
                if run.state is RunState.INTERRUPTED and run.run_id not in known:
                    tell_interrupted(run)
            yield session
    except DurableMemoryBindingMismatch as mismatch:
        raise Refused(
            f"DurableMemoryBindingMismatch: {mismatch}; the session {one_line(chosen)} goes on with its own "
            "namespace, --max-results, --min-score and --related only; or begin another one"
        ) from None


@command("chat")
async def chat(
    where: Where,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The session: begun, or resumed where it is known.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="M", help="The model's name at the server.")] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="An OpenAI-compatible server: https://api.openai.com/v1"),
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option(
            "--key-env", metavar="NAME", help=f"The environment variable that has the key; default: {_KEY}, if set."
        ),
    ] = None,
    script: Annotated[
        str | None,
        typer.Option("--script", metavar="FILE", help="Play a script in place of a model; 'example' ships with this."),
    ] = None,
    max_results: Annotated[int, typer.Option("--max-results", help="1 to 100 memories a turn.")] = 5,
    min_score: Annotated[float, typer.Option("--min-score", help="0 to 1: share of the text's words.")] = 0.4,
    related: Annotated[int, typer.Option("--related", help="How many related memories may be read, 0 to 100.")] = 0,
    extract: Annotated[
        bool, typer.Option("--extract/--no-extract", help="Whether turns are looked through for candidates.")
    ] = True,
) -> None:
    """Talk with a model that recalls the namespace's memories; shows which, and why.

    Sessions are kept in FILE.sessions.db. Inside, /help lists the commands. Reads from a pipe, too: exit code 1 when
    a turn failed.
    """
    policy = DurableMemoryRecallPolicy(max_results, min_score, related)
    chosen, namespace, file = _Model(model, base_url, key_env, script), where.namespace, where.existing()
    from a3s_backends.sqlite_sessions import open_sqlite_session_store

    lines, interrupts = Lines(), Interrupts()
    async with (
        chosen.open() as client,
        where.open() as repository,
        open_sqlite_session_store(sessions_file(file)) as store,
        open_agent(client) as agent,
    ):
        durable = DurableMemorySession.active_recall(repository, namespace, policy)
        options = SessionOptions(
            durable_memory=durable,
            extraction=ExtractionPolicy() if extract else None,
            store=store,
            redact_transcript=True,
            close_seconds=_CLOSE_SECONDS,
        )
        note(f"memory {namespace_text(namespace)} in {one_line(str(file))}; {chosen}")
        note(f"conversations are kept in {one_line(str(store.path))}")
        async with _session(agent, options, name) as session, trio.open_nursery() as nursery:
            talk = Talk(lines, interrupts, session)
            with ExitStack() as stack:
                if lines.from_terminal:
                    stack.enter_context(interrupts.listening(nursery))
                    note("/help lists the commands, /quit or Ctrl-D ends")
                await talk.run(Commands(where, repository, durable, session.session_id, talk.ask))
            nursery.cancel_scope.cancel()
    if talk.failures and not lines.from_terminal:
        raise Refused(f"{talk.failures} of the lines failed")
