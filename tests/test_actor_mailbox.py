"""The mailbox: order, bounds, withdrawal, deadlines, and that its end wakes everybody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from a3s_actors.actor import (
    ActorClosed,
    ActorFailed,
    EndOfMailbox,
    IllegalTransition,
    Mailbox,
    MailboxFull,
    Request,
    RequestState,
)
from a3s_actors.testing.cancellation import CancelledCall, sweep_cancellation

Box = Mailbox[Any, Any]


@asynccontextmanager
async def echoing(mailbox: Box, served: list[Any] | None = None, max_batch: int = 1) -> AsyncIterator[None]:
    """Serve by giving each message back, in a background task of the block."""

    async def serve() -> None:
        while True:
            for request in await mailbox.receive(max_batch):
                if served is not None:
                    served.append(request.message)
                request.succeed(request.message)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield
        nursery.cancel_scope.cancel()


async def test_an_answer_reaches_its_caller() -> None:
    mailbox: Box = Mailbox("m")
    async with echoing(mailbox):
        assert await mailbox.ask("hello") == "hello"
        assert await mailbox.try_ask("again") == "again"


async def test_requests_are_served_in_the_order_in_which_they_were_asked() -> None:
    mailbox: Box = Mailbox("m", capacity=3)
    served: list[int] = []
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(mailbox.ask, number)
            await wait_all_tasks_blocked()
        async with echoing(mailbox, served):
            await wait_all_tasks_blocked()
    assert served == list(range(20))


async def test_a_batch_takes_what_waits_and_never_more_than_asked_for() -> None:
    mailbox: Box = Mailbox("m", capacity=5)
    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(mailbox.ask, number)
            await wait_all_tasks_blocked()
        sizes = []
        while mailbox.statistics().queued:
            batch = await mailbox.receive(3)
            sizes.append([request.message for request in batch])
            for request in batch:
                request.succeed(None)
    assert sizes == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_a_thousand_callers_never_make_the_queue_longer_than_its_capacity() -> None:
    mailbox: Box = Mailbox("m", capacity=8)
    longest = 0
    answers: list[int] = []

    async def call(number: int) -> None:
        answers.append(await mailbox.ask(number))

    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(call, number)
        await wait_all_tasks_blocked()
        assert mailbox.statistics().waiting_for_space == 992
        while len(answers) < 1000:
            for request in await mailbox.receive(5):
                longest = max(longest, mailbox.statistics().queued)
                request.succeed(request.message)
            await wait_all_tasks_blocked()
    assert sorted(answers) == list(range(1000))
    assert longest <= 8


async def test_a_full_mailbox_refuses_who_does_not_want_to_wait() -> None:
    mailbox: Box = Mailbox("m", capacity=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.ask, 1)
        await wait_all_tasks_blocked()
        with pytest.raises(MailboxFull) as caught:
            await mailbox.try_ask(2)
        assert (caught.value.actor, caught.value.capacity) == ("m", 1)
        (request,) = await mailbox.receive()
        request.succeed(None)


async def test_a_caller_cancelled_while_queued_or_waiting_for_space_leaves_nothing() -> None:
    mailbox: Box = Mailbox("m", capacity=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.ask, "first")
        nursery.start_soon(mailbox.ask, "second")
        await wait_all_tasks_blocked()
        assert (mailbox.statistics().queued, mailbox.statistics().waiting_for_space) == (1, 1)
        nursery.cancel_scope.cancel()
    assert (mailbox.statistics().queued, mailbox.statistics().waiting_for_space) == (0, 0)


async def test_a_caller_cancelled_while_running_gets_its_answer_and_the_cancellation_afterwards() -> None:
    mailbox: Box = Mailbox("m")
    got: list[Any] = []
    async with trio.open_nursery() as nursery:

        async def call(scope: trio.CancelScope) -> None:
            with scope:
                got.append(await mailbox.ask("commit"))
                await trio.lowlevel.checkpoint()
                got.append("not reached")

        scope = trio.CancelScope()
        nursery.start_soon(call, scope)
        (request,) = await mailbox.receive()
        scope.cancel()
        await wait_all_tasks_blocked()
        assert request.state is RequestState.RUNNING
        request.succeed("committed")
    assert got == ["committed"]
    assert scope.cancelled_caught


async def test_a_call_cancelled_at_any_step_is_withdrawn_or_answered() -> None:
    mailbox: Box = Mailbox("m")
    served: list[Any] = []
    count = 0
    async with echoing(mailbox, served):

        async def make_call() -> Any:
            nonlocal count
            count += 1
            message = count
            return lambda: mailbox.ask(message)

        async def check(call: CancelledCall[int]) -> None:
            assert call.error is None
            assert (count in served) is not call.cancelled
            assert call.cancelled or call.value == count

        assert await sweep_cancellation(make_call, check) >= 2


async def test_a_cancelled_receive_has_taken_nothing() -> None:
    mailbox: Box = Mailbox("m")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.ask, "kept")
        await wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await mailbox.receive()
        assert scope.cancelled_caught
        (request,) = await mailbox.receive()
        assert request.message == "kept"
        request.succeed(None)


async def test_a_request_whose_deadline_has_passed_is_not_started(autojump_clock: MockClock) -> None:
    mailbox: Box = Mailbox("m")
    async with trio.open_nursery() as nursery:

        async def impatient() -> None:
            with trio.move_on_after(1):
                await mailbox.ask("late")

        nursery.start_soon(impatient)
        nursery.start_soon(mailbox.ask, "patient")
        await wait_all_tasks_blocked()
        autojump_clock.jump(2)  # the deadline passes while the consumer is busy elsewhere
        batch = await mailbox.receive(10)
        assert [request.message for request in batch] == ["patient"]
        assert batch[0].deadline == float("inf")
        batch[0].succeed(None)


@pytest.mark.parametrize("kind", ["waiting", "queued", "running"])
async def test_the_end_wakes_every_kind_of_waiter_with_the_typed_error(kind: str) -> None:
    mailbox: Box = Mailbox("m", capacity=1)
    errors: dict[str, ActorClosed] = {}

    async def call(name: str) -> None:
        try:
            await mailbox.ask(name)
        except ActorClosed as error:
            errors[name] = error

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, "running")
        await wait_all_tasks_blocked()
        (request,) = await mailbox.receive()
        for name in ("queued", "waiting"):
            nursery.start_soon(call, name)
            await wait_all_tasks_blocked()
        mailbox.close("gone")
    assert errors[kind].actor == "m"
    assert errors[kind].reason == "gone"
    assert errors[kind].started is (kind == "running")
    request.succeed("too late")  # dropped: the caller was told already
    with pytest.raises(ActorClosed):
        await mailbox.ask("after")


async def test_an_end_with_a_cause_is_a_failure() -> None:
    mailbox: Box = Mailbox("m")
    cause = ValueError("broken")
    mailbox.close("failed", cause)
    mailbox.close("again")
    for _ in range(2):
        with pytest.raises(ActorFailed) as caught:
            await mailbox.ask(1)
        assert caught.value.__cause__ is cause
        assert caught.value.reason == "failed"


async def test_a_mailbox_may_have_an_error_of_its_own() -> None:
    class Mine(Exception):
        pass

    mailbox: Box = Mailbox("m", error=Mine)
    errors: list[Mine] = []

    async def call() -> None:
        try:
            await mailbox.ask(1)
        except Mine as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        await mailbox.receive()
        mailbox.close("why")
    assert [error.args for error in errors] == [("why",), ("why",)]
    assert errors[0] is not errors[1]
    assert sorted(len(getattr(error, "__notes__", [])) for error in errors) == [0, 1]


async def test_after_stop_accepting_what_is_queued_is_served_and_then_it_ends() -> None:
    mailbox: Box = Mailbox("m")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.ask, 1)
        await wait_all_tasks_blocked()
        mailbox.stop_accepting()
        with pytest.raises(ActorClosed):
            await mailbox.ask(2)
        (request,) = await mailbox.receive()
        request.succeed(None)
    with pytest.raises(EndOfMailbox):
        await mailbox.receive()


async def test_an_exception_may_answer_a_whole_batch_with_a_copy_for_each_caller() -> None:
    mailbox: Box = Mailbox("m")
    errors: list[ValueError] = []

    async def call() -> None:
        try:
            await mailbox.ask(1)
        except ValueError as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(call)
        await wait_all_tasks_blocked()
        shared = ValueError("broken")
        shared.add_note("a note")
        for request in await mailbox.receive(3):
            request.fail(shared)
    assert len({id(error) for error in [*errors, shared]}) == 4
    assert all((str(error), error.__notes__) == ("broken", ["a note"]) for error in errors)


async def test_an_answer_is_given_once_and_only_to_what_is_running() -> None:
    mailbox: Box = Mailbox("m")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.ask, 1)
        await wait_all_tasks_blocked()
        (request,) = await mailbox.receive()
        with pytest.raises(TypeError):
            request.fail(KeyboardInterrupt())  # type: ignore[arg-type]
        request.succeed(1)
        with pytest.raises(IllegalTransition):
            request.succeed(2)
        with pytest.raises(IllegalTransition):
            request.fail(ValueError())
        assert request.state is RequestState.DONE


async def test_there_is_one_consumer() -> None:
    mailbox: Box = Mailbox("m")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.receive)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await mailbox.receive()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("capacity", [0, -1, True, 1.5, "8"])
def test_a_malformed_capacity_is_refused(capacity: Any) -> None:
    with pytest.raises(ValueError, match="capacity"):
        Mailbox("m", capacity)
    with pytest.raises(ValueError, match="name"):
        Mailbox("", 1)


async def test_messages_stay_out_of_reprs() -> None:
    mailbox: Box = Mailbox("m")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.ask, "secret")
        await wait_all_tasks_blocked()
        (request,) = await mailbox.receive()
        assert isinstance(request, Request)
        assert "secret" not in repr(request) + repr(mailbox)
        request.succeed("secret")
