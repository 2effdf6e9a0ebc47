"""From what a server sends, whole or in pieces, to a `ModelReply`. Decides only; does no I/O.

- One choice: we ask for one. A server that gives several is refused, as no pick would be the right one.
- A call without an id gets one that no other call has, as its answer has to name it. Two calls of one id are refused.
- Arguments are text as the model wrote it, also when empty; anything else is refused.
- A refusal in the server's own field is the text of the answer, and the reason is the content filter.
- A streamed answer is whole when a finish reason or `[DONE]` has come; an answer in one piece always is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs

from a3s_actors.agent.errors import ModelProtocolError
from a3s_actors.agent.model import FinishReason, ModelReply, ModelUsage, ToolCall
from a3s_actors.memory.errors import InvalidInput
from a3s_backends.openai_http.decoding import Answer, Choice, Fragment, Said, told_code_of, usage_of
from a3s_backends.openai_http.failures import Failure

__all__ = ["Assembly", "new_call_id"]

_REASONS: Final = {reason.value: reason for reason in FinishReason if reason is not FinishReason.OTHER}
_MOST_CALLS: Final = 128
_LONGEST_MODEL: Final = 256


def new_call_id() -> str:
    """Return an id for a tool call whose server gave none."""
    return f"call_{secrets.token_hex(8)}"


@attrs.define
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = attrs.field(factory=list, repr=False)


class Assembly:
    """One answer in the making.

    Args:
        new_id: names a call that has no id.
    """

    def __init__(self, new_id: Callable[[], str] = new_call_id) -> None:
        self._new_id = new_id
        self._texts: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._reason: FinishReason | None = None
        self._refused = False
        self._usage = ModelUsage()
        self._model: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the server has said why the model stopped."""
        return self._reason is not None

    def add_whole(self, answer: Answer) -> None:
        """Take an answer that came in one piece.

        Raises:
            ModelError: it is none, or an error.
        """
        choice = self._choice_of(answer)
        if choice is None or choice.message is None:
            raise ModelProtocolError("choices", "hold no message")
        self._hear(choice.message, whole=True)
        self._stop(choice)

    def add_piece(self, answer: Answer) -> str:
        """Take an event of a stream; return the text that it adds.

        Raises:
            ModelError: it is none, or an error.
        """
        choice = self._choice_of(answer)
        if choice is None:
            return ""
        text = "" if choice.delta is None else self._hear(choice.delta, whole=False)
        self._stop(choice)
        return text

    def reply(self) -> ModelReply:
        """Return the whole answer.

        Raises:
            ModelProtocolError: a tool call is not whole.
        """
        calls = [self._calls[place] for place in sorted(self._calls)]
        ids = [call.id for call in calls if call.id]
        if len(set(ids)) < len(ids):
            raise ModelProtocolError("tool_calls.id", "is given to two calls")
        reason = FinishReason.CONTENT_FILTER if self._refused else self._reason or FinishReason.OTHER
        return ModelReply(
            content="".join(self._texts),
            tool_calls=[self._tool_call(call) for call in calls],
            finish_reason=reason,
            usage=self._usage,
            model=self._model,
        )

    def _choice_of(self, answer: Answer) -> Choice | None:
        if answer.error is not None:
            told = told_code_of(answer.error)
            raise Failure(reason=told or "server_error", status=200, refused=told is not None).error(1)
        usage = usage_of(answer.usage)
        if usage is not None:
            self._usage = usage
        if self._model is None and isinstance(answer.model, str) and 0 < len(answer.model) <= _LONGEST_MODEL:
            self._model = answer.model
        choices = answer.choices or []
        if len(choices) > 1 or (choices and choices[0].index not in {0, None}):
            raise ModelProtocolError("choices", "hold several answers; one was asked for")
        return choices[0] if choices else None

    def _hear(self, said: Said, *, whole: bool) -> str:
        if said.refusal:
            self._refused = True
        text = f"{said.content or ''}{said.refusal or ''}"
        if text:
            self._texts.append(text)
        for position, fragment in enumerate(said.tool_calls or ()):
            self._add_call(position if whole else self._place_of(fragment), fragment)
        return text

    def _place_of(self, fragment: Fragment) -> int:
        if fragment.index is not None:
            return fragment.index
        # Without an index: an id begins a call, anything else goes on with the last one.
        last = max(self._calls, default=-1)
        return last + 1 if fragment.id or last < 0 else last

    def _add_call(self, place: int, fragment: Fragment) -> None:
        if not 0 <= place < _MOST_CALLS:
            raise ModelProtocolError("tool_calls.index", f"must be 0 to {_MOST_CALLS - 1}")
        call = self._calls.setdefault(place, _Call())
        call.id = _once("tool_calls.id", call.id, fragment.id)
        if fragment.function is not None:
            call.name = _once("tool_calls.function.name", call.name, fragment.function.name)
            call.arguments.append(fragment.function.arguments or "")

    def _stop(self, choice: Choice) -> None:
        if choice.finish_reason is not None:
            self._reason = _REASONS.get(choice.finish_reason, FinishReason.OTHER)

    def _tool_call(self, call: _Call) -> ToolCall:
        with suppress(InvalidInput):
            return ToolCall(id=call.id or self._new_id(), name=call.name, arguments="".join(call.arguments))
        raise ModelProtocolError("tool_calls", "hold a call without a name, or with a blank id")


def _once(field: str, known: str, given: str | None) -> str:
    # Some servers repeat them with every piece; none sends them in pieces.
    if known and given and given != known:
        raise ModelProtocolError(field, "changes within one call")
    return known or given or ""
