"""The HTTP model client against a real server on loopback: good, slow, broken, rate limiting, lying."""

# flake8: noqa: ASYNC127 - the client's own library

from __future__ import annotations

import gzip
import json
import logging
import ssl
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import httpx
import pytest
import trio
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from a3s_actors.agent.errors import ModelError, ModelProtocolError, ModelRefused, ModelUnavailable
from a3s_actors.agent.model import (
    FinishReason,
    ModelMessage,
    ModelReply,
    ModelRequest,
    ModelTextDelta,
    ModelUsage,
    Role,
    StreamingModelClient,
    ToolDefinition,
)
from a3s_actors.memory.errors import ErrorFamily, InvalidInput
from a3s_backends.openai_http import OpenAiHttpClosed, OpenAiHttpModelClient, OpenAiHttpPolicy, open_openai_http
from tests.http_server import (
    DONE,
    Answer,
    HttpServer,
    chunked,
    event,
    head,
    resets,
    says,
    serving,
    stalls,
    streams,
    whole,
    writes,
)

KEY = "sk-canary-KEY-31337"
NOW = 1_000_000.0
ASK = ModelRequest(messages=[ModelMessage(role=Role.USER, content="hello")])


def answer(content: object = "hi", reason: object = "stop", **more: object) -> dict[str, object]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-x",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": reason}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        **more,
    }


def delta(content: str | None = None, reason: str | None = None, **more: object) -> bytes:
    said = {**({} if content is None else {"content": content}), **more}
    return event({"model": "gpt-x", "choices": [{"index": 0, "delta": said, "finish_reason": reason}], "usage": None})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
WHOLE = [delta("", role="assistant"), delta("h"), delta("i"), delta(None, "stop"), USAGE, DONE]
HI = ModelReply(content="hi", usage=ModelUsage(input_tokens=5, output_tokens=2), model="gpt-x")


