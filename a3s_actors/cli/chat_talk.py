"""The conversation itself: prompts, turns, Ctrl-C, and what a turn left behind."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from a3s_actors.agent.errors import AgentError, SessionClosed, SessionStoreConflict
from a3s_actors.agent.model import FinishReason
from a3s_actors.agent.reports import TurnCompleted, TurnContext, TurnStarted, TurnText
from a3s_actors.agent.runs import RunState
from a3s_actors.agent.session import AgentSession
from a3s_actors.cli.chat_commands import Commands
from a3s_actors.cli.chat_input import Lines
from a3s_actors.cli.chat_show import ReplyPrinter, note, tell_context, tell_extraction
from a3s_actors.cli.reviewing import EndOfInput
from a3s_actors.cli.running import Refused
from a3s_actors.memory.errors import ErrorFamily, MemoryRepositoryError

__all__ = ["Interrupts", "Talk"]

_PROMPT: Final = "> "
_GRACE_SECONDS: Final = 0.3
_FATAL: Final = {ErrorFamily.CORRUPT, ErrorFamily.CLOSED}


class Interrupts:
    """Ctrl-C ends what goes on, and nothing else."""

    def __init__(self) -> None:
        self._scope: trio.CancelScope | None = None

    @contextmanager
    def during(self) -> Iterator[trio.CancelScope]:
        """Give the scope that the next Ctrl-C cancels."""
        before = self._scope
        with trio.CancelScope() as scope:
            self._scope = scope
            try:
                yield scope
            finally:
                self._scope = before

    @contextmanager
    def listening(self, nursery: trio.Nursery) -> Iterator[None]:
        """Receive the signals for the length of the block, which has to end before the nursery does."""
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            nursery.start_soon(self._watch, signals, name="chat: Ctrl-C")
            yield

    async def _watch(self, signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            if self._scope is not None:
                self._scope.cancel()


@attrs.define(eq=False)
class Talk:
    """One conversation, until its input ends.

    Args:
        lines: what is said.
        interrupts: who knows of Ctrl-C.
        session: the agent's session.

    Attributes:
        failures: how many turns and commands failed or were refused.
    """

    lines: Lines = attrs.field(repr=False)
    interrupts: Interrupts = attrs.field(repr=False)
    session: AgentSession
    failures: int = 0
    _told: set[str] = attrs.field(factory=set, init=False, repr=False)
    _at_prompt: str | None = attrs.field(default=None, init=False, repr=False)
    _armed: bool = attrs.field(default=False, init=False, repr=False)

    async def ask(self, prompt: str) -> str:
        """Ask the person something in the middle of a command.

        Raises:
            EndOfInput: there is no answer any more.

        Cancellation: a checkpoint.
        """
        line = await self._read(prompt)
        if line is None:
            raise EndOfInput
        return line.strip()

    async def run(self, commands: Commands) -> None:
        """Talk until `/quit`, or until the input has ended.

        Raises:
            AgentError, MemoryRepositoryError: the session or the file cannot go on.
            KeyboardInterrupt: Ctrl-C a second time, at the prompt.

        Cancellation: cancels the turn; nothing of it enters the conversation.
        """
        async with trio.open_nursery() as nursery:
            while True:
                with self.interrupts.during() as scope:
                    line = await self._read(_PROMPT)
                if scope.cancelled_caught:
                    self._interrupted_prompt()
                    continue
                self._armed = False
                if line is None:
                    break
                if line.strip() and not await self._one(line.strip(), commands, nursery):
                    break
            nursery.cancel_scope.cancel()
        await self._leave()

    def _interrupted_prompt(self) -> None:
        self.lines.forget()
        sys.stdout.write("\n")
        if self._armed:
            raise KeyboardInterrupt
        self._armed = True
        note("Ctrl-C once more, or Ctrl-D, ends the chat")

    async def _read(self, prompt: str) -> str | None:
        if self.lines.from_terminal:
            sys.stdout.write(prompt)
            self._at_prompt = prompt
        sys.stdout.flush()
        try:
            line = await self.lines.next()
        finally:
            self._at_prompt = None
        if line is None and self.lines.from_terminal:
            sys.stdout.write("\n")
        return line

    async def _one(self, text: str, commands: Commands, nursery: trio.Nursery) -> bool:
        """Do what a line says; return whether the chat goes on."""
        go_on = True
        with self.interrupts.during() as scope:
            try:
                if text.startswith("/") and not text.startswith("//"):
                    go_on = await commands.run(text)
                else:
                    await self._turn(text[1:] if text.startswith("//") else text, commands)
                    await self._extracted(nursery)
            except EndOfInput:
                go_on = False
            except (AgentError, MemoryRepositoryError, Refused) as error:
                if _is_fatal(error):
                    raise
                self.failures += 1
                kind = "refused" if isinstance(error, Refused) else type(error).__name__
                note(f"{kind}: {error}", style="red")
        if scope.cancelled_caught:
            self._armed = True
            self.lines.forget()
            note("given up; the chat goes on")
        return go_on

    async def _turn(self, text: str, commands: Commands) -> None:
        printer = ReplyPrinter()
        run_id = ""
        commands.last = None
        try:
            async with self.session.stream(text) as events:
                async for event in events:
                    if isinstance(event, TurnStarted):
                        run_id = event.run_id
                    elif isinstance(event, TurnContext):
                        commands.last = event.report
                    elif isinstance(event, TurnText):
                        printer.add(event.text)
                    elif isinstance(event, TurnCompleted) and event.reply.finish_reason is not FinishReason.STOP:
                        printer.end()
                        note(f"the model stopped: {event.reply.finish_reason.value}", style="yellow")
        finally:
            printer.end()
            if commands.last is not None:
                tell_context(commands.last)
            run = self.session.run(run_id) if run_id else None
            if run is not None and run.state is RunState.CANCELLED:
                note("cancelled: nothing of this turn enters the conversation", style="yellow")

    async def _extracted(self, nursery: trio.Nursery) -> None:
        """Wait for what the turn leaves behind: for a moment when a person waits for the prompt, else to its end."""
        if not self.lines.from_terminal:
            await self.session.wait_extracted()
        else:
            with trio.move_on_after(_GRACE_SECONDS):
                await self.session.wait_extracted()
        self._tell_extractions()
        if self.session.statistics().extractions_pending:
            nursery.start_soon(self._tell_later, name="chat: tell of an extraction")

    async def _tell_later(self) -> None:
        await self.session.wait_extracted()
        prompt = self._at_prompt
        if prompt is not None and any(each.run_id not in self._told for each in self.session.extractions()):
            sys.stdout.write("\n")
            self._tell_extractions()
            sys.stdout.write(prompt)
            sys.stdout.flush()

    def _tell_extractions(self) -> None:
        for report in self.session.extractions():
            if report.run_id not in self._told:
                self._told.add(report.run_id)
                tell_extraction(report)

    async def _leave(self) -> None:
        if self.session.statistics().extractions_pending:
            note("a moment: the last turns are looked through; Ctrl-C gives that up")
            with self.interrupts.during():
                await self.session.wait_extracted()
        self._tell_extractions()


def _is_fatal(error: Exception) -> bool:
    """Whether no later turn can succeed."""
    if isinstance(error, SessionClosed | SessionStoreConflict):
        return True
    return isinstance(error, MemoryRepositoryError) and error.family in _FATAL
