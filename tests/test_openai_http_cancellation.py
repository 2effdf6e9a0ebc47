"""The HTTP model client cancelled at every scheduler step: nothing is left, and the next request works."""

# flake8: noqa: ASYNC127 - the client's own library

from __future__ import annotations

import gc
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
import trio.testing
import trustme

from a3s_actors.agent.errors import ModelProtocolError
from a3s_actors.agent.model import ModelMessage, ModelReply, ModelRequest, ModelTextDelta, Role
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.testing.cancellation import CancelledCall, sweep_cancellation
from a3s_backends.openai_http import OpenAiHttpClosed, OpenAiHttpModelClient, OpenAiHttpPolicy, open_openai_http
from tests.http_server import DONE, HttpServer, event, head, says, serving, stalls, streams

ASK = ModelRequest(messages=[ModelMessage(role=Role.USER, content="hello")])
WHOLE = says({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
PIECES = [event({"choices": [{"delta": {"content": text}}]}) for text in "hi"]
STREAM = streams([*PIECES, event({"choices": [{"delta": {}, "finish_reason": "stop"}]}), DONE])

Ask = Callable[[OpenAiHttpModelClient], Awaitable[str]]


async def generated(client: OpenAiHttpModelClient) -> str:
    return (await client.generate(ASK)).content


async def streamed(client: OpenAiHttpModelClient) -> str:
    async with client.stream(ASK) as pieces:
        async for piece in pieces:
            if isinstance(piece, ModelReply):
                return piece.content
    raise AssertionError("no reply")


async def left_early(client: OpenAiHttpModelClient) -> str:
    async with client.stream(ASK) as pieces:
        assert await anext(pieces) == ModelTextDelta("h")
    return "hi"


WAYS = pytest.mark.parametrize(
    ("ask", "answer"), [(generated, WHOLE), (streamed, STREAM), (left_early, STREAM)], ids=lambda value: value.__name__
)


@asynccontextmanager
async def client_of(server: HttpServer, **more: Any) -> AsyncIterator[OpenAiHttpModelClient]:
    policy = OpenAiHttpPolicy(max_attempts=3, max_concurrent_requests=1, total=5)
    seams: dict[str, Any] = {"sleep": lambda _: trio.lowlevel.checkpoint(), "chance": lambda: 1.0}
    async with open_openai_http(server.url, "gpt", policy=policy, api_key="k", **seams, **more) as client:
        yield client


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def sweep(server: HttpServer, client: OpenAiHttpModelClient, ask: Ask, prepare: Callable[[], object]) -> int:
    """Cancel a request at every step; after each, the next one works, with one connection and no task more."""
    idle = tasks() - server.open

    async def make_call() -> Callable[[], Awaitable[str]]:
        prepare()
        return lambda: ask(client)

    async def check(call: CancelledCall[str]) -> None:
        assert call.error is None
        assert call.cancelled or call.value == "hi"
        server.script.clear()
        with trio.fail_after(5):
            assert await ask(client) == "hi"
            while server.open > 1 or tasks() - server.open > idle:  # one connection is kept
                await trio.sleep(0.001)

    return await sweep_cancellation(make_call, check)


@WAYS
async def test_a_cancelled_request_leaves_nothing_and_the_next_one_works(ask: Ask, answer: Any) -> None:
    async with serving() as server:
        server.always(answer)
        async with client_of(server) as client:
            assert await sweep(server, client, ask, lambda: None) > 10
        await server.until_open(0)
    gc.collect()  # what is left half run would say so


@WAYS
async def test_a_cancelled_first_request_leaves_nothing(ask: Ask, answer: Any) -> None:
    async with serving() as server:
        server.always(answer)

        async def make_call() -> Callable[[], Awaitable[str]]:
            async def call() -> str:
                async with client_of(server) as client:
                    return await ask(client)

            return call

        async def check(call: CancelledCall[str]) -> None:
            assert call.error is None
            assert call.cancelled or call.value == "hi"
            await server.until_open(0)

        assert await sweep_cancellation(make_call, check) > 10
    gc.collect()


@WAYS
async def test_a_request_that_is_cancelled_among_its_attempts_leaves_nothing(ask: Ask, answer: Any) -> None:
    async with serving() as server:
        server.always(answer)
        async with client_of(server) as client:
            busy = says({"error": "busy"}, 503)
            assert await sweep(server, client, ask, lambda: server.will(busy, says({}, 429))) > 20
        await server.until_open(0)
    gc.collect()


async def test_a_request_that_is_cancelled_in_its_handshake_leaves_nothing() -> None:
    theirs, ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(ours)

    def make() -> httpx.AsyncBaseTransport:
        return httpx.AsyncHTTPTransport(verify=ours, trust_env=False)

    async with serving(tls=theirs) as server:
        server.always(WHOLE)

        async def make_call() -> Callable[[], Awaitable[str]]:
            async def call() -> str:
                async with client_of(server, transport=make) as client:
                    return await generated(client)

            return call

        async def check(call: CancelledCall[str]) -> None:
            assert call.error is None
            await server.until_open(0)

        assert await sweep_cancellation(make_call, check) > 15
    gc.collect()


@pytest.mark.parametrize("ask", [generated, streamed])
async def test_a_caller_that_gives_up_on_a_silent_server_closes_its_connection(ask: Ask) -> None:
    start = head(200, "application/json" if ask is generated else "text/event-stream")
    async with serving(stalls(), stalls(start, PIECES[0])) as server, client_of(server) as client:
        for _ in range(2):
            with trio.move_on_after(0.05) as scope:
                await ask(client)
            assert scope.cancelled_caught
            await server.until_open(0)
        server.always(WHOLE if ask is generated else STREAM)
        assert await ask(client) == "hi"


async def test_a_stream_goes_on_for_no_one_whose_step_was_cancelled() -> None:
    silent = stalls(head(200, "text/event-stream"), PIECES[0])
    async with serving(silent) as server, client_of(server) as client, client.stream(ASK) as pieces:
        assert await anext(pieces) == ModelTextDelta("h")
        with trio.move_on_after(0.02):
            await anext(pieces)
        for _ in range(2):
            with pytest.raises(ModelProtocolError):
                await anext(pieces)


async def test_every_step_is_a_checkpoint_also_where_nothing_has_to_be_waited_for() -> None:
    async with serving() as server:
        server.always(STREAM)
        async with client_of(server) as client:
            async with client.stream(ASK) as pieces:
                for _ in range(3):
                    with trio.testing.assert_checkpoints():
                        await anext(pieces)
                with trio.testing.assert_checkpoints(), pytest.raises(StopAsyncIteration):
                    await anext(pieces)
            with trio.testing.assert_checkpoints(), pytest.raises(InvalidInput):
                await client.generate(None)  # type: ignore[arg-type]
        for ask in (generated, streamed):
            with trio.testing.assert_checkpoints(), pytest.raises(OpenAiHttpClosed):
                await ask(client)
    assert len(server.received) == 1


async def test_one_who_waits_for_a_place_can_give_up_and_the_others_get_theirs() -> None:
    got: list[str] = []
    async with serving(stalls(head(200, "text/event-stream"), PIECES[0])) as server:
        server.always(WHOLE)

        async def keep(client: OpenAiHttpModelClient) -> None:
            got.append(await generated(client))

        async with client_of(server) as client, trio.open_nursery() as nursery, client.stream(ASK):
            nursery.start_soon(keep, client)  # one request at a time
            await trio.testing.wait_all_tasks_blocked(0.01)
            with trio.move_on_after(0.01) as scope:
                await generated(client)
            assert scope.cancelled_caught
            nursery.start_soon(keep, client)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert got == []
    assert got == ["hi", "hi"]
    assert len(server.received) == 3
