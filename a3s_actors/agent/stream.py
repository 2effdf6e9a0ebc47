"""`TurnStream`: a turn's events as they come, by `async for`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final

import attrs
import trio

from a3s_actors.agent.errors import SessionClosed
from a3s_actors.agent.reports import TurnEvent

__all__ = ["TurnStream"]

_AHEAD: Final = 32
_SETTLE_SECONDS: Final = 10.0

Emit = Callable[[TurnEvent], Awaitable[None]]


@attrs.define(eq=False)
class _Work:
    """The turn's side, apart from the stream: so that a stream that nobody holds any more can end it."""

    session_id: str
    turn: Callable[[Emit], Awaitable[object]]
    send: trio.MemorySendChannel[TurnEvent]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)
    error: Exception | None = None

    async def run(self) -> None:
        self.error = SessionClosed(self.session_id, True)  # unless the turn itself says otherwise
        try:
            with self.scope:
                await self.turn(self.send.send)
                self.error = None
        except Exception as error:  # noqa: BLE001 - it is the stream's to raise
            self.error = error
        finally:
            self.send.close()
            self.done.set()


class TurnStream:
    """The events of one turn: `TurnStarted`, `TurnContext`, `TurnText`s, `TurnTool`s, and `TurnCompleted`.

        async for event in session.stream("…"):
            ...

    The turn begins with the first step of the iteration, runs in the session's nursery, and is at most 32 events ahead.
    Leaving the loop early (or dropping the stream) cancels it; `async with session.stream("…") as events` also waits
    until it is over. Raises what `AgentSession.send` raises.

    Cancellation: cancelled while it waits for an event, the turn is cancelled, and over when the call ends.
    """

    def __init__(
        self,
        session_id: str,
        start: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
        turn: Callable[[Emit], Awaitable[object]],
    ) -> None:
        send, self._receive = trio.open_memory_channel[TurnEvent](_AHEAD)
        self._work = _Work(session_id, turn, send)
        self._start = start
        self._started = False

    def __aiter__(self) -> TurnStream:
        return self

    async def __anext__(self) -> TurnEvent:
        work = self._work
        if not self._started:
            self._started = True
            try:
                await self._start(work.run)
            except BaseException:
                work.done.set()
                raise
        try:
            return await self._receive.receive()
        except trio.Cancelled:
            await self._end()  # noqa: ASYNC102 - it shields itself, bounded
            raise
        except (trio.EndOfChannel, trio.ClosedResourceError):
            error, work.error = work.error, None
            if error is not None:
                raise error from error.__cause__
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Cancel the turn, unless it is over, and wait until it is. Idempotent."""
        if not self._started:
            self._started = True
            self._work.done.set()
            self._work.send.close()
        await self._end()
        self._receive.close()
        await trio.lowlevel.checkpoint()

    async def _end(self) -> None:
        self._work.scope.cancel()
        # Bounded: a tool that ignores its cancellation keeps its turn, not this caller.
        with trio.move_on_after(_SETTLE_SECONDS, shield=True):
            await self._work.done.wait()

    async def __aenter__(self) -> TurnStream:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._started and not self._work.done.is_set() and trio.lowlevel.in_trio_run():
            self._work.scope.cancel()
