"""`SessionSnapshot`: what of a session outlives its process, and its strict JSON.

Never live objects: repository, providers, tools, schedules and clients are injected again by the host.
"""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

from a3s_actors.agent.errors import SessionStoreCorrupt
from a3s_actors.agent.model import ModelMessage, ModelUsage, Role, ToolCall
from a3s_actors.agent.runs import ContextRecord, RunEvent, RunRecord, RunState
from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.recall.binding import DurableMemoryBindingV1

__all__ = ["SESSION_SCHEMA", "SessionSnapshot"]

SESSION_SCHEMA: Final = "a3s.code.session.v1"


@attrs.frozen(kw_only=True)
class SessionSnapshot:
    """A session at one moment.

    Attributes:
        session_id: its name.
        generation: counts the saves, from 1.
        workspace: the host's name of where it works.
        tenant_id, principal_id: whose it is; None where the host said nothing.
        system_prompt: the host's instructions, or None.
        messages: the conversation.
        runs: the retained runs, the oldest first.
        durable_memory: the binding of its memory; None when it has none.
        created_at, saved_at: the host's times.
    """

    session_id: str
    generation: int
    workspace: str = ""
    tenant_id: str | None = None
    principal_id: str | None = None
    system_prompt: str | None = attrs.field(default=None, repr=False)
    messages: tuple[ModelMessage, ...] = attrs.field(default=(), repr=lambda items: f"<{len(items)}>")
    runs: tuple[RunRecord, ...] = attrs.field(default=(), repr=lambda items: f"<{len(items)}>")
    durable_memory: DurableMemoryBindingV1 | None = None
    created_at: Timestamp | None = None
    saved_at: Timestamp | None = None

    def to_json(self) -> bytes:
        """Return the snapshot's JSON, always the same bytes for the same snapshot."""
        binding = self.durable_memory
        return msgspec.json.encode(
            _Snapshot(
                schema=SESSION_SCHEMA,
                sessionId=self.session_id,
                generation=self.generation,
                workspace=self.workspace,
                tenantId=self.tenant_id,
                principalId=self.principal_id,
                systemPrompt=self.system_prompt,
                messages=[_write_message(each) for each in self.messages],
                runs=[_write_run(each) for each in self.runs],
                durableMemory=msgspec.Raw(b"null" if binding is None else binding.to_json().encode()),
                createdAt=_write_time(self.created_at),
                savedAt=_write_time(self.saved_at),
            )
        )

    @classmethod
    def from_json(cls, data: bytes, session_id: str) -> SessionSnapshot:
        """Read a stored snapshot, strictly.

        Args:
            data: what `to_json` made.
            session_id: whose it has to be.

        Raises:
            SessionStoreCorrupt: a field is unknown, missing or malformed, or it is another session's.
        """
        try:
            stored = _decoder.decode(data)
            if stored.schema != SESSION_SCHEMA:
                raise SessionStoreCorrupt(session_id, f"its schema is not {SESSION_SCHEMA}")
            if stored.sessionId != session_id:
                raise SessionStoreCorrupt(session_id, "it holds another session")
            binding = bytes(stored.durableMemory)
            return cls(
                session_id=session_id,
                generation=stored.generation,
                workspace=stored.workspace,
                tenant_id=stored.tenantId,
                principal_id=stored.principalId,
                system_prompt=stored.systemPrompt,
                messages=tuple([_read_message(each) for each in stored.messages]),
                runs=tuple([_read_run(each) for each in stored.runs]),
                durable_memory=None if binding == b"null" else DurableMemoryBindingV1.from_json(binding),
                created_at=_read_time(stored.createdAt),
                saved_at=_read_time(stored.savedAt),
            )
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The library's message may quote a field's name, which may be anything here.
            raise SessionStoreCorrupt(session_id, "it is not the JSON of a session") from None
        except MemoryRepositoryError as error:
            where = getattr(error, "field", type(error).__name__)
            raise SessionStoreCorrupt(session_id, f"{where} is malformed") from None


# The stored shapes. msgspec reads and writes them several times faster than a generic converter, which counts here:
# a snapshot is written after every turn.
class _Call(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    name: str
    arguments: str


class _Message(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    role: Role
    content: str
    toolCalls: list[_Call] = []  # noqa: N815 - the JSON's name; msgspec copies defaults
    toolCallId: str | None = None  # noqa: N815


class _Context(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    contextId: str | None  # noqa: N815
    admitted: list[tuple[str, int]] = []
    removed: int = 0
    dispatched: bool = False


class _Event(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    detail: str = ""
    at: str | None = None


class _Run(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    runId: str  # noqa: N815
    state: RunState
    startedAt: str | None = None  # noqa: N815
    endedAt: str | None = None  # noqa: N815
    inputTokens: int = 0  # noqa: N815
    outputTokens: int = 0  # noqa: N815
    modelCalls: int = 0  # noqa: N815
    contexts: list[_Context] = []
    events: list[_Event] = []
    error: str = ""


class _Snapshot(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    sessionId: str  # noqa: N815
    generation: int
    workspace: str
    tenantId: str | None  # noqa: N815
    principalId: str | None  # noqa: N815
    systemPrompt: str | None  # noqa: N815
    messages: list[_Message]
    runs: list[_Run]
    durableMemory: msgspec.Raw  # noqa: N815 - null too; msgspec takes no union of Raw and None
    createdAt: str | None  # noqa: N815
    savedAt: str | None  # noqa: N815


_decoder: Final = msgspec.json.Decoder(_Snapshot)


def _write_message(message: ModelMessage) -> _Message:
    calls = [_Call(call.id, call.name, call.arguments) for call in message.tool_calls] if message.tool_calls else []
    return _Message(message.role, message.content, calls, message.tool_call_id)


def _read_message(stored: _Message) -> ModelMessage:
    calls = [ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in stored.toolCalls]
    return ModelMessage(role=stored.role, content=stored.content, tool_calls=calls, tool_call_id=stored.toolCallId)


def _write_run(run: RunRecord) -> _Run:
    return _Run(
        run.run_id,
        run.state,
        _write_time(run.started_at),
        _write_time(run.ended_at),
        run.usage.input_tokens,
        run.usage.output_tokens,
        run.model_calls,
        [_Context(each.context_id, list(each.admitted), each.removed, each.dispatched) for each in run.contexts],
        [_Event(each.name, each.detail, _write_time(each.at)) for each in run.events],
        run.error,
    )


def _read_run(stored: _Run) -> RunRecord:
    return RunRecord(
        run_id=stored.runId,
        state=stored.state,
        started_at=_read_time(stored.startedAt),
        ended_at=_read_time(stored.endedAt),
        usage=ModelUsage(input_tokens=stored.inputTokens, output_tokens=stored.outputTokens),
        model_calls=stored.modelCalls,
        contexts=tuple(
            ContextRecord(
                context_id=each.contextId,
                admitted=tuple(each.admitted),
                removed=each.removed,
                dispatched=each.dispatched,
            )
            for each in stored.contexts
        ),
        events=tuple(RunEvent(name=each.name, detail=each.detail, at=_read_time(each.at)) for each in stored.events),
        error=stored.error,
    )


def _write_time(at: Timestamp | None) -> str | None:
    return None if at is None else str(at)


def _read_time(text: str | None) -> Timestamp | None:
    return None if text is None else Timestamp.parse(text)
