"""Reads: whole nodes, heads, histories, pages, queries, snapshots, change tokens, namespaces. All pure."""

from __future__ import annotations

import hashlib
from typing import Any

import attrs

from a3s_actors.memory.codec import node_json
from a3s_actors.memory.errors import InvalidInput, LimitExceeded, NodeNotFound
from a3s_actors.memory.lexical import coverage, tokens
from a3s_actors.memory.ranking import hit_order
from a3s_actors.memory.reads import MemoryHit, MemoryQuery, ScanRequest
from a3s_actors.memory.repository import MemoryRepository
from a3s_actors.memory.snapshot import SNAPSHOT_PROFILE, SnapshotRequest
from a3s_actors.memory.values import MemoryKind, MemoryNamespace, MemoryStatus, RelationKind
from a3s_actors.testing._checks_changes import node_of, put
from a3s_actors.testing._registry import check, expect, expect_equal, refused, unchanged
from a3s_actors.testing.building import (
    NS,
    OTHER,
    access,
    activate,
    add,
    change,
    corroborate,
    create,
    revise,
    set_status,
)

_EVERY = frozenset(MemoryStatus)


# -- single nodes ------------------------------------------------------------------------------------------------------


@check
async def get_returns_the_whole_node_or_none(repository: MemoryRepository) -> None:
    """Get gives the node with every earlier revision, None where there is none."""
    await repository.apply(change("k", create("n", "first")))
    await repository.apply(change("r", revise("n", "second")))
    node = await node_of(repository, "n")
    expect_equal([each.content for each in node.history], ["first"], "the history")
    for namespace, node_id in ((NS, "m"), (OTHER, "n"), (NS, "N"), (NS, "n ")):
        expect(await repository.get(namespace, node_id) is None, "another id or namespace has no node")
    for wrong in ("", " ", "x" * 257, "\ud800", None, 1):
        try:
            await repository.get(NS, wrong)  # type: ignore[arg-type]
        except (InvalidInput, LimitExceeded):
            continue
        expect(False, "an id that cannot be one is refused")


@check
async def get_heads_returns_those_that_exist(repository: MemoryRepository) -> None:
    """GetHeads gives the heads that exist, equal to those of get, for any number of ids and repetitions."""
    await repository.apply(change("k", *(create(f"n{number}") for number in range(100))))
    await repository.apply(change("r", revise("n7", "second")))
    wanted = [f"n{number}" for number in range(0, 200, 7)]
    found = await repository.get_heads(NS, [*wanted, *wanted])
    expect_equal(set(found), {f"n{number}" for number in range(0, 100, 7)}, "the ids that exist")
    expect_equal(found["n7"], (await node_of(repository, "n7")).head, "a head")
    expect_equal(await repository.get_heads(NS, []), {}, "no ids")
    for wrong in ("n1", None, ["n1", 1]):
        with refused(InvalidInput):
            await repository.get_heads(NS, wrong)  # type: ignore[arg-type]
    expect_equal(await repository.get_heads(OTHER, wanted), {}, "another namespace")


@check
async def history_pages_from_old_to_new(repository: MemoryRepository) -> None:
    """History gives revisions after a given one, oldest first, the current one last, with a cursor."""
    await repository.apply(change("k", create("n", "text 1")))
    for revision in range(1, 10):
        await repository.apply(change(f"r{revision}", revise("n", f"text {revision + 1}", revision)))
    whole = await repository.history(NS, "n")
    expect_equal([each.revision for each in whole.revisions], list(range(1, 11)), "all revisions")
    expect_equal(whole.revisions[-1].content, "text 10", "the current revision is the last")
    expect(whole.next_after is None, "a whole history has no next page")
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await repository.history(NS, "n", after=after, limit=3)
        seen += [each.revision for each in page.revisions]
        after = page.next_after
    expect_equal(seen, list(range(1, 11)), "pages of three")
    for beyond in (10, 2**63, 2**80):
        expect_equal((await repository.history(NS, "n", after=beyond)).revisions, (), "after the last")
    with refused(NodeNotFound, node_id="m"):
        await repository.history(NS, "m")
    with refused(NodeNotFound, node_id="n"):
        await repository.history(OTHER, "n")
    for limit in (0, -1, True):
        with refused(InvalidInput):
            await repository.history(NS, "n", limit=limit)
    with refused(LimitExceeded, limit=1000):
        await repository.history(NS, "n", limit=1001)
    for after_wrong in (-1, True, "1"):
        with refused(InvalidInput):
            await repository.history(NS, "n", after=after_wrong)  # type: ignore[arg-type]


