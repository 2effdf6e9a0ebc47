"""A model request as the JSON of a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from a3s_actors.agent.model import ModelMessage, ModelRequest, ToolDefinition
from a3s_actors.memory.errors import InvalidInput

__all__ = ["encode_request"]


def encode_request(
    request: ModelRequest, *, model: str, max_tokens_field: str, stream: bool = False, stream_usage: bool = False
) -> bytes:
    """Return the body of a request.

    Args:
        request: what to ask.
        model: whom.
        max_tokens_field: the name of the bound on the output.
        stream: whether the answer shall come piece by piece.
        stream_usage: whether a streamed answer shall say what it cost.

    Raises:
        InvalidInput: the parameters of a tool are no JSON.
    """
    body: dict[str, object] = {"model": model, "messages": [_message(message) for message in request.messages]}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_output_tokens is not None:
        body[max_tokens_field] = request.max_output_tokens
    if request.json_object:
        body["response_format"] = {"type": "json_object"}
    if stream:
        body["stream"] = True
    if stream_usage:
        body["stream_options"] = {"include_usage": True}
    # Messages are checked text; only what a host wrote into a tool can be wrong. The driver's error would quote it,
    # so it is left behind before ours is raised.
    with suppress(TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return msgspec.json.encode(body, enc_hook=_plain)
    raise InvalidInput("request.tools", "must hold texts and JSON values only")


def _message(message: ModelMessage) -> dict[str, object]:
    # An assistant that only calls tools says nothing: null, as the server itself had it.
    encoded: dict[str, object] = {
        "role": message.role.value,
        "content": message.content if message.content or not message.tool_calls else None,
    }
    if message.tool_calls:
        encoded["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        encoded["tool_call_id"] = message.tool_call_id
    return encoded


def _tool(tool: ToolDefinition) -> dict[str, object]:
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": described}


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError
