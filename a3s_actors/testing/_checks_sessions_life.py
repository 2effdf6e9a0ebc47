"""Checks of session stores: restarts, closing, cancellation, several stores on one storage, what errors tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio
from trio.testing import assert_checkpoints

from a3s_actors.agent.errors import AgentError, SessionNotFound, SessionStoreConflict
from a3s_actors.agent.store import SessionStore, StoredSession
from a3s_actors.memory.errors import ErrorFamily, MemoryRepositoryError
from a3s_actors.testing._registry import expect, expect_equal
from a3s_actors.testing._session_registry import (
    SessionStoreFactory,
    check,
    check_storage,
    full_snapshot,
    run_mark,
    session_refused,
    small_snapshot,
)
from a3s_actors.testing.cancellation import CancelledCall, sweep_cancellation

_SECRET = "the-secret-of-the-conversation"  # noqa: S105 - what must not be seen


@check_storage
async def reopening_finds_everything(factory: SessionStoreFactory) -> None:
    """What was acknowledged is there after closing and opening, marks included; what was deleted is not."""
    wanted = full_snapshot("s", 2)
    async with factory() as store:
        await store.save(full_snapshot("s", 1))
        await store.save(wanted)
        await store.mark("s", 2, run_mark("r-1"))
        await store.save(small_snapshot("gone", 1))
        await store.delete("gone")
    async with factory() as store:
        expect_equal(await store.list(), ("s",), "the ids after reopening")
        expect_equal(await store.load("s"), StoredSession(snapshot=wanted, marks=(run_mark("r-1"),)), "the session")
        await store.mark("s", 2, run_mark("r-2"))
    async with factory() as store:
        both = (run_mark("r-1"), run_mark("r-2"))
        expect_equal(await store.load("s"), StoredSession(snapshot=wanted, marks=both), "with the second mark")
        await store.save(small_snapshot("s", 3))
    async with factory() as store:
        expect_equal(await store.load("s"), StoredSession(snapshot=small_snapshot("s", 3)), "the third generation")


@check_storage
async def a_closed_store_refuses(factory: SessionStoreFactory) -> None:
    """After its block every method of a store says that it is closed, and changes nothing."""
    async with factory() as store:
        await store.save(small_snapshot("s", 1))
    for call in _calls(store, 2):
        try:
            await call()
        except AgentError as error:
            expect(error.family in {ErrorFamily.UNAVAILABLE, ErrorFamily.CLOSED}, f"closed, not {error!r}")
        else:
            expect(False, "a closed store answered")
    async with factory() as store:
        expect_equal(await store.load("s"), StoredSession(snapshot=small_snapshot("s", 1)), "the session")


def _calls(store: SessionStore, generation: int) -> tuple[Callable[[], Awaitable[Any]], ...]:
    return (
        lambda: store.save(small_snapshot("s", generation)),
        lambda: store.mark("s", generation, run_mark("r")),
        lambda: store.load("s"),
        store.list,
        lambda: store.delete("s"),
    )


@check
async def every_method_is_a_checkpoint(store: SessionStore) -> None:
    """Every method lets other tasks run, also when it does not wait for anything."""
    for call in _calls(store, 1):
        with assert_checkpoints():
            await call()


@check
async def cancelled_saves_are_whole_or_nothing(store: SessionStore) -> None:
    """A save that is cancelled at any moment has happened wholly or not at all, and says which."""
    generation = 0

    async def make_call() -> Callable[[], Awaitable[None]]:
        return lambda: store.save(full_snapshot("s", generation + 1, f"text {generation + 1}"))

    async def judge(call: CancelledCall[None]) -> None:
        nonlocal generation
        _no_error(call)
        if not call.cancelled:
            generation += 1
        if generation:
            wanted = StoredSession(snapshot=full_snapshot("s", generation, f"text {generation}"))
            expect_equal(await store.load("s"), wanted, "the session after a cancelled save")
        else:
            with session_refused(SessionNotFound):
                await store.load("s")

    expect(await sweep_cancellation(make_call, judge) >= 1, "a save can be cancelled")
    expect(generation >= 1, "a save that is not cancelled happens")


@check
async def cancelled_marks_are_there_or_not(store: SessionStore) -> None:
    """A mark that is cancelled at any moment is there or not, as its caller was told."""
    await store.save(small_snapshot("s", 1))
    kept: list[str] = []
    number = 0

    async def make_call() -> Callable[[], Awaitable[None]]:
        nonlocal number
        number += 1
        return lambda: store.mark("s", 1, run_mark(f"r-{number}"))

    async def judge(call: CancelledCall[None]) -> None:
        _no_error(call)
        if not call.cancelled:
            kept.append(f"r-{number}")
        expect_equal([each.run_id for each in (await store.load("s")).marks], kept, "the marks")

    expect(await sweep_cancellation(make_call, judge) >= 1, "a mark can be cancelled")
    expect(kept, "a mark that is not cancelled is kept")


@check
async def cancelled_deletes_and_reads_are_whole(store: SessionStore) -> None:
    """Loads, lists and deletes can be cancelled at any moment; a delete has happened wholly or not at all."""
    wanted = small_snapshot("s", 1)
    await store.save(wanted)

    async def load() -> Callable[[], Awaitable[Any]]:
        return lambda: store.load("s")

    async def loaded(call: CancelledCall[Any]) -> None:
        _no_error(call)
        if not call.cancelled:
            expect_equal(call.value, StoredSession(snapshot=wanted), "what a load returns")

    async def listing() -> Callable[[], Awaitable[Any]]:
        return store.list

    async def listed(call: CancelledCall[Any]) -> None:
        _no_error(call)
        if not call.cancelled:
            expect_equal(call.value, ("s",), "what a list returns")

    async def delete() -> Callable[[], Awaitable[Any]]:
        if not await store.list():
            await store.save(wanted)
        return lambda: store.delete("s")

    async def deleted(call: CancelledCall[Any]) -> None:
        _no_error(call)
        expect_equal(await store.list(), ("s",) if call.cancelled else (), "the ids after a delete")

    for make_call, judge in ((load, loaded), (listing, listed), (delete, deleted)):
        expect(await sweep_cancellation(make_call, judge) >= 1, "the call can be cancelled")


def _no_error(call: CancelledCall[Any]) -> None:
    if call.error is not None:
        raise call.error


@check
async def concurrent_saves_have_one_winner(store: SessionStore) -> None:
    """Of tasks that save the same generation one wins, and what it saved is stored."""
    await _race((store, store, store))


@check_storage
async def two_stores_share_a_storage(factory: SessionStoreFactory) -> None:
    """Two stores on one storage see each other's work at once, and of two saves of a generation one wins."""
    async with factory() as one, factory() as two:
        await one.save(small_snapshot("s", 1))
        expect_equal(await two.list(), ("s",), "the ids")
        await two.mark("s", 1, run_mark("r-1"))
        await one.mark("s", 1, run_mark("r-2"))
        both = (run_mark("r-1"), run_mark("r-2"))
        expect_equal((await two.load("s")).marks, both, "the marks of both")
        await two.save(small_snapshot("s", 2, "two"))
        with session_refused(SessionStoreConflict, expected=1, actual=2):
            await one.save(small_snapshot("s", 2, "one"))
        with session_refused(SessionStoreConflict, expected=1, actual=2):
            await one.mark("s", 1, run_mark("r-3"))
        expect_equal(await one.load("s"), StoredSession(snapshot=small_snapshot("s", 2, "two")), "the second's")
        await one.save(small_snapshot("s", 3))
        expect(await two.delete("s"), "the second store deletes it")
        with session_refused(SessionNotFound):
            await one.load("s")
        with session_refused(SessionStoreConflict, expected=3, actual=0):
            await one.save(small_snapshot("s", 4))
        await _race((one, two, one, two))


