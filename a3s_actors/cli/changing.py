"""Commands that change memories: propose, activate, corroborate, revise, supersede, conflict, relate and others.

Each makes one change set. Its evidence goes to the memory it decides about; where the kernel's operation takes none
(relations, statuses), it is attached by corroboration in the same change set, so that the history has the
reason.
"""

from __future__ import annotations

import functools
import secrets
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from a3s_actors.cli.app import AsJson, command
from a3s_actors.cli.output import brief_id, emit, json_text, say
from a3s_actors.cli.running import BadInput, Refused, Where
from a3s_actors.cli.sources import text_id
from a3s_actors.cli.values import (
    At,
    Because,
    Decision,
    Evidence,
    Given,
    Key,
    LabelPairs,
    Revision,
    choice,
    decision,
    find,
    labels_of,
    moment,
)
from a3s_actors.memory.codec import access_event_json, result_json
from a3s_actors.memory.operations import (
    Activate,
    AddRelation,
    ChangeSetResult,
    Corroborate,
    Create,
    MemoryChangeSet,
    MemoryOperation,
    RemoveRelation,
    Revise,
    RevisionMode,
    SetStatus,
)
from a3s_actors.memory.values import (
    AccessEvent,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryRelation,
    MemoryStatus,
    NodeHead,
    RelationKind,
)
from a3s_actors.recall import DurableMemoryActivation, check_decision_evidence

_Id = Annotated[str, typer.Argument(metavar="ID", help="An id, or the beginning of one.")]
_A = Annotated[str, typer.Argument(metavar="A", help="An id, or the beginning of one.")]
_B = Annotated[str, typer.Argument(metavar="B", help="Another.")]
_Confidence = Annotated[float | None, typer.Option("--confidence", help="0 to 1.")]
_Importance = Annotated[float | None, typer.Option("--importance", help="0 to 1.")]
_NO_EVIDENCE = {MemoryStatus.SUPERSEDED, MemoryStatus.TOMBSTONED}


def _content(text: str) -> str:
    return sys.stdin.read() if text == "-" else text


def _expected(head: NodeHead, revision: int | None) -> int:
    """Return the revision to expect: the one named, else the current one. The repository compares."""
    return head.revision if revision is None else revision


class Steps:
    """Operations on one memory after another, each expecting the revision that those before it make."""

    def __init__(self) -> None:
        self.operations: list[MemoryOperation] = []
        self._revisions: dict[str, int] = {}

    def begin(self, head: NodeHead, revision: int | None = None) -> None:
        """Start from a memory's revision: the one named, else the current one."""
        self._revisions[head.id] = head.revision if revision is None else revision

    def _next(self, head: NodeHead) -> int:
        expected = self._revisions.setdefault(head.id, head.revision)
        self._revisions[head.id] += 1
        return expected

    def activate(self, head: NodeHead, chosen: Decision) -> None:
        """Make a candidate active."""
        self.operations.append(Activate(head.id, expected_revision=self._next(head), evidence=chosen.items))

    def corroborate(self, head: NodeHead, chosen: Decision) -> None:
        """Attach evidence, unless the memory's status takes none."""
        if head.status not in _NO_EVIDENCE:
            self.operations.append(Corroborate(head.id, expected_revision=self._next(head), evidence=chosen.items))

    def add_relation(self, head: NodeHead, kind: RelationKind, target: NodeHead) -> None:
        """Add a relation and its inverse."""
        for source, each, other in ((head, kind, target), (target, kind.inverse, head)):
            relation = MemoryRelation(each, other.id)
            self.operations.append(AddRelation(source.id, expected_revision=self._next(source), relation=relation))

    def remove_relation(self, head: NodeHead, kind: RelationKind, target: NodeHead) -> None:
        """Remove a relation and its inverse."""
        for source, each, other in ((head, kind, target), (target, kind.inverse, head)):
            relation = MemoryRelation(each, other.id)
            self.operations.append(RemoveRelation(source.id, expected_revision=self._next(source), relation=relation))

    def set_status(self, head: NodeHead, status: MemoryStatus) -> None:
        """Move a memory to another status."""
        self.operations.append(SetStatus(head.id, expected_revision=self._next(head), status=status))

    def change_set(self, namespace: MemoryNamespace, chosen: Decision) -> MemoryChangeSet:
        """Return all operations as one change set."""
        return MemoryChangeSet(
            idempotency_key=chosen.key, namespace=namespace, occurred_at=chosen.at, operations=self.operations
        )


