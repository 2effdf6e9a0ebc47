"""One turn: recall, assemble, admit, call the model, call tools, answer. Runs in the caller's own task.

So the caller's cancellation, deadline and context variables are the turn's. A turn that fails or is cancelled leaves
the conversation as it was; its run record says how far it came.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import attrs

from a3s_actors.agent.context import AssembledContext, ContextItem, ContextRequest, assemble
from a3s_actors.agent.errors import ModelProtocolError, ToolRoundsExceeded
from a3s_actors.agent.framing import frame, render_item
from a3s_actors.agent.gathering import gather
from a3s_actors.agent.host import HostEnv
from a3s_actors.agent.model import (
    ModelClient,
    ModelMessage,
    ModelReply,
    ModelRequest,
    ModelUsage,
    Role,
    StreamingModelClient,
    ToolCall,
)
from a3s_actors.agent.options import SessionOptions
from a3s_actors.agent.reports import (
    ContextReport,
    IncludedItem,
    ProviderReport,
    TurnContext,
    TurnEvent,
    TurnReply,
    TurnStarted,
    TurnText,
    TurnTool,
)
from a3s_actors.agent.runs import ContextRecord, RunEvent, RunRecord
from a3s_actors.agent.store import RunMark, RunMarkKind
from a3s_actors.agent.tools import Toolbox, ToolInvocation
from a3s_actors.recall.admission import AdmissionReport, DurableMemoryTurn

if TYPE_CHECKING:
    from a3s_actors.agent.session import AgentSession

__all__ = ["Turn"]

_MAX_CALLS: Final = 32
_MAX_EVENTS: Final = 64

Emit = Callable[[TurnEvent], Awaitable[None]]


@attrs.define(eq=False)
class Turn:
    """A turn on its way.

    Attributes:
        record: the run's record so far.
        messages: what it adds to the conversation, the prompt first.
        context_ids: ids of the items of the last context, for the extraction.
    """

    session: AgentSession = attrs.field(repr=False)
    client: ModelClient = attrs.field(repr=False)
    host: HostEnv
    options: SessionOptions
    toolbox: Toolbox
    prompt: str = attrs.field(repr=False)
    record: RunRecord
    history: tuple[ModelMessage, ...] = attrs.field(repr=False)
    system_prompt: str | None = attrs.field(repr=False)
    emit: Emit | None
    mark: Callable[[RunMark], Awaitable[None]] | None
    changed: Callable[[RunRecord], None]
    messages: list[ModelMessage] = attrs.field(factory=list, repr=False)
    context_ids: tuple[str, ...] = ()

    async def run(self) -> TurnReply:
        """Do the turn.

        Raises:
            ModelError: the model did not answer.
            ToolRoundsExceeded: it goes on asking for tools.
            SessionStoreError: a mark could not be kept; then the model was not called.

        Cancellation: at every checkpoint; nothing of the turn enters the conversation.
        """
        await self._tell(TurnStarted(self.record.run_id))
        durable = self.options.durable_memory
        memory_turn = (
            None
            if durable is None
            else durable.turn(session_id=self.session.session_id, run_id=self.record.run_id, now=self.host.now)
        )
        assembled, providers = await self._assemble(memory_turn)
        self.messages = [ModelMessage(role=Role.USER, content=self.prompt)]
        rounds = 0
        usage = ModelUsage()
        while True:
            report, shown = await self._admit(assembled, providers, memory_turn)
            reply = await self._call_model(shown, report)
            usage += reply.usage
            self._record(attrs.evolve(self.record, usage=usage))
            if not reply.tool_calls:
                break
            if rounds == self.options.max_tool_rounds:
                raise ToolRoundsExceeded(self.options.max_tool_rounds)
            rounds += 1
            self.messages.append(ModelMessage(role=Role.ASSISTANT, content=reply.content, tool_calls=reply.tool_calls))
            for place, call in enumerate(reply.tool_calls):
                self.messages.append(await self._call_tool(call, refused=place >= _MAX_CALLS))
        self.messages.append(ModelMessage(role=Role.ASSISTANT, content=reply.content))
        return TurnReply(
            run_id=self.record.run_id,
            content=reply.content,
            finish_reason=reply.finish_reason,
            usage=usage,
            tool_rounds=rounds,
            context=report,
        )

    async def _assemble(
        self, memory_turn: DurableMemoryTurn | None
    ) -> tuple[AssembledContext, tuple[ProviderReport, ...]]:
        policy = self.options.context
        request = ContextRequest(
            session_id=self.session.session_id,
            run_id=self.record.run_id,
            prompt=self.prompt,
            max_items=policy.max_items,
        )
        items, providers = await gather(
            request,
            policy,
            durable=memory_turn,
            memory=self.options.memory,
            providers=self.options.context_providers,
            now=self.host.now(),
        )
        return assemble(items, policy), providers

    async def _admit(
        self,
        assembled: AssembledContext,
        providers: tuple[ProviderReport, ...],
        memory_turn: DurableMemoryTurn | None,
    ) -> tuple[ContextReport, str]:
        """Record the admissions of one final context; return its report and the text that is shown."""
        durable = [item.durable for item in assembled.items if item.durable is not None]
        admission = AdmissionReport(context_id=None, admitted=(), removed=())
        if durable and memory_turn is not None:
            about = tuple((item.node_id, item.node_revision) for item in durable)
            if self.mark is not None:
                await self.mark(
                    RunMark(
                        kind=RunMarkKind.ADMITTING,
                        run_id=self.record.run_id,
                        context_id=memory_turn.next_context_id,
                        admitted=about,
                    )
                )
            # Before the first admission: a cancelled admission must not be missing in the record.
            planned = ContextRecord(context_id=memory_turn.next_context_id, admitted=about)
            self._record(self.record.with_context(planned))
            admission = await memory_turn.admit(durable)
            self._record(self.record.with_last_context(_context_record(admission)))
        else:
            self._record(self.record.with_context(_context_record(admission)))
        admitted = {item.node_id for item in admission.admitted}
        included = [item for item in assembled.items if item.durable is None or item.durable.node_id in admitted]
        self.context_ids = tuple(item.id for item in included)
        report = ContextReport(
            context_id=admission.context_id,
            items=tuple(_included(item) for item in included),
            removed=admission.removed,
            providers=providers,
            duplicates=assembled.duplicates,
            left_out=assembled.left_out,
            tokens=assembled.tokens,
            clamped=admission.clamped,
        )
        self.event("context", f"items={len(included)} removed={len(admission.removed)}")
        shown = frame(
            render_item(
                item.id, item.source, item.content, None if item.durable is None else item.durable.node_revision
            )
            for item in included
        )
        return report, shown

    async def _call_model(self, shown: str, report: ContextReport) -> ModelReply:
        first = self.messages[0]
        asked = attrs.evolve(first, content=f"{shown}\n\n{first.content}") if shown else first
        system = () if not self.system_prompt else (ModelMessage(role=Role.SYSTEM, content=self.system_prompt),)
        request = ModelRequest(
            messages=(*system, *self.history, asked, *self.messages[1:]),
            tools=self.toolbox.definitions,
            temperature=self.options.temperature,
            max_output_tokens=self.options.max_output_tokens,
        )
        await self._tell(TurnContext(report))
        if self.mark is not None:
            last = self.record.contexts[-1]
            await self.mark(
                RunMark(
                    kind=RunMarkKind.DISPATCHING,
                    run_id=self.record.run_id,
                    context_id=last.context_id,
                    admitted=last.admitted,
                    removed=last.removed,
                )
            )
        self._record(self.record.dispatched())
        if self.emit is None or not isinstance(self.client, StreamingModelClient):
            reply = await self.client.generate(request)
            if self.emit is not None and reply.content:
                await self._tell(TurnText(reply.content))
        else:
            reply = await self._stream(self.client, request)
        self.event("model", reply.finish_reason.value)
        return reply

    async def _stream(self, client: StreamingModelClient, request: ModelRequest) -> ModelReply:
        reply: ModelReply | None = None
        async with client.stream(request) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    reply = piece
                else:
                    await self._tell(TurnText(piece.text))
        if reply is None:
            raise ModelProtocolError("stream", "it ended without a whole reply")
        return reply

    async def _call_tool(self, call: ToolCall, *, refused: bool) -> ModelMessage:
        if refused:
            text, outcome = f"error: more than {_MAX_CALLS} calls at once", "too_many"
        else:
            invocation = ToolInvocation(session=self.session, run_id=self.record.run_id, call_id=call.id)
            text, outcome = await self.toolbox.call(call, invocation)
        known = call.name if call.name in self.toolbox.names else "unknown"
        self.event("tool", f"{known}: {outcome}")
        await self._tell(TurnTool(known, outcome))
        return ModelMessage(role=Role.TOOL, content=text, tool_call_id=call.id)

    def event(self, name: str, detail: str) -> None:
        """Add an event to the run's record."""
        self._record(self.record.with_event(RunEvent(name=name, detail=detail, at=self.host.now()), _MAX_EVENTS))

    def _record(self, record: RunRecord) -> None:
        self.record = record
        self.changed(record)

    async def _tell(self, event: TurnEvent) -> None:
        if self.emit is not None:
            await self.emit(event)


def _context_record(admission: AdmissionReport) -> ContextRecord:
    return ContextRecord(
        context_id=admission.context_id,
        admitted=tuple((item.node_id, item.node_revision) for item in admission.admitted),
        removed=len(admission.removed),
    )


def _included(item: ContextItem) -> IncludedItem:
    hit = None if item.durable is None else item.durable.hit
    return IncludedItem(id=item.id, source=item.source, relevance=item.relevance, hit=hit)
