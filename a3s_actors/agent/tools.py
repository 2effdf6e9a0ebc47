"""Tools: typed async callables of the host that a model may ask for."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from a3s_actors.agent.model import ToolCall, ToolDefinition
from a3s_actors.memory._checks import check_text
from a3s_actors.memory.errors import InvalidInput, LimitExceeded

if TYPE_CHECKING:
    from a3s_actors.agent.session import AgentSession

__all__ = ["MAX_TOOL_RESULT_BYTES", "Tool", "ToolInvocation", "Toolbox"]

MAX_TOOL_RESULT_BYTES: Final = 64 * 1024
_MAX_ARGUMENT_BYTES: Final = 256 * 1024
_MAX_TOOLS: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_CUT: Final = "\n[cut: the result was longer]"


@attrs.frozen(kw_only=True)
class ToolInvocation:
    """Where a tool is called from.

    Attributes:
        session: the session; its `delegate` may be used, its `send` would wait for itself and is refused.
        run_id: the run.
        call_id: the model's name of the call.
    """

    session: AgentSession = attrs.field(repr=False)
    run_id: str
    call_id: str


@attrs.frozen(kw_only=True)
class Tool:
    """A tool.

    Args:
        name: 1 to 64 of letters, digits, "_" and "-"; unique in a session.
        description: what it does, for the model.
        parameters: the JSON Schema of its arguments; `{"type": "object", …}`.
        run: `async def run(arguments, invocation) -> str`. Arguments have been checked against the schema. The text
            goes to the model, cut at 64 KiB. An exception does not end the turn: the model is told that the tool
            failed, not why.

    Raises:
        InvalidInput: a field is malformed, or the schema is none.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = attrs.field(repr=False)
    run: Callable[[Mapping[str, Any], ToolInvocation], Awaitable[str]] = attrs.field(repr=False)
    _validator: Any = attrs.field(init=False, repr=False, eq=False, default=None)

    def __attrs_post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise InvalidInput("tool.name", "must be 1 to 64 of ASCII letters, digits, '_' and '-'")
        check_text("tool.description", self.description, 4096)
        schema: object = self.parameters
        if not isinstance(schema, Mapping) or schema.get("type") != "object":
            raise InvalidInput("tool.parameters", 'must be a JSON Schema with "type": "object"')
        if not callable(self.run):
            raise InvalidInput("tool.run", "must be an async function")
        # Imported with the first tool.
        from jsonschema import Draft202012Validator, SchemaError

        try:
            Draft202012Validator.check_schema(dict(schema))
            msgspec.json.encode(schema)
        except (SchemaError, TypeError, ValueError):
            raise InvalidInput("tool.parameters", "is no JSON Schema of draft 2020-12") from None
        object.__setattr__(self, "_validator", Draft202012Validator(dict(schema)))

    @property
    def definition(self) -> ToolDefinition:
        """The tool as a model sees it."""
        return ToolDefinition(name=self.name, description=self.description, parameters=self.parameters)

    def checked_arguments(self, text: str) -> Mapping[str, Any]:
        """Return a model's arguments after checking them against the schema.

        Raises:
            InvalidInput: they are no JSON object, or do not fit; the message names the place, not the value.
            LimitExceeded: more than 256 KiB.
        """
        if len(text) > _MAX_ARGUMENT_BYTES:
            raise LimitExceeded("tool.arguments", _MAX_ARGUMENT_BYTES, len(text))
        try:
            value = msgspec.json.decode(text or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise InvalidInput("tool.arguments", "are no JSON") from None
        if not isinstance(value, dict):
            raise InvalidInput("tool.arguments", "must be a JSON object")
        try:
            error = next(iter(self._validator.iter_errors(value)), None)
        except RecursionError:
            raise InvalidInput("tool.arguments", "nest too deeply") from None
        if error is not None:
            where = "/".join(str(each)[:64] for each in error.absolute_path) or "the object"
            raise InvalidInput("tool.arguments", f"{where} does not fit the schema: {error.validator}")
        return value


class Toolbox:
    """The tools of a session, by name.

    Raises:
        InvalidInput: something is no tool, or two have the same name.
        LimitExceeded: more than 128.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if not isinstance(tool, Tool):
                raise InvalidInput("tools", f"holds a {type(tool).__name__}, wants Tool")
            if tool.name in self._tools:
                raise InvalidInput("tools", f"{tool.name!r} is there twice; names must be unique")
            self._tools[tool.name] = tool
        if len(self._tools) > _MAX_TOOLS:
            raise LimitExceeded("tools", _MAX_TOOLS, len(self._tools))
        self.definitions = tuple(tool.definition for tool in self._tools.values())
        self.names = frozenset(self._tools)

    async def call(self, call: ToolCall, invocation: ToolInvocation) -> tuple[str, str]:
        """Run what a model asked for; return the text for the model and a bounded code: "ok" or what went wrong.

        Cancellation: as the tool's own; it is never swallowed.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            return "error: there is no such tool", "unknown_tool"
        try:
            arguments = tool.checked_arguments(call.arguments)
        except (InvalidInput, LimitExceeded) as error:
            return f"error: {error}", "bad_arguments"
        try:
            result: object = await tool.run(arguments, invocation)
        except Exception as error:  # noqa: BLE001 - a tool is foreign code; its failure is the model's to handle
            return "error: the tool failed", f"failed: {type(error).__name__[:64]}"
        if not isinstance(result, str):
            return "error: the tool failed", "no_text"
        return _bounded(result), "ok"


def _bounded(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_TOOL_RESULT_BYTES:
        return data.decode()
    return data[: MAX_TOOL_RESULT_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT
