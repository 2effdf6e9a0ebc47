"""The command that walks candidates with a person: activate, edit, tombstone, skip, quit."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import trio
import typer

from a3s_actors.cli.app import command
from a3s_actors.cli.changing import tombstone_steps
from a3s_actors.cli.output import brief_id, one_line, safe, say, status_text, when
from a3s_actors.cli.reasons import ReasonStore
from a3s_actors.cli.running import Where
from a3s_actors.cli.values import Decision, Kinds, LabelPairs, every, kinds_of, labels_of
from a3s_actors.memory.errors import ErrorFamily, MemoryRepositoryError
from a3s_actors.memory.lexical import has_alphanumeric
from a3s_actors.memory.operations import MemoryChangeSet, Revise, RevisionMode
from a3s_actors.memory.reads import MemoryHit, MemoryQuery, ScanRequest
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import MemoryNamespace, MemoryStatus, NodeHead, RelationKind
from a3s_actors.recall import DurableMemoryActivation

if TYPE_CHECKING:
    from a3s_actors.memory.repository import MemoryRepository

__all__ = ["Ask", "EndOfInput", "Review", "near_duplicates"]

Ask: TypeAlias = Callable[[str], Awaitable[str]]
"""Asks a person with a prompt and returns the answer, stripped. Raises EndOfInput."""

_NEAR = 0.5
_SHOWN = 3
_LIVING = frozenset({MemoryStatus.ACTIVE, MemoryStatus.CANDIDATE, MemoryStatus.CONFLICTED})


async def near_duplicates(
    repository: MemoryRepository, namespace: MemoryNamespace, head: NodeHead
) -> tuple[MemoryHit, ...]:
    """Return living memories that hold at least half of a memory's words, the nearest first; at most three."""
    if not has_alphanumeric(head.content):
        return ()
    query = MemoryQuery(namespace=namespace, text=head.content, statuses=_LIVING, limit=_SHOWN + 1)
    hits = await repository.query(query)
    return tuple(hit for hit in hits if hit.node.id != head.id and hit.score >= _NEAR)[:_SHOWN]


class EndOfInput(Exception):
    """The person has gone, or said so."""


async def _ask(prompt: str) -> str:
    # Blocks the event loop, on purpose: nothing else runs in it while a person thinks, no lock or transaction is held,
    # and an interrupt reaches the prompt itself.
    await trio.lowlevel.checkpoint()
    try:
        return input(prompt).strip()  # noqa: ASYNC250
    except EOFError:
        raise EndOfInput from None


async def _edited(text: str, ask: Ask) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor or not sys.stdin.isatty():
        return await ask("new text: ")
    return await trio.to_thread.run_sync(_in_editor, shlex.split(editor), text)


def _in_editor(editor: list[str], text: str) -> str:
    descriptor, name = tempfile.mkstemp(suffix=".txt")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        subprocess.run([*editor, name], check=False)  # noqa: S603 - the person's own editor
        return Path(name).read_text(encoding="utf-8").strip()
    finally:
        Path(name).unlink(missing_ok=True)


