"""The one seam for blocking work: threads in production, inline for tests on a virtual clock.

`MockClock(autojump_threshold=0)` does not see worker threads: while one is busy every timer jumps. A component that
takes a `BlockingRunner` can be tested with `InlineRunner`, whose work takes no virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import trio

__all__ = ["BlockingRunner", "InlineRunner", "ThreadRunner", "check_cancelled"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class BlockingRunner(Protocol):
    """Runs blocking functions so that the event loop goes on."""

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run `function(*args)` and return its value.

        Cancellation: always a checkpoint. Cancelled before the function has started, nothing happened. Once it
        has started it runs to its end, and its value is returned or its exception raised; there is no checkpoint
        between its end and the return, and the cancellation hits at the caller's next one. A long function may
        call `check_cancelled` where it can be given up safely.

        Raises:
            Exception: What `function` raises.
        """
        ...

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a pure computation that may be left behind.

        Cancellation: always a checkpoint. Cancelled meanwhile, the caller goes on at once, while the function may
        run to its end with nobody to hear of it. So it must have no effects and hold nothing that the caller
        gives back. The runner's slot stays taken until it has ended.

        Raises:
            Exception: What `function` raises.
        """
        ...


class ThreadRunner(BlockingRunner):
    """Runs each function in a worker thread of trio, with a limit of its own.

    One runner for each resource: trio's default limiter is shared by everybody, so that a busy resource would hold
    up all others. Functions start in the order of the calls; with one thread they run one at a time, though not
    always in the same thread.

    Args:
        name: The resource; threads carry it in their names.
        threads: How many functions may run at the same time, at least 1.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        if not _is_count(threads):
            raise ValueError("threads: must be a whole number of at least 1")
        self.name = name
        self.threads = threads
        self._limiter: trio.CapacityLimiter | None = None

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run `function(*args)` in a thread; see `BlockingRunner.run`."""
        return await trio.to_thread.run_sync(
            function, *args, thread_name=self.name, abandon_on_cancel=False, limiter=self._own_limiter()
        )

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a pure computation in a thread; see `BlockingRunner.run_abandonable`."""
        return await trio.to_thread.run_sync(
            function, *args, thread_name=self.name, abandon_on_cancel=True, limiter=self._own_limiter()
        )

    def _own_limiter(self) -> trio.CapacityLimiter:
        # Made with the first call, so that a runner can be built before trio runs.
        if self._limiter is None:
            self._limiter = trio.CapacityLimiter(self.threads)
        return self._limiter


class InlineRunner(BlockingRunner):
    """Runs each function in the calling task, after a checkpoint. For tests with a virtual clock."""

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run `function(*args)` here; see `BlockingRunner.run`."""
        await trio.lowlevel.checkpoint()
        return function(*args)

    async def run_abandonable(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a pure computation here; once started it is never left behind."""
        await trio.lowlevel.checkpoint()
        return function(*args)


def check_cancelled() -> None:
    """Raise if the caller of the running function has been cancelled. For use inside a runner's function.

    In the trio thread, where `InlineRunner` runs it, nothing can have cancelled the caller meanwhile: it returns.

    Raises:
        trio.Cancelled: The caller has been cancelled.
        RuntimeError: Called in a thread that no runner has started.
    """
    if not trio.lowlevel.in_trio_run():
        trio.from_thread.check_cancelled()
