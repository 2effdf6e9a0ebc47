"""Labelled queries on a corpus: what lexical recall finds, what one hop of relations adds, and what is never found."""

from __future__ import annotations

import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import attrs

from a3s_actors.memory import AccessEvent, MemoryHit, MemoryNamespace, MemoryQuery, MemoryRepository, RelationKind
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession
from a3s_actors.testing.building import add, at, change
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.sqlite import open_sqlite_repository
from evals.gates.corpus import fill, ranks
from evals.gates.fixtures import load_fixture
from evals.gates.gate import Broken, Check, Gate, GateReport, Progress, Series, check
from evals.gates.wrapping import Around

__all__ = ["GATE"]

_KINDS: Final = ("direct", "related", "paraphrase", "conflict", "candidate", "foreign")
_DEPTH: Final = 5


class _Recording(Around):
    """Records an admission of whatever a query finds."""

    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        hits = await self.inner.query(query)
        for hit in hits:
            event = AccessEvent(
                id=f"seen-{hit.node.id}",
                namespace=query.namespace,
                node_id=hit.node.id,
                node_revision=hit.node.revision,
                context_id="preview",
                occurred_at=at(10),
            )
            await self.inner.record_admission(event)
        return hits


@attrs.define
class _Tally:
    """What one kind of queries came to in one arm."""

    recall: float = 0.0
    reciprocal: float = 0.0
    labelled: int = 0
    forbidden: int = 0

    def add(self, found: list[str], query: dict[str, Any]) -> None:
        self.forbidden += len(set(found) & set(query["forbidden"]))
        if query["relevant"]:
            hit, reciprocal = ranks(found[:_DEPTH], query["relevant"])
            self.recall += hit
            self.reciprocal += reciprocal
            self.labelled += 1

    def mean(self, total: float) -> float:
        return total / self.labelled if self.labelled else 0.0


async def _arm(durable: DurableMemorySession | None, fixture: dict[str, Any]) -> dict[str, _Tally]:
    tallies = {kind: _Tally() for kind in _KINDS}
    for query in fixture["queries"]:
        hits = () if durable is None else await durable.preview_recall(query["text"])
        tallies[query["kind"]].add([hit.node_id for hit in hits], query)
    return tallies


async def _relate(repository: MemoryRepository, fixture: dict[str, Any], namespace: MemoryNamespace) -> None:
    for each in fixture["memories"]:
        for target in each.get("relatedTo", ()):
            ends = (each["id"], target)
            heads = await repository.get_heads(namespace, ends)
            relations = [
                add(one, RelationKind.RELATED_TO, other, heads[one].revision) for one, other in (ends, ends[::-1])
            ]
            await repository.apply(change(f"relate-{'-'.join(ends)}", *relations, second=1, namespace=namespace))


async def _audited(repository: MemoryRepository, namespace: MemoryNamespace) -> int:
    return len((await repository.access_events(namespace, None, 0, 100)).records)


async def _on(
    opening: AbstractAsyncContextManager[MemoryRepository], fixture: dict[str, Any], broken: str | None
) -> tuple[list[Check], dict[str, dict[str, _Tally]]]:
    mine, foreign = MemoryNamespace(*fixture["namespace"]), MemoryNamespace(*fixture["foreign"])
    given, limits = fixture["policy"], fixture["limits"]
    related = 0 if broken == "relations are read" else given["maxRelatedLookups"]
    async with opening as repository:
        await fill(repository, mine, fixture["memories"], serving=broken)
        await fill(repository, foreign, fixture["foreignMemories"])
        await _relate(repository, fixture, mine)
        if broken == "namespaces are exact":
            await fill(repository, mine, fixture["foreignMemories"])
        served = _Recording(repository) if broken == "a preview changes nothing" else repository
        lexical = DurableMemoryRecallPolicy(given["maxResults"], given["minLexicalScore"])
        whole = DurableMemoryRecallPolicy(given["maxResults"], given["minLexicalScore"], related)
        arms = {
            "no memory": await _arm(None, fixture),
            "lexical": await _arm(DurableMemorySession.active_recall(served, mine, lexical), fixture),
            "lexical and relations": await _arm(DurableMemorySession.active_recall(served, mine, whole), fixture),
        }
        audited = await _audited(repository, mine)
    best = arms["lexical and relations"]
    forbidden = sum(each.forbidden for arm in arms.values() for each in arm.values())
    direct, linked = best["direct"], best["related"]
    return [
        check("relation Recall@5", linked.mean(linked.recall), ">=", limits["relationRecallAt5"]),
        check("direct Recall@5", direct.mean(direct.recall), ">=", limits["directRecallAt5"]),
        check("direct MRR", direct.mean(direct.reciprocal), ">=", limits["directMrr"]),
        check("forbidden hits", forbidden, "=", limits["forbiddenHits"]),
        check("audit records that previews left", audited, "=", 0),
    ], arms


async def _run(progress: Progress, broken: str | None) -> GateReport:
    fixture = load_fixture("retrieval", 1)
    checks: list[Check] = []
    found: list[dict[str, dict[str, _Tally]]] = []
    with tempfile.TemporaryDirectory() as scratch:
        openings: dict[str, AbstractAsyncContextManager[MemoryRepository]] = {
            "in memory": open_in_memory_repository(),
            "sqlite": open_sqlite_repository(Path(scratch) / "memory.db"),
        }
        for number, (backend, opening) in enumerate(openings.items()):
            one, arms = await _on(opening, fixture, broken)
            checks += [attrs.evolve(each, name=f"{backend}: {each.name}") for each in one]
            found.append(arms)
            progress.step(number + 1, len(openings))
    same = "the same" if found[0] == found[1] else "others"
    checks += [
        check("answers of both repositories", same, "=", "the same"),
        check("labelled queries", len(fixture["queries"]), ">=", 40),
    ]
    figures, series = {}, []
    for arm, tallies in found[0].items():
        for kind, tally in tallies.items():
            figures[f"Recall@5, {kind}, {arm}"] = tally.mean(tally.recall)
            figures[f"MRR, {kind}, {arm}"] = tally.mean(tally.reciprocal)
        series.append(Series("Recall@5", arm, _KINDS, [tallies[kind].mean(tallies[kind].recall) for kind in _KINDS]))
        series.append(Series("MRR", arm, _KINDS, [tallies[kind].mean(tallies[kind].reciprocal) for kind in _KINDS]))
    return GateReport(gate=GATE.name, fixture="retrieval.v1", checks=checks, figures=figures, series=series)


GATE: Final = Gate(
    name="retrieval",
    description="labelled queries: no memory, lexical, lexical and relations; nothing forbidden is found",
    run=_run,
    rules=(
        Broken(name="relations are read", why="no related memory is looked up"),
        Broken(name="candidates stay unseen", why="what nobody verified is stored as active"),
        Broken(name="conflicted memories stay unseen", why="what is in conflict is stored as active"),
        Broken(name="namespaces are exact", why="the foreign memories are stored in this namespace, too"),
        Broken(name="a preview changes nothing", why="whatever a query finds is recorded as admitted"),
    ),
)
