"""The extractions of a session: one after another, bounded in number and time, in the session's own nursery."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

import attrs
import trio

from a3s_actors.agent.agent_memory import MAX_TAG_BYTES, MemoryItem, MemoryItemType
from a3s_actors.agent.extraction import (
    ExtractionPolicy,
    ExtractionReport,
    MemoryProposal,
    ProposalRefusal,
    TurnText,
    parse_proposals,
    redact_turn,
    request_for,
    select,
)
from a3s_actors.agent.model import ModelMessage
from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.lexical import is_blank
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.recall.identity import DurableTurnEvidence
from a3s_actors.recall.session import DurableMemoryProposal

if TYPE_CHECKING:
    from a3s_actors.agent.session import AgentSession

__all__ = ["Extraction", "ExtractionJob"]

_MAX_REPORTS: Final = 100


@attrs.frozen(kw_only=True)
class ExtractionJob:
    """A finished turn that waits for its extraction."""

    run_id: str
    messages: tuple[ModelMessage, ...] = attrs.field(repr=False)
    context_ids: tuple[str, ...]
    ended_at: Timestamp | None


class Extraction:
    """The work of a session that goes on after its turns.

    Attributes:
        pending: how many turns wait, the one in work included.
        skipped: how many were not taken because too many waited.
    """

    def __init__(self, session: AgentSession, policy: ExtractionPolicy) -> None:
        self._session = session
        self._policy = policy
        self._send, self._receive = trio.open_memory_channel[ExtractionJob](policy.max_pending)
        self._reports: deque[ExtractionReport] = deque(maxlen=_MAX_REPORTS)
        self._idle = trio.Event()
        self._idle.set()
        self.pending = 0
        self.skipped = 0

    @property
    def unfinished(self) -> int:
        """How many finished turns were not extracted."""
        return self.pending + self.skipped

    def reports(self) -> tuple[ExtractionReport, ...]:
        """Return the last reports, the oldest first."""
        return tuple(self._reports)

    def submit(self, job: ExtractionJob) -> None:
        """Take a finished turn, unless too many wait."""
        try:
            self._send.send_nowait(job)
        except (trio.WouldBlock, trio.ClosedResourceError, trio.BrokenResourceError):
            self.skipped += 1
            return
        if self.pending == 0:
            self._idle = trio.Event()
        self.pending += 1

    def finish(self) -> None:
        """Take no more turns; `work` ends when those that wait are done."""
        self._send.close()

    async def wait_idle(self) -> None:
        """Wait until none waits."""
        await self._idle.wait()

    async def work(self) -> None:
        """Extract turns until `finish` was called and none is left. Never raises but for cancellation."""
        try:
            async for job in self._receive:
                report = await self._extract(job)
                self._reports.append(report)
                self.pending -= 1
                self._session._note_extraction(report)
                if self.pending == 0:
                    self._idle.set()
        finally:
            self._idle.set()

    async def _extract(self, job: ExtractionJob) -> ExtractionReport:
        report = ExtractionReport(run_id=job.run_id, error="deadline")
        with trio.move_on_after(self._policy.seconds):
            try:
                report = await self._propose(job)
            except Exception as error:  # noqa: BLE001 - a model or a hook is foreign code; the session goes on
                report = ExtractionReport(run_id=job.run_id, error=type(error).__name__[:64])
        return report

    async def _propose(self, job: ExtractionJob) -> ExtractionReport:
        policy, session = self._policy, self._session
        if job.ended_at is None:
            return ExtractionReport(run_id=job.run_id, error="no_host_time")
        first, last = job.messages[0].content, job.messages[-1].content
        transcript = "\n".join(f"{each.role.value}: {each.content}" for each in job.messages)
        text = await trio.to_thread.run_sync(redact_turn, policy, first, last, transcript)
        client = session._agent.model_client if policy.model_client is None else policy.model_client
        reply = await client.generate(request_for(text, job.context_ids))
        proposals, refused = parse_proposals(reply.content)
        kept, more = await trio.to_thread.run_sync(select, proposals, policy, session.options.memory)
        refused += more
        return await self._keep(job, job.ended_at, text, kept, refused)

    async def _keep(
        self,
        job: ExtractionJob,
        ended_at: Timestamp,
        text: TurnText,
        kept: tuple[MemoryProposal, ...],
        refused: Counter[ProposalRefusal],
    ) -> ExtractionReport:
        session = self._session
        durable, memory = session.options.durable_memory, session.options.memory
        accepted: list[str] = []
        items: list[str] = []
        for proposal in kept:
            try:
                if durable is not None:
                    if await durable.holds(proposal.content):
                        refused[ProposalRefusal.DUPLICATE] += 1
                        continue
                    result = await durable.propose(_candidate(proposal), self._evidence(job, ended_at, text))
                    accepted += [node.id for node in result.nodes]
                if memory is not None:
                    item = _item(session.session_id, job.run_id, ended_at, proposal)
                    items.append(memory.remember(item, supersedes=proposal.supersedes).id)
            except MemoryRepositoryError:
                refused[ProposalRefusal.STORAGE] += 1
        return ExtractionReport(run_id=job.run_id, accepted=tuple(accepted), items=tuple(items), refused=dict(refused))

    def _evidence(self, job: ExtractionJob, ended_at: Timestamp, text: TurnText) -> DurableTurnEvidence:
        return DurableTurnEvidence(
            session_id=self._session.session_id,
            turn_id=job.run_id,
            prompt=text.prompt,
            response=text.response,
            transcript=text.transcript,
            occurred_at=ended_at,
        )


def _candidate(proposal: MemoryProposal) -> DurableMemoryProposal:
    return DurableMemoryProposal(
        content=proposal.content,
        kind=proposal.type,
        confidence=proposal.confidence,
        importance=proposal.importance,
        labels=proposal.labels(),
    )


def _item(session_id: str, run_id: str, ended_at: Timestamp, proposal: MemoryProposal) -> MemoryItem:
    name = hashlib.sha256("\0".join((session_id, run_id, proposal.content)).encode())
    return MemoryItem(
        id=f"item-{name.hexdigest()[:32]}",
        content=proposal.content,
        created_at=ended_at,
        importance=proposal.importance,
        type=MemoryItemType(proposal.type.value),
        tags=tuple(tag for tag in proposal.tags if not is_blank(tag) and len(tag.encode()) <= MAX_TAG_BYTES),
        metadata=proposal.labels(),
    )