async def _race(stores: tuple[SessionStore, ...]) -> None:
    for generation in range(1, 9):
        winners: list[int] = []

        async def save(store: SessionStore, number: int, generation: int, winners: list[int]) -> None:
            try:
                await store.save(small_snapshot("race", generation, f"of {number}"))
            except SessionStoreConflict as error:
                expect_equal(error.actual, generation, "the generation that has won")
            else:
                winners.append(number)

        async with trio.open_nursery() as nursery:
            for number, store in enumerate(stores):
                nursery.start_soon(save, store, number, generation, winners)
        expect_equal(len(winners), 1, "the number of winners")
        wanted = small_snapshot("race", generation, f"of {winners[0]}")
        for store in stores:
            expect_equal(await store.load("race"), StoredSession(snapshot=wanted), "what the winner saved")


@check
async def errors_tell_no_content(store: SessionStore) -> None:
    """No text of a session is in an error or in a store's repr."""
    await store.save(full_snapshot("s", 1, _SECRET))
    broken = attrs.evolve(full_snapshot("s", 2), system_prompt=f"{_SECRET}\ud800")
    calls: tuple[Callable[[], Awaitable[Any]], ...] = (
        lambda: store.save(full_snapshot("s", 1, _SECRET)),
        lambda: store.save(full_snapshot("s", 7, _SECRET)),
        lambda: store.save(broken),
        lambda: store.mark("s", 2, run_mark("r")),
        lambda: store.load("other"),
    )
    for call in calls:
        try:
            await call()
        except (AgentError, MemoryRepositoryError) as error:
            seen: BaseException | None = error
            while seen is not None:
                expect(_SECRET not in f"{seen} {seen!r} {getattr(seen, 'args', '')}", "an error tells of the session")
                seen = seen.__cause__ or seen.__context__
        else:
            expect(False, "nothing was refused")
    expect(_SECRET not in repr(store), "the store's repr tells of the session")
