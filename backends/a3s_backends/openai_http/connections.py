"""Connections to one server, and one request on one of them. The only module that has to do with httpx.

Each request has a transport of its own, which holds one connection. One whose answer was read to its end is kept for
the next request; any other is thrown away with all that it holds. So whatever a cancellation or a broken server leaves
in a pool's books (httpcore forgets a connection that is cancelled between its opening and its first byte, and the
socket under a TLS handshake) goes with it, and the next request begins clean.

Transports, not an `httpx.AsyncClient`: nothing that a client adds is wanted. There are no redirects, no cookies, no
proxies or certificates from the environment, no `.netrc`. No compression either: it is not asked for, and a server that
compresses all the same is refused, so that there is no bomb to take apart.
"""

# flake8: noqa: ASYNC127 - which client library this is to be is decided in pyproject.toml

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, Literal, cast

import httpx
import trio

from a3s_actors.agent.errors import ModelError, ModelProtocolError, ModelUnavailable
from a3s_backends.openai_http.failures import Failure
from a3s_backends.openai_http.key import ApiKey
from a3s_backends.openai_http.policy import OpenAiHttpPolicy

__all__ = ["Connections", "Exchange", "TransportFactory", "transport_factory"]

TransportFactory = Callable[[], httpx.AsyncBaseTransport]

_KEPT_SECONDS: Final = 30.0  # an unused connection older than this is not trusted any more


def transport_factory(*, encrypted: bool) -> TransportFactory:
    """Return what makes a transport of one connection; all share one TLS context."""
    # Reading the certificates takes longer than all the rest, and a plain connection needs none.
    context = httpx.create_ssl_context(verify=encrypted, trust_env=False)
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=_KEPT_SECONDS)
    return lambda: httpx.AsyncHTTPTransport(verify=context, trust_env=False, limits=limits)


class Connections:
    """All connections to one server.

    Args:
        url: where requests go.
        key: as whom, or None.
        policy: the limits.
        make: makes a transport of one connection.
    """

    def __init__(self, url: str, key: ApiKey | None, policy: OpenAiHttpPolicy, make: TransportFactory) -> None:
        self._url = url
        self._key = key
        self._limit = policy.max_response_bytes
        self._timeouts = {"connect": policy.connect, "read": policy.read, "write": policy.read, "pool": None}
        self._make = make
        self._idle: list[httpx.AsyncBaseTransport] = []
        self._busy: set[httpx.AsyncBaseTransport] = set()
        self.closed = False

    async def post(self, body: bytes, accept: str) -> Exchange | Failure:
        """Send a request and wait for the head of its answer. Close the exchange.

        Cancellation: a checkpoint; cancelled, nothing is left of the connection.

        Raises:
            InvalidInput: the key is none. Whatever the function that gives it raises, too.
        """
        headers = httpx.Headers({"accept": accept, "accept-encoding": "identity", "content-type": "application/json"})
        headers["user-agent"] = "a3s-actors"
        if self._key is not None:
            headers["authorization"] = self._key.authorization()
        opened: list[Any] = []

        async def trace(event: str, info: dict[str, Any]) -> None:
            # httpcore does not close the socket of a handshake that is cancelled; so it is remembered here.
            if event == "connection.connect_tcp.complete":
                opened.append(info["return_value"])

        extensions = {"timeout": self._timeouts, "trace": trace}
        request = httpx.Request("POST", self._url, headers=headers, content=body, extensions=extensions)
        request.stream = _Body(body)
        transport = self._idle.pop() if self._idle else self._make()
        self._busy.add(transport)
        answered = False
        try:
            response = await transport.handle_async_request(request)
            answered = True
            return Exchange(self, transport, response, self._limit)
        except httpx.HTTPError as error:
            return failure_of_exception(error)
        finally:
            if not answered:
                await self._throw_away(transport, *opened)

    async def give_back(self, transport: httpx.AsyncBaseTransport, *, reusable: bool) -> None:
        """Take a transport back: keep it, or close what it holds. Never waits."""
        if reusable and not self.closed:
            self._busy.discard(transport)
            self._idle.append(transport)
        else:
            await self._throw_away(transport)

    async def aclose(self) -> None:
        """Close all connections, also those in use. Never waits."""
        self.closed = True
        await self._throw_away(*self._idle, *self._busy)

    async def _throw_away(self, *held: Any) -> None:
        self._busy.difference_update(held)
        self._idle = [transport for transport in self._idle if transport not in held]
        # Closing a socket never waits. So the bound of this shield is zero, and there is nothing to log.
        with trio.move_on_after(0, shield=True):
            for one in held:
                await one.aclose()


