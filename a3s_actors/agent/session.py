"""`AgentSession`: a conversation, its runs and its memory, one turn at a time.

The order of turns is a mailbox's: a caller asks for its turn, gets a permit when it is the first in line, and does the
turn in its own task. The serving task grants permits and does what outlives a turn: extraction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import attrs
import trio

from a3s_actors.actor.errors import EndOfMailbox
from a3s_actors.actor.lifetime import Lifetime, open_actor
from a3s_actors.actor.mailbox import Mailbox
from a3s_actors.agent.errors import SessionClosed, SessionNotSaved, TurnReentered
from a3s_actors.agent.extracting import Extraction, ExtractionJob
from a3s_actors.agent.extraction import ExtractionReport
from a3s_actors.agent.model import ModelMessage, Role
from a3s_actors.agent.options import SessionOptions
from a3s_actors.agent.reports import SessionCloseReport, SessionStatistics, TurnCompleted, TurnReply
from a3s_actors.agent.runs import RunEvent, RunLog, RunRecord, RunState, RunStep
from a3s_actors.agent.saving import SessionSaver
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.stream import Emit, TurnStream
from a3s_actors.agent.tools import Toolbox
from a3s_actors.agent.turn import Turn
from a3s_actors.memory._checks import check_text

if TYPE_CHECKING:
    from a3s_actors.agent.agent import Agent

__all__ = ["AgentSession"]

_MAX_PROMPT_BYTES: Final = 1 << 20
_MAX_EVENTS: Final = 64
_TURN_END_SECONDS: Final = 30.0


@attrs.define(eq=False)
class _Permit:
    """The right to do a turn."""

    session: AgentSession
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    released: trio.Event = attrs.field(factory=trio.Event)


# The turns that the current task is part of: a turn that waits for another one of its session waits for itself.
_turns: ContextVar[tuple[_Permit, ...]] = ContextVar("a3s_actors_turns", default=())


class AgentSession:
    """A session. Made by `Agent.open_session`, `Agent.resume_session` or `Agent.session`.

    Attributes:
        session_id: its name.
        workspace: the host's name of where it works.
        tenant_id, principal_id: whose it is.
        options: what the host gave.
    """

    def __init__(
        self, agent: Agent, session_id: str, workspace: str, options: SessionOptions, snapshot: SessionSnapshot | None
    ) -> None:
        self._agent = agent
        self.session_id = session_id
        self.workspace = workspace
        self.options = options
        self.tenant_id, self.principal_id = options.owner
        self._host = agent.host
        self._toolbox = Toolbox(options.tools)
        self._system_prompt = options.system_prompt
        self._messages: list[ModelMessage] = []
        runs: tuple[RunRecord, ...] = ()
        if snapshot is not None:
            self._messages = list(snapshot.messages)
            runs = snapshot.runs
            if self._system_prompt is None:
                self._system_prompt = snapshot.system_prompt
        self._runs = RunLog(session_id, options.max_retained_runs, runs)
        self._saver = SessionSaver(self, options.store, snapshot)
        self._mailbox: Mailbox[None, _Permit] = Mailbox(
            f"session {session_id}", options.max_waiting_turns, self._closed_error
        )
        self._failure: Exception | None = None
        self._lifetime: Lifetime | None = None
        self._nursery: trio.Nursery | None = None
        self._permit: _Permit | None = None
        self._extraction = None if options.extraction is None else Extraction(self, options.extraction)
        self._close_asked = trio.Event()
        self._ready = trio.Event()  # it has a nursery, or will never have one
        self._settled = trio.Event()  # it has a lifetime, or will never have one

    def __repr__(self) -> str:
        return f"<AgentSession {self.session_id!r} {'closed' if self.closed else 'open'}>"

    @property
    def closed(self) -> bool:
        """Whether it takes no more turns."""
        return self._close_asked.is_set() or (self._settled.is_set() and self._lifetime is None)

    @property
    def messages(self) -> tuple[ModelMessage, ...]:
        """The conversation of the completed turns."""
        return tuple(self._messages)

    @property
    def system_prompt(self) -> str | None:
        """The host's instructions."""
        return self._system_prompt

    def runs(self) -> tuple[RunRecord, ...]:
        """Return the retained runs, the oldest first."""
        return self._runs.all()

    def run(self, run_id: str) -> RunRecord | None:
        """Return a retained run, or None."""
        return self._runs.get(run_id)

    def extractions(self) -> tuple[ExtractionReport, ...]:
        """Return the reports of the last extractions, the oldest first."""
        return () if self._extraction is None else self._extraction.reports()

    def statistics(self) -> SessionStatistics:
        """Return what it is doing."""
        line = self._mailbox.statistics()
        work = self._extraction
        return SessionStatistics(
            waiting_turns=line.queued + line.waiting_for_space,
            turn_running=self._permit is not None,
            extractions_pending=0 if work is None else work.pending,
            extractions_skipped=0 if work is None else work.skipped,
        )

    async def send(self, prompt: str, *, run_id: str | None = None) -> TurnReply:
        """Say something, and return the model's answer. Waits in line while other turns go on.

        Args:
            prompt: the text, not blank, at most 1 MiB.
            run_id: the run's name; None: the host's generator makes one.

        Raises:
            InvalidInput, LimitExceeded: the prompt or the id is malformed; nothing happened.
            RunIdentityConflict: a run of that id is retained; no model was called.
            TurnReentered: called from within a turn of this session.
            SessionClosed: it is closed; `started` says whether the turn had begun.
            ModelError, ToolRoundsExceeded: the turn failed; the conversation is as it was.
            SessionStoreError: a mark could not be kept; the model was not called.
            SessionNotSaved: the turn is done, but not in the store yet.

        Cancellation: waiting in line, nothing happened. Later the turn is cancelled: its run says so, the conversation
        is as it was. Once the model's last answer is there, the turn is completed, saved and returned.
        """
        return await self._send(prompt, run_id, None)

    def stream(self, prompt: str, *, run_id: str | None = None) -> TurnStream:
        """Do the same as `send`, and give the events as they come; see `TurnStream`."""

        async def start(work: Callable[[], Awaitable[None]]) -> None:
            await self._ready.wait()
            if self._nursery is None:
                raise self._closed_error("closed")
            self._nursery.start_soon(work, name=f"session {self.session_id}: stream")

        return TurnStream(self.session_id, start, lambda emit: self._send(prompt, run_id, emit))

    async def delegate(self, prompt: str, options: SessionOptions | None = None) -> TurnReply:
        """Ask a child session with options of its own, in the caller's task; it is closed before this returns.

        The child inherits nothing: no durable memory, no tools, no store. May be called from a tool.

        Args:
            prompt: what to ask.
            options: the child's; None: those of a session without anything.

        Raises:
            AgentClosed, SessionInUse and what `send` raises.

        Cancellation: cancels the child's turn, and closes it.
        """
        async with self._agent.open_session(self.workspace, options) as child:
            return await child.send(prompt)

    async def save(self) -> None:
        """Save the session now. Without a store it does nothing.

        Raises:
            SessionStoreError: it could not be saved.

        Cancellation: as `SessionStore.save`.
        """
        await trio.lowlevel.checkpoint()
        await self._saver.save()

    async def wait_extracted(self) -> None:
        """Wait until no finished turn waits for its extraction.

        Cancellation: stops waiting, nothing else.
        """
        await trio.lowlevel.checkpoint()
        if self._extraction is not None:
            await self._extraction.wait_idle()

    async def close(self) -> SessionCloseReport:
        """Close the session and return its report; the same one however often it is called.

        Callers in line are refused at once. The running turn and the extractions settle, then they are cancelled,
        all within `close_seconds`.

        Cancellation: stops waiting; the closing goes on.
        """
        self._begin_close()
        await self._settled.wait()
        if self._lifetime is None:
            return self._report(joined=True)
        report = await self._lifetime.close()
        return self._report(
            joined=report.joined, cancelled=report.cancelled, aborted=report.aborted, elapsed=report.elapsed
        )

    # -- the life ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[None]:
        """Be open for the length of the block. Saves first: an id that somebody else owns is refused here."""
        try:
            await self._saver.claim()
            async with open_actor(
                f"session {self.session_id}", self._serve, mailbox=self._mailbox, settle=self.options.close_seconds
            ) as self._lifetime:
                self._settled.set()
                try:
                    yield
                finally:
                    self._begin_close()
        finally:
            self._begin_close()
            self._settled.set()
            self._ready.set()

    def _failed(self, cause: Exception) -> None:
        self._failure = cause

    def _closed_error(self, _reason: str) -> Exception:
        error = SessionClosed(self.session_id)
        error.__cause__ = self._failure
        return error

    def _begin_close(self) -> None:
        self._close_asked.set()
        self._mailbox.close("closed")

    async def _serve(self) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                self._ready.set()
                if self._extraction is not None:
                    self._nursery.start_soon(self._extraction.work, name=f"session {self.session_id}: extraction")
                try:
                    await self._grant()
                finally:
                    if self._extraction is not None:
                        self._extraction.finish()
        finally:
            self._nursery = None
            if self._saver.unsaved:
                # What the extractions noted after the last turn; bounded like every save.
                await self._saver.save_shielded()  # noqa: ASYNC102 - it shields itself, bounded

    async def _grant(self) -> None:
        try:
            while True:
                for request in await self._mailbox.receive():
                    permit = self._permit = _Permit(self)
                    request.succeed(permit)
                    try:
                        await permit.released.wait()
                    finally:
                        if not permit.released.is_set():
                            permit.scope.cancel()
                            # The turn is the caller's task: it is over before this one is, or reported as left behind.
                            with trio.move_on_after(_TURN_END_SECONDS, shield=True):
                                await permit.released.wait()
                        self._permit = None
        except EndOfMailbox:
            return

    def _report(
        self, *, joined: bool, cancelled: bool = False, aborted: bool = False, elapsed: float = 0.0
    ) -> SessionCloseReport:
        return SessionCloseReport(
            session_id=self.session_id,
            joined=joined,
            cancelled=cancelled,
            aborted=aborted,
            extractions_unfinished=0 if self._extraction is None else self._extraction.unfinished,
            saved=None if self.options.store is None else not self._saver.unsaved,
            elapsed=elapsed,
        )

    # -- turns -------------------------------------------------------------------------------------------------------

    async def _send(self, prompt: str, run_id: str | None, emit: Emit | None) -> TurnReply:
        check_text("prompt", prompt, _MAX_PROMPT_BYTES)
        if run_id is not None:
            check_text("run.id", run_id, 256)
        if any(permit.session is self and not permit.released.is_set() for permit in _turns.get()):
            await trio.lowlevel.checkpoint()
            raise TurnReentered(self.session_id)
        permit = await self._mailbox.ask(None)
        token = _turns.set((*_turns.get(), permit))
        try:
            with permit.scope:
                return await self._turn(prompt, run_id, emit)
        finally:
            _turns.reset(token)
            permit.released.set()
        raise SessionClosed(self.session_id, True)  # its scope was cancelled by the close

    async def _turn(self, prompt: str, run_id: str | None, emit: Emit | None) -> TurnReply:
        record = RunRecord(run_id=self._host.name("run") if run_id is None else run_id, started_at=self._host.now())
        self._runs.reserve(record)
        self._saver.touch()
        turn = Turn(
            session=self,
            client=self._agent.model_client,
            host=self._host,
            options=self.options,
            toolbox=self._toolbox,
            prompt=prompt,
            record=record,
            history=tuple(self._messages),
            system_prompt=self._system_prompt,
            emit=emit,
            mark=None if self.options.store is None else self._saver.mark,
            changed=self._runs.replace,
        )
        try:
            await trio.lowlevel.checkpoint()
            reply = await turn.run()
        except BaseException as error:
            step = RunStep.CANCEL if _is_cancelled(error) else RunStep.FAIL
            self._end(turn.record, step, type(error).__name__[:64])
            await self._saver.save_shielded()  # noqa: ASYNC102 - it shields itself, bounded
            raise
        self._keep(turn.messages)
        self._end(turn.record, RunStep.COMPLETE, "")
        if self._extraction is not None:
            self._extraction.submit(
                ExtractionJob(
                    run_id=record.run_id,
                    messages=tuple(turn.messages),
                    context_ids=turn.context_ids,
                    ended_at=self._host.now(),
                )
            )
        if not await self._saver.save_shielded():
            raise SessionNotSaved(self.session_id, record.run_id)
        if emit is not None:
            await emit(TurnCompleted(reply))
        return reply

    def _end(self, record: RunRecord, step: RunStep, error: str) -> None:
        self._runs.replace(record.after(step, self._host.now(), error))
        self._saver.touch()

    def _keep(self, messages: list[ModelMessage]) -> None:
        self._messages += messages
        excess = len(self._messages) - self.options.max_history_messages
        if excess > 0:
            # Whole turns go: a tool's result without its call is no conversation.
            starts = [place for place, each in enumerate(self._messages) if each.role is Role.USER]
            cut = next((place for place in starts if place >= excess), len(self._messages))
            del self._messages[:cut]

    def _note_extraction(self, report: ExtractionReport) -> None:
        run = self._runs.get(report.run_id)
        if run is None or run.state is not RunState.COMPLETED:
            return
        refused = sum(report.refused.values())
        detail = report.error or f"accepted={len(report.accepted)} items={len(report.items)} refused={refused}"
        event = RunEvent(name="extraction", detail=detail, at=self._host.now())
        self._runs.replace(run.with_event(event, _MAX_EVENTS))
        self._saver.touch()


def _is_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)
