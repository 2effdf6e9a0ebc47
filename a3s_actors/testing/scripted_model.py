"""A model that answers from a script: real requests, no network, no chance."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeAlias

import attrs
import msgspec
import trio

from a3s_actors.agent.errors import ModelUnavailable
from a3s_actors.agent.model import (
    FinishReason,
    ModelReply,
    ModelRequest,
    ModelTextDelta,
    ModelUsage,
    RequestPurpose,
    ToolCall,
)

__all__ = ["Answer", "ScriptedModelClient", "proposals_reply", "tool_call"]

Answer: TypeAlias = "str | ModelReply | BaseException | Callable[[ModelRequest], Answer | Awaitable[Answer]]"
"""What a script holds: a text, a reply, an exception to raise, or a function of the request that gives one of them."""


def proposals_reply(*proposals: dict[str, object]) -> str:
    """Return an extraction's answer with these proposals; type, importance and confidence have defaults."""
    defaults: dict[str, object] = {"type": "semantic", "importance": 0.7, "confidence": 0.9}
    return msgspec.json.encode({"proposals": [defaults | each for each in proposals]}).decode()


def tool_call(name: str, arguments: dict[str, object] | None = None, *, call_id: str = "call-1") -> ModelReply:
    """Return a reply that asks for one tool."""
    text = msgspec.json.encode({} if arguments is None else arguments).decode()
    return ModelReply(
        tool_calls=(ToolCall(id=call_id, name=name, arguments=text),), finish_reason=FinishReason.TOOL_CALLS
    )


def _queue(given: Iterable[Answer]) -> deque[Answer]:
    return deque(given)


@attrs.define(eq=False)
class ScriptedModelClient:
    """A `StreamingModelClient` that answers turns and extractions from two scripts, in order.

    When a script has run out, `otherwise` answers a turn, and an extraction proposes nothing.

    Args:
        turns: answers to turns.
        extractions: answers to extractions.
        otherwise: the answer to a turn beyond the script; None: `ModelUnavailable`.
        piece: how many characters a streamed piece has.

    Attributes:
        requests: every request, in order.
    """

    turns: deque[Answer] = attrs.field(factory=deque, converter=_queue, repr=False)
    extractions: deque[Answer] = attrs.field(factory=deque, converter=_queue, repr=False)
    otherwise: Answer | None = attrs.field(default=None, repr=False)
    piece: int = 8
    requests: list[ModelRequest] = attrs.field(factory=list, init=False, repr=False)

    @property
    def turn_requests(self) -> list[ModelRequest]:
        """The requests of turns."""
        return [each for each in self.requests if each.purpose is RequestPurpose.TURN]

    async def generate(self, request: ModelRequest) -> ModelReply:
        """Answer from the script. Cancellation: a checkpoint; the answer is used up once it is taken."""
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        answer = self._next(request)
        while callable(answer):
            made = answer(request)
            answer = await made if isinstance(made, Awaitable) else made
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            # A token is about four characters: enough for a usage that grows with what is said.
            asked = sum(len(each.content) for each in request.messages)
            answer = ModelReply(
                content=answer, usage=ModelUsage(input_tokens=asked // 4, output_tokens=len(answer) // 4)
            )
        return answer

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelTextDelta | ModelReply]]:
        """Answer from the script, piece by piece."""
        reply = await self.generate(request)
        yield _pieces(reply, max(1, self.piece))

    def _next(self, request: ModelRequest) -> Answer:
        if request.purpose is RequestPurpose.EXTRACTION:
            return self.extractions.popleft() if self.extractions else proposals_reply()
        if self.turns:
            return self.turns.popleft()
        return ModelUnavailable("script_ended") if self.otherwise is None else self.otherwise


async def _pieces(reply: ModelReply, size: int) -> AsyncIterator[ModelTextDelta | ModelReply]:
    for start in range(0, len(reply.content), size):
        await trio.lowlevel.checkpoint()
        yield ModelTextDelta(reply.content[start : start + size])
    await trio.lowlevel.checkpoint()
    yield reply
