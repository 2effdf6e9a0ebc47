"""A model that plays a script: to try the chat without a server. Schema a3s.chat.script.v1."""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio

from a3s_actors.agent.errors import ModelUnavailable
from a3s_actors.agent.model import ModelReply, ModelRequest, ModelTextDelta, ModelUsage, RequestPurpose, Role
from a3s_actors.cli.running import BadInput

__all__ = ["EXAMPLE", "SCHEMA", "ChatScript", "ScriptClient", "chat_data", "read_chat_script"]

SCHEMA: Final = "a3s.chat.script.v1"
EXAMPLE: Final = "example"
_MAX_BYTES: Final = 16 << 20
_SHOWN = re.compile(r"<item [^>]*>(.*?)</item>", re.DOTALL)


class ScriptedTurn(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One answer: its text, whole or in the pieces in which it is streamed, and what its extraction proposes.

    `{recalled}` in it stands for the memories that the model was shown. `pause` is how many seconds pass before each
    piece, and before the proposals. With `error`, a code, there is no answer but that failure after the pieces.
    """

    say: str | list[str] = ""
    propose: list[dict[str, Any]] = []
    pause: float = 0.0
    error: str | None = None


class ChatScript(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Answers in their order, and what is said when they have run out; None: the turn fails."""

    schema: str
    turns: list[str | ScriptedTurn]
    otherwise: str | None = None


def chat_data() -> Path:
    """Return the folder of the scripts that ship with the package."""
    return Path(str(files("a3s_actors.cli") / "chat_data"))


def read_chat_script(name: str) -> ChatScript:
    """Read a script, strictly.

    Args:
        name: a file; "example" is the one that ships with the package.

    Raises:
        BadInput: it cannot be read, or is no script. The text says where, and quotes nothing of it.
    """
    path = chat_data() / "example.json" if name == EXAMPLE else Path(name)
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else "is no name of a file"
        raise BadInput(f"--script {name}: {cause or type(error).__name__}; try: --script {EXAMPLE}") from None
    if len(data) > _MAX_BYTES:
        raise BadInput(f"--script {name}: is larger than {_MAX_BYTES} bytes")
    try:
        script = msgspec.json.decode(data, type=ChatScript)
    except msgspec.ValidationError as error:
        # Its text names types and places; only an unknown field is quoted, and that is somebody's text.
        _, marked, place = str(error).rpartition(" - at ")
        where = f" at {place}" if marked and len(place) < 100 else ""
        raise BadInput(f"--script {name}: is no script of {SCHEMA}: a wrong type, or a field too many{where}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadInput(f"--script {name}: is no JSON") from None
    if script.schema != SCHEMA:
        raise BadInput(f"--script {name}: its schema must be {SCHEMA}")
    pauses = [each.pause for each in script.turns if isinstance(each, ScriptedTurn)]
    if any(not 0 <= pause <= 3600 for pause in pauses):
        raise BadInput(f"--script {name}: a pause must be 0 to 3600 seconds")
    return script


@attrs.define(eq=False)
class ScriptClient:
    """A `StreamingModelClient` that answers turns from a script, and extractions with what the answered turn proposes.

    Cancellation: a checkpoint; the answer is used up once its turn has begun.
    """

    script: ChatScript = attrs.field(repr=False)
    _turns: deque[str | ScriptedTurn] = attrs.field(init=False, repr=False)
    _answered: deque[ScriptedTurn] = attrs.field(factory=deque, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._turns = deque(self.script.turns)

    async def generate(self, request: ModelRequest) -> ModelReply:
        """See `ModelClient.generate`."""
        await trio.lowlevel.checkpoint()
        if request.purpose is RequestPurpose.EXTRACTION:
            turn = self._answered.popleft() if self._answered else ScriptedTurn()
            await trio.sleep(turn.pause)
            return ModelReply(content=msgspec.json.encode({"proposals": turn.propose}).decode())
        reply: ModelReply | None = None
        async with self.stream(request) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    reply = piece
        assert reply is not None
        return reply

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelTextDelta | ModelReply]]:
        """See `StreamingModelClient.stream`."""
        await trio.lowlevel.checkpoint()
        turn = self._turns.popleft() if self._turns else self.script.otherwise
        if turn is None:
            raise ModelUnavailable("script_ended")
        async with aclosing(self._pieces(ScriptedTurn(turn) if isinstance(turn, str) else turn, request)) as pieces:
            yield pieces

    async def _pieces(
        self, turn: ScriptedTurn, request: ModelRequest
    ) -> AsyncGenerator[ModelTextDelta | ModelReply, None]:
        said = [turn.say] if isinstance(turn.say, str) else turn.say
        pieces = [piece.replace("{recalled}", _recalled(request)) for piece in said]
        for piece in pieces:
            await trio.sleep(turn.pause)
            yield ModelTextDelta(piece)
        await trio.sleep(turn.pause)
        if turn.error is not None:
            raise ModelUnavailable(turn.error)
        content = "".join(pieces)
        asked = sum(len(each.content) for each in request.messages)
        self._answered.append(turn)
        yield ModelReply(content=content, usage=ModelUsage(input_tokens=asked // 4, output_tokens=len(content) // 4))


def _recalled(request: ModelRequest) -> str:
    """Return the texts of the memories that a request shows, or "nothing"."""
    prompt = next((each.content for each in reversed(request.messages) if each.role is Role.USER), "")
    shown, end, _ = prompt.partition("</recalled-context>")
    return "; ".join(html.unescape(text) for text in _SHOWN.findall(shown) if end) or "nothing"
