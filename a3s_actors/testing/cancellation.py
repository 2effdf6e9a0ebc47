"""Cancel a coroutine at every moment it can be cancelled, and look at what it leaves behind.

No test framework is needed: call it from any async function that runs under trio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs
import trio

__all__ = ["CancelledCall", "sweep_cancellation"]

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class CancelledCall(Generic[T]):
    """How one call of a sweep ended.

    Attributes:
        step: The scheduler step after which it was cancelled; 0 is before it began.
        requested: Whether the cancellation came before the call had ended; False for the last call of a sweep.
        cancelled: Whether the call ended with `Cancelled`.
        value: What it returned, when it did.
        error: The exception it raised otherwise, when it did.
    """

    step: int
    requested: bool
    cancelled: bool
    value: T | None = attrs.field(default=None, repr=False)
    error: Exception | None = None


class _CancelAfter(trio.abc.Instrument):
    """Cancels a scope after so many task steps, whichever task makes them."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self._scope = scope
        self._left = step

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio names the parameter
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


async def sweep_cancellation(
    make_call: Callable[[], Awaitable[Callable[[], Awaitable[T]]]],
    check: Callable[[CancelledCall[T]], Awaitable[object]],
    *,
    max_steps: int = 1000,
) -> int:
    """Call a coroutine again and again, cancelled one scheduler step later each time, until it ends before that.

    The steps of all tasks count, not only those of the caller: so a call that sleeps once is also cancelled while
    those who serve it are half way, and after they have answered but before it has woken.

    Example: a third party checks that its repository's `apply` is all or nothing.

        async def make_call():
            change_set = new_change_set()
            return lambda: repository.apply(change_set)

        async def check(call):
            stored = await repository.get(...)
            assert (stored is None) if call.cancelled else (stored is not None)

        steps = await sweep_cancellation(make_call, check)
        assert steps > 2  # it was really cancelled at several moments

    Args:
        make_call: Awaited before each call, outside the cancelled scope: prepares what the call needs and returns
            the call.
        check: Awaited after each call, outside the cancelled scope, with how it ended. It raises when something is
            wrong; an exception of the call other than `Cancelled` is in `error` and is also its to judge.
        max_steps: After so many calls a sweep that has not ended is given up.

    Returns:
        The number of calls that were cancelled before they had ended.

    Raises:
        RuntimeError: The sweep did not end within `max_steps`: the call never returns, or other tasks of the run
            are busy all the time.
        BaseException: What `make_call`, `check` or the call raise; an `Exception` of the call goes to `check`
            instead.
    """
    for step in range(max_steps):
        call = await make_call()
        value: T | None = None
        error: Exception | None = None
        with trio.CancelScope() as scope:
            if step == 0:
                scope.cancel()
            counter = _CancelAfter(scope, step)
            trio.lowlevel.add_instrument(counter)
            try:
                value = await call()
            except Exception as exc:  # noqa: BLE001 - handed to the check
                error = exc
            finally:
                trio.lowlevel.remove_instrument(counter)
            requested = scope.cancel_called
        if scope.cancelled_caught:
            requested = True
        await check(
            CancelledCall(step=step, requested=requested, cancelled=scope.cancelled_caught, value=value, error=error)
        )
        if not requested:
            return step
    raise RuntimeError(f"sweep_cancellation: the call did not end by itself within max_steps={max_steps}")
