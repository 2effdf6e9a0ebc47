"""The end of agents and sessions: no lease, thread, descriptor, task or object is left, whoever captured them."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from a3s_actors.agent import (
    AgentSession,
    ContextItem,
    ContextRequest,
    ExtractionPolicy,
    ModelRequest,
    SessionClosed,
    SessionOptions,
    SessionStore,
    Tool,
    ToolInvocation,
    open_agent,
)
from a3s_actors.testing import CancelledCall, ScriptedModelClient, proposals_reply, sweep_cancellation, tool_call
from a3s_backends.file_sessions import open_file_session_store
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.in_memory_sessions import open_in_memory_session_store
from a3s_backends.journal import open_file_repository
from a3s_backends.sqlite import open_sqlite_repository
from a3s_backends.sqlite_sessions import open_sqlite_session_store
from tests.agents import bind, counting_host, open_both, remember


def descriptors() -> set[tuple[str, str]]:
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself
            found.add((each.name, str(each.readlink())))
    return {(number, name) for number, name in found if not name.startswith(("anon_inode", "pipe", "socket"))}


def our_threads() -> set[str]:
    # trio keeps idle worker threads for ten seconds; they belong to nobody.
    return {each.name for each in threading.enumerate() if "trio" not in each.name.lower()}


class Capturing:
    """A provider that keeps the session that it serves."""

    name = "capturing"

    def __init__(self) -> None:
        self.session: AgentSession | None = None

    async def provide(self, request: ContextRequest) -> list[ContextItem]:
        await trio.lowlevel.checkpoint()
        return [ContextItem(id="note", source="wiki", content=f"for {request.run_id}")]


@pytest.mark.parametrize("backend", ["journal", "sqlite"])
async def test_after_the_blocks_nothing_of_a_session_is_left(backend: str, tmp_path: Path) -> None:
    opened = open_file_repository if backend == "journal" else open_sqlite_repository
    stores = open_file_session_store if backend == "journal" else open_sqlite_session_store
    watches: list[weakref.ref[Any]] = []

    async def life(number: int) -> None:
        provider = Capturing()
        kept: list[AgentSession] = []

        async def ask(_arguments: Mapping[str, Any], _invocation: ToolInvocation) -> str:
            reply = await kept[0].delegate("what do you think", SessionOptions(tools=[]))
            return reply.content

        tool = Tool(name="ask", description="asks a child", parameters={"type": "object"}, run=ask)
        model = ScriptedModelClient(
            [tool_call("ask"), "the child's word", "done"],
            extractions=[proposals_reply({"content": f"Fact number {number} was said."})],
        )
        async with (
            opened(tmp_path / "memory") as repository,
            stores(tmp_path / "sessions") as store,
            open_agent(model, host=counting_host(1000.0 * number)) as agent,
        ):
            if number == 1:
                await remember(repository, "deploy", "We deploy on Tuesdays.")
            options = SessionOptions(
                session_id=f"s{number}",
                durable_memory=bind(repository),
                store=store,
                tools=[tool],
                context_providers=[provider],
                extraction=ExtractionPolicy(),
            )
            async with agent.open_session("w", options) as session:
                kept.append(session)
                provider.session = session
                reply = await session.send("when do we deploy")
                assert reply.content == "done"
                await session.wait_extracted()
                assert session.extractions()[0].accepted
            watches.append(weakref.ref(session))
            assert agent.sessions() == ()
        watches.append(weakref.ref(agent))
        kept.clear()

    await life(1)
    before = descriptors(), our_threads()
    for number in (2, 3):
        await life(number)
    assert (descriptors(), our_threads()) == before
    gc.collect()
    assert [watch() for watch in watches] == [None] * len(watches)
    if backend == "journal":
        with (tmp_path / "memory" / "memory-v2.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_a_session_closed_by_its_own_tool_ends_without_waiting_for_itself() -> None:
    kept: list[AgentSession] = []

    async def close(_arguments: Mapping[str, Any], _invocation: ToolInvocation) -> str:
        with trio.move_on_after(0.2):
            await kept[0].close()
        return "closing"

    tool = Tool(name="close", description="closes", parameters={"type": "object"}, run=close)
    model = ScriptedModelClient([tool_call("close"), "the last word"])
    async with open_both(model, SessionOptions(tools=[tool])) as (_, session):
        kept.append(session)
        with trio.fail_after(20):
            assert (await session.send("close yourself")).content == "the last word"
            assert (await session.close()).joined
            with pytest.raises(SessionClosed):
                await session.send("more")


async def test_a_child_is_closed_when_its_parents_turn_is_cancelled() -> None:
    kept: list[AgentSession] = []
    children: list[tuple[str, ...]] = []

    async def ask(_arguments: Mapping[str, Any], _invocation: ToolInvocation) -> str:
        return (await kept[0].delegate("think long")).content

    async def hang(_request: ModelRequest) -> str:
        children.append(agent.sessions())
        await trio.sleep_forever()
        raise AssertionError

    tool = Tool(name="ask", description="asks a child", parameters={"type": "object"}, run=ask)
    model = ScriptedModelClient([tool_call("ask"), hang])
    async with open_both(model, SessionOptions(tools=[tool])) as (agent, session):
        kept.append(session)
        with trio.move_on_after(0.1) as scope:
            await session.send("go")
        assert scope.cancelled_caught
        assert len(children[0]) == 2
        assert agent.sessions() == (session.session_id,)


# -- cancelled at every step -------------------------------------------------------------------------------------------


async def swept(make: Callable[[], Awaitable[Callable[[], Awaitable[Any]]]], check: Any, more_than: int) -> None:
    assert await sweep_cancellation(make, check) > more_than


@pytest.fixture
async def store() -> Any:
    async with open_in_memory_session_store() as opened:
        yield opened


async def test_opening_and_resuming_cancelled_at_every_step_leave_the_id_free(store: SessionStore) -> None:
    number = 0
    async with open_agent(ScriptedModelClient(otherwise="ok"), host=counting_host()) as agent:

        async def opening() -> Callable[[], Awaitable[None]]:
            nonlocal number
            number += 1
            options = SessionOptions(session_id=f"s{number}", store=store)

            async def call() -> None:
                async with agent.open_session("w", options) as session:
                    await session.send("one")

            return call

        async def resuming() -> Callable[[], Awaitable[None]]:
            async def call() -> None:
                async with agent.resume_session("s1000", SessionOptions(store=store)) as session:
                    await session.send("more")

            return call

        async def check(call: CancelledCall[None]) -> None:
            assert call.error is None
            assert agent.sessions() == ()

        await swept(opening, check, 10)
        number = 999
        await (await opening())()
        await swept(resuming, check, 10)
        async with agent.resume_session("s1000", SessionOptions(store=store)) as session:
            assert (await session.send("usable")).content == "ok"


async def test_saving_closing_and_waiting_cancelled_at_every_step_leave_the_session_whole(store: SessionStore) -> None:
    number = 0
    async with open_agent(ScriptedModelClient(otherwise="ok"), host=counting_host()) as agent:
        options = SessionOptions(session_id="s", store=store, extraction=ExtractionPolicy())
        async with agent.open_session("w", options) as session:

            async def saving() -> Callable[[], Awaitable[None]]:
                return session.save

            async def saved(call: CancelledCall[None]) -> None:
                assert call.error is None
                await session.save()

            await swept(saving, saved, 1)

            async def waiting() -> Callable[[], Awaitable[None]]:
                await session.send("one")
                return session.wait_extracted

            async def waited(call: CancelledCall[None]) -> None:
                assert call.error is None
                await session.wait_extracted()
                assert session.statistics().extractions_pending == 0

            await swept(waiting, waited, 1)

        async def closing() -> Callable[[], Awaitable[object]]:
            nonlocal number
            number += 1
            opened = agent.session("w", SessionOptions(session_id=f"t{number}", store=store))
            await opened.send("one")
            last.append(opened)
            return opened.close

        async def closed(call: CancelledCall[object]) -> None:
            assert call.error is None
            report = await last[-1].close()
            assert report.joined
            assert report.saved
            assert len((await store.load(last[-1].session_id)).snapshot.runs) == 1

        last: list[AgentSession] = []
        await swept(closing, closed, 2)
        await trio.testing.wait_all_tasks_blocked()
        assert agent.sessions() == ()


async def test_delegating_cancelled_at_every_step_leaves_no_child() -> None:
    async with open_both(ScriptedModelClient(otherwise="ok")) as (agent, session):

        async def call() -> Callable[[], Awaitable[object]]:
            return lambda: session.delegate("think")

        async def check(done: CancelledCall[object]) -> None:
            assert done.error is None
            assert agent.sessions() == (session.session_id,)

        await swept(call, check, 5)
        assert (await session.send("still here")).content == "ok"


async def test_a_body_that_is_cancelled_while_a_turn_runs_leaves_nothing_behind() -> None:
    async with open_in_memory_repository() as repository:
        await remember(repository, "deploy", "We deploy on Tuesdays.")

        async def hang(_request: ModelRequest) -> str:
            await trio.sleep_forever()
            raise AssertionError

        tasks = trio.lowlevel.current_statistics().tasks_living
        options = SessionOptions(durable_memory=bind(repository))
        with trio.move_on_after(0.1):
            async with open_both(ScriptedModelClient([hang]), options) as (_, session), trio.open_nursery() as nursery:
                nursery.start_soon(session.send, "when do we deploy")
        assert trio.lowlevel.current_statistics().tasks_living == tasks
