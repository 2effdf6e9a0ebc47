"""The commands inside a chat: what begins with a slash."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import attrs
import trio

from a3s_actors.agent.extraction import ExtractionPolicy
from a3s_actors.agent.redaction import Redactor
from a3s_actors.agent.reports import ContextReport, IncludedItem
from a3s_actors.cli.chat_show import clipped, how_found, note, reductions, why_removed
from a3s_actors.cli.output import brief_id, say
from a3s_actors.cli.reading import print_hits
from a3s_actors.cli.reasons import ReasonStore
from a3s_actors.cli.reviewing import Ask, Review
from a3s_actors.cli.running import Refused, Where
from a3s_actors.cli.sources import text_id
from a3s_actors.cli.values import find
from a3s_actors.memory.operations import Create, MemoryChangeSet
from a3s_actors.memory.reads import ScanRequest
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import EvidenceKind, EvidenceRef, MemoryKind, MemoryNodeDraft, MemoryStatus, NodeHead
from a3s_actors.recall.identity import admission_event_id
from a3s_actors.recall.session import DurableMemorySession

if TYPE_CHECKING:
    from a3s_actors.memory.repository import MemoryRepository

__all__ = ["Commands"]

_PAGE: Final = 1000
_HELP: Final = {
    "/remember TEXT": "propose a memory; it serves only after you say yes",
    "/review": "decide about the candidates, one by one",
    "/recall TEXT": "what would be recalled for a text; nothing is recorded",
    "/forget ID": "end a memory's service; its history stays",
    "/why": "what the last turn's context held, and what it did not",
    "/help": "this list; a line that begins with // is said with one slash",
    "/quit": "end the chat; so does Ctrl-D",
}


@attrs.define(eq=False)
class Commands:
    """The commands of one chat.

    Args:
        where: the file and namespace.
        repository: the open file.
        durable: the memory of the session.
        session_id: the session's name.
        ask: asks the person.
        redactor: finds secrets; None: nothing is looked at.

    Attributes:
        last: the context of the last turn; None before the first.
    """

    where: Where
    repository: MemoryRepository = attrs.field(repr=False)
    durable: DurableMemorySession = attrs.field(repr=False)
    session_id: str
    ask: Ask = attrs.field(repr=False)
    redactor: Redactor = attrs.field(factory=lambda: ExtractionPolicy().redactor, repr=False)
    last: ContextReport | None = attrs.field(default=None, repr=False)

    async def run(self, line: str) -> bool:
        """Run a command.

        Args:
            line: what was typed, with its slash.

        Returns:
            False for `/quit`.

        Raises:
            Refused: there is no such command, it lacks its argument, or it was refused.
            MemoryRepositoryError: the repository refuses or does not answer.
            EndOfInput: the person has gone in the middle of it.

        Cancellation: between two steps; what was confirmed is stored.
        """
        await trio.lowlevel.checkpoint()
        name, _, rest = line.partition(" ")
        if name == "/quit":
            return False
        with_text: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "/remember": self._remember,
            "/recall": self._recall,
            "/forget": self._forget,
        }
        alone: Mapping[str, Callable[[], Awaitable[None]]] = {
            "/review": self._review,
            "/why": self._why,
            "/help": self._help,
        }
        if name in with_text:
            if not rest.strip():
                usage = next(each for each in _HELP if each.startswith(name))
                raise Refused(f"{name} needs more: {usage}")
            await with_text[name](rest.strip())
        elif name in alone:
            await alone[name]()
        else:
            raise Refused(f"there is no such command; there are {', '.join(each.split()[0] for each in _HELP)}")
        return True

    async def _help(self) -> None:
        await trio.lowlevel.checkpoint()
        for usage, said in _HELP.items():
            note(f"{usage:<16} {said}")

    async def _confirmed(self, question: str) -> bool:
        return (await self.ask(f"{question} [y/N] ")).lower() in {"y", "yes"}

    async def _remember(self, text: str) -> None:
        found = await trio.to_thread.run_sync(self.redactor.redact, text)
        if found.kinds:
            raise Refused(f"the text seems to hold a secret ({', '.join(found.kinds)}); it is not kept")
        head = await self._candidate(text)
        if head.status is not MemoryStatus.CANDIDATE:
            note(f"known already: {brief_id(head.id)}, {head.status.value}")
            return
        note(f"candidate {brief_id(head.id)}: it is not served yet")
        if await self._confirmed("activate it now?"):
            await self._decisions().activate(head, f"confirmed in the chat session {self.session_id}")
            note(f"active: {brief_id(head.id)}", style="green")
        else:
            note("it stays a candidate; /review decides")

    async def _candidate(self, text: str) -> NodeHead:
        namespace, node_id = self.durable.namespace, text_id(text)
        known = await self.repository.get_heads(namespace, [node_id])
        if node_id in known:
            return known[node_id]
        now, key = Timestamp.now(), f"chat-{secrets.token_hex(16)}"
        said = EvidenceRef(
            uri=f"a3s://session/{quote(self.session_id, safe='')}/remember/{key}",
            digest=f"sha256:{node_id}",
            kind=EvidenceKind.USER_STATEMENT,
            occurred_at=now,
        )
        draft = MemoryNodeDraft(
            id=node_id,
            namespace=namespace,
            kind=MemoryKind.SEMANTIC,
            content=text,
            evidence=(said,),
            created_at=now,
        )
        await self.repository.apply(
            MemoryChangeSet(idempotency_key=key, namespace=namespace, occurred_at=now, operations=(Create(draft),))
        )
        return (await self.repository.get_heads(namespace, [node_id]))[node_id]

    def _decisions(self) -> Review:
        return Review(self.where, self.repository, self.ask)

    async def _review(self) -> None:
        request = ScanRequest(namespace=self.durable.namespace, statuses=frozenset({MemoryStatus.CANDIDATE}))
        await self._decisions().walk(request)

    async def _recall(self, text: str) -> None:
        hits = await self.durable.preview_recall(text)
        if hits:
            print_hits(hits, ReasonStore(self.where.file))
        else:
            note("nothing recalled")

    async def _forget(self, name: str) -> None:
        head = await find(self.repository, self.durable.namespace, name)
        note(f"{brief_id(head.id)} {head.status.value}  {clipped(head.content)}")
        if head.status is MemoryStatus.TOMBSTONED:
            note("it is not served any more already")
        elif await self._confirmed("never serve it again?"):
            await self._decisions().tombstone(head, f"forgotten in the chat session {self.session_id}")
            note("tombstoned: it is not served any more", style="green")
        else:
            note("unchanged")
            return
        space = self.durable.namespace
        parts = {"db": str(self.where.file), "tenant": space.tenant_id, "principal": space.principal_id}
        parts["scope"] = space.scope_id
        options = " ".join(f"--{option} {shlex.quote(value)}" for option, value in parts.items())
        note("its text and history stay in the file; erasing them is another command:")
        say(f"    a3s-actors {options} purge {shlex.quote(head.id)} --because WHY", style="dim")

    async def _why(self) -> None:
        await trio.lowlevel.checkpoint()
        report = self.last
        if report is None:
            note("there was no turn yet in this process; a3s-actors audit shows all admissions")
            return
        if not report.items:
            note("nothing was admitted to the last turn's context")
        for item in report.items:
            await self._why_one(item, report.context_id)
        for removed in report.removed:
            note(f"removed   {brief_id(removed.node_id)}  {why_removed(removed)}", style="yellow")
        for line in reductions(report):
            note(f"reduced   {line}", style="yellow")

    async def _why_one(self, item: IncludedItem, context_id: str | None) -> None:
        hit = item.hit
        if hit is None or context_id is None:
            note(f"{item.relevance:.2f}  {brief_id(item.id)}  no durable memory: no audit")
            return
        note(f"{how_found(hit)}  {clipped(hit.content)}")
        count = len(hit.node.evidence)
        evidence = f"{count} piece{'' if count == 1 else 's'} of evidence"
        note(f"    {brief_id(hit.node_id)} revision {hit.node_revision} · {evidence}")
        event_id = admission_event_id(context_id, hit.node_id, hit.node_revision)
        place = await self._place(hit.node_id, event_id)
        note(f"    audit event {'missing' if place is None else place}: {event_id}")

    async def _place(self, node_id: str, event_id: str) -> int | None:
        """Return the place of an audit event as the repository has it."""
        after = 0
        while True:
            page = await self.repository.access_events(self.durable.namespace, node_id, after=after, limit=_PAGE)
            for record in page.records:
                if record.event.id == event_id:
                    return record.place
            if page.next_after is None:
                return None
            after = page.next_after
