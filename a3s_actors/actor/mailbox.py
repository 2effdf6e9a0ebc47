"""A bounded mailbox with one consumer: callers ask, the consumer answers.

Use one only where it earns its keep: batching across callers, work that outlives its caller, order and policy, or
thread affinity. A plain function or a `trio.Lock` is simpler and enough for everything else.

Everything here must be called from the trio thread.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import attrs
import trio

from a3s_actors.actor.errors import ActorClosed, ActorFailed, EndOfMailbox, MailboxFull, own_copy
from a3s_actors.actor.lifecycle import REQUEST, RequestEvent, RequestState

__all__ = ["Mailbox", "MailboxStatistics", "Request", "RequestState"]

M = TypeVar("M")
R = TypeVar("R")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@attrs.frozen(kw_only=True)
class MailboxStatistics:
    """A mailbox at one moment.

    Attributes:
        capacity: How many requests may be queued.
        queued: Requests accepted and not yet taken.
        running: Requests taken and not yet answered.
        waiting_for_space: Callers whose request is not yet accepted.
        closed: Whether it has stopped accepting.
    """

    capacity: int
    queued: int
    running: int
    waiting_for_space: int
    closed: bool


class Request(Generic[M, R]):
    """One call in the hands of the consumer, which must answer it with `succeed` or `fail`.

    Attributes:
        message: What the caller asked.
        deadline: The caller's effective deadline when it asked, on trio's clock; `math.inf` without one.
    """

    __slots__ = ("_ended", "_error", "_mailbox", "_state", "_task", "_value", "deadline", "message")

    def __init__(self, message: M, deadline: float, mailbox: Mailbox[M, R], task: trio.lowlevel.Task) -> None:
        self.message = message
        self.deadline = deadline
        self._mailbox = mailbox
        self._task = task
        self._state = RequestState.QUEUED
        self._value: R | None = None
        self._error: Exception | None = None
        self._ended = False  # the mailbox has woken the caller: no answer can reach it any more

    @property
    def state(self) -> RequestState:
        """Where the request is."""
        return self._state

    def succeed(self, value: R) -> None:
        """Answer with a value and wake the caller.

        After the mailbox has closed the caller has already been told so, and the answer is dropped.

        Raises:
            IllegalTransition: The request is not running, or was answered before. Nothing has changed.
        """
        if self._ended:
            return
        self._advance(RequestEvent.SUCCEED)
        self._value = value
        self._mailbox._answered(self)

    def fail(self, exc: Exception) -> None:
        """Answer with an exception, which the caller's `ask` raises.

        The caller gets a copy of its own with the same traceback (see `own_copy`), so that one exception object
        may answer a whole batch. After the mailbox has closed the answer is dropped, as in `succeed`.

        Raises:
            IllegalTransition: The request is not running, or was answered before. Nothing has changed.
            TypeError: `exc` is no `Exception`; a `Cancelled` in particular belongs to the task it was raised in.
        """
        if not isinstance(exc, Exception):
            raise TypeError(f"a request fails with an Exception, not with {type(exc).__name__}")
        if self._ended:
            return
        self._advance(RequestEvent.FAIL)
        self._error = own_copy(exc)
        self._mailbox._answered(self)

    def _advance(self, event: RequestEvent) -> None:
        self._state = REQUEST.after(self._state, event)

    def _wake(self) -> None:
        trio.lowlevel.reschedule(self._task)

    def _end(self) -> None:
        self._advance(RequestEvent.CLOSE)
        self._ended = True
        self._wake()

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        """Decide on a cancellation of the sleeping caller; trio calls it at most once a sleep."""
        if self._state is not RequestState.QUEUED:
            return trio.lowlevel.Abort.FAILED  # stays pending in the caller's scope; the answer wakes it
        self._advance(RequestEvent.WITHDRAW)
        self._mailbox._withdrawn(self)
        return trio.lowlevel.Abort.SUCCEEDED

    def _result(self) -> R:
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # else the traceback's frame keeps the exception in a cycle
        return cast("R", self._value)

    def __repr__(self) -> str:
        return f"<Request {self._state.value} in {self._mailbox.name!r}>"


class Mailbox(Generic[M, R]):
    """A bounded queue of requests with one consumer.

    Args:
        name: The actor's name; it appears in errors.
        capacity: How many requests may be queued, at least 1. Further callers wait for space, first come, first
            served.
        error: Makes the exception that callers get when the mailbox has ended, from the reason. By default
            `ActorClosed`, or `ActorFailed` when the end has a cause. Called once for every caller; a cause becomes
            the exception's `__cause__`.
    """

    __slots__ = (
        "_accepting",
        "_cause",
        "_closed",
        "_consumer",
        "_error",
        "_queue",
        "_reason",
        "_receiving",
        "_running",
        "_waiting",
        "capacity",
        "name",
    )

    def __init__(self, name: str, capacity: int = 1024, error: Callable[[str], Exception] | None = None) -> None:
        if not name:
            raise ValueError("name: must not be empty")
        if not _is_count(capacity):
            raise ValueError("capacity: must be a whole number of at least 1")
        self.name = name
        self.capacity = capacity
        self._error = error
        # Ordered dictionaries: first in, first out, and withdrawal from the middle without a search.
        self._queue: OrderedDict[Request[M, R], None] = OrderedDict()
        self._waiting: OrderedDict[Request[M, R], None] = OrderedDict()
        self._running: set[Request[M, R]] = set()
        self._consumer: trio.lowlevel.Task | None = None  # asleep in receive()
        self._receiving = False
        self._accepting = True
        self._closed = False
        self._reason = ""
        self._cause: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Mailbox {self.name!r} {'open' if self._accepting else 'closed'}, {len(self._queue)} queued>"

    # -- callers ---------------------------------------------------------------------------------------------------

    async def ask(self, message: M) -> R:
        """Hand `message` to the consumer and wait for its answer.

        Waits for space when the mailbox is full; callers are served in the order in which they asked. The
        caller's effective deadline travels in the request: once it has passed, a queued request is not started.

        Cancellation: always a checkpoint. Cancelled while waiting for space or queued, the request is withdrawn
        and nothing happened. Cancelled while running, the call goes on waiting and returns or raises the outcome;
        the cancellation stays pending in its scope and hits at the caller's next checkpoint. That wait ends when
        the consumer answers, and at the latest when the mailbox is closed: `open_actor` closes it at its total
        deadline, whatever the consumer does.

        Do not call it from the consumer's own task: nobody would be left to answer.

        Returns:
            The value given to `Request.succeed`.

        Raises:
            ActorClosed: The mailbox has ended (or what the `error` argument makes of it). `started` tells whether
                the consumer had the request in hand; for another exception type a note tells it.
            ActorFailed: The same, because the serving task failed; `__cause__` is its exception.
            Exception: What was given to `Request.fail`.
        """
        return await self._ask(message, wait=True)

    async def try_ask(self, message: M) -> R:
        """Do the same as `ask`, but never wait for space.

        Raises:
            MailboxFull: The queue is full or others wait for space before this caller. Nothing happened.
            ActorClosed: As for `ask`.
            Exception: What was given to `Request.fail`.
        """
        return await self._ask(message, wait=False)

    async def _ask(self, message: M, *, wait: bool) -> R:
        while True:
            if not self._accepting:
                await trio.lowlevel.checkpoint()
                raise self._end_error(started=False)
            full = bool(self._waiting) or len(self._queue) >= self.capacity
            if full and not wait:
                await trio.lowlevel.checkpoint()
                raise MailboxFull(self.name, self.capacity)
            request = Request(message, trio.current_effective_deadline(), self, trio.lowlevel.current_task())
            (self._waiting if full else self._queue)[request] = None
            self._wake_consumer()
            # The only sleep of a call. A caller that is cancelled already is withdrawn here, before any other
            # task runs.
            await trio.lowlevel.wait_task_rescheduled(request._abort)
            if request._ended:
                raise self._end_error(started=request._state is RequestState.DONE)
            if request._state is RequestState.DONE:
                return request._result()
            # Expired. The pending cancellation hits here; if the scope's deadline was moved meanwhile there is
            # none, and the request goes in again with the new one.
            await trio.lowlevel.checkpoint()

    def _end_error(self, *, started: bool) -> Exception:
        error: Exception
        if self._error is not None:
            error = self._error(self._reason)
        elif self._cause is not None:
            error = ActorFailed(self.name, self._reason)
        else:
            error = ActorClosed(self.name, self._reason)
        if self._cause is not None:
            error.__cause__ = self._cause
        if started:
            if isinstance(error, ActorClosed):
                error.started = True
            else:
                error.add_note("The request had been started; its outcome is unknown.")
        return error

    # -- the consumer ----------------------------------------------------------------------------------------------

    async def receive(self, max_batch: int = 1) -> list[Request[M, R]]:
        """Wait for at least one request, then take those already queued, oldest first.

        Each is moved from queued to running and must be answered. Requests whose deadline has passed are not
        taken.

        Cancellation: always a checkpoint, and the last one comes before the taking: a cancelled call has taken
        nothing.

        Args:
            max_batch: How many requests to take at most, at least 1.

        Raises:
            EndOfMailbox: The mailbox accepts no more, and every request is answered or withdrawn.
            trio.BusyResourceError: Another task is receiving: there is one consumer.
            ValueError: `max_batch` is less than 1.
        """
        if max_batch < 1:
            raise ValueError("max_batch: must be at least 1")
        if self._receiving:
            raise trio.BusyResourceError(f"actor {self.name}: another task is receiving from the mailbox")
        self._receiving = True
        try:
            if self._queue or self._drained:
                await trio.lowlevel.checkpoint()
            while not (batch := self._take(max_batch)):
                if self._drained:
                    raise EndOfMailbox(self.name, self._reason)
                self._consumer = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._consumer_cancelled)
            return batch
        finally:
            self._receiving = False

    def _consumer_cancelled(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._consumer = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _take(self, max_batch: int) -> list[Request[M, R]]:
        batch: list[Request[M, R]] = []
        while self._queue and len(batch) < max_batch:
            request, _ = self._queue.popitem(last=False)
            self._let_in()
            if request.deadline != math.inf and request.deadline <= trio.current_time():
                request._advance(RequestEvent.EXPIRE)
                request._wake()
                continue
            request._advance(RequestEvent.START)
            self._running.add(request)
            batch.append(request)
        return batch

    def _let_in(self) -> None:
        while self._waiting and len(self._queue) < self.capacity:
            request, _ = self._waiting.popitem(last=False)
            self._queue[request] = None

    def _answered(self, request: Request[M, R]) -> None:
        self._running.discard(request)
        request._wake()
        self._wake_consumer_at_end()

    def _withdrawn(self, request: Request[M, R]) -> None:
        if request in self._queue:
            del self._queue[request]
            self._let_in()
        else:
            del self._waiting[request]
        self._wake_consumer_at_end()

    @property
    def _drained(self) -> bool:
        return not (self._accepting or self._queue or self._running)

    def _wake_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            trio.lowlevel.reschedule(consumer)

    def _wake_consumer_at_end(self) -> None:
        if self._drained:
            self._wake_consumer()

    # -- the owner -------------------------------------------------------------------------------------------------

    def stop_accepting(self, reason: str = "closed") -> None:
        """Take no more requests; what is queued or running is still served. Idempotent.

        Callers that wait for space are woken at once with the typed error; later ones raise it. When nothing is
        left the consumer's `receive` raises `EndOfMailbox`.
        """
        if not self._accepting:
            return
        self._accepting = False
        self._reason = reason
        self._end_all(self._waiting)
        self._wake_consumer_at_end()

    def close(self, reason: str = "closed", cause: BaseException | None = None) -> None:
        """End the mailbox now: wake every caller (waiting for space, queued, running) with the typed error.

        Idempotent: the first call's reason and cause stay. Later calls of `ask` raise the same error; later
        answers of the consumer are dropped.

        Args:
            reason: Why, for the error.
            cause: The exception that ended the actor; it becomes the `__cause__` of the callers' errors.
        """
        if self._closed:
            return
        self._closed = True
        self._accepting = False
        self._reason = reason
        self._cause = cause
        self._end_all(self._queue)
        self._end_all(self._waiting)
        self._end_all(self._running)
        self._wake_consumer()

    @staticmethod
    def _end_all(requests: OrderedDict[Request[Any, Any], None] | set[Request[Any, Any]]) -> None:
        ending = list(requests)
        requests.clear()
        for request in ending:
            request._end()

    def statistics(self) -> MailboxStatistics:
        """Return a snapshot of the counts."""
        return MailboxStatistics(
            capacity=self.capacity,
            queued=len(self._queue),
            running=len(self._running),
            waiting_for_space=len(self._waiting),
            closed=not self._accepting,
        )
