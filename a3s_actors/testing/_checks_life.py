"""Opening, closing, restarting, cancelling, and many callers at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from a3s_actors.memory.errors import RepositoryClosed, RevisionConflict
from a3s_actors.memory.operations import MemoryChangeSet
from a3s_actors.memory.reads import MemoryQuery, ScanRequest
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.snapshot import SnapshotRequest
from a3s_actors.memory.values import MemoryStatus, RelationKind
from a3s_actors.testing._registry import (
    RepositoryFactory,
    check,
    check_storage,
    expect,
    expect_equal,
    refused,
    state_of,
    unchanged,
)
from a3s_actors.testing.building import NS, OTHER, access, add, change, create, purge, revise, supersede
from a3s_actors.testing.cancellation import CancelledCall, sweep_cancellation

_SECONDS = 60

Call = Callable[[MemoryRepository], Awaitable[Any]]

READS: dict[str, Call] = {
    "get": lambda repository: repository.get(NS, "a"),
    "get_heads": lambda repository: repository.get_heads(NS, ["a", "b"]),
    "history": lambda repository: repository.history(NS, "a"),
    "scan": lambda repository: repository.scan(ScanRequest(namespace=NS)),
    "namespaces": lambda repository: repository.namespaces(),
    "query": lambda repository: repository.query(MemoryQuery(namespace=NS, text="plain")),
    "snapshot_namespace": lambda repository: repository.snapshot_namespace(SnapshotRequest(namespace=NS)),
    "namespace_change_token": lambda repository: repository.namespace_change_token(NS),
    "usage_summary": lambda repository: repository.usage_summary(NS, "a"),
    "access_events": lambda repository: repository.access_events(NS),
}


@check_storage
async def closing_wakes_everybody_with_the_typed_error(factory: RepositoryFactory) -> None:
    """After the block every method raises RepositoryClosed; writes that still wait are answered or refused."""
    outcomes: list[str] = []

    async def write(repository: MemoryRepository, number: int) -> None:
        try:
            await repository.apply(change(f"w{number}", create(f"w{number}")))
            outcomes.append("stored")
        except RepositoryClosed:
            outcomes.append("closed")

    with trio.fail_after(_SECONDS):
        async with trio.open_nursery() as nursery, factory() as repository:
            await repository.apply(change("k", create("a")))
            for number in range(20):
                nursery.start_soon(write, repository, number)  # noqa: ASYNC111 - closing under waiting writers is the point
            await trio.lowlevel.checkpoint()
        expect_equal(len(outcomes), 20, "every caller has an outcome")
        writes: dict[str, Call] = {
            "apply": lambda opened: opened.apply(change("late", create("late"))),
            "record_admission": lambda opened: opened.record_admission(access("late", "a")),
            "record_use": lambda opened: opened.record_use(access("late", "a")),
            "purge": lambda opened: opened.purge(purge("late", "a")),
        }
        for call in (READS | writes).values():
            with refused(RepositoryClosed):
                await call(repository)
    if factory.persistent:
        async with factory() as repository:
            found = await repository.get_heads(NS, [f"w{number}" for number in range(20)])
            expect(len(found) >= outcomes.count("stored"), "what was acknowledged while closing is stored")


@check_storage
async def a_restart_keeps_everything_that_was_acknowledged(factory: RepositoryFactory) -> None:
    """After closing and opening, memories, histories, tokens, keys, events and counts are as they were."""
    if not factory.persistent:
        return
    async with factory() as repository:
        result = await repository.apply(change("k", create("a", "first\x00 中文"), create("b")))
        await repository.apply(change("r", revise("a", "second")))
        await repository.apply(change("s", create("c"), *supersede("b", "c")))
        await repository.apply(change("k", create("a", namespace=OTHER), namespace=OTHER))
        await repository.record_admission(access("e", "a", 2, context="ctx"))
        await repository.record_use(access("u", "b", 1))
        before = [await state_of(repository, namespace) for namespace in (NS, OTHER)]
        node = await repository.get(NS, "a")
    for _ in range(3):
        async with factory() as repository:
            after = [await state_of(repository, namespace) for namespace in (NS, OTHER)]
            expect_equal(after, before, "the state after a restart")
            expect_equal(await repository.get(NS, "a"), node, "a node after a restart")
            async with unchanged(repository):
                replay = change("k", create("a", "first\x00 中文"), create("b"))
                expect_equal(await repository.apply(replay), result, "a replay after a restart")
                await repository.record_admission(access("e", "a", 2, context="ctx"))
            usage = await repository.usage_summary(NS, "a")
            expect_equal((usage.admissions, usage.uses), (1, 0), "the counts after a restart")
            hits = await repository.query(MemoryQuery(namespace=NS, text="second"))
            expect_equal([hit.node.id for hit in hits], ["a"], "a query after a restart")
            with refused(RevisionConflict):
                await repository.apply(change("stale", revise("a", "x", 1)))


@check
async def every_method_is_a_checkpoint(repository: MemoryRepository) -> None:
    """Every method lets other tasks run and sees a cancellation, also when it answers at once."""
    await repository.apply(change("k", create("a")))
    for name, call in READS.items():
        with trio.CancelScope() as scope:
            scope.cancel()
            await call(repository)
        expect(scope.cancelled_caught, f"{name} sees a cancellation that came before it")


@check
async def a_cancelled_read_leaves_nothing_behind(repository: MemoryRepository) -> None:
    """Each read, cancelled at every step, either answers in full or raises Cancelled, and the next one works."""
    await repository.apply(change("k", create("a"), create("b")))
    wanted = {name: await call(repository) for name, call in READS.items() if name != "snapshot_namespace"}
    async with unchanged(repository):
        for name, call in READS.items():

            async def make_call(call: Call = call) -> Callable[[], Awaitable[Any]]:
                return lambda: call(repository)

            async def judge(outcome: CancelledCall[Any], name: str = name) -> None:
                expect(outcome.error is None, f"{name} cancelled raises nothing else")
                if not outcome.cancelled and name in wanted:
                    expect_equal(outcome.value, wanted[name], f"{name} that was not cancelled")

            with trio.fail_after(_SECONDS):
                await sweep_cancellation(make_call, judge)


@check
async def a_cancelled_write_happened_wholly_or_not_at_all(repository: MemoryRepository) -> None:
    """Each write, cancelled at every step: withdrawn, and nothing happened; or done, and its result returned."""
    count = 0

    def pair(number: int) -> MemoryChangeSet:
        one, two = f"one{number}", f"two{number}"
        related = RelationKind.RELATED_TO
        return change(f"pair{number}", create(one), create(two), add(one, related, two), add(two, related, one))

    async def next_pair() -> Callable[[], Awaitable[Any]]:
        nonlocal count
        count += 1
        change_set = pair(count)
        return lambda: repository.apply(change_set)

    async def judge_pair(outcome: CancelledCall[Any]) -> None:
        expect(outcome.error is None, "a cancelled write raises nothing else")
        found = await repository.get_heads(NS, [f"one{count}", f"two{count}"])
        expect(len(found) == (0 if outcome.cancelled else 2), "a change set happened wholly or not at all")
        again = await repository.apply(pair(count))
        expect(outcome.cancelled or again == outcome.value, "trying again gives the result")

    async def next_event() -> Callable[[], Awaitable[Any]]:
        nonlocal count
        count += 1
        event = access(f"e{count}", "one1", 2)
        return lambda: repository.record_admission(event)

    async def judge_event(outcome: CancelledCall[Any]) -> None:
        expect(outcome.error is None, "a cancelled write raises nothing else")
        page = await repository.access_events(NS, "one1", limit=1000)
        stored = f"e{count}" in {each.event.id for each in page.records}
        expect(stored is not outcome.cancelled, "an event is there exactly when it was acknowledged")

    with trio.fail_after(_SECONDS):
        await sweep_cancellation(next_pair, judge_pair)
        await sweep_cancellation(next_event, judge_event)


@check
async def many_callers_at_once_each_get_their_own_outcome(repository: MemoryRepository) -> None:
    """A hundred concurrent writers all get their own results; of rivals for one revision exactly one wins."""
    await repository.apply(change("k", create("shared")))
    won: list[int] = []
    results: dict[int, str] = {}

    async def write(number: int) -> None:
        result = await repository.apply(change(f"w{number}", create(f"w{number}", f"text {number}")))
        results[number] = result.nodes[0].content
        try:
            await repository.apply(change(f"rival{number}", revise("shared", f"by {number}", uri=f"u://{number}")))
            won.append(number)
        except RevisionConflict:
            pass

    with trio.fail_after(_SECONDS):
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(write, number)
    expect_equal(results, {number: f"text {number}" for number in range(100)}, "each caller's result")
    expect_equal(len(won), 1, "exactly one rival wins")
    node = await repository.get(NS, "shared")
    expect(node is not None and node.content == f"by {won[0]}", "the winner's text is stored")


@check
async def readers_see_whole_change_sets_only(repository: MemoryRepository) -> None:
    """A reader beside a writer never sees half of a change set, and what it reads never goes back."""
    stop = trio.Event()
    seen: list[int] = []

    async def read() -> None:
        while not stop.is_set():
            request = SnapshotRequest(namespace=NS, statuses=frozenset(MemoryStatus))
            view = await repository.snapshot_namespace(request)
            view.verify_deep(request)
            expect(view.node_count % 2 == 0, "a change set of two is seen whole")
            seen.append(view.node_count)
            # A reader that never waits would keep a writer's thread from running at all.
            await trio.sleep(0.0005)

    with trio.fail_after(_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for number in range(30):
                await repository.apply(change(f"k{number}", create(f"a{number}"), create(f"b{number}")))
            stop.set()
    expect_equal(seen, sorted(seen), "reads never go back")