@check
async def scan_pages_by_id_bytes_with_filters(repository: MemoryRepository) -> None:
    """Scan gives heads in the order of their ids' UTF-8 bytes, filtered by status, kind and labels, with a cursor."""
    ids = ["a", "b", "B", "é", "中", "z", "aa", "a%", "a_", "\U0001f600", "~"]
    for number, node_id in enumerate(ids):
        kind = MemoryKind.EPISODIC if number % 2 else MemoryKind.SEMANTIC
        await repository.apply(change(node_id, create(node_id, kind=kind, labels={"odd": str(number % 2), "x": "y"})))
    await repository.apply(change("t", set_status("b", MemoryStatus.TOMBSTONED)))
    await repository.apply(change("foreign", create("c", namespace=OTHER), namespace=OTHER))
    ordered = sorted(ids, key=str.encode)

    async def scan(**fields: Any) -> list[str]:
        request = ScanRequest(namespace=NS, limit=3)
        request = attrs.evolve(request, **fields)
        found: list[str] = []
        while True:
            page = await repository.scan(request)
            found += [head.id for head in page.nodes]
            if page.next_after is None:
                return found
            expect(len(page.nodes) == 3, "a page with a next one is full")
            request = attrs.evolve(request, after=page.next_after)

    expect_equal(await scan(), ordered, "all ids in byte order")
    expect_equal(await scan(statuses=[MemoryStatus.TOMBSTONED]), ["b"], "a status")
    expect_equal(set(await scan(kinds=[MemoryKind.EPISODIC])), set(ids[1::2]), "a kind")
    expect_equal(set(await scan(labels={"odd": "1", "x": "y"})), set(ids[1::2]), "labels")
    expect_equal(await scan(labels={"odd": "2"}), [], "a label that nobody has")
    expect_equal(await scan(after="a"), [each for each in ordered if each.encode() > b"a"], "after an id")
    expect_equal(
        await scan(after="aZ"), [each for each in ordered if each.encode() > b"aZ"], "after an id that is none"
    )


# -- query -------------------------------------------------------------------------------------------------------------


@check
async def query_scores_the_share_of_the_querys_words(repository: MemoryRepository) -> None:
    """A hit's score is the share of the query's distinct words in the text, as float32; only hits above 0 come."""
    await repository.apply(
        change(
            "k",
            create("all", "alpha beta gamma delta epsilon zeta eta theta iota kappa"),
            create("nine", "alpha beta gamma delta epsilon zeta eta theta iota"),
            create("one", "kappa alone, and Kappa again"),
            create("none", "nothing of it"),
        )
    )
    text = "alpha beta gamma delta epsilon zeta eta theta iota KAPPA kappa"
    hits = await repository.query(MemoryQuery(namespace=NS, text=text))
    expect_equal(
        [(hit.node.id, round(hit.score, 6)) for hit in hits], [("all", 1.0), ("nine", 0.9), ("one", 0.1)], "hits"
    )
    expect_equal(hits[1].score, coverage(tokens("a b c d e f g h i j"), tokens("a b c d e f g h i")), "float32")
    expect(all(isinstance(hit, MemoryHit) for hit in hits), "hits are MemoryHit")
    expect_equal(hits[0].node, (await node_of(repository, "all")).head, "a hit carries the head")
    for text in ("", "  ", "?!", "。"):
        with refused(InvalidInput):
            await repository.query(MemoryQuery(namespace=NS, text=text))


@check
async def query_matches_cjk_by_overlapping_pairs(repository: MemoryRepository) -> None:
    """A run of CJK characters matches by the whole run and by its pairs, single characters by themselves alone."""
    await repository.apply(
        change(
            "k",
            create("a", "数据库备份每天凌晨开始"),
            create("b", "备份"),
            create("c", "天"),
            create("d", "日本語とEnglish混在"),
        )
    )

    async def found(text: str) -> set[str]:
        return {hit.node.id for hit in await repository.query(MemoryQuery(namespace=NS, text=text))}

    expect_equal(await found("备份"), {"a", "b"}, "a pair inside a run")
    expect_equal(await found("天"), {"c"}, "a single character")
    expect_equal(await found("english"), {"d"}, "a word after CJK")
    expect_equal(await found("日本"), {"d"}, "kanji before kana")


