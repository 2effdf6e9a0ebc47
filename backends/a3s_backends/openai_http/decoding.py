"""The JSON of an answer, or of one event of a stream, as typed values. What nobody asked for is not looked at.

A duplicate key counts as its last value, as in every common parser. Invalid UTF-8, NaN, a lone surrogate, another type
than promised or too deep a nesting refuse the answer; only what it cost may be nonsense and counts as nothing.
No text of the server is in an error.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

import msgspec

from a3s_actors.agent.errors import ModelProtocolError
from a3s_actors.agent.model import ModelUsage
from a3s_backends.openai_http.failures import TOLD

__all__ = ["Answer", "Choice", "Fragment", "Said", "decode_answer", "told_code", "told_code_of", "usage_of"]

_MALFORMED: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_PLACE: Final = re.compile(r"`\$\.?([\w.\[\]]{1,100})`$")  # field names of the classes below, and no key of a server
_MOST_TOKENS: Final = 10**12  # a figure above it is no count of tokens


class FragmentFunction(msgspec.Struct):
    """The function of a tool call, or a piece of it."""

    name: str | None = None
    arguments: str | None = None


class Fragment(msgspec.Struct):
    """A tool call, or a piece of the call at `index`."""

    index: int | None = None
    id: str | None = None
    function: FragmentFunction | None = None


class Said(msgspec.Struct):
    """What the model says, or a piece of it."""

    content: str | None = None
    refusal: str | None = None
    tool_calls: list[Fragment] | None = None


class Choice(msgspec.Struct):
    """One answer of the several that a server may be asked for; we ask for one."""

    index: int | None = None
    message: Said | None = None
    delta: Said | None = None
    finish_reason: str | None = None


class Answer(msgspec.Struct):
    """An answer, or an event of a streamed one."""

    choices: list[Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    model: Any = None
    error: Any = None


class _Usage(msgspec.Struct):
    prompt_tokens: Any = 0
    completion_tokens: Any = 0


class _Trouble(msgspec.Struct):
    error: Any = None


_ANSWER: Final = msgspec.json.Decoder(Answer)
_TROUBLE: Final = msgspec.json.Decoder(_Trouble)
_USAGE: Final = msgspec.json.Decoder(_Usage | None)


def decode_answer(data: bytes) -> Answer:
    """Return an answer's values.

    Raises:
        ModelProtocolError: the bytes are no JSON, or not of the promised shape.
    """
    field, message = "answer", "is no valid JSON"
    try:
        return _ANSWER.decode(data)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        field = place.group(1) if place else "answer"
        message = "has another type than promised"
    except RecursionError:
        message = "is nested too deeply"
    except _MALFORMED:
        pass
    raise ModelProtocolError(field, message)  # out here: the parser's error is no part of ours


def told_code(data: bytes) -> str | None:
    """Return the code of `TOLD` that a refusal's body holds, if any."""
    with suppress(*_MALFORMED):
        return told_code_of(_TROUBLE.decode(data).error)
    return None


def told_code_of(error: object) -> str | None:
    """Return the code of `TOLD` that an error object holds, if any."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) and code in TOLD else None


def usage_of(raw: msgspec.Raw) -> ModelUsage | None:
    """Return what an answer cost, None where it does not say; a figure that is no count of tokens is 0."""
    with suppress(*_MALFORMED):
        said = _USAGE.decode(raw)
        if said is None:
            return None
        return ModelUsage(input_tokens=_count(said.prompt_tokens), output_tokens=_count(said.completion_tokens))
    return ModelUsage()


def _count(value: object) -> int:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return int(value) if good and isinstance(value, int) else 0
