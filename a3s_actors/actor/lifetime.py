"""The lifetime of an actor: a serving task in a nursery of its own, and a bounded, reported end.

Closing is settle, then cancel, then report, under one total deadline. It runs in a task of its own, so that neither
a second caller of `close` nor a cancelled one can disturb it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from a3s_actors.actor.errors import EndOfMailbox
from a3s_actors.actor.events import warn
from a3s_actors.actor.lifecycle import LIFE, LifeEvent, LifeState
from a3s_actors.actor.mailbox import Mailbox

__all__ = ["CloseReport", "LifeState", "Lifetime", "open_actor"]

# How much of the total deadline belongs to the cancelling phase: a fifth, but enough for one clean-up.
_CANCEL_SHARE = 0.2
_CANCEL_LEAST = 0.05  # seconds


@attrs.frozen(kw_only=True)
class CloseReport:
    """How an actor ended. Exactly one of `joined`, `cancelled` and `aborted` is true.

    Attributes:
        name: The actor's name.
        joined: The serving task ended by itself: its work is settled.
        cancelled: It had to be cancelled, and ended then.
        aborted: It was still there at the total deadline; `close` returned without it.
        unanswered: Callers that were woken with the typed error because nobody had answered them.
        failures: The type names of the serving task's exception, if any; the exception itself comes out of the
            `async with` block.
        elapsed: Seconds from the beginning of the close to the report, on trio's clock.
    """

    name: str
    joined: bool
    cancelled: bool
    aborted: bool
    unanswered: int
    failures: tuple[str, ...]
    elapsed: float


class Lifetime:
    """An open actor, as `open_actor` yields it.

    Attributes:
        name: The actor's name.
        settle: The total deadline of closing, in seconds.
    """

    def __init__(
        self, name: str, serve: Callable[[], Awaitable[object]], mailbox: Mailbox[Any, Any], settle: float
    ) -> None:
        self.name = name
        self.settle = settle
        self._serve = serve
        self._mailbox = mailbox
        self._state = LifeState.OPENING
        self._nursery: trio.Nursery | None = None
        # Cancelling the caller's scope ends the body, and the end of the body ends the serving task, in order.
        # The shield's bound is the total deadline of closing.
        self._serve_scope = trio.CancelScope(shield=True)
        self._body_scope = trio.CancelScope()
        self._ended = trio.Event()  # the serving task has ended
        self._closed = trio.Event()  # the report is written
        self._failure: BaseException | None = None
        self._report: CloseReport | None = None

    def __repr__(self) -> str:
        return f"<Lifetime {self.name!r} {self._state.value}>"

    @property
    def state(self) -> LifeState:
        """Where the actor is in its life."""
        return self._state

    @property
    def close_report(self) -> CloseReport | None:
        """How the actor ended; None before it has."""
        return self._report

    async def close(self) -> CloseReport:
        """Close the actor and return its report.

        Stops accepting requests and lets queued and running ones settle; then cancels the serving task; then
        wakes every caller that is still waiting with the typed error. The total time is bounded by `settle`
        (at least 50 ms). A serving task that ignores its cancellation, for instance in a thread, is reported as
        aborted: `close` returns, and only leaving the `async with` block waits for it.

        Idempotent: every call returns the same report, also after the block has been left. Any task may call it,
        several at a time. Called by the serving task itself it lasts until that task is cancelled.

        Cancellation: always a checkpoint. A cancelled call stops waiting; the closing goes on.

        Raises:
            RuntimeError: The actor has not been opened.
        """
        self._begin_close(LifeEvent.CLOSE)
        await self._closed.wait()
        assert self._report is not None
        return self._report

    def _start(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        nursery.start_soon(self._run_serve, name=f"{self.name}: serve")

    def _opened(self) -> None:
        if self._state is LifeState.OPENING:  # else the serving task has ended already
            self._state = LIFE.after(self._state, LifeEvent.START)

    def _begin_close(self, event: LifeEvent) -> None:
        if self._state not in (LifeState.OPENING, LifeState.SERVING):
            return
        if self._nursery is None:
            raise RuntimeError(f"actor {self.name}: not opened")
        self._state = LIFE.after(self._state, event)
        self._nursery.start_soon(self._shut_down, name=f"{self.name}: close")

    async def _run_serve(self) -> None:
        try:
            with self._serve_scope:
                await self._serve()
        except BaseException as exc:  # noqa: ASYNC103, BLE001 - kept, and raised from the block
            self._failure = _without_end(exc, self._mailbox.name)
        self._ended.set()
        if self._failure is None:
            if self._state is not LifeState.CLOSING:
                self._mailbox.close("ended")
            self._begin_close(LifeEvent.CLOSE)
        else:
            self._mailbox.close("failed", self._failure)
            self._begin_close(LifeEvent.FAIL)
            self._body_scope.cancel()

    async def _shut_down(self) -> None:
        began = trio.current_time()
        reserve = max(self.settle * _CANCEL_SHARE, _CANCEL_LEAST)
        settle_until = began + max(self.settle - reserve, 0.0)
        cancelled = False
        with trio.CancelScope(shield=True):  # bounded by the two deadlines below
            self._mailbox.stop_accepting("closed")
            with trio.move_on_at(settle_until):
                await self._ended.wait()
            if not self._ended.is_set():
                cancelled = True
                self._serve_scope.cancel()
                with trio.move_on_at(settle_until + reserve):
                    await self._ended.wait()
        ended = self._ended.is_set()
        left = self._mailbox.statistics()
        self._mailbox.close("closed")
        self._report = CloseReport(
            name=self.name,
            joined=ended and not cancelled,
            cancelled=ended and cancelled,
            aborted=not ended,
            unanswered=left.queued + left.running,
            failures=() if self._failure is None else (type(self._failure).__qualname__,),
            elapsed=trio.current_time() - began,
        )
        self._state = LIFE.after(self._state, LifeEvent.END)
        self._closed.set()
        if not ended:  # last: a logger of the host that raises must not keep anybody waiting
            warn("a3s_actors.actor", "actor_aborted", actor=self.name, settle=self.settle)


@asynccontextmanager
async def open_actor(
    name: str, serve: Callable[[], Awaitable[object]], *, mailbox: Mailbox[Any, Any], settle: float = 5.0
) -> AsyncIterator[Lifetime]:
    """Run `await serve()` in a task of its own for the length of the block; close the actor at its end.

    `serve` should loop over `mailbox.receive` and may let its `EndOfMailbox` out. Leaving the block closes as
    `Lifetime.close` does: settle, then cancel, then report, under the total deadline `settle`, of which a fifth, at
    least 50 ms, belongs to the cancelling phase. Then the block waits for the serving task to be really gone;
    trio cannot leave a task behind, so this wait is not bounded for a task that ignores cancellation.

    The serving task does not see a cancellation from outside: that ends the body, and then the actor closes in
    order. So work that has begun is finished within the bound.

    When `serve` returns early, callers get `ActorClosed` with the reason "ended", and the body goes on. When it
    raises, every caller is woken at once with `ActorFailed` (or the mailbox's own error type) and the body is
    cancelled.

    What comes out of the block:

    - the body's exception, the same object, not wrapped in an ExceptionGroup (a group that the body raises stays
      as it is);
    - the serving task's exception, likewise, when the body has none, or is only cancelled because of it;
    - the body's exception alone when the serving task's one is already among its causes;
    - both in one `BaseExceptionGroup` otherwise.

    Cancellation: entering is a checkpoint. A cancelled block leaves with `Cancelled` after the bounded close.

    Args:
        name: The actor's name, for task names, errors and the report.
        serve: The serving function.
        mailbox: The mailbox that it serves; the lifetime stops and closes it.
        settle: Total deadline of closing in seconds, finite, not negative; below 0.05 only the cancelling phase is
            left.

    Raises:
        ValueError: `name` is empty or `settle` is out of range.
    """
    if not name:
        raise ValueError("name: must not be empty")
    if not (math.isfinite(settle) and settle >= 0):
        raise ValueError("settle: must be a finite number of seconds, not negative")
    lifetime = Lifetime(name, serve, mailbox, settle)
    failures: list[BaseException] = []
    try:
        # Nothing is meant to come out of this nursery: failures are kept, so that they keep their shape.
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            lifetime._start(nursery)
            try:
                with lifetime._body_scope:
                    await trio.lowlevel.checkpoint()
                    lifetime._opened()
                    yield lifetime
            except BaseException as exc:  # noqa: ASYNC103, BLE001 - raised again below
                failures.append(exc)
            with trio.CancelScope(shield=True):  # bounded by the deadline of closing
                await lifetime.close()
    except BaseExceptionGroup as group:
        # A KeyboardInterrupt while closing.
        failures.append(group.exceptions[0] if len(group.exceptions) == 1 else group)
    failure = lifetime._failure
    if failure is not None and not any(_mentions(exc, failure) for exc in failures):
        failures.append(failure)
    if failures:
        _raise(name, failures)


def _raise(name: str, failures: list[BaseException]) -> None:
    exception = failures[0]
    if len(failures) > 1:
        exception = BaseExceptionGroup(f"actor {name}: the block and its serving task", failures)
    context = exception.__context__
    try:
        raise exception
    finally:
        # `raise` has put the exception that the leaving block handles into the context: it is not the reason.
        exception.__context__ = context
        failures.clear()
        del exception, context  # no cycle through this frame


def _without_end(exc: BaseException, mailbox: str) -> BaseException | None:
    """Return what is left of `exc` when the normal end of the mailbox is taken away."""

    def is_end(leaf: BaseException) -> bool:
        return isinstance(leaf, EndOfMailbox) and leaf.actor == mailbox

    if isinstance(exc, BaseExceptionGroup):
        return exc.split(is_end)[1]
    return None if is_end(exc) else exc


def _mentions(exc: BaseException, wanted: BaseException) -> bool:
    """Whether `wanted` is `exc`, one of its members, or among their causes and contexts."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [exc]
    while todo:
        current = todo.pop()
        if current is None or id(current) in seen:
            continue
        if current is wanted:
            return True
        seen.add(id(current))
        todo += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            todo += current.exceptions
    return False