class Review:
    """Decisions about memories, one by one; each is stored at once.

    Args:
        where: the file and namespace.
        repository: the open file.
        ask: asks the person who decides.

    Attributes:
        counts: how many decisions of each kind there were.
    """

    def __init__(self, where: Where, repository: MemoryRepository, ask: Ask) -> None:
        self.repository = repository
        self.ask = ask
        self.namespace = where.namespace
        self.reasons = ReasonStore(where.file)
        self.counts = {"activated": 0, "edited": 0, "tombstoned": 0, "skipped": 0}

    async def show(self, head: NodeHead, place: str) -> None:
        """Print a candidate, and what is near it or against it."""
        say("")
        say(f"{place}  {brief_id(head.id)}  {head.kind.value}, revision {head.revision}", style="dim")
        say(safe(head.content), style="bold")
        for item in head.evidence:
            say(f"  {item.kind.value} · {item.uri} · {when(item.occurred_at)}", style="dim")
        for hit in await near_duplicates(self.repository, self.namespace, head):
            say(
                f"  similar {hit.score:.2f} ",
                status_text(hit.node.status),
                f" {brief_id(hit.node.id)}  {one_line(hit.node.content)}",
            )
        rivals = [each.target_id for each in head.relations if each.kind is RelationKind.CONFLICTS_WITH]
        for rival in (await self.repository.get_heads(self.namespace, rivals)).values():
            say("  conflicts with ", status_text(rival.status), f" {brief_id(rival.id)}  {one_line(rival.content)}")

    def _decision(self, because: str) -> Decision:
        at, key = Timestamp.now(), f"cli-{secrets.token_hex(16)}"
        return Decision(at, key, self.reasons.keep(because, self.namespace, key, at))

    async def _apply(self, change_set: MemoryChangeSet, chosen: Decision) -> None:
        try:
            await self.repository.apply(change_set)
        except MemoryRepositoryError:
            self.reasons.forget(chosen.evidence)
            raise

    async def activate(self, head: NodeHead, because: str | None = None) -> None:
        """Activate a candidate, with a reason; without one, the person is asked for it."""
        chosen = self._decision(because or await self._reason())
        activation = DurableMemoryActivation(
            idempotency_key=chosen.key,
            node_id=head.id,
            expected_revision=head.revision,
            decision_evidence=chosen.evidence,
            occurred_at=chosen.at,
        )
        await self._apply(activation.change_set(self.namespace), chosen)
        self.counts["activated"] += 1

    async def edit(self, head: NodeHead) -> None:
        """Ask for a better text, and for the reason."""
        text = await _edited(head.content, self.ask)
        if not text or text == head.content:
            say("unchanged", style="dim")
            return
        chosen = self._decision(await self._reason())
        revise = Revise(
            head.id,
            expected_revision=head.revision,
            content=text,
            mode=RevisionMode.REFINEMENT,
            evidence=chosen.items,
        )
        change_set = MemoryChangeSet(
            idempotency_key=chosen.key, namespace=self.namespace, occurred_at=chosen.at, operations=(revise,)
        )
        await self._apply(change_set, chosen)
        self.counts["edited"] += 1

    async def tombstone(self, head: NodeHead, because: str | None = None) -> None:
        """End a memory's service, with a reason; without one, the person is asked for it."""
        chosen = self._decision(because or await self._reason())
        await self._apply(tombstone_steps(head, chosen).change_set(self.namespace, chosen), chosen)
        self.counts["tombstoned"] += 1

    async def _reason(self) -> str:
        while True:
            reason = await self.ask("because: ")
            if reason:
                return reason
            say("a decision needs a reason", style="yellow")

    async def one(self, node_id: str, place: str) -> None:
        """Walk one candidate until it is decided or skipped."""
        while True:
            heads = await self.repository.get_heads(self.namespace, [node_id])
            head = heads.get(node_id)
            if head is None or head.status is not MemoryStatus.CANDIDATE:
                return  # somebody else decided
            await self.show(head, place)
            answer = (await self.ask("[a]ctivate  [e]dit  [t]ombstone  [s]kip  [q]uit: ")).lower()
            actions = {"a": self.activate, "e": self.edit, "t": self.tombstone}
            try:
                if answer[:1] in actions:
                    await actions[answer[:1]](head)
                elif answer[:1] == "s":
                    self.counts["skipped"] += 1
                    return
                elif answer[:1] == "q":
                    raise EndOfInput
                else:
                    say("type a, e, t, s or q", style="yellow")
            except MemoryRepositoryError as error:
                if error.family in {ErrorFamily.CORRUPT, ErrorFamily.CLOSED, ErrorFamily.UNAVAILABLE}:
                    raise
                say(f"refused: {error}", style="red")

    async def walk(self, request: ScanRequest, limit: int | None = None) -> None:
        """Walk the candidates of a scan, and say at the end what was decided.

        Args:
            request: which candidates.
            limit: stop after so many.

        Raises:
            MemoryRepositoryError: the file is damaged, closed or does not answer. A refused decision is told instead.

        Cancellation: between two steps; what was decided is stored.
        """
        # The ids of imports are digests: walk in the order of arrival and, within a file, of its lines.
        ordered = sorted([(_place(head), head.id) async for head in every(self.repository, request)])
        found = [node_id for _, node_id in ordered]
        chosen = found if limit is None else found[:limit]
        try:
            for number, node_id in enumerate(chosen, start=1):
                await self.one(node_id, f"{number}/{len(chosen)}")
        except EndOfInput:
            say("")
        if found:
            say(", ".join(f"{count} {name}" for name, count in self.counts.items()))
        else:
            say("no candidates")


def _place(head: NodeHead) -> tuple[int, list[tuple[int, str]]]:
    uri = head.evidence[0].uri if head.evidence else ""
    parts = re.findall(r"\d+|\D+", uri)
    return head.created_at.order_key, [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


@command("review")
async def review(
    where: Where,
    kind: Kinds = None,
    label: LabelPairs = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Stop after so many candidates.")] = None,
) -> None:
    """Walk the candidates, near-duplicates and conflicts beside each, and decide one by one.

    Reads its answers from stdin. Every decision is stored at once; quitting loses nothing.
    """
    request = ScanRequest(
        namespace=where.namespace,
        statuses=frozenset({MemoryStatus.CANDIDATE}),
        kinds=kinds_of(kind),
        labels=labels_of(label),
    )
    async with where.open() as repository:
        await Review(where, repository, _ask).walk(request, limit)
