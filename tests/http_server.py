"""A scripted HTTP server on loopback, in the trio run of a test: it parses requests, and answers with given bytes."""

from __future__ import annotations

import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import h11
import trio

Stream = trio.abc.Stream
# Writes an answer; True when the connection may carry another request.
Answer = Callable[[Stream], Awaitable[bool]]


@attrs.frozen
class Received:
    """A request as the server has read it."""

    method: str
    target: str
    headers: dict[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpServer:
    """What `serving` gives: the script, and what happened."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.url = f"{origin}/v1"
        self.script: deque[Answer] = deque()
        self.fallback: Answer | None = None  # where the script has ended
        self.received: list[Received] = []
        self.connected = 0
        self.open = 0

    def will(self, *answers: Answer) -> HttpServer:
        self.script.extend(answers)
        return self

    def always(self, answer: Answer) -> HttpServer:
        self.fallback = answer
        return self

    async def until_open(self, count: int) -> None:
        """Wait until no more than so many connections are open."""
        with trio.fail_after(5):
            while self.open > count:
                await trio.sleep(0.001)


@asynccontextmanager
async def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpServer]:
    """Serve on a free port for the length of the block."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        server = HttpServer(f"http{'s' if tls else ''}://127.0.0.1:{port}").will(*answers)

        async def handle(plain: trio.SocketStream) -> None:
            server.connected += 1
            server.open += 1
            stream: Stream = plain
            try:
                if tls is not None:
                    stream = trio.SSLStream(plain, tls, server_side=True, https_compatible=True)
                while await _serve_one(server, stream):
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
                pass  # the client is gone
            finally:
                server.open -= 1
                with trio.move_on_after(0, shield=True):
                    await stream.aclose()

        await nursery.start(trio.serve_listeners, handle, listeners)
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()


async def _serve_one(server: HttpServer, stream: Stream) -> bool:
    parser = h11.Connection(h11.SERVER)
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            parser.receive_data(bytes(await stream.receive_some()))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            break
        else:
            return False
    assert head is not None
    headers = {name.decode(): value.decode() for name, value in head.headers}
    server.received.append(Received(head.method.decode(), head.target.decode(), headers, bytes(body)))
    answer = server.script.popleft() if server.script else server.fallback
    assert answer is not None, "a request that the script has no answer for"
    return await answer(stream)


def writes(*pieces: bytes, keep: bool = False) -> Answer:
    """Answer with exactly these bytes, each on its own; then go on, or close."""

    async def answer(stream: Stream) -> bool:
        for piece in pieces:
            await stream.send_all(piece)
            for _ in range(4):  # lets the client read the piece before the next one comes
                await trio.lowlevel.checkpoint()
        return keep

    return answer


def stalls(*pieces: bytes) -> Answer:
    """Answer with these bytes, and then with nothing until the client goes."""

    async def answer(stream: Stream) -> bool:
        await writes(*pieces)(stream)
        while await stream.receive_some():
            pass
        return False

    return answer


def resets(*pieces: bytes) -> Answer:
    """Answer with these bytes, and then break the connection."""

    async def answer(stream: Stream) -> bool:
        await writes(*pieces)(stream)
        assert isinstance(stream, trio.SocketStream)
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return False

    return answer


def head(status: int = 200, kind: str | None = "application/json", *more: str) -> bytes:
    """Return the head of an answer."""
    lines = [f"HTTP/1.1 {status} Whatever", *([f"content-type: {kind}"] if kind else []), *more]
    return "\r\n".join([*lines, "", ""]).encode()


def whole(body: bytes, status: int = 200, kind: str | None = "application/json", *more: str) -> bytes:
    """Return an answer with its length."""
    return head(status, kind, f"content-length: {len(body)}", *more) + body


def says(value: object, status: int = 200, *more: str) -> Answer:
    """Answer with JSON, and keep the connection."""
    return writes(whole(json.dumps(value).encode(), status, "application/json", *more), keep=True)


def chunked(pieces: Iterable[bytes]) -> list[bytes]:
    """Return pieces as the chunks of a body, with its end."""
    return [*(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece), b"0\r\n\r\n"]


def event(value: object) -> bytes:
    """Return a server-sent event of JSON."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def streams(pieces: Sequence[bytes], *, keep: bool = True) -> Answer:
    """Answer with a stream of these bytes, each a chunk of its own."""
    start = head(200, "text/event-stream; charset=utf-8", "transfer-encoding: chunked")
    return writes(start, *chunked(pieces), keep=keep)