def failure_of_exception(error: httpx.HTTPError) -> Failure:
    """Return what an error means that came before an answer."""
    if isinstance(error, httpx.TimeoutException):
        return Failure(reason="timeout", retried=True)
    if isinstance(error, httpx.ConnectError):
        return Failure(reason="tls") if _is_of_tls(error) else Failure(reason="connect", retried=True)
    return Failure(reason="disconnected", retried=True)


def _is_of_tls(error: BaseException) -> bool:
    # The layers between drop `__cause__` on the way; `__context__` they leave.
    link: BaseException | None = error
    while link is not None and not isinstance(link, ssl.SSLError):
        link = link.__cause__ or link.__context__
    return link is not None


class _Body(httpx.AsyncByteStream):
    """The body of a request. httpx's own is a generator, which a broken connection would leave half run."""

    def __init__(self, body: bytes) -> None:
        self._left = [body]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class Exchange:
    """One request whose answer has begun. Made by `Connections.post`.

    Attributes:
        status: the HTTP status.
    """

    def __init__(
        self,
        connections: Connections,
        transport: httpx.AsyncBaseTransport,
        response: httpx.Response,
        limit: int,
    ) -> None:
        self.status = response.status_code
        self._connections = connections
        self._transport = transport
        self._headers = response.headers
        self._body = cast("AsyncGenerator[bytes, None]", response.aiter_raw())
        self._left = self._limit = limit
        self._state: Literal["open", "ended", "broken", "closed"] = "open"

    def header(self, name: str) -> str | None:
        """Return a header's value, None where there is none."""
        value: str | None = self._headers.get(name)
        return value

    def check(self, media_type: str) -> None:
        """Refuse a body of another type or encoding.

        Raises:
            ModelProtocolError: it has one.
        """
        said = (self.header("content-type") or "").partition(";")[0].strip().lower()
        if said != media_type:
            raise ModelProtocolError("content-type", f"is not {media_type}; is this the address of such a server?")
        if (self.header("content-encoding") or "identity").strip().lower() != "identity":
            raise ModelProtocolError("content-encoding", "was not asked for")

    async def read_some(self) -> bytes:
        """Return the next bytes of the body, none at its end.

        Cancellation: cancelled, the body cannot be read any further.

        Raises:
            ModelUnavailable: no byte came in time.
            ModelProtocolError: the body is cut short or longer than allowed, or could not be read before.
        """
        if self._state == "ended":
            return b""
        if self._state != "open":
            raise ModelProtocolError("body", "could not be read to its end")
        self._state = "broken"
        failure: ModelError
        try:
            data = await anext(self._body, b"")
        except httpx.TimeoutException:
            failure = ModelUnavailable("timeout", self.status)
        except httpx.HTTPError:
            failure = ModelProtocolError("body", "is cut short")
        else:
            self._left -= len(data)
            if self._left >= 0:
                self._state = "open" if data else "ended"
                return data
            failure = ModelProtocolError("body", f"is longer than {self._limit} bytes")
        raise failure  # out here: httpx's error holds the request, and so the key

    async def read_all(self, most: int | None = None) -> bytes:
        """Return the body, or so many bytes of it. Raises as `read_some` does."""
        read = bytearray()
        while data := await self.read_some():
            read += data
            if most is not None and len(read) >= most:
                break
        return bytes(read)

    async def aclose(self) -> None:
        """End the exchange. Never waits; can be called twice."""
        if self._state == "closed":
            return
        if self._state != "ended":
            # What has arrived is read, to see whether it is all; and the generators of the body, which are in each
            # other, end as they do when a reader is cancelled. Closing the outermost would leave the others about.
            with trio.move_on_after(0, shield=True), suppress(httpx.HTTPError):
                while await anext(self._body, b""):
                    pass
                if self._state == "open":
                    self._state = "ended"
        ended = self._state == "ended"
        self._state = "closed"
        await self._connections.give_back(self._transport, reusable=ended)
