"""What a model client is: a request, a reply, and the two ways to get one. Values only; clients live in backends."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import attrs

from a3s_actors.memory._checks import as_tuple, check_text, check_whole
from a3s_actors.memory.errors import InvalidInput

__all__ = [
    "FinishReason",
    "ModelClient",
    "ModelMessage",
    "ModelReply",
    "ModelRequest",
    "ModelTextDelta",
    "ModelUsage",
    "RequestPurpose",
    "Role",
    "StreamingModelClient",
    "ToolCall",
    "ToolDefinition",
]


class Role(enum.Enum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class FinishReason(enum.Enum):
    """Why the model stopped."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"  # cut at the token limit
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


class RequestPurpose(enum.Enum):
    """What a request is for."""

    TURN = "turn"
    EXTRACTION = "extraction"


def _any_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be text, not {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(field, "holds a lone surrogate, which is no Unicode text; decode it correctly") from None


@attrs.frozen(kw_only=True)
class ToolCall:
    """A model's wish to have a tool called.

    Attributes:
        id: the model's name of the call.
        name: the tool.
        arguments: its arguments as the model wrote them: JSON text, unchecked.
    """

    # A model may write anything into each of them.
    id: str = attrs.field(repr=False)
    name: str = attrs.field(repr=False)
    arguments: str = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_text("toolCall.id", self.id, None)
        check_text("toolCall.name", self.name, None)
        _any_text("toolCall.arguments", self.arguments)


_calls = as_tuple("toolCalls", ToolCall)


def _to_calls(value: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    return _calls(value)


@attrs.frozen(kw_only=True)
class ModelMessage:
    """One message of a conversation.

    Attributes:
        role: who speaks.
        content: the text; may be empty.
        tool_calls: for the assistant: the tools it wants called.
        tool_call_id: for a tool: which call this answers.

    Raises:
        InvalidInput: a field is malformed, or does not belong to the role.
    """

    role: Role
    content: str = attrs.field(default="", repr=False)
    tool_calls: tuple[ToolCall, ...] = attrs.field(default=(), converter=_to_calls)
    tool_call_id: str | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.role, Role):
            raise InvalidInput("message.role", "must be a Role")
        _any_text("message.content", self.content)
        if self.tool_calls and self.role is not Role.ASSISTANT:
            raise InvalidInput("message.toolCalls", "belong to the assistant only")
        if (self.tool_call_id is not None) != (self.role is Role.TOOL):
            raise InvalidInput("message.toolCallId", "is what a tool's message has, and no other")
        if self.tool_call_id is not None:
            check_text("message.toolCallId", self.tool_call_id, None)


@attrs.frozen(kw_only=True)
class ToolDefinition:
    """A tool as a model sees it.

    Attributes:
        name: 1 to 64 of letters, digits, "_" and "-".
        description: what it does, for the model.
        parameters: the JSON Schema of its arguments, an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = attrs.field(repr=False)


_messages = as_tuple("request.messages", ModelMessage)
_tools = as_tuple("request.tools", ToolDefinition)


def _to_messages(value: Iterable[ModelMessage]) -> tuple[ModelMessage, ...]:
    return _messages(value)


def _to_tools(value: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    return _tools(value)


@attrs.frozen(kw_only=True)
class ModelRequest:
    """One call of a model.

    Attributes:
        messages: the conversation, at least one message.
        tools: what the model may ask for.
        purpose: what the call is for.
        json_object: whether the reply has to be one JSON object.
        temperature: 0 to 2, or None for the server's own.
        max_output_tokens: at least 1, or None for the server's own.
    """

    messages: tuple[ModelMessage, ...] = attrs.field(converter=_to_messages)
    tools: tuple[ToolDefinition, ...] = attrs.field(default=(), converter=_to_tools)
    purpose: RequestPurpose = RequestPurpose.TURN
    json_object: bool = False
    temperature: float | None = None
    max_output_tokens: int | None = None

    def __attrs_post_init__(self) -> None:
        if not self.messages:
            raise InvalidInput("request.messages", "must hold at least one message")
        warmth: object = self.temperature
        if warmth is not None and (
            isinstance(warmth, bool) or not isinstance(warmth, int | float) or not 0 <= warmth <= 2
        ):
            raise InvalidInput("request.temperature", "must be a number from 0 to 2")
        if self.max_output_tokens is not None:
            check_whole("request.maxOutputTokens", self.max_output_tokens, 1)


@attrs.frozen(kw_only=True)
class ModelUsage:
    """What a call cost, as the server counts.

    Attributes:
        input_tokens, output_tokens: at least 0.
    """

    input_tokens: int = 0
    output_tokens: int = 0

    def __attrs_post_init__(self) -> None:
        check_whole("usage.inputTokens", self.input_tokens, 0)
        check_whole("usage.outputTokens", self.output_tokens, 0)

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
            input_tokens=self.input_tokens + other.input_tokens, output_tokens=self.output_tokens + other.output_tokens
        )


@attrs.frozen(kw_only=True)
class ModelReply:
    """A model's whole answer.

    Attributes:
        content: the text; may be empty when there are tool calls.
        tool_calls: the tools it wants called, in order.
        finish_reason: why it stopped.
        usage: what the call cost; zeros where the server does not say.
        model: the model's name, where the server says it.
    """

    content: str = attrs.field(default="", repr=False)
    tool_calls: tuple[ToolCall, ...] = attrs.field(default=(), converter=_to_calls)
    finish_reason: FinishReason = FinishReason.STOP
    usage: ModelUsage = attrs.field(factory=ModelUsage)
    model: str | None = None

    def __attrs_post_init__(self) -> None:
        _any_text("reply.content", self.content)


@attrs.frozen
class ModelTextDelta:
    """A piece of a streamed answer's text; the pieces together are the reply's content."""

    text: str = attrs.field(repr=False)


@runtime_checkable
class ModelClient(Protocol):
    """A model that answers. It is the host's: an agent never opens or closes it."""

    async def generate(self, request: ModelRequest) -> ModelReply:
        """Answer one request.

        Cancellation: always a checkpoint; cancelled, the request may have reached the model.

        Raises:
            ModelError: there is no answer.
        """
        ...


@runtime_checkable
class StreamingModelClient(ModelClient, Protocol):
    """A model that can also answer piece by piece."""

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelTextDelta | ModelReply]]:
        """Answer one request piece by piece: `async with client.stream(request) as pieces: async for piece in pieces`.

        Pieces of text, then, last, the whole `ModelReply`. An answer that is cut short raises; it never ends as if it
        were whole. Leaving the block ends the request.

        Raises (from the block or the iteration):
            ModelError: there is no answer, or not a whole one.
        """
        ...
