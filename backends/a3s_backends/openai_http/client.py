"""`OpenAiHttpModelClient`: asks a server of chat completions."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

import trio

from a3s_actors.agent.errors import ModelRefused
from a3s_actors.agent.model import ModelReply, ModelRequest, ModelTextDelta
from a3s_actors.memory._checks import check_text
from a3s_actors.memory.errors import InvalidInput
from a3s_backends.openai_http.address import Address
from a3s_backends.openai_http.assembly import Assembly
from a3s_backends.openai_http.calls import Call, Calls, Seams
from a3s_backends.openai_http.decoding import decode_answer
from a3s_backends.openai_http.encoding import encode_request
from a3s_backends.openai_http.key import ApiKey
from a3s_backends.openai_http.policy import OpenAiHttpPolicy
from a3s_backends.openai_http.streaming import Pieces

if TYPE_CHECKING:
    from a3s_backends.openai_http.connections import Connections, Exchange, TransportFactory

__all__ = ["OpenAiHttpModelClient", "open_openai_http"]

_JSON = "application/json"
_EVENTS = "text/event-stream"
_MODEL_BYTES = 256
_EXTRA = {"httpx", "httpcore", "h11", "anyio", "certifi", "idna"}


class OpenAiHttpModelClient:
    """A `StreamingModelClient` over HTTP. Made by `open_openai_http`.

    An attempt that is not answered is repeated as the policy says, until the head of an answer with status 200 is
    there; what fails after that is not repeated, as the model has done its work, and some of it may have been seen.

    Attributes:
        model: the model that is asked.

    Cancellation: a checkpoint; cancelled, the connection is closed at once and the next request works. The model may
    go on computing, and the server counting.
    """

    def __init__(self, model: str, host: str, calls: Calls) -> None:
        self.model = model
        self._host = host
        self._calls = calls
        # None until a server has shown whether it knows `stream_options`.
        self._tells_usage: bool | None = None

    def __repr__(self) -> str:
        state = " closed" if self._calls.connections.closed else ""
        return f"<OpenAiHttpModelClient {self.model!r} at {self._host!r}{state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled or copied; open another one")

    async def generate(self, request: ModelRequest) -> ModelReply:
        """See `ModelClient.generate`.

        Raises:
            InvalidInput: the request is none, the parameters of a tool are no JSON, or the key is none.
            ModelRefused: the server refuses; `reason` is a code of `failures`.
            ModelUnavailable: there is no answer in time, or in so many attempts.
            ModelProtocolError: the answer is malformed, cut short or too long.
            OpenAiHttpClosed: the client's block has been left.
        """
        await trio.lowlevel.checkpoint()
        body = self._encode(request, stream=False)
        call = self._calls.begin()

        async def ask() -> ModelReply:
            exchange = await call.open(body, _JSON)
            try:
                exchange.check(_JSON)
                assembly = Assembly()
                assembly.add_whole(decode_answer(await exchange.read_all()))
                return assembly.reply()
            finally:
                await exchange.aclose()

        await call.bounded(call.take_place)
        try:
            return await call.bounded(ask)
        finally:
            call.leave_place()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelTextDelta | ModelReply]]:
        """See `StreamingModelClient.stream`. The request is sent, and answered or refused, before the block begins.

        The pieces are for one task. A server that does not know `stream_options` is asked once more without: then
        the reply's usage is zero.

        Raises:
            InvalidInput: the request is none, the parameters of a tool are no JSON, or the key is none.
            ModelRefused: the server refuses; `reason` is a code of `failures`.
            ModelUnavailable: there is no answer in time, or in so many attempts.
            ModelProtocolError: the answer is malformed, cut short or too long.
            OpenAiHttpClosed: the client's block has been left; or the stream's, and a piece is asked for.
        """
        await trio.lowlevel.checkpoint()
        call = self._calls.begin()
        tells = self._tells_usage is not False
        body = self._encode(request, stream=True, stream_usage=tells)
        await call.bounded(call.take_place)
        try:
            exchange = await call.bounded(lambda: self._open_stream(call, request, body, tells))
            try:
                exchange.check(_EVENTS)
                pieces = Pieces(call, exchange)
                try:
                    yield pieces
                finally:
                    await pieces.aclose()
            finally:
                await exchange.aclose()
        finally:
            call.leave_place()

    async def _open_stream(self, call: Call, request: ModelRequest, body: bytes, tells: bool) -> Exchange:
        try:
            exchange = await call.open(body, _EVENTS)
        except ModelRefused as refused:
            if not tells or self._tells_usage or refused.reason != "bad_request":
                raise
        else:
            self._tells_usage = tells
            return exchange
        exchange = await call.open(self._encode(request, stream=True), _EVENTS)
        self._tells_usage = False
        return exchange

    def _encode(self, request: ModelRequest, *, stream: bool, stream_usage: bool = False) -> bytes:
        if not isinstance(request, ModelRequest):
            raise InvalidInput("request", f"must be a ModelRequest, not {type(request).__name__}")
        field = self._calls.policy.max_tokens_field
        return encode_request(
            request, model=self.model, max_tokens_field=field, stream=stream, stream_usage=stream_usage
        )


@asynccontextmanager
async def open_openai_http(
    base_url: str,
    model: str,
    *,
    api_key: str | Callable[[], str] | None = None,
    policy: OpenAiHttpPolicy | None = None,
    transport: TransportFactory | None = None,
    sleep: Callable[[float], Awaitable[object]] = trio.sleep,
    chance: Callable[[], float] = random.random,
    now: Callable[[], float] = time.time,
) -> AsyncIterator[OpenAiHttpModelClient]:
    """Open a client of a server that speaks OpenAI's chat completions, for the length of the block.

    Nothing is sent before the first request, and nothing runs besides the callers. Nothing is taken from the
    environment: no proxy, no certificates, no `.netrc`, and a key only through `api_key_from_environment`. Redirects
    are not followed, so that a key goes nowhere else.

    Leaving the block closes all connections at once; calls that are under way raise `OpenAiHttpClosed`.

    Args:
        base_url: the server, up to where `/chat/completions` follows: `https://api.openai.com/v1`.
        model: the model's name there.
        api_key: the key; or a function that gives it for each attempt, and must not block.
        policy: the limits.
        transport: makes a transport of one connection, where the host needs more than plain TLS: a certificate of its
            own, a proxy, a Unix socket. `lambda: httpx.AsyncHTTPTransport(verify=context, trust_env=False)`.
        sleep: seam for waiting between attempts.
        chance: seam for how much of a wait is waited, 0 to 1.
        now: seam for the time of day, which a server's date is compared with.

    Raises:
        InvalidInput: the URL is no http or https URL, or holds more than an address; the model or the key is none; or
            the key would go unencrypted to another machine.
        ModuleNotFoundError: httpx is not installed: `pip install 'a3s-actors[openai]'`.

    Cancellation: a checkpoint, before anything is opened. Closing never waits.
    """
    address = Address.parse(base_url)
    check_text("model", model, _MODEL_BYTES)
    policy = policy or OpenAiHttpPolicy()
    key = None if api_key is None else ApiKey(api_key)
    if key is not None and not (address.encrypted or address.local or policy.allow_plain_http):
        raise InvalidInput("baseUrl", "would carry the key unencrypted; use https, or allow_plain_http in the policy")
    connections = _connections(address, key, policy, transport)
    await trio.lowlevel.checkpoint()
    calls = Calls(connections, policy, Seams(sleep=sleep, chance=chance, now=now))
    try:
        yield OpenAiHttpModelClient(model, address.host, calls)
    finally:
        await calls.aclose()


def _connections(
    address: Address, key: ApiKey | None, policy: OpenAiHttpPolicy, transport: TransportFactory | None
) -> Connections:
    try:
        from a3s_backends.openai_http.connections import Connections, transport_factory
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRA:
            raise
        raise ModuleNotFoundError(
            f"a model over HTTP needs {missing.name}, which is not installed; "
            "install the extra: pip install 'a3s-actors[openai]'",
            name=missing.name,
        ) from None
    make = transport or transport_factory(encrypted=address.encrypted)
    return Connections(address.url, key, policy, make)
