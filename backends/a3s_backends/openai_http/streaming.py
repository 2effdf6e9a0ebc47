"""An answer that comes piece by piece."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from a3s_actors.agent.errors import ModelProtocolError
from a3s_actors.agent.model import ModelReply, ModelTextDelta
from a3s_backends.openai_http.assembly import Assembly
from a3s_backends.openai_http.calls import Call
from a3s_backends.openai_http.decoding import decode_answer
from a3s_backends.openai_http.failures import OpenAiHttpClosed
from a3s_backends.openai_http.sse import SseParser

if TYPE_CHECKING:
    from a3s_backends.openai_http.connections import Exchange

__all__ = ["Pieces"]

_DONE: Final = b"[DONE]"


class Pieces:
    """The pieces of one answer, for one reader: texts, then the whole reply, then no more.

    An object, not a generator: a reader that stops early leaves nothing half run behind.

    Cancellation: each step is a checkpoint. What a cancelled step was waiting for is lost, so that a later step raises.
    """

    def __init__(self, call: Call, exchange: Exchange) -> None:
        self._call = call
        self._exchange = exchange
        self._parser = SseParser()
        self._assembly = Assembly()
        self._events: deque[bytes] = deque()
        self._at_end = False
        self._replied = False
        self._failed = False
        self._closed = False

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> ModelTextDelta | ModelReply:
        """Return the next piece.

        Raises:
            ModelError: the answer is broken, cut short or late.
        """
        await trio.lowlevel.checkpoint()
        if self._replied:
            raise StopAsyncIteration
        if self._closed:
            raise OpenAiHttpClosed("stream")
        if self._failed:
            raise ModelProtocolError("stream", "has failed before; nothing more comes")
        self._failed = True
        piece = await self._call.bounded(self._next)
        self._failed = False
        self._replied = isinstance(piece, ModelReply)
        return piece

    async def aclose(self) -> None:
        """End the request. Never waits."""
        self._closed = True
        await self._exchange.aclose()

    async def _next(self) -> ModelTextDelta | ModelReply:
        while True:
            while self._events:
                event = self._events.popleft()
                if event.strip() == _DONE:
                    return self._assembly.reply()
                text = self._assembly.add_piece(decode_answer(event))
                if text:
                    return ModelTextDelta(text)
            if self._at_end:
                if self._assembly.finished:
                    return self._assembly.reply()
                raise ModelProtocolError("stream", "ends before the answer does")
            data = await self._exchange.read_some()
            self._at_end = not data
            self._events.extend(self._parser.feed(data) if data else self._parser.finish())
