"""The lifetime: settle, then cancel, then report, under one deadline; and what comes out of the block."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from a3s_actors.actor import ActorClosed, ActorFailed, Lifetime, Mailbox, open_actor
from a3s_actors.testing.cancellation import CancelledCall, sweep_cancellation

Box = Mailbox[Any, Any]


def server(mailbox: Box, seconds: float = 0.0) -> Any:
    async def serve() -> None:
        while True:
            for request in await mailbox.receive():
                await trio.sleep(seconds)
                request.succeed(request.message)

    return serve


async def test_an_actor_serves_inside_its_block_and_not_after(autojump_clock: MockClock) -> None:
    mailbox: Box = Mailbox("m")
    async with open_actor("a", server(mailbox), mailbox=mailbox) as lifetime:
        assert lifetime.state.value == "serving"
        assert lifetime.close_report is None
        assert await mailbox.ask(1) == 1
    assert lifetime.state.value == "closed"
    report = lifetime.close_report
    assert report is not None
    assert (report.joined, report.cancelled, report.aborted, report.unanswered, report.failures) == (
        True,
        False,
        False,
        0,
        (),
    )
    with pytest.raises(ActorClosed):
        await mailbox.ask(2)


async def test_closing_lets_queued_work_settle(autojump_clock: MockClock) -> None:
    mailbox: Box = Mailbox("m")
    answers: list[int] = []

    async def call(number: int) -> None:
        answers.append(await mailbox.ask(number))

    async with trio.open_nursery() as nursery, open_actor("a", server(mailbox, 1.0), mailbox=mailbox, settle=10):
        for number in range(3):
            nursery.start_soon(call, number)
        await wait_all_tasks_blocked()
    assert sorted(answers) == [0, 1, 2]  # trio starts tasks in no particular order


async def test_what_does_not_settle_is_cancelled_within_the_total_deadline(autojump_clock: MockClock) -> None:
    mailbox: Box = Mailbox("m")
    errors: list[ActorClosed] = []

    async def call() -> None:
        try:
            await mailbox.ask(1)
        except ActorClosed as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        async with open_actor("a", server(mailbox, 100.0), mailbox=mailbox, settle=5) as lifetime:
            nursery.start_soon(call)
            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            began = trio.current_time()
        assert trio.current_time() - began <= 5
    report = lifetime.close_report
    assert report is not None
    assert (report.cancelled, report.unanswered) == (True, 2)
    assert sorted(error.started for error in errors) == [False, True]


async def test_a_task_that_ignores_its_cancellation_is_reported_and_only_the_block_waits(
    autojump_clock: MockClock,
) -> None:
    mailbox: Box = Mailbox("m")

    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    began = trio.current_time()
    async with open_actor("a", stubborn, mailbox=mailbox, settle=5) as lifetime:
        report = await lifetime.close()
        assert report.aborted
        assert trio.current_time() - began <= 5
    assert trio.current_time() - began == 60


async def test_closing_twice_at_once_or_in_a_cancelled_task_gives_one_report(autojump_clock: MockClock) -> None:
    mailbox: Box = Mailbox("m")
    reports: list[Any] = []

    async def close(lifetime: Lifetime) -> None:
        reports.append(await lifetime.close())

    async with open_actor("a", server(mailbox), mailbox=mailbox) as lifetime:
        with trio.CancelScope() as scope:
            scope.cancel()
            await lifetime.close()
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(close, lifetime)
        reports.append(await lifetime.close())
    reports.append(await lifetime.close())
    assert len({id(report) for report in reports}) == 1


async def test_a_failing_server_wakes_callers_and_comes_out_of_the_block() -> None:
    mailbox: Box = Mailbox("m")
    broken = ValueError("broken")

    async def serve() -> None:
        await mailbox.receive()
        raise broken

    caught: list[ActorFailed] = []
    lifetimes: list[Lifetime] = []

    async def block() -> None:
        async with open_actor("a", serve, mailbox=mailbox) as lifetime:
            lifetimes.append(lifetime)
            try:
                await mailbox.ask(1)
            except ActorFailed as error:
                caught.append(error)
                raise

    with pytest.raises(ActorFailed) as raised:
        await block()
    assert raised.value is caught[0]
    assert raised.value.__cause__ is broken
    report = lifetimes[0].close_report
    assert report is not None
    assert report.failures == ("ValueError",)


async def test_a_failing_server_cancels_a_body_that_does_not_look() -> None:
    mailbox: Box = Mailbox("m")

    async def serve() -> None:
        raise ValueError("broken")

    async def block() -> None:
        async with open_actor("a", serve, mailbox=mailbox):
            await trio.sleep_forever()

    with pytest.raises(ValueError, match="broken"):
        await block()


async def test_the_bodys_exception_comes_out_as_it_is() -> None:
    mailbox: Box = Mailbox("m")
    mine = KeyError("mine")
    with pytest.raises(KeyError) as raised:
        async with open_actor("a", server(mailbox), mailbox=mailbox):
            raise mine
    assert raised.value is mine


async def test_two_unrelated_failures_come_out_together() -> None:
    mailbox: Box = Mailbox("m")
    release = trio.Event()

    async def serve() -> None:
        await release.wait()
        raise ValueError("server")

    async def block() -> None:
        async with open_actor("a", serve, mailbox=mailbox):
            release.set()
            raise KeyError("body")

    with pytest.raises(BaseExceptionGroup) as raised:
        await block()
    assert {type(error) for error in raised.value.exceptions} == {KeyError, ValueError}


async def test_a_server_that_returns_ends_the_mailbox_and_not_the_body() -> None:
    mailbox: Box = Mailbox("m")

    async def serve() -> None:
        await trio.lowlevel.checkpoint()

    async with open_actor("a", serve, mailbox=mailbox):
        with pytest.raises(ActorClosed) as caught:
            await mailbox.ask(1)
        assert caught.value.reason == "ended"


async def test_a_cancelled_block_closes_in_order_and_then_lets_the_cancellation_through(
    autojump_clock: MockClock,
) -> None:
    mailbox: Box = Mailbox("m")
    finished: list[int] = []

    async def serve() -> None:
        while True:
            for request in await mailbox.receive():
                await trio.sleep(1)
                finished.append(request.message)
                request.succeed(None)

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery, open_actor("a", serve, mailbox=mailbox, settle=10):
            nursery.start_soon(mailbox.ask, 7)
            await wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert finished == [7]


async def test_opening_cancelled_at_any_step_leaves_no_task_behind() -> None:
    async def make_call() -> Any:
        async def call() -> str:
            mailbox: Box = Mailbox("m")
            async with open_actor("a", server(mailbox), mailbox=mailbox):
                return str(await mailbox.ask("served"))

        return call

    async def check(call: CancelledCall[str]) -> None:
        assert call.error is None
        assert call.cancelled or call.value == "served"

    tasks = trio.lowlevel.current_statistics().tasks_living
    assert await sweep_cancellation(make_call, check) >= 3
    assert trio.lowlevel.current_statistics().tasks_living == tasks


@pytest.mark.parametrize("settle", [-1, float("inf"), float("nan")])
async def test_a_malformed_deadline_is_refused(settle: float) -> None:
    mailbox: Box = Mailbox("m")
    with pytest.raises(ValueError, match="settle"):
        async with open_actor("a", server(mailbox), mailbox=mailbox, settle=settle):
            pass
    with pytest.raises(ValueError, match="name"):
        async with open_actor("", server(mailbox), mailbox=mailbox):
            pass


async def test_a_thread_that_blocks_is_reported_as_aborted() -> None:
    mailbox: Box = Mailbox("m")
    release = threading.Event()

    async def serve() -> None:
        await trio.to_thread.run_sync(release.wait)

    async with open_actor("a", serve, mailbox=mailbox, settle=0.1) as lifetime:
        await wait_all_tasks_blocked()
        report = await lifetime.close()
        assert report.aborted
        release.set()


def test_a_warning_goes_to_stderr_unless_the_host_has_configured_logging(capsys: pytest.CaptureFixture[str]) -> None:
    import structlog
    from structlog.testing import capture_logs

    from a3s_actors.actor.events import warn

    warn("some.logger", "something_happened", count=3)
    told = capsys.readouterr()
    assert told.out == ""
    assert "something_happened" in told.err
    structlog.configure()
    try:
        with capture_logs() as logs:
            warn("some.logger", "something_happened", count=3)
    finally:
        structlog.reset_defaults()
    assert logs == [{"event": "something_happened", "count": 3, "log_level": "warning"}]