def _tell(result: ChangeSetResult, said: str, *, json: bool) -> None:
    if json:
        emit(result_json(result))
        return
    say(said)
    for node in result.nodes:
        say(f"  {brief_id(node.id)}  {node.status.value}, revision {node.revision}", style="dim")


@command("propose")
async def propose(
    where: Where,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The memory; - reads it from stdin.")],
    node_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Default: the digest of the text.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="episodic, semantic or procedural.")] = "semantic",
    label: LabelPairs = None,
    confidence: _Confidence = None,
    importance: _Importance = None,
    evidence: Evidence = None,
    because: Because = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """Propose a memory: it becomes a candidate, and serves only after it was activated."""
    content = _content(text)
    chosen_kind, labels = choice("--kind", MemoryKind, kind), labels_of(label)
    namespace = where.namespace
    with decision(where, Given(evidence, because, at, key)) as chosen:
        draft = MemoryNodeDraft(
            id=text_id(content) if node_id is None else node_id,
            namespace=namespace,
            kind=chosen_kind,
            content=content,
            confidence=0.5 if confidence is None else confidence,
            importance=0.5 if importance is None else importance,
            evidence=chosen.items,
            labels=labels,
            created_at=chosen.at,
        )
        change_set = MemoryChangeSet(
            idempotency_key=chosen.key, namespace=namespace, occurred_at=chosen.at, operations=(Create(draft),)
        )
        async with where.open() as repository:
            result = await repository.apply(change_set)
    _tell(result, "proposed", json=json)


async def _decide(
    where: Where, node_id: str, given: Given, build: Callable[[NodeHead, Decision], MemoryChangeSet], said: str
) -> None:
    """Find one memory, take the evidence, apply what `build` makes of them, and tell."""
    async with where.open() as repository:
        head = await find(repository, where.namespace, node_id)
        with decision(where, given) as chosen:
            result = await repository.apply(build(head, chosen))
    _tell(result, said, json=given.json)


async def _decide_pair(
    where: Where,
    first: str,
    second: str,
    given: Given,
    build: Callable[[NodeHead, NodeHead, Decision], Steps],
    said: str,
) -> None:
    """Do the same for two memories, by steps in one change set."""
    namespace = where.namespace
    async with where.open() as repository:
        a = await find(repository, namespace, first)
        b = await find(repository, namespace, second)
        if a.id == b.id:
            raise BadInput("give two different memories")
        with decision(where, given) as chosen:
            result = await repository.apply(build(a, b, chosen).change_set(namespace, chosen))
    _tell(result, said, json=given.json)


def _change_set(where: Where, chosen: Decision, operation: MemoryOperation) -> MemoryChangeSet:
    return MemoryChangeSet(
        idempotency_key=chosen.key, namespace=where.namespace, occurred_at=chosen.at, operations=(operation,)
    )


