"""Commands that only read: list, query, recall, show, history, audit."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from a3s_actors.cli.app import AsJson, command
from a3s_actors.cli.output import (
    brief_id,
    emit,
    heads_json,
    json_text,
    namespace_text,
    nodes_table,
    one_line,
    safe,
    say,
    status_text,
    table,
    when,
)
from a3s_actors.cli.reasons import ReasonStore
from a3s_actors.cli.running import Where
from a3s_actors.cli.values import Kinds, LabelPairs, Statuses, every, find, kinds_of, labels_of, moment, statuses_of
from a3s_actors.memory.codec import access_event_json, head_json, node_json, revision_json
from a3s_actors.memory.errors import NodeNotFound
from a3s_actors.memory.reads import MemoryQuery, ScanRequest
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import EvidenceRef, MemoryStatus, NodeHead
from a3s_actors.recall import DurableMemoryRecallPolicy, RecallHit, lexical_recall

if TYPE_CHECKING:
    from rich.text import Text


_Limit = Annotated[int, typer.Option("--limit", min=1, help="How many at most.")]
_Id = Annotated[str, typer.Argument(metavar="ID", help="An id, or the beginning of one.")]


def _passes(head: NodeHead, since: Timestamp | None, until: Timestamp | None, uri: str | None) -> bool:
    """Tell whether a memory passes the filters that a scan does not have."""
    return (
        (since is None or head.updated_at >= since)
        and (until is None or head.updated_at < until)
        and (uri is None or any(item.uri.startswith(uri) for item in head.evidence))
    )


@command("list")
async def list_memories(
    where: Where,
    status: Statuses = None,
    kind: Kinds = None,
    label: LabelPairs = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Updated at or after.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Updated before.")] = None,
    evidence_uri: Annotated[
        str | None, typer.Option("--evidence-uri", metavar="PREFIX", help="With evidence whose URI begins so.")
    ] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="ID", help="Go on after this id.")] = None,
    limit: _Limit = 100,
    json: AsJson = False,
) -> None:
    """List memories in the order of their ids."""
    earliest = None if since is None else moment("--since", since)
    latest = None if until is None else moment("--until", until)
    request = ScanRequest(
        namespace=where.namespace,
        statuses=statuses_of(status) or frozenset(MemoryStatus),
        kinds=kinds_of(kind),
        labels=labels_of(label),
        after=after,
    )
    found: list[NodeHead] = []
    more = False
    async with where.open() as repository, aclosing(every(repository, request)) as heads:
        async for head in heads:
            if not _passes(head, earliest, latest, evidence_uri):
                continue
            if len(found) == limit:
                more = True
                break
            found.append(head)
    cursor = found[-1].id if more else None
    if json:
        emit(f'{{"nodes":{heads_json(found)},"nextAfter":{json_text(cursor)}}}')
        return
    if not found:
        say("no memories")
        return
    nodes_table(found)
    if cursor is not None:
        say(f"more: --after {cursor}", style="dim")


@command("query")
async def query(
    where: Where,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Words to find; without, the newest.")] = None,
    status: Statuses = None,
    kind: Kinds = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="How many at most.")] = 20,
    json: AsJson = False,
) -> None:
    """Find memories by their words; of any status and kind, active ones by default."""
    request = MemoryQuery(
        namespace=where.namespace,
        text=text,
        statuses=statuses_of(status) or frozenset({MemoryStatus.ACTIVE}),
        kinds=kinds_of(kind),
        limit=limit,
    )
    async with where.open() as repository:
        hits = await repository.query(request)
    if json:
        lines = (f'{{"score":{json_text(hit.score)},"node":{head_json(hit.node)}}}' for hit in hits)
        emit(f'{{"hits":[{",".join(lines)}]}}')
    elif not hits:
        say("nothing found")
    else:
        table(
            ["score", "id", "status", "rev", "updated", "content"],
            (
                [
                    f"{hit.score:.3f}",
                    brief_id(hit.node.id),
                    status_text(hit.node.status),
                    str(hit.node.revision),
                    when(hit.node.updated_at),
                    hit.node.content,
                ]
                for hit in hits
            ),
            wide="content",
        )


@command("recall")
async def recall(
    where: Where,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to recall.")],
    max_results: Annotated[int, typer.Option("--max-results", help="1 to 100.")] = 5,
    min_score: Annotated[float, typer.Option("--min-score", help="0 to 1: share of the text's words.")] = 0.4,
    related: Annotated[int, typer.Option("--related", help="How many related memories may be read, 0 to 100.")] = 0,
    json: AsJson = False,
) -> None:
    """Recall active memories as an agent would, with their evidence. Changes nothing and records nothing."""
    policy = DurableMemoryRecallPolicy(max_results, min_score, related)
    async with where.open() as repository:
        hits = await lexical_recall(repository, where.namespace, policy, text)
    if json:
        emit(f'{{"hits":[{",".join(map(hit_json, hits))}]}}')
    elif not hits:
        say("nothing recalled")
    else:
        print_hits(hits, ReasonStore(where.file))


def hit_json(hit: RecallHit) -> str:
    """Return a recall hit as JSON."""
    return (
        f'{{"score":{json_text(hit.score)},"channel":"{hit.channel.value}"'
        f',"relatedFrom":{json_text(hit.related_from)},"node":{head_json(hit.node)}}}'
    )


def print_hits(hits: tuple[RecallHit, ...], reasons: ReasonStore) -> None:
    """Print recall hits, each with its provenance: where its evidence lies, or the reason itself."""
    from rich.text import Text

    texts = reasons.texts(item for hit in hits for item in hit.node.evidence)
    for hit in hits:
        origin = "" if hit.related_from is None else f" from {brief_id(hit.related_from)}"
        say(Text(f"{hit.score:.3f}", style="bold green"), f"  {one_line(hit.content)}")
        say(f"       {hit.channel.value}{origin} · {brief_id(hit.node_id)} revision {hit.node_revision}", style="dim")
        for item in hit.node.evidence:
            source = one_line(texts[item.uri]) if item.uri in texts else f"{item.uri} · {item.digest[:19]}"
            say(f"       {item.kind.value} · {source} · {when(item.occurred_at)}", style="dim")


@command("show")
async def show(where: Where, node_id: _Id, json: AsJson = False) -> None:
    """Show one memory: text, evidence with reasons, relations, labels and use."""
    namespace = where.namespace
    async with where.open() as repository:
        head = await find(repository, namespace, node_id)
        if json:
            node = await repository.get(namespace, head.id)
            if node is None:
                raise NodeNotFound(head.id)
            emit(node_json(node))
            return
        usage = await repository.usage_summary(namespace, head.id)
        related = await repository.get_heads(namespace, [relation.target_id for relation in head.relations])
    say(safe(head.content), style="bold")
    say("")
    rows: list[list[str | Text]] = [
        ["id", head.id],
        ["namespace", namespace_text(namespace)],
        ["status", status_text(head.status)],
        ["kind", head.kind.value],
        ["revision", f"{head.revision} ({head.revision_kind.value})"],
        ["created", str(head.created_at)],
        ["updated", str(head.updated_at)],
        ["confidence", f"{head.confidence:g}"],
        ["importance", f"{head.importance:g}"],
        ["used", f"{usage.admissions} admissions, {usage.uses} uses"],
    ]
    rows += [[f"label {key}", value] for key, value in head.labels.items()]
    table(["field", "value"], rows, wide="value")
    _print_evidence(where, head.evidence)
    if head.relations:
        table(
            ["relation", "id", "status", "content"],
            (
                [
                    relation.kind.value,
                    brief_id(relation.target_id),
                    status_text(related[relation.target_id].status) if relation.target_id in related else "purged",
                    related[relation.target_id].content if relation.target_id in related else "",
                ]
                for relation in head.relations
            ),
            wide="content",
        )


def _print_evidence(where: Where, evidence: tuple[EvidenceRef, ...]) -> None:
    reasons = ReasonStore(where.file).texts(evidence)
    table(
        ["evidence", "when", "uri or reason"],
        ([item.kind.value, when(item.occurred_at), reasons.get(item.uri, item.uri)] for item in evidence),
        wide="uri or reason",
    )


@command("history")
async def history(
    where: Where,
    node_id: _Id,
    after: Annotated[int, typer.Option("--after", min=0, help="Go on after this revision.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")] = 1000,
    json: AsJson = False,
) -> None:
    """Show every revision of a memory: what changed, when, and on what evidence."""
    namespace = where.namespace
    async with where.open() as repository:
        head = await find(repository, namespace, node_id)
        page = await repository.history(namespace, head.id, after=after, limit=limit)
    if json:
        emit(
            f'{{"revisions":[{",".join(map(revision_json, page.revisions))}],"nextAfter":{json_text(page.next_after)}}}'
        )
        return
    reasons = ReasonStore(where.file).texts(head.evidence)
    before: frozenset[str] = frozenset()
    content = relations = None
    rows: list[list[str | Text]] = []
    for revision in page.revisions:
        news = [reasons.get(item.uri, item.uri) for item in revision.evidence if item.uri not in before]
        changes = [revision.content] if revision.content != content else []
        if revision.relations != relations:
            changes += [f"{each.kind.value} {brief_id(each.target_id)}" for each in revision.relations]
        before = frozenset(item.uri for item in revision.evidence)
        content, relations = revision.content, revision.relations
        rows.append(
            [
                str(revision.revision),
                revision.revision_kind.value,
                status_text(revision.status),
                when(revision.updated_at),
                "; ".join(changes),
                "; ".join(news),
            ]
        )
    table(
        ["rev", "change", "status", "when", "content or relations", "new evidence"], rows, wide="content or relations"
    )
    if page.next_after is not None:
        say(f"more: --after {page.next_after}", style="dim")


@command("audit")
async def audit(
    where: Where,
    node_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One memory; without, all of them.")] = None,
    after: Annotated[int, typer.Option("--after", min=0, help="Go on after this place.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")] = 1000,
    json: AsJson = False,
) -> None:
    """Show admissions into model contexts and uses, in the order of their arrival."""
    namespace = where.namespace
    async with where.open() as repository:
        wanted = None if node_id is None else (await find(repository, namespace, node_id)).id
        page = await repository.access_events(namespace, wanted, after=after, limit=limit)
    if json:
        lines = (
            f'{{"place":{each.place},"kind":"{each.kind.value}","event":{access_event_json(each.event)}}}'
            for each in page.records
        )
        emit(f'{{"events":[{",".join(lines)}],"nextAfter":{json_text(page.next_after)}}}')
        return
    if not page.records:
        say("no admissions or uses")
        return
    table(
        ["place", "event", "id", "rev", "when", "context"],
        (
            [
                str(each.place),
                each.kind.value,
                brief_id(each.event.node_id),
                str(each.event.node_revision),
                when(each.event.occurred_at),
                each.event.context_id or "",
            ]
            for each in page.records
        ),
        wide="context",
    )
    if page.next_after is not None:
        say(f"more: --after {page.next_after}", style="dim")