@check
async def query_orders_by_score_then_newest_then_id(repository: MemoryRepository) -> None:
    """Hits come by score descending, updated_at descending, id ascending by bytes; without text by time."""
    for number, node_id in enumerate(["b", "a", "é", "B"]):
        second = 5.0 if node_id in "bB" else float(number)
        await repository.apply(change(f"k{number}", create(node_id, "same words", second=second), second=second))
    await repository.apply(change("best", create("best", "same words exactly", second=0.5), second=0.5))
    hits = await repository.query(MemoryQuery(namespace=NS, text="same words exactly"))
    expect_equal([hit.node.id for hit in hits], ["best", "B", "b", "é", "a"], "the order")
    expect_equal(list(hits), sorted(hits, key=hit_order), "the order as the kernel has it")
    listed = await repository.query(MemoryQuery(namespace=NS))
    expect_equal([hit.node.id for hit in listed], ["B", "b", "é", "a", "best"], "the order without text")
    expect_equal({hit.score for hit in listed}, {0.0}, "scores without text")
    first = await repository.query(MemoryQuery(namespace=NS, text="same words exactly", limit=2))
    expect_equal([hit.node.id for hit in first], ["best", "B"], "the first two")


@check
async def query_keeps_a_storm_of_ties_in_order(repository: MemoryRepository) -> None:
    """A hundred hits of one score and one time come by id, and the limit cuts after the order."""
    names = [f"n{number * 37 % 101:03}" for number in range(101)]
    await repository.apply(change("k", *(create(name, "tied words") for name in names)))
    for limit in (1, 7, 100):
        hits = await repository.query(MemoryQuery(namespace=NS, text="tied", limit=limit))
        expect_equal([hit.node.id for hit in hits], sorted(names)[:limit], f"the first {limit} ids")


@check
async def query_serves_active_memories_unless_told_otherwise(repository: MemoryRepository) -> None:
    """By default only active nodes are found; statuses and kinds filter."""
    for status in MemoryStatus:
        await put(repository, status.value, status)
    await repository.apply(change("e", create("episode", kind=MemoryKind.EPISODIC)))

    async def found(**fields: Any) -> set[str]:
        query = attrs.evolve(MemoryQuery(namespace=NS, text="plain memory", limit=100), **fields)
        return {hit.node.id for hit in await repository.query(query)}

    active = {"active", "superseded-new", "conflicted-rival", "episode"}
    expect_equal(await found(), active, "active nodes")
    for status in (MemoryStatus.CANDIDATE, MemoryStatus.SUPERSEDED, MemoryStatus.TOMBSTONED, MemoryStatus.CONFLICTED):
        expect_equal(await found(statuses=[status]), {status.value}, status.value)
    expect_equal(await found(kinds=[MemoryKind.EPISODIC]), {"episode"}, "a kind")
    expect_equal(len(await found(statuses=_EVERY)), 8, "every status")


@check
async def query_follows_every_change_of_a_text(repository: MemoryRepository) -> None:
    """A revised text is found by its new words and not by its old ones; a status change shows at once."""

    async def found(text: str) -> list[str]:
        return [hit.node.id for hit in await repository.query(MemoryQuery(namespace=NS, text=text))]

    await repository.apply(change("k", create("n", "tuesday deploy", status=MemoryStatus.CANDIDATE)))
    expect_equal(await found("tuesday"), [], "a candidate")
    await repository.apply(change("a", activate("n")))
    expect_equal(await found("tuesday"), ["n"], "after its activation")
    await repository.apply(change("r", revise("n", "thursday deploy", 2)))
    expect_equal((await found("tuesday"), await found("thursday")), ([], ["n"]), "after a revision")
    await repository.apply(change("c", corroborate("n", 3)))
    expect_equal(await found("thursday"), ["n"], "after a corroboration")
    await repository.apply(change("t", set_status("n", MemoryStatus.TOMBSTONED, 4)))
    expect_equal(await found("thursday"), [], "after a tombstone")


@check
async def query_takes_long_texts_and_long_queries(repository: MemoryRepository) -> None:
    """64 KiB of one CJK run and a query of a hundred thousand words are handled exactly."""
    run = "".join(chr(0x4E00 + number % 20000) for number in range(21_000))
    other = run[::-1]
    await repository.apply(change("k", create("run", run), create("other", other)))
    (hit, *rest) = await repository.query(MemoryQuery(namespace=NS, text=run))
    expect_equal((hit.node.id, hit.score), ("run", 1.0), "the run itself")
    expect(all(each.score < 1.0 for each in rest), "another run is not the same")
    text = " ".join(f"word{number}" for number in range(100_000)) + " 一丁"
    hits = await repository.query(MemoryQuery(namespace=NS, text=text))
    expect_equal([each.score for each in hits], [coverage(tokens(text), tokens(run))], "a long query's score")