class Sleeps(list[float]):
    """Remembers how long the client wanted to wait, and lets it go on at once."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def client_of(
    server: HttpServer, sleeps: Sleeps | None = None, **more: Any
) -> AsyncIterator[OpenAiHttpModelClient]:
    policy = OpenAiHttpPolicy(**{name: more.pop(name) for name in OpenAiHttpPolicy.__annotations__ if name in more})
    seams: dict[str, Any] = {"sleep": Sleeps() if sleeps is None else sleeps, "chance": lambda: 1.0, "now": lambda: NOW}
    async with open_openai_http(server.url, "gpt", policy=policy, **{**seams, **more}) as client:
        yield client


async def streamed(client: OpenAiHttpModelClient, request: ModelRequest = ASK) -> tuple[list[str], ModelReply]:
    texts: list[str] = []
    last: ModelReply | None = None
    async with client.stream(request) as pieces:
        async for piece in pieces:
            assert last is None, "the reply is the last piece"
            if isinstance(piece, ModelTextDelta):
                texts.append(piece.text)
            else:
                last = piece
    assert last is not None
    return texts, last


async def consume(pieces: AsyncIterator[object], into: list[object]) -> None:
    async for piece in pieces:
        into.append(piece)


async def generated(client: OpenAiHttpModelClient) -> ModelReply:
    return await client.generate(ASK)


Way = Callable[[OpenAiHttpModelClient], Any]
BOTH = pytest.mark.parametrize("way", [generated, streamed])


# Good servers


async def test_a_request_is_posted_with_its_key_and_the_answer_is_a_reply() -> None:
    async with serving(says(answer())) as server, client_of(server, api_key=KEY) as client:
        assert isinstance(client, StreamingModelClient)
        assert await client.generate(ASK) == HI
    (got,) = server.received
    assert (got.method, got.target) == ("POST", "/v1/chat/completions")
    assert got.json == {"model": "gpt", "messages": [{"role": "user", "content": "hello"}]}
    assert got.headers["authorization"] == f"Bearer {KEY}"
    assert got.headers["accept-encoding"] == "identity"
    assert set(got.headers) == {
        *("host", "accept", "accept-encoding", "content-type", "user-agent", "authorization", "content-length")
    }


async def test_without_a_key_no_authorization_is_sent() -> None:
    async with serving(says(answer())) as server, client_of(server) as client:
        await client.generate(ASK)
    assert "authorization" not in server.received[0].headers


async def test_a_function_gives_the_key_of_each_attempt() -> None:
    keys = iter(["k1", "k2"])
    async with serving(says({}, 500), says(answer())) as server, client_of(server, api_key=keys.__next__) as client:
        await client.generate(ASK)
    assert [got.headers["authorization"] for got in server.received] == ["Bearer k1", "Bearer k2"]


async def test_what_a_function_that_has_no_key_raises_reaches_the_caller_and_the_next_call_works() -> None:
    keys: list[Any] = ["k2", "bad\n", KeyError("vault")]

    def give() -> str:
        value = keys.pop()
        if isinstance(value, Exception):
            raise value
        return str(value)

    async with serving(says(answer())) as server, client_of(server, api_key=give, max_concurrent_requests=1) as client:
        with pytest.raises(KeyError):
            await client.generate(ASK)
        with pytest.raises(InvalidInput, match="visible ASCII"):
            await client.generate(ASK)
        assert await client.generate(ASK) == HI


async def test_connections_are_used_again() -> None:
    async with serving(*[says(answer())] * 3, streams(WHOLE), says(answer())) as server:
        async with client_of(server) as client:
            for _ in range(3):
                await client.generate(ASK)
            await streamed(client)
            await client.generate(ASK)
            assert server.open == 1
        assert server.connected <= 2  # whether a stream's connection is kept depends on when its end arrives
        await server.until_open(0)


async def test_a_connection_that_the_server_has_closed_meanwhile_is_opened_anew() -> None:
    async with serving(writes(whole(json.dumps(answer()).encode())), says(answer())) as server:
        async with client_of(server, max_attempts=1) as client:
            await client.generate(ASK)
            await server.until_open(0)
            assert await client.generate(ASK) == HI
        assert server.connected == 2


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    async with serving(writes(head(), json.dumps(answer()).encode())) as server, client_of(server) as client:
        assert await client.generate(ASK) == HI


async def test_a_stream_gives_its_pieces_and_then_the_whole_reply() -> None:
    async with serving(streams(WHOLE)) as server, client_of(server, api_key=KEY) as client:
        assert await streamed(client) == (["h", "i"], HI)
    got = server.received[0]
    assert got.json["stream"] is True
    assert got.json["stream_options"] == {"include_usage": True}
    assert got.headers["accept"] == "text/event-stream"


async def test_tool_calls_that_come_in_fragments_are_put_together() -> None:
    def part(index: int, **more: object) -> bytes:
        return delta(tool_calls=[{"index": index, **more}])

    pieces = [
        part(0, id="a", type="function", function={"name": "look", "arguments": ""}),
        part(0, function={"arguments": '{"q":'}),
        part(1, id="b", function={"name": "find"}),
        part(1, function={"name": "find", "arguments": "{}"}, id="b"),
        part(0, function={"arguments": " 1}"}),
        delta(None, "tool_calls"),
        DONE,
    ]
    async with serving(streams(pieces)) as server, client_of(server) as client:
        texts, reply = await streamed(client)
    assert texts == []
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("a", "look", '{"q": 1}'),
        ("b", "find", "{}"),
    ]
    assert reply.finish_reason is FinishReason.TOOL_CALLS


async def test_fragments_without_an_index_go_to_the_call_that_an_id_began() -> None:
    pieces = [
        delta(tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "{"}}]),
        delta(tool_calls=[{"function": {"arguments": "}"}}]),
        delta(tool_calls=[{"id": "b", "function": {"name": "g", "arguments": "[]"}}]),
        delta(None, "tool_calls"),
    ]
    async with serving(streams(pieces)) as server, client_of(server) as client:
        _, reply = await streamed(client)
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [("a", "f", "{}"), ("b", "g", "[]")]


@pytest.mark.parametrize(
    "pieces",
    [
        WHOLE[:-1],
        [delta("hi"), USAGE, DONE],
        [b": ping\n\n", *WHOLE],
        [b"\xef\xbb\xbf", *WHOLE],
        [*WHOLE[:-1], b"data: [DONE]"],
        [*WHOLE, b"data: canary\n\n"],
        [piece.replace(b"\n", b"\r\n") for piece in WHOLE],
        [piece.replace(b"\n", b"\r") for piece in WHOLE],
        [event({"object": "ping"}), *WHOLE],
        [bytes([byte]) for byte in b"".join(WHOLE)],
    ],
)
async def test_a_stream_is_whole_with_a_finish_reason_or_its_end_mark(pieces: Sequence[bytes]) -> None:
    async with serving(streams(pieces)) as server, client_of(server) as client:
        texts, reply = await streamed(client)
    assert "".join(texts) == reply.content == "hi"


async def test_a_stream_that_goes_on_after_its_end_mark_is_not_waited_for() -> None:
    start = head(200, "text/event-stream", "transfer-encoding: chunked")
    async with serving(stalls(start, *chunked(WHOLE)[:-1])) as server, client_of(server) as client:
        assert await streamed(client) == (["h", "i"], HI)
        await server.until_open(0)


async def test_a_server_that_does_not_know_stream_options_is_asked_without_and_remembered() -> None:
    script = says({"error": "x"}, 400), streams(WHOLE), streams(WHOLE)
    async with serving(*script) as server, client_of(server, max_attempts=1) as client:
        await streamed(client)
        await streamed(client)
    assert ["stream_options" in got.json for got in server.received] == [True, False, False]


async def test_a_bad_request_to_a_server_that_knows_stream_options_is_not_repeated() -> None:
    async with serving(streams(WHOLE), says({}, 400)) as server, client_of(server) as client:
        await streamed(client)
        with pytest.raises(ModelRefused, match="bad_request"):
            await streamed(client)
    assert len(server.received) == 2


async def test_a_bad_request_with_and_without_stream_options_is_a_bad_request() -> None:
    async with serving(*[says({}, 422)] * 4) as server, client_of(server) as client:
        for _ in range(2):
            with pytest.raises(ModelRefused, match="bad_request"):
                await streamed(client)
    assert ["stream_options" in got.json for got in server.received] == [True, False] * 2


async def test_no_more_requests_are_under_way_than_the_policy_allows() -> None:
    waiting: list[trio.Event] = []
    most = 0

    async def when_told(stream: trio.abc.Stream) -> bool:
        nonlocal most
        waiting.append(trio.Event())
        most = max(most, len(waiting))
        await waiting[-1].wait()
        return await says(answer())(stream)

    async with serving() as server, client_of(server, max_concurrent_requests=2) as client:
        server.always(when_told)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(client.generate, ASK)
            for _ in range(5):
                with trio.fail_after(5):
                    while not waiting:
                        await trio.sleep(0.001)
                    await trio.sleep(0.005)
                waiting.pop().set()
    assert most == 2
    assert server.connected == 2


@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=6),
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_random_answer_survives_random_chunks(texts: list[str], sizes: list[int], end: str, plain: bool) -> None:
    async def main() -> None:
        if plain:
            start, text = head(), json.dumps(answer("".join(texts)), ensure_ascii=False).encode()
        else:
            start = head(200, "text/event-stream", "transfer-encoding: chunked")
            said = [*map(delta, texts), delta(None, "stop"), USAGE, DONE]
            text = b"".join(said).replace(b"\n", end.encode())
        pieces, place, turn = [], 0, 0
        while place < len(text):
            pieces.append(text[place : place + sizes[turn % len(sizes)]])
            place, turn = place + len(pieces[-1]), turn + 1
        sent = [b"".join(pieces[n : n + 7]) for n in range(0, len(pieces), 7)] if plain else chunked(pieces)
        async with serving(writes(start, *sent)) as server, client_of(server) as client:
            if plain:
                assert (await client.generate(ASK)).content == "".join(texts)
            else:
                got, reply = await streamed(client)
                assert got == [text for text in texts if text]
                assert reply.content == "".join(texts)
                assert reply.usage == HI.usage

    trio.run(main)


# Refusals, retries


@BOTH
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "authentication"),
        (403, "authentication"),
        (404, "not_found"),
        (400, "bad_request"),
        (422, "bad_request"),
        (413, "bad_request"),
        (418, "bad_request"),
        (301, "redirected"),
        (307, "redirected"),
        (201, "unexpected_status"),
        (204, "unexpected_status"),
        (600, "unexpected_status"),
    ],
)
async def test_a_refusal_is_told_at_once(way: Way, status: int, reason: str) -> None:
    body = b"" if status == 204 else b'{"error":{"message":"canary"}}'
    text = (
        head(204) if status == 204 else whole(body, status, "application/json", "location: http://127.0.0.1:9/canary")
    )
    async with serving() as server, client_of(server.always(writes(text)), api_key=KEY) as client:
        with pytest.raises(ModelRefused) as caught:
            await way(client)
    assert (caught.value.reason, caught.value.status) == (reason, status)
    assert len(server.received) == (2 if way is streamed and reason == "bad_request" else 1)


@BOTH
@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "context_length_exceeded"), (413, "context_length_exceeded"), (429, "insufficient_quota")],
)
async def test_a_known_code_says_more_than_the_status(way: Way, status: int, code: str) -> None:
    refusal = says({"error": {"code": code, "message": "canary"}}, status)
    async with serving(refusal) as server, client_of(server) as client:
        with pytest.raises(ModelRefused) as caught:
            await way(client)
    assert (caught.value.reason, caught.value.status) == (code, status)


@pytest.mark.parametrize(
    "refusal",
    [
        writes(head(400, "application/json", "content-length: 999"), b'{"error"'),
        writes(whole(b"x" * 1_000_000, 400)),
        writes(whole(b"\xff\xfe", 400)),
        writes(whole(gzip.compress(b'{"error":{}}'), 400, "application/json", "content-encoding: gzip")),
    ],
)
async def test_a_refusal_whose_body_is_broken_is_the_refusal_of_its_status(refusal: Answer) -> None:
    async with serving(refusal, says(answer())) as server, client_of(server) as client:
        with pytest.raises(ModelRefused, match="bad_request"):
            await client.generate(ASK)
        assert await client.generate(ASK) == HI


@BOTH
@pytest.mark.parametrize(
    ("failure", "reason", "status"),
    [
        (says({}, 408), "timeout", 408),
        (says({}, 409), "conflict", 409),
        (says({}, 429), "rate_limited", 429),
        (says({}, 500), "server_error", 500),
        (says({}, 503), "server_error", 503),
        (writes(), "disconnected", None),
        (writes(b"HTTP/1.1 200 O"), "disconnected", None),
        (writes(b"canary\r\n\r\n"), "disconnected", None),
        (writes(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000), "disconnected", None),
        (resets(), "disconnected", None),
        (stalls(), "timeout", None),
    ],
)
async def test_what_may_pass_is_tried_again_and_then_told(
    way: Way, failure: Answer, reason: str, status: int | None
) -> None:
    good = says(answer()) if way is generated else streams(WHOLE)
    sleeps = Sleeps()
    async with serving(failure, failure, good) as server, client_of(server, sleeps, read=0.05) as client:
        await way(client)
        server.will(failure, failure, failure, good)
        with pytest.raises(ModelUnavailable) as caught:
            await way(client)
        assert (caught.value.reason, caught.value.status, caught.value.attempts) == (reason, status, 3)
        assert sleeps == [0.5, 1.0] * 2
        await way(client)


@BOTH
async def test_a_port_where_nobody_listens_is_no_connection(way: Way) -> None:
    async with serving() as server:
        pass
    async with client_of(server) as client:
        with pytest.raises(ModelUnavailable) as caught:
            await way(client)
    assert (caught.value.reason, caught.value.attempts) == ("connect", 3)


@pytest.mark.parametrize(
    ("header", "wait"), [("7", 7.0), ("0", 0.5), (formatdate(NOW + 9, usegmt=True), 9.0), ("x", 0.5)]
)
async def test_a_server_is_waited_for_as_long_as_it_asks(header: str, wait: float) -> None:
    sleeps = Sleeps()
    script = says({}, 429, f"retry-after: {header}"), says(answer())
    async with serving(*script) as server, client_of(server, sleeps) as client:
        await client.generate(ASK)
    assert sleeps == [wait]


@pytest.mark.parametrize(("status", "reason"), [(429, "rate_limited"), (503, "server_error")])
async def test_a_server_that_asks_for_a_longer_wait_than_allowed_fails_the_call_at_once(
    status: int, reason: str
) -> None:
    sleeps = Sleeps()
    async with serving(says({}, status, "retry-after: 3600")) as server, client_of(server, sleeps) as client:
        with pytest.raises(ModelUnavailable) as caught:
            await client.generate(ASK)
    assert (caught.value.reason, caught.value.retry_after, caught.value.attempts) == (reason, 3600.0, 1)
    assert sleeps == []


async def test_a_wait_that_would_outlast_the_call_is_not_begun() -> None:
    sleeps = Sleeps()
    async with serving(says({}, 429, "retry-after: 20")) as server, client_of(server, sleeps, total=10) as client:
        with pytest.raises(ModelUnavailable, match="rate_limited"):
            await client.generate(ASK)
    assert sleeps == []


@BOTH
async def test_nothing_is_repeated_once_an_answer_has_begun(way: Way) -> None:
    kind = "application/json" if way is generated else "text/event-stream"
    broken = writes(head(200, kind, "transfer-encoding: chunked"), *chunked([delta("h")])[:-1])
    async with serving(broken) as server, client_of(server) as client:
        with pytest.raises(ModelProtocolError, match="cut short"):
            await way(client)
    assert len(server.received) == 1


# Limits of time


@BOTH
async def test_the_whole_call_is_bounded_however_often_a_byte_comes(way: Way) -> None:
    async def drips(stream: trio.abc.Stream) -> bool:
        await stream.send_all(head(200, "application/json" if way is generated else "text/event-stream"))
        while True:
            await stream.send_all(b" " if way is generated else b": ping\n\n")
            await trio.sleep(0.005)

    async with serving(drips, drips) as server, client_of(server, total=0.1) as client:
        with pytest.raises(ModelUnavailable) as caught:
            await way(client)
        assert (caught.value.reason, caught.value.attempts) == ("timeout", 1)
        await server.until_open(0)


async def test_a_call_that_waits_for_a_place_is_bounded_too() -> None:
    limits: dict[str, Any] = {"total": 0.1, "max_concurrent_requests": 1}
    async with serving(streams(WHOLE)) as server, client_of(server, **limits) as client, client.stream(ASK):
        with pytest.raises(ModelUnavailable) as caught:
            await client.generate(ASK)
    assert (caught.value.reason, caught.value.attempts) == ("timeout", 0)


@BOTH
async def test_an_answer_that_stops_coming_is_late(way: Way) -> None:
    kind = "application/json" if way is generated else "text/event-stream"
    slow = stalls(head(200, kind), b"data: ")
    async with serving(slow) as server, client_of(server, read=0.05) as client:
        with pytest.raises(ModelUnavailable) as caught:
            await way(client)
        assert (caught.value.reason, caught.value.status) == ("timeout", 200)
        await server.until_open(0)


async def test_the_reader_of_a_stream_is_not_cancelled_by_the_calls_limit() -> None:
    async with serving(streams(WHOLE)) as server, client_of(server, total=0.05) as client, client.stream(ASK) as pieces:
        await trio.sleep(0.1)
        with pytest.raises(ModelUnavailable, match="timeout"):
            await anext(pieces)


# Limits of size


@BOTH
@pytest.mark.parametrize("length", [True, False])
async def test_an_answer_is_read_no_further_than_its_limit(way: Way, length: bool) -> None:
    sent = 0

    async def floods(stream: trio.abc.Stream) -> bool:
        nonlocal sent
        kind = "application/json" if way is generated else "text/event-stream"
        await stream.send_all(head(200, kind, *(["content-length: 99999999999"] if length else [])) + b"data: ")
        while True:
            await stream.send_all(b"x" * 65536)
            sent += 65536

    async with serving(floods) as server, client_of(server, max_response_bytes=200_000) as client:
        with pytest.raises(ModelProtocolError, match="longer than 200000 bytes"):
            await way(client)
        await server.until_open(0)
    assert sent < 20_000_000  # what the system's own buffers take


async def test_many_short_events_are_bounded_together() -> None:
    async def floods(stream: trio.abc.Stream) -> bool:
        await stream.send_all(head(200, "text/event-stream"))
        while True:
            await stream.send_all(delta("x") * 50)

    async with serving(floods) as server, client_of(server, max_response_bytes=100_000) as client:
        with pytest.raises(ModelProtocolError, match="longer than 100000 bytes"):
            await streamed(client)


@BOTH
@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "deflate", "br", "canary"])
async def test_a_compressed_answer_is_refused_unopened(way: Way, encoding: str) -> None:
    kind = "application/json" if way is generated else "text/event-stream"
    bomb = gzip.compress(b"0" * 10_000_000)
    script = writes(whole(bomb, 200, kind, f"content-encoding: {encoding}"))
    async with serving(script) as server, client_of(server) as client:
        with pytest.raises(ModelProtocolError) as caught:
            await way(client)
    assert caught.value.field == "content-encoding"


# Lying servers


@BOTH
@pytest.mark.parametrize("kind", [None, "text/html", "text/html; charset=utf-8", "canary", "", "application/jsonp"])
async def test_another_type_of_content_is_refused(way: Way, kind: str | None) -> None:
    page = writes(whole(b"<html>canary</html>", 200, kind))
    async with serving(page, says(answer())) as server, client_of(server) as client:
        with pytest.raises(ModelProtocolError) as caught:
            await way(client)
        assert caught.value.field == "content-type"
        assert await client.generate(ASK) == HI


async def test_json_where_a_stream_was_asked_is_refused() -> None:
    async with serving(says(answer())) as server, client_of(server) as client:
        with pytest.raises(ModelProtocolError, match="not text/event-stream"):
            await streamed(client)


BODY = json.dumps(answer()).encode()


@pytest.mark.parametrize(
    "lie",
    [
        writes(head(200, "application/json", f"content-length: {len(BODY) + 1}"), BODY),
        writes(head(200, "application/json", f"content-length: {len(BODY) - 1}"), BODY),
        writes(head(200, "application/json", "transfer-encoding: chunked"), b"ffff\r\n", BODY),
        writes(head(200, "application/json", "transfer-encoding: chunked"), b"zz\r\n", BODY),
        resets(head(200, "application/json", "content-length: 9999"), BODY),
        writes(whole(b"")),
        writes(whole(b"\x00" * 100)),
    ],
)
async def test_a_body_that_is_not_as_long_or_whole_as_it_says_is_refused_and_the_next_request_works(
    lie: Answer,
) -> None:
    async with serving(lie, says(answer())) as server, client_of(server) as client:
        with pytest.raises(ModelProtocolError):
            await client.generate(ASK)
        assert await client.generate(ASK) == HI


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [delta("h")],
        [delta("h"), b"data: {"],
        [b": ping\n\n"],
        [USAGE],
        [delta("h"), b"data: canary\n\n", DONE],
        [delta("h"), b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', DONE],
        [delta("h"), b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n', DONE],
        [delta("h"), b'data: {"choices":[{"delta":{"content":5}}]}\n\n', DONE],
        [delta("h"), b'data: {"choices":' + b"[" * 100_000 + b"\n\n", DONE],
        [event({"choices": [{"index": 1, "delta": {"content": "h"}}]}), DONE],
        [event({"choices": [{"delta": {}}, {"delta": {}}]}), DONE],
        [delta(tool_calls=[{"index": -1, "id": "a", "function": {"name": "f"}}]), DONE],
        [delta(tool_calls=[{"index": 128, "id": "a", "function": {"name": "f"}}]), DONE],
        [delta(tool_calls=[{"index": 10**30, "id": "a", "function": {"name": "f"}}]), DONE],
        [delta(tool_calls=[{"index": 0, "id": "a"}]), DONE],
        [delta(tool_calls=[{"index": 0, "id": "a"}]), delta(tool_calls=[{"index": 0, "id": "b"}]), DONE],
        [delta(tool_calls=[{"index": n, "id": "a", "function": {"name": "f"}} for n in range(2)]), DONE],
        [delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": {"canary": 1}}}]), DONE],
    ],
)
async def test_a_stream_that_is_cut_short_or_malformed_never_looks_whole(pieces: Sequence[bytes]) -> None:
    async with serving(streams(pieces), says(answer())) as server, client_of(server) as client:
        async with client.stream(ASK) as got:
            texts: list[object] = []
            with pytest.raises(ModelProtocolError) as caught:
                await consume(got, texts)
            assert all(isinstance(piece, ModelTextDelta) for piece in texts)
            assert "canary" not in str(caught.value)
            with pytest.raises(ModelProtocolError):
                await anext(got)
        assert await client.generate(ASK) == HI


async def test_a_stream_whose_connection_breaks_after_its_finish_reason_is_cut_short() -> None:
    start = head(200, "text/event-stream", "transfer-encoding: chunked")
    async with serving(writes(start, *chunked(WHOLE[:4])[:-1])) as server, client_of(server) as client:
        with pytest.raises(ModelProtocolError, match="cut short"):
            await streamed(client)


@BOTH
@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        ({"message": "canary", "code": 502}, ModelUnavailable, "server_error"),
        ({"code": "canary"}, ModelUnavailable, "server_error"),
        ("canary", ModelUnavailable, "server_error"),
        ({"code": "context_length_exceeded"}, ModelRefused, "context_length_exceeded"),
    ],
)
async def test_an_error_within_an_answer_is_an_error(way: Way, error: object, kind: Any, reason: str) -> None:
    bad = says({"error": error}) if way is generated else streams([delta("h"), event({"error": error}), DONE])
    async with serving(bad) as server, client_of(server) as client:
        with pytest.raises(kind) as caught:
            await way(client)
    assert (caught.value.reason, caught.value.status) == (reason, 200)


async def test_cookies_are_not_kept_and_redirects_not_followed() -> None:
    cookie = says(answer(), 200, "set-cookie: canary=1; path=/")
    async with serving() as other, serving(cookie, says(answer())) as server, client_of(server, api_key=KEY) as client:
        await client.generate(ASK)
        await client.generate(ASK)
        server.will(writes(whole(b"", 307, None, f"location: {other.url}/chat/completions")))
        with pytest.raises(ModelRefused, match="redirected"):
            await client.generate(ASK)
        assert other.connected == 0
    assert not [got for got in server.received if "cookie" in got.headers]


async def test_nothing_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login x password canary")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    async with serving(says(answer())) as server, client_of(server) as client:
        await client.generate(ASK)
    assert "authorization" not in server.received[0].headers


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@BOTH
async def test_a_host_can_bring_its_own_certificates(authority: trustme.CA, way: Way) -> None:
    theirs, ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(ours)
    good = says(answer()) if way is generated else streams(WHOLE)
    async with serving(good, good, tls=theirs) as server:
        make = lambda: httpx.AsyncHTTPTransport(verify=ours, trust_env=False)
        async with client_of(server, api_key=KEY, transport=make) as client:
            assert await way(client) == (HI if way is generated else (["h", "i"], HI))
            await way(client)
        await server.until_open(0)


async def test_a_certificate_that_nobody_vouches_for_is_not_tried_again(authority: trustme.CA) -> None:
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    async with serving(tls=theirs) as server, client_of(server, api_key=KEY) as client:
        with pytest.raises(ModelUnavailable) as caught:
            await client.generate(ASK)
        assert (caught.value.reason, caught.value.attempts) == ("tls", 1)
        await server.until_open(0)
    assert server.received == []


async def test_a_server_that_does_not_speak_tls_gets_no_key() -> None:
    async with serving() as server, open_openai_http(server.url.replace("http", "https"), "m", api_key=KEY) as client:
        with pytest.raises(ModelUnavailable):
            await client.generate(ASK)
    assert server.received == []


# Closing


async def test_after_the_block_everything_is_closed() -> None:
    async with serving(says(answer())) as server:
        async with client_of(server) as client:
            await client.generate(ASK)
        await server.until_open(0)
        for way in (generated, streamed):
            with pytest.raises(OpenAiHttpClosed) as caught:
                await way(client)
            assert caught.value.family is ErrorFamily.CLOSED


async def test_leaving_the_block_ends_calls_that_are_under_way_or_wait() -> None:
    ended: list[str] = []

    async def ask(client: OpenAiHttpModelClient) -> None:
        with pytest.raises(OpenAiHttpClosed):
            await client.generate(ASK)
        ended.append("generate")

    async def read(client: OpenAiHttpModelClient, started: trio.Event) -> None:
        async with client.stream(ASK) as pieces:
            assert await anext(pieces) == ModelTextDelta("h")
            started.set()
            with pytest.raises(OpenAiHttpClosed):
                await anext(pieces)
            with pytest.raises(ModelError):
                await anext(pieces)
        ended.append("stream")

    async def hold(client: OpenAiHttpModelClient, started: trio.Event, over: trio.Event) -> None:
        async with client.stream(ASK) as pieces:
            await anext(pieces)
            started.set()
            await over.wait()
            with pytest.raises(OpenAiHttpClosed):
                await anext(pieces)
        ended.append("held")

    start = head(200, "text/event-stream")
    script = stalls(start, delta("h")), stalls(start, delta("h")), stalls()
    async with serving(*script) as server, trio.open_nursery() as nursery:
        over = trio.Event()
        async with client_of(server, max_concurrent_requests=3) as client:
            for work in (lambda e: read(client, e), lambda e: hold(client, e, over)):
                started = trio.Event()
                nursery.start_soon(work, started)
                await started.wait()
            nursery.start_soon(ask, client)
            nursery.start_soon(ask, client)
            while len(server.received) < 3:
                await trio.sleep(0.001)
        await server.until_open(0)
        over.set()
    assert sorted(ended) == ["generate", "generate", "held", "stream"]


async def test_an_exception_of_the_block_passes_as_it_is() -> None:
    async with serving(streams(WHOLE), says(answer())) as server:
        with pytest.raises(KeyError):
            async with client_of(server):
                raise KeyError
        async with client_of(server) as client:
            with pytest.raises(KeyError):
                async with client.stream(ASK):
                    raise KeyError
            await client.generate(ASK)


async def test_a_piece_asked_for_after_the_streams_block_is_refused() -> None:
    async with serving(streams(WHOLE), streams(WHOLE)) as server, client_of(server) as client:
        async with client.stream(ASK) as pieces:
            await anext(pieces)
        with pytest.raises(OpenAiHttpClosed, match="stream"):
            await anext(pieces)
        async with client.stream(ASK) as pieces:
            assert [piece async for piece in pieces][-1] == HI
            with pytest.raises(StopAsyncIteration):
                await anext(pieces)


@BOTH
@pytest.mark.parametrize("request_", [None, "hello", {"messages": []}])
async def test_what_is_no_request_is_refused(way: Way, request_: Any) -> None:
    async with serving() as server, client_of(server) as client:
        with pytest.raises(InvalidInput):
            await client.generate(request_)
        with pytest.raises(InvalidInput):
            async with client.stream(request_):
                pass


# Secrets


def everything_about(error: BaseException) -> str:
    """Return all that an error shows: texts, fields, chain, and the locals of its frames, as reports print them."""
    found: list[str] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None:
            continue
        found += [str(one), repr(one), repr(one.args), repr(vars(one)), type(one).__module__]
        todo += [one.__cause__, one.__context__]
    found += traceback.TracebackException.from_exception(error, capture_locals=True).format()
    return "\n".join(found)


CANARY = "server-canary-TEXT"
LEAKS: list[Answer] = [
    *(
        says({"error": {"message": CANARY, "code": CANARY}}, status, f"x-{CANARY}: {CANARY}")
        for status in (400, 401, 429)
    ),
    says({"error": {"message": CANARY}}, 500),
    says({"error": {"message": CANARY}}),
    writes(CANARY.encode()),
    writes(f"HTTP/1.1 200 {CANARY}\r\n{CANARY}\r\n\r\n".encode()),
    writes(head(200, "application/json", "content-length: 9999"), CANARY.encode()),
    writes(whole(CANARY.encode(), 200, CANARY)),
    writes(whole(b"", 302, None, f"location: http://{CANARY}/")),
    stalls(head(200, "application/json"), CANARY.encode()),
    stalls(),
    resets(),
    writes(whole(CANARY.encode())),
    says(answer({CANARY: CANARY})),
    says({"choices": [{"message": {"tool_calls": [{"function": {"name": "", "arguments": CANARY}}]}}]}),
    streams([event({"error": {"message": CANARY}})]),
    streams([f"data: {CANARY}\n\n".encode()]),
    streams([delta(CANARY)]),
]


@BOTH
@pytest.mark.parametrize("leak", LEAKS)
async def test_no_key_and_no_text_of_a_server_is_in_an_error_or_a_log(
    way: Way, leak: Answer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as server, client_of(server.always(leak), api_key=KEY, read=0.05, max_attempts=2) as client:
        with pytest.raises(ModelError) as caught:
            await way(client)
        shown = everything_about(caught.value)
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None
    assert KEY not in shown
    written = "".join(capsys.readouterr())
    ours = "".join(record.getMessage() for record in caplog.records if not record.name.startswith("httpcore"))
    theirs = "".join(record.getMessage() for record in caplog.records)
    assert KEY not in theirs + ours + written
    # httpcore logs the headers of an answer when its own loggers are set to DEBUG; nothing of ours does.
    assert CANARY not in ours + written
    plain = "".join(traceback.format_exception(caught.value))
    assert CANARY not in plain + repr(caught.value) + repr(vars(caught.value))
    tool = ToolDefinition(name="t", description="d", parameters={})
    assert "prompt" not in plain + repr(tool)