@command("activate")
async def activate(
    where: Where,
    node_id: _Id,
    evidence: Evidence = None,
    because: Because = None,
    revision: Revision = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """Activate a candidate: from now on it is served. Takes manual and verification evidence only."""

    def build(head: NodeHead, chosen: Decision) -> MemoryChangeSet:
        activation = DurableMemoryActivation(
            idempotency_key=chosen.key,
            node_id=head.id,
            expected_revision=_expected(head, revision),
            decision_evidence=chosen.evidence,
            occurred_at=chosen.at,
        )
        return activation.change_set(where.namespace)

    await _decide(where, node_id, Given(evidence, because, at, key, json), build, "activated")


@command("corroborate")
async def corroborate(
    where: Where,
    node_id: _Id,
    evidence: Evidence = None,
    because: Because = None,
    revision: Revision = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """Add evidence to a memory; its text and status stay."""

    def build(head: NodeHead, chosen: Decision) -> MemoryChangeSet:
        operation = Corroborate(head.id, expected_revision=_expected(head, revision), evidence=chosen.items)
        return _change_set(where, chosen, operation)

    await _decide(where, node_id, Given(evidence, because, at, key, json), build, "corroborated")


@command("revise")
async def revise(
    where: Where,
    node_id: _Id,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The new text; - reads it from stdin.")],
    mode: Annotated[str, typer.Option("--mode", help="refinement (more precise) or correction (it was wrong).")],
    confidence: _Confidence = None,
    importance: _Importance = None,
    evidence: Evidence = None,
    because: Because = None,
    revision: Revision = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """Change a memory's text. For an active one only manual and verification evidence is taken."""
    content, chosen_mode = _content(text), choice("--mode", RevisionMode, mode)

    def build(head: NodeHead, chosen: Decision) -> MemoryChangeSet:
        if head.status is MemoryStatus.ACTIVE:
            check_decision_evidence(chosen.items, "evidence")
        operation = Revise(
            head.id,
            expected_revision=_expected(head, revision),
            content=content,
            mode=chosen_mode,
            evidence=chosen.items,
            confidence=confidence,
            importance=importance,
        )
        return _change_set(where, chosen, operation)

    await _decide(where, node_id, Given(evidence, because, at, key, json), build, f"revised ({chosen_mode.value})")


def supersession(old: NodeHead, new: NodeHead, chosen: Decision) -> Steps:
    """Return the steps by which `new` takes the place of `old`; a candidate is activated by the same decision.

    Raises:
        InvalidInput: the new memory is a candidate, and the evidence cannot carry a decision.
    """
    steps = Steps()
    if new.status is MemoryStatus.CANDIDATE:
        check_decision_evidence(chosen.items, "evidence")
        steps.activate(new, chosen)
    else:
        steps.corroborate(new, chosen)
    steps.add_relation(new, RelationKind.SUPERSEDES, old)
    steps.set_status(old, MemoryStatus.SUPERSEDED)
    return steps


@command("supersede")
async def supersede(
    where: Where,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The memory that is not served any more.")],
    by: Annotated[str, typer.Option("--by", metavar="NEW", help="The memory that takes its place.")],
    evidence: Evidence = None,
    because: Because = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """Let a newer memory take the place of an older one, in one change set. A candidate NEW is activated by it."""
    await _decide_pair(where, old, by, Given(evidence, because, at, key, json), supersession, "superseded")


def conflict_steps(a: NodeHead, b: NodeHead, chosen: Decision, *, mark: bool) -> Steps:
    """Return the steps that say two memories contradict each other; marked ones are not served any more."""
    steps = Steps()
    steps.corroborate(a, chosen)
    steps.corroborate(b, chosen)
    if MemoryRelation(RelationKind.CONFLICTS_WITH, b.id) not in a.relations:
        steps.add_relation(a, RelationKind.CONFLICTS_WITH, b)
    if mark:
        for head in (a, b):
            if head.status is not MemoryStatus.CONFLICTED:
                steps.set_status(head, MemoryStatus.CONFLICTED)
    return steps


@command("conflict")
async def conflict(
    where: Where,
    a: _A,
    b: _B,
    mark: Annotated[bool, typer.Option("--mark", help="Also set both to conflicted: neither is served.")] = False,
    evidence: Evidence = None,
    because: Because = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """Record that two memories contradict each other."""
    build = functools.partial(conflict_steps, mark=mark)
    said = "marked as conflicting" if mark else "recorded as conflicting"
    await _decide_pair(where, a, b, Given(evidence, because, at, key, json), build, said)


def _relation_steps(a: NodeHead, b: NodeHead, chosen: Decision) -> Steps:
    steps = Steps()
    steps.corroborate(a, chosen)
    steps.corroborate(b, chosen)
    steps.add_relation(a, RelationKind.RELATED_TO, b)
    return steps


@command("relate")
async def relate(
    where: Where,
    a: _A,
    b: _B,
    evidence: Evidence = None,
    because: Because = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """Relate two memories: recall may then find one by the other."""
    await _decide_pair(where, a, b, Given(evidence, because, at, key, json), _relation_steps, "related")


def _removal_steps(a: NodeHead, b: NodeHead, chosen: Decision) -> Steps:
    kinds = [
        kind
        for kind in (RelationKind.RELATED_TO, RelationKind.CONFLICTS_WITH)
        if MemoryRelation(kind, b.id) in a.relations
    ]
    if not kinds:
        raise Refused("the two are neither related nor conflicting; nothing to remove")
    steps = Steps()
    steps.corroborate(a, chosen)
    steps.corroborate(b, chosen)
    steps.remove_relation(a, kinds[0], b)
    return steps


@command("unrelate")
async def unrelate(
    where: Where,
    a: _A,
    b: _B,
    evidence: Evidence = None,
    because: Because = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """Remove the relation between two memories: that they are related, else that they contradict each other."""
    await _decide_pair(where, a, b, Given(evidence, because, at, key, json), _removal_steps, "unrelated")


def tombstone_steps(head: NodeHead, chosen: Decision, revision: int | None = None) -> Steps:
    """Return the steps that end a memory's service for good, its history kept."""
    steps = Steps()
    steps.begin(head, revision)
    steps.corroborate(head, chosen)
    steps.set_status(head, MemoryStatus.TOMBSTONED)
    return steps


@command("tombstone")
async def tombstone(
    where: Where,
    node_id: _Id,
    evidence: Evidence = None,
    because: Because = None,
    revision: Revision = None,
    at: At = None,
    key: Key = None,
    json: AsJson = False,
) -> None:
    """End a memory's service for good. Its history stays readable; nothing is erased."""

    def build(head: NodeHead, chosen: Decision) -> MemoryChangeSet:
        return tombstone_steps(head, chosen, revision).change_set(where.namespace, chosen)

    await _decide(where, node_id, Given(evidence, because, at, key, json), build, "tombstoned")


@command("use")
async def use(
    where: Where,
    node_id: _Id,
    revision: Annotated[
        int | None, typer.Option("--revision", min=1, help="Which revision was used; default: the current one.")
    ] = None,
    context: Annotated[str | None, typer.Option("--context", metavar="ID", help="Opaque id of the context.")] = None,
    event_id: Annotated[str | None, typer.Option("--event-id", metavar="ID", help="To repeat it safely.")] = None,
    at: At = None,
    json: AsJson = False,
) -> None:
    """Record that a memory was really used: cited, selected or acted on."""
    namespace = where.namespace
    async with where.open() as repository:
        head = await find(repository, namespace, node_id)
        event = AccessEvent(
            id=f"cli-{secrets.token_hex(16)}" if event_id is None else event_id,
            namespace=namespace,
            node_id=head.id,
            node_revision=head.revision if revision is None else revision,
            occurred_at=moment("--at", at),
            context_id=context,
        )
        await repository.record_use(event)
        usage = await repository.usage_summary(namespace, head.id)
    if json:
        emit(f'{{"event":{access_event_json(event)},"uses":{json_text(usage.uses)}}}')
    else:
        say(f"recorded: {brief_id(head.id)} revision {event.node_revision}, used {usage.uses} times")