# -- namespaces --------------------------------------------------------------------------------------------------------


@check
async def namespaces_are_exact(repository: MemoryRepository) -> None:
    """Namespaces that differ by case, form, space, separators, wildcards or prefixes never mix, in any read."""
    parts = ["scope", "Scope", "scope ", " scope", "scope/", "scope\x00", "scop", "scope%", "scop_", "s*", "é",
             "e\u0301", "ß", "ss", "ſcope", "scope\u200b", "'; --", "K", "\u212a"]  # fmt: skip
    spaces = [MemoryNamespace("t", "p", part) for part in parts]
    spaces += [MemoryNamespace("t", part, "scope") for part in ("p ", "P", "p/scope")]
    spaces += [MemoryNamespace("tp", "x", "y"), MemoryNamespace("t", "px", "y"), MemoryNamespace("t", "p", "xy")]
    for number, space in enumerate(spaces):
        await repository.apply(
            change("k", create("n", f"shared words of number{number}", namespace=space), namespace=space)
        )
    for number, space in enumerate(spaces):
        mine = f"shared words of number{number}"
        node = await repository.get(space, "n")
        expect(node is not None and node.content == mine and node.namespace == space, "get reads its own namespace")
        hits = await repository.query(MemoryQuery(namespace=space, text="shared words", limit=100))
        expect_equal([hit.node.content for hit in hits], [mine], "query finds its own namespace")
        page = await repository.scan(ScanRequest(namespace=space))
        expect_equal([head.content for head in page.nodes], [mine], "scan reads its own namespace")
        request = SnapshotRequest(namespace=space)
        view = await repository.snapshot_namespace(request)
        view.verify(request)
        expect_equal(view.node_count, 1, "a snapshot holds its own namespace")
    listed = await repository.namespaces()
    order = sorted(
        spaces, key=lambda each: (each.tenant_id.encode(), each.principal_id.encode(), each.scope_id.encode())
    )
    expect_equal(list(listed), order, "namespaces in byte order")


@check
async def node_ids_are_exact(repository: MemoryRepository) -> None:
    """Node ids are compared byte for byte."""
    ids = [
        "n",
        "N",
        "n ",
        " n",
        "n\x00",
        "n%",
        "n_",
        "é",
        "e\u0301",
        "n'",
        'n"',
        "n/../m",
        "*",
        "\U0010ffff",
        "x" * 256,
    ]
    await repository.apply(change("k", *(create(node_id, f"text of {number}") for number, node_id in enumerate(ids))))
    for number, node_id in enumerate(ids):
        expect_equal((await node_of(repository, node_id)).content, f"text of {number}", "the text of an id")
    await repository.apply(change("r", revise("n ", "revised")))
    expect_equal((await node_of(repository, "n")).revision, 1, "another id's revision")


# -- snapshots and tokens ----------------------------------------------------------------------------------------------


@check
async def snapshot_is_complete_ordered_and_verifiable(repository: MemoryRepository) -> None:
    """A snapshot holds every node of the statuses asked for, whole, by id, under a digest that all can compute."""
    for node_id in ["z", "a", "é", "B"]:
        await repository.apply(change(node_id, create(node_id, f"text {node_id}")))
    await repository.apply(change("r", revise("a", "second")))
    await repository.apply(change("t", set_status("z", MemoryStatus.TOMBSTONED)))
    request = SnapshotRequest(namespace=NS)
    view = await repository.snapshot_namespace(request)
    nodes = view.verify_deep(request)
    expect_equal([node.id for node in nodes], ["B", "a", "é"], "active nodes by id")
    expect_equal(len(nodes[1].history), 1, "a node's history")
    body = ",".join(node_json(node) for node in nodes)
    payload = (
        f'{{"profile":"{SNAPSHOT_PROFILE}","namespace":{{"tenantId":"tenant","principalId":"principal",'
        f'"scopeId":"scope"}},"statuses":["active"],"nodes":[{body}]}}'
    ).encode()
    digest = hashlib.sha256(b"a3s.memory.namespace-snapshot.v1\0" + payload).hexdigest()
    expect_equal((view.digest, view.byte_count), (f"sha256:{digest}", len(payload)), "digest and bytes")
    expect_equal(view.change_token, await repository.namespace_change_token(NS), "the token that belongs to the view")
    every = SnapshotRequest(namespace=NS, statuses=_EVERY)
    expect_equal((await repository.snapshot_namespace(every)).node_count, 4, "every status")
    nothing = SnapshotRequest(namespace=MemoryNamespace("no", "such", "one"))
    empty = await repository.snapshot_namespace(nothing)
    empty.verify(nothing)
    expect_equal(empty.node_count, 0, "a namespace never written")


