"""The same question in other words of the same language, in four languages, through real sessions."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import attrs

from a3s_actors.agent import ContextPolicy, SessionOptions, open_agent
from a3s_actors.memory import MemoryHit, MemoryNamespace, MemoryQuery, MemoryRepository, ScanRequest
from a3s_actors.memory.lexical import LEXICAL_PROFILE, coverage, legacy_tokens
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession
from a3s_actors.testing import ScriptedModelClient
from evals.gates.corpus import fill, ranks
from evals.gates.fixtures import load_fixture
from evals.gates.gate import Broken, Check, Gate, GateReport, Progress, Series, check
from evals.gates.opening import BACKENDS, counting_host, open_repository, open_store, read_admissions
from evals.gates.reader import shown_items
from evals.gates.wrapping import Around

__all__ = ["GATE"]

_DEPTH: Final = 3


class _WordsOnly(Around):
    """Takes a run of CJK characters for one word, as the legacy profile does."""

    async def query(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        asked = legacy_tokens(query.text or "")
        page = await self.inner.scan(ScanRequest(namespace=query.namespace, statuses=query.statuses))
        scored = [(coverage(asked, legacy_tokens(node.content)), node.id, node) for node in page.nodes]
        best = sorted((-score, name, node) for score, name, node in scored if score > 0)
        return tuple(MemoryHit(node, -score) for score, _, node in best[: query.limit])


@attrs.define
class _Language:
    recall: float = 0.0
    reciprocal: float = 0.0
    queries: int = 0


async def _rank(durable: DurableMemorySession, fixture: dict[str, Any]) -> tuple[dict[str, _Language], set[str]]:
    languages: dict[str, _Language] = {}
    seen: set[str] = set()
    for query in fixture["queries"]:
        found = [hit.node_id for hit in await durable.preview_recall(query["text"])]
        hit, reciprocal = ranks(found[:_DEPTH], [query["relevant"]])
        each = languages.setdefault(query["language"], _Language())
        each.recall += hit
        each.reciprocal += reciprocal
        each.queries += 1
        seen.update(found)
    return languages, seen


async def _ask(fixture: dict[str, Any], options: SessionOptions) -> tuple[int, int, int]:
    """Ask each query in a session; return answers that were shown, the most items shown, and all items shown."""
    model = ScriptedModelClient(otherwise="I see.")
    async with open_agent(model, host=counting_host(100)) as agent, agent.open_session("work", options) as session:
        for query in fixture["queries"]:
            await session.send(query["text"])
    shown = [list(shown_items(request)) for request in model.turn_requests]
    answered = sum(query["relevant"] in items for query, items in zip(fixture["queries"], shown, strict=True))
    return answered, max(map(len, shown)), sum(map(len, shown))


async def _on(
    backend: str, folder: Path, fixture: dict[str, Any], broken: str | None
) -> tuple[list[Check], dict[str, _Language]]:
    mine, foreign = MemoryNamespace(*fixture["namespace"]), MemoryNamespace(*fixture["foreign"])
    given, limits = fixture["policy"], fixture["limits"]
    policy = DurableMemoryRecallPolicy(given["maxResults"], given["minLexicalScore"])
    most = 3 if broken == "a context holds one memory" else limits["contextNodes"]
    async with open_repository(backend, folder) as repository, open_store(backend, folder) as store:
        await fill(repository, mine, fixture["memories"], serving=broken)
        await fill(repository, foreign, fixture["foreignMemories"])
        if broken == "namespaces are exact":
            await fill(repository, mine, fixture["foreignMemories"])
        served: MemoryRepository = repository
        if broken == "CJK text is matched by pairs":
            served = _WordsOnly(repository)
        durable = DurableMemorySession.active_recall(served, mine, policy)
        languages, seen = await _rank(durable, fixture)
        missed = [await durable.preview_recall(each["text"]) for each in fixture["crossLanguage"]]
        options = SessionOptions(
            session_id="welt", durable_memory=durable, store=store, context=ContextPolicy(max_items=most)
        )
        answered, largest, shown = await _ask(fixture, options)
        binding = (await store.load("welt")).snapshot.durable_memory
        admitted = await read_admissions(repository, mine)
    forbidden = {each["id"] for each in fixture["memories"] if each["status"] != "active"}
    forbidden |= {each["id"] for each in fixture["foreignMemories"]}
    checks = []
    for name, each in languages.items():
        checks.append(check(f"{name}: Recall@3", each.recall / each.queries, "=", limits["recallAt3"]))
        checks.append(check(f"{name}: MRR", each.reciprocal / each.queries, "=", limits["mrr"]))
    crossed = sum(
        hit.node_id == each["wouldBe"]
        for hits, each in zip(missed, fixture["crossLanguage"], strict=True)
        for hit in hits
    )
    checks += [
        check("answers that were shown to the model", answered, "=", len(fixture["queries"])),
        check("memories in a context, most", largest, "<=", limits["contextNodes"]),
        check("admissions", len(admitted), "=", shown),
        check("retrieval profile of the saved binding", _profile(binding), "=", LEXICAL_PROFILE),
        check("cross-language hits of lexical recall", crossed, "=", limits["crossLanguageHits"]),
        check("forbidden hits", len(seen & forbidden), "=", limits["forbiddenHits"]),
    ]
    return [attrs.evolve(each, name=f"{backend}: {each.name}") for each in checks], languages


def _profile(binding: object) -> str:
    return str(getattr(binding, "retrieval_profile", "none"))


async def _run(progress: Progress, broken: str | None) -> GateReport:
    fixture = load_fixture("multilingual", 1)
    checks: list[Check] = []
    series: list[Series] = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, backend in enumerate(BACKENDS):
            folder = Path(scratch) / backend
            folder.mkdir()
            found, languages = await _on(backend, folder, fixture, broken)
            checks += found
            values = [each.recall / each.queries for each in languages.values()]
            series.append(Series("Recall@3", backend, list(languages), values))
            progress.step(number + 1, len(BACKENDS))
    return GateReport(gate=GATE.name, fixture="multilingual.v1", checks=checks, series=series)


GATE: Final = Gate(
    name="multilingual",
    description="English, Chinese, Japanese and Korean questions in other words of the same language",
    run=_run,
    rules=(
        Broken(name="CJK text is matched by pairs", why="a run of CJK characters is one word"),
        Broken(name="candidates stay unseen", why="what nobody verified is stored as active"),
        Broken(name="namespaces are exact", why="the foreign memories are stored in this namespace, too"),
        Broken(name="a context holds one memory", why="three may enter"),
    ),
)
