"""The seam for blocking work: limits, cancellation, and the inline runner for virtual clocks."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from a3s_actors.actor import BlockingRunner, InlineRunner, ThreadRunner, check_cancelled

RUNNERS: list[BlockingRunner] = [InlineRunner(), ThreadRunner("test", 2)]


@pytest.mark.parametrize("runner", RUNNERS, ids=["inline", "thread"])
@pytest.mark.parametrize("method", ["run", "run_abandonable"])
async def test_a_function_gives_its_value_or_its_exception(runner: Any, method: str) -> None:
    run = getattr(runner, method)
    with assert_checkpoints():
        assert await run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run(divmod, 7, 0)


@pytest.mark.parametrize("runner", RUNNERS, ids=["inline", "thread"])
async def test_a_function_whose_caller_is_cancelled_before_it_starts_does_not_run(runner: BlockingRunner) -> None:
    ran: list[int] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        await runner.run(ran.append, 1)
    assert scope.cancelled_caught
    assert ran == []


async def test_a_function_that_has_started_runs_to_its_end_and_its_value_is_returned() -> None:
    started, release = threading.Event(), threading.Event()
    got: list[str] = []

    def work() -> str:
        started.set()
        release.wait()
        return "done"

    async def call(scope: trio.CancelScope) -> None:
        with scope:
            got.append(await ThreadRunner("test").run(work))

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(call, scope)
        await trio.to_thread.run_sync(started.wait)
        scope.cancel()
        await wait_all_tasks_blocked()
        assert got == []
        release.set()
    assert got == ["done"]


async def test_a_long_function_may_look_whether_its_caller_was_cancelled() -> None:
    started, seen = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        while True:
            try:
                check_cancelled()
            except BaseException:
                seen.set()
                raise

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ThreadRunner("test").run, work)
        await trio.to_thread.run_sync(started.wait)
        nursery.cancel_scope.cancel()
    assert seen.is_set()


async def test_a_runner_starts_no_more_functions_than_it_has_threads() -> None:
    runner = ThreadRunner("test", 2)
    running = most = 0
    lock = threading.Lock()
    gate = threading.Barrier(2)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(10)
        with lock:
            running -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(runner.run, work)
    assert most == 2


async def test_an_abandoned_computation_lets_its_caller_go_at_once() -> None:
    release = threading.Event()
    with trio.move_on_after(0.05) as scope:
        await ThreadRunner("test").run_abandonable(release.wait)
    assert scope.cancelled_caught
    release.set()


async def test_inline_work_takes_no_virtual_time(autojump_clock: MockClock) -> None:
    before = trio.current_time()
    await InlineRunner().run(sum, range(1000))
    assert trio.current_time() == before
    check_cancelled()


@pytest.mark.parametrize("threads", [0, -1, True, 1.5])
def test_a_malformed_number_of_threads_is_refused(threads: Any) -> None:
    with pytest.raises(ValueError, match="threads"):
        ThreadRunner("test", threads)