@check
async def snapshot_over_a_budget_is_refused_never_cut(repository: MemoryRepository) -> None:
    """A view over its node or byte budget is LimitExceeded; one exactly at it is whole."""
    await repository.apply(change("k", *(create(f"n{number}") for number in range(5))))
    view = await repository.snapshot_namespace(SnapshotRequest(namespace=NS))
    exact = SnapshotRequest(namespace=NS, max_nodes=5, max_bytes=view.byte_count)
    expect_equal((await repository.snapshot_namespace(exact)).digest, view.digest, "a view at both budgets")
    with refused(LimitExceeded, limit=4, actual=5):
        await repository.snapshot_namespace(SnapshotRequest(namespace=NS, max_nodes=4))
    with refused(LimitExceeded, limit=view.byte_count - 1):
        await repository.snapshot_namespace(SnapshotRequest(namespace=NS, max_bytes=view.byte_count - 1))


@check
async def change_token_moves_with_every_novel_change_set_and_nothing_else(repository: MemoryRepository) -> None:
    """The token of a namespace changes with each novel change set; not with replays, refusals, reads or events."""
    token = await repository.namespace_change_token(NS)
    if token is None:
        return  # a backend without tokens
    expect_equal(token.sequence, 0, "the token of a namespace never written")
    seen = {token}
    for number in range(5):
        await repository.apply(change(f"k{number}", create(f"n{number}")))
        token = await repository.namespace_change_token(NS)
        assert token is not None
        expect(token not in seen, "a novel change set makes a new token")
        expect(all(token > earlier for earlier in seen), "tokens rise")
        seen.add(token)
    await repository.apply(change("k0", create("n0")))
    await repository.record_admission(access("e", "n0"))
    await repository.apply(change("other", create("n", namespace=OTHER), namespace=OTHER))
    with refused(NodeNotFound):
        await repository.apply(change("bad", corroborate("nobody")))
    expect_equal(await repository.namespace_change_token(NS), token, "the token after what must not move it")


@check
async def reads_change_nothing(repository: MemoryRepository) -> None:
    """No read changes a memory, a token, a count or an audit record."""
    await repository.apply(change("k", create("a"), create("b"), add("a", RelationKind.RELATED_TO, "b"),
                                  add("b", RelationKind.RELATED_TO, "a")))  # fmt: skip
    async with unchanged(repository):
        for _ in range(3):
            await repository.get(NS, "a")
            await repository.get_heads(NS, ["a", "b"])
            await repository.history(NS, "a")
            await repository.scan(ScanRequest(namespace=NS))
            await repository.query(MemoryQuery(namespace=NS, text="plain"))
            await repository.query(MemoryQuery(namespace=NS))
            await repository.namespaces()
            await repository.snapshot_namespace(SnapshotRequest(namespace=NS))
            await repository.access_events(NS)
        usage = await repository.usage_summary(NS, "a")
        expect_equal((usage.admissions, usage.uses), (0, 0), "the counts of a node that was only read")
    expect_equal(await repository.namespaces(), (NS,), "reads of another namespace do not make it")


@check
async def arguments_of_another_type_are_refused(repository: MemoryRepository) -> None:
    """Every read refuses an argument that is not what it takes."""
    calls = [
        lambda: repository.get("ns", "n"),  # type: ignore[arg-type]
        lambda: repository.get_heads(None, ["n"]),  # type: ignore[arg-type]
        lambda: repository.history(("a", "b", "c"), "n"),  # type: ignore[arg-type]
        lambda: repository.scan({}),  # type: ignore[arg-type]
        lambda: repository.query("text"),  # type: ignore[arg-type]
        lambda: repository.snapshot_namespace(NS),  # type: ignore[arg-type]
        lambda: repository.namespace_change_token("ns"),  # type: ignore[arg-type]
        lambda: repository.usage_summary(NS, ""),
        lambda: repository.access_events("ns"),  # type: ignore[arg-type]
        lambda: repository.access_events(NS, after=-1),
        lambda: repository.access_events(NS, limit=0),
    ]
    for call in calls:
        with refused(InvalidInput):
            await call()  # type: ignore[no-untyped-call]
