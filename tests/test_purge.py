"""Purge: what goes, what stays, that no byte is left, and that nothing comes back."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
import trio

from a3s_actors.memory import (
    AccessEvent,
    AddRelation,
    ChangeSetPurged,
    Create,
    EvidenceKind,
    EvidenceRef,
    IdempotencyConflict,
    InvalidInput,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryOperation,
    MemoryPurge,
    MemoryQuery,
    MemoryRelation,
    MemoryRepository,
    MemoryStatus,
    NodeNotFound,
    RelationKind,
    Revise,
    RevisionMode,
    ScanRequest,
    SetStatus,
    SnapshotRequest,
    Timestamp,
)
from a3s_actors.memory.values import PURGED_PREFIX
from a3s_actors.testing.cancellation import CancelledCall, sweep_cancellation
from a3s_backends.in_memory import InMemoryRepository, open_in_memory_repository
from a3s_backends.journal import open_file_repository
from a3s_backends.sqlite import open_sqlite_repository, schema
from a3s_backends.sqlite.connection import connect
from a3s_backends.sqlite.purging import bytes_pending, finish_purge, purge_rows
from a3s_backends.sqlite.rows import RowCodec

ROOT = Path(__file__).resolve().parents[1]
NS = MemoryNamespace("acme", "alice", "project")
OTHER = MemoryNamespace("acme", "alice", "project2")
AT = Timestamp.of("2026-03-01T00:00:00Z")
LATER = Timestamp.of("2026-03-02T00:00:00Z")
CANARY = "xylophonic-zanzibar-7731"

Open = Callable[[], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def open_backend(backend: str, path: Path) -> AsyncIterator[Any]:
    if backend == "sqlite":
        async with open_sqlite_repository(path / "memory.db") as on_disk:
            yield on_disk
    else:
        async with open_file_repository(path / "journal") as journal:
            yield journal


@pytest.fixture(params=["in_memory", "sqlite", "journal"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "in_memory":
        return open_in_memory_repository
    return lambda: open_backend(request.param, tmp_path)


@pytest.fixture(params=["sqlite", "journal"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return lambda: open_backend(request.param, tmp_path)


def evidence(uri: str, at: Timestamp = AT) -> EvidenceRef:
    return EvidenceRef(uri=uri, digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=at)


def draft(
    node_id: str,
    content: str = "plain text",
    *,
    relations: Iterable[tuple[RelationKind, str]] = (),
    namespace: MemoryNamespace = NS,
    status: MemoryStatus = MemoryStatus.ACTIVE,
) -> MemoryNodeDraft:
    return MemoryNodeDraft(
        id=node_id,
        namespace=namespace,
        kind=MemoryKind.SEMANTIC,
        status=status,
        content=content,
        evidence=[evidence(f"source://{content}")],
        relations=[MemoryRelation(kind, target) for kind, target in relations],
        labels={"note": content},
        created_at=AT,
    )


def change(key: str, *operations: MemoryOperation, namespace: MemoryNamespace = NS) -> MemoryChangeSet:
    return MemoryChangeSet(idempotency_key=key, namespace=namespace, occurred_at=AT, operations=operations)


def purge(key: str, *ids: str, namespace: MemoryNamespace = NS, at: Timestamp = LATER) -> MemoryPurge:
    return MemoryPurge(
        idempotency_key=key,
        namespace=namespace,
        node_ids=ids or None,
        reason=evidence("ticket://erasure-1"),
        occurred_at=at,
    )


async def fill(repository: MemoryRepository, key: str = f"c-{CANARY}") -> None:
    """Two plain memories, one with the canary in every field that can hold text, revised and admitted.

    A purge keeps the keys of change sets: they are the host's names, not content.
    """
    await repository.apply(change("keep", Create(draft("keep", "deploy on tuesday"))))
    await repository.apply(change(key, Create(draft("doomed", f"first {CANARY}"))))
    revise = Revise(
        "doomed",
        expected_revision=1,
        content=f"second {CANARY}",
        mode=RevisionMode.CORRECTION,
        evidence=[evidence(f"second://{CANARY}")],
    )
    await repository.apply(change("revise", revise))
    for number in range(3):
        event = AccessEvent(
            id=f"event-{number}-{CANARY}", namespace=NS, node_id="doomed", node_revision=2, occurred_at=AT
        )
        await repository.record_admission(event)
        await repository.record_use(event)
    kept = AccessEvent(id="event-kept", namespace=NS, node_id="keep", node_revision=1, occurred_at=AT)
    await repository.record_use(kept)


async def test_a_purged_memory_is_in_no_read_and_the_rest_is_as_it_was(opener: Open) -> None:
    async with opener() as repository:
        await fill(repository)
        kept = await repository.get(NS, "keep")
        receipt = await repository.purge(purge("p", "doomed"))
        assert (receipt.nodes, receipt.revisions, receipt.access_events, receipt.neighbours) == (1, 2, 6, ())
        assert [each.key for each in receipt.change_sets] == [f"c-{CANARY}", "revise"]
        assert receipt.sequence == 4
        assert receipt.bytes_pending is False
        assert await repository.get(NS, "doomed") is None
        assert await repository.get_heads(NS, ["doomed", "keep"]) == {"keep": kept.head}
        for call in (repository.history, repository.usage_summary):
            with pytest.raises(NodeNotFound):
                await call(NS, "doomed")
        assert [head.id for head in (await repository.scan(ScanRequest(namespace=NS))).nodes] == ["keep"]
        assert await repository.query(MemoryQuery(namespace=NS, text=CANARY)) == ()
        request = SnapshotRequest(namespace=NS)
        (node,) = (await repository.snapshot_namespace(request)).verify_deep(request)
        assert node == kept
        assert [record.event.id for record in (await repository.access_events(NS)).records] == ["event-kept"]
        assert (await repository.usage_summary(NS, "keep")).uses == 1
        assert (await repository.namespace_change_token(NS)).sequence == 4


async def test_a_purged_change_set_never_comes_back(opener: Open) -> None:
    async with opener() as repository:
        await fill(repository)
        receipt = await repository.purge(purge("p", "doomed"))
        for content in (f"first {CANARY}", "other"):
            with pytest.raises(ChangeSetPurged) as caught:
                await repository.apply(change(f"c-{CANARY}", Create(draft("doomed", content))))
            assert caught.value.digest == receipt.change_sets[0].digest
        assert await repository.get(NS, "doomed") is None
        # The id itself is free again, under a new key.
        await repository.apply(change("new", Create(draft("doomed", "other"))))
        assert (await repository.get(NS, "doomed")).revision == 1


async def test_receipt_digests_are_keyed_by_the_storage(tmp_path: Path) -> None:
    digests = []
    for name in "ab":
        (tmp_path / name).mkdir()
        async with open_backend("sqlite", tmp_path / name) as repository:
            await fill(repository)
            receipt = await repository.purge(purge("p", "doomed"))
            digests += [each.digest for each in receipt.change_sets]
    assert len(set(digests)) == 4
    assert all(digest.startswith("blake2b:") for digest in digests)


async def test_a_purge_is_idempotent_and_another_under_its_key_a_conflict(opener: Open) -> None:
    async with opener() as repository:
        await fill(repository)
        receipt = await repository.purge(purge("p", "doomed"))
        assert await repository.purge(purge("p", "doomed")) == receipt
        with pytest.raises(IdempotencyConflict):
            await repository.purge(purge("p", "keep"))
        assert await repository.get(NS, "keep") is not None
        # Keys of purges and of change sets are apart.
        await repository.apply(change("p", Create(draft("x"))))


async def test_a_purge_of_what_does_not_exist_erases_nothing(opener: Open) -> None:
    async with opener() as repository:
        await fill(repository)
        with pytest.raises(NodeNotFound):
            await repository.purge(purge("p", "doomed", "nobody"))
        with pytest.raises(NodeNotFound):
            await repository.purge(purge("p", "doomed", namespace=OTHER))
        assert (await repository.get(NS, "doomed")).revision == 2
        assert (await repository.namespace_change_token(NS)).sequence == 3


@pytest.mark.parametrize("ids", [[], "doomed", [""], [1], ["x" * 257]])
def test_a_malformed_purge_is_refused(ids: Any) -> None:
    with pytest.raises(Exception, match=r"purge\.nodeIds"):
        MemoryPurge(idempotency_key="p", namespace=NS, node_ids=ids, reason=evidence("ticket://1"), occurred_at=LATER)
    with pytest.raises(InvalidInput):
        MemoryPurge(
            idempotency_key="p", namespace=NS, node_ids=["a"], reason=evidence("ticket://1", LATER), occurred_at=AT
        )


async def test_neighbours_lose_their_edge_as_a_revision_of_their_own(opener: Open) -> None:
    async with opener() as repository:
        related = [(RelationKind.RELATED_TO, "b")]
        await repository.apply(
            change(
                "k",
                Create(draft("a", relations=related)),
                Create(draft("b", relations=[(RelationKind.RELATED_TO, "a")])),
            )
        )
        early = MemoryPurge(
            idempotency_key="early",
            namespace=NS,
            node_ids=["a"],
            reason=evidence("ticket://1", Timestamp(0)),
            occurred_at=Timestamp(AT.ns - 1),
        )
        with pytest.raises(InvalidInput, match="neighbour"):
            await repository.purge(early)
        receipt = await repository.purge(purge("p", "a"))
        assert receipt.neighbours == ("b",)
        neighbour = await repository.get(NS, "b")
        assert (neighbour.revision, neighbour.relations, neighbour.updated_at) == (2, (), LATER)


async def test_a_status_that_needs_its_relation_keeps_a_mark_and_stays_usable(opener: Open) -> None:
    async with opener() as repository:
        await repository.apply(change("k", Create(draft("old")), Create(draft("new")), Create(draft("rival"))))
        await repository.apply(
            change(
                "s",
                AddRelation("new", expected_revision=1, relation=MemoryRelation(RelationKind.SUPERSEDES, "old")),
                AddRelation("old", expected_revision=1, relation=MemoryRelation(RelationKind.SUPERSEDED_BY, "new")),
                SetStatus("old", expected_revision=2, status=MemoryStatus.SUPERSEDED),
                AddRelation("new", expected_revision=2, relation=MemoryRelation(RelationKind.CONFLICTS_WITH, "rival")),
                AddRelation("rival", expected_revision=1, relation=MemoryRelation(RelationKind.CONFLICTS_WITH, "new")),
                SetStatus("rival", expected_revision=2, status=MemoryStatus.CONFLICTED),
            )
        )
        receipt = await repository.purge(purge("p", "new"))
        assert receipt.neighbours == ("old", "rival")
        for node_id, kind in (("old", RelationKind.SUPERSEDED_BY), ("rival", RelationKind.CONFLICTS_WITH)):
            node = await repository.get(NS, node_id)
            (mark,) = node.relations
            assert mark.kind is kind
            assert mark.target_id.startswith(PURGED_PREFIX)
            assert await repository.get(NS, mark.target_id) is None
            done = SetStatus(node_id, expected_revision=4, status=MemoryStatus.TOMBSTONED)
            await repository.apply(
                MemoryChangeSet(idempotency_key=node_id, namespace=NS, occurred_at=LATER, operations=[done])
            )


async def test_everything_in_one_namespace_goes_and_other_namespaces_stay(opener: Open) -> None:
    async with opener() as repository:
        await fill(repository)
        await repository.apply(change("other", Create(draft("doomed", "theirs", namespace=OTHER)), namespace=OTHER))
        receipt = await repository.purge(purge("all"))
        assert (receipt.nodes, len(receipt.change_sets)) == (2, 3)
        assert (await repository.scan(ScanRequest(namespace=NS))).nodes == ()
        assert (await repository.namespace_change_token(NS)).sequence == 4
        assert (await repository.get(OTHER, "doomed")).content == "theirs"
        assert (await repository.namespace_change_token(OTHER)).sequence == 1
        assert await repository.purge(purge("all")) == receipt


async def test_what_a_purge_left_survives_a_restart(durable: Open) -> None:
    async with durable() as repository:
        await fill(repository)
        receipt = await repository.purge(purge("p", "doomed"))
        await repository.apply(change("after", Create(draft("after", "written after the purge"))))
    for _ in range(2):
        async with durable() as repository:
            assert await repository.purge(purge("p", "doomed")) == receipt
            with pytest.raises(ChangeSetPurged):
                await repository.apply(change("revise", Create(draft("doomed"))))
            assert (await repository.namespace_change_token(NS)).sequence == 5
            assert [record.event.id for record in (await repository.access_events(NS)).records] == ["event-kept"]
            again = await repository.apply(change("keep", Create(draft("keep", "deploy on tuesday"))))
            assert again.node("keep").revision == 1
            assert (await repository.get(NS, "after")).revision == 1
            if hasattr(repository, "verify"):
                assert await repository.verify() == ()
    async with durable() as repository:
        await repository.purge(purge("p2", "keep"))
        assert (await repository.namespace_change_token(NS)).sequence == 6


def found_in_files(folder: Path) -> dict[str, int]:
    """Count the canary in every byte of every file, in the spellings that it could have."""
    spellings = [CANARY.encode(), CANARY.encode("utf-16-le"), *(part.encode() for part in CANARY.split("-")[:2])]
    return {
        str(file.relative_to(folder)): count
        for file in folder.rglob("*")
        if file.is_file() and (count := sum(file.read_bytes().count(spelling) for spelling in spellings))
    }


async def test_no_byte_is_left_in_any_file(durable: Open, tmp_path: Path) -> None:
    async with durable() as repository:
        await fill(repository, key="first")
        # Enough to split pages, so that copies lie in free space, and rewritten, so that they lie in gaps.
        for number in range(300):
            await repository.apply(change(f"n{number}", Create(draft(f"n{number}", f"{CANARY} text {number} " * 9))))
        assert found_in_files(tmp_path)
        doomed = [f"n{number}" for number in range(300)]
        receipt = await repository.purge(purge("p", "doomed", *doomed))
        assert receipt.bytes_pending is False
        assert found_in_files(tmp_path) == {}


async def test_no_byte_is_left_in_gaps_between_what_stays(durable: Open, tmp_path: Path) -> None:
    # Memories of many sizes under scattered ids, rewritten in no order: pages are split and rebalanced, which leaves
    # copies in their gaps. Overwriting deleted bytes alone is not enough here; the file has to be written anew.
    count, batch, chance = 600, 30, random.Random(1)
    ids = [hashlib.sha256(str(number).encode()).hexdigest()[:12] for number in range(count)]

    def text(number: int, turn: int) -> str:
        return f"canary-{number:04}-{turn} " * (1 + (number * 37 + turn * 11) % 40)

    async with durable() as repository:
        order = list(range(count))
        for turn in range(4):
            chance.shuffle(order)
            for start in range(0, count, batch):
                operations: list[MemoryOperation] = []
                for number in order[start : start + batch]:
                    node_id, content = ids[number], text(number, turn)
                    if turn == 0:
                        operations.append(Create(draft(node_id, content)))
                        continue
                    proof = evidence(f"turn://{turn}")
                    operations.append(
                        Revise(
                            node_id,
                            expected_revision=turn,
                            content=content,
                            mode=RevisionMode.CORRECTION,
                            evidence=[proof],
                        )
                    )
                await repository.apply(change(f"{turn}-{start}", *operations))
        chosen = set(chance.sample(range(count), 60))
        receipt = await repository.purge(purge("p", *(ids[number] for number in chosen)))
        assert receipt.nodes == len(chosen)
        data = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert [number for number in chosen if f"canary-{number:04}".encode() in data] == []
        assert all(f"canary-{number:04}".encode() in data for number in set(range(count)) - chosen)


async def test_while_a_reader_needs_old_pages_bytes_are_pending_and_the_next_close_finishes(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    async with open_sqlite_repository(file) as repository:
        await repository.apply(change("k", Create(draft("n", CANARY))))
        reader = apsw.Connection(str(file), vfs="cksmvfs")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM head").get == 1
        receipt = await repository.purge(purge("p", "n"))
        assert receipt.bytes_pending is True
        assert await repository.get(NS, "n") is None
        assert found_in_files(tmp_path)
        assert (await repository.statistics()).purge_pending is True
        reader.execute("ROLLBACK")
        reader.close()
        # A replay finishes it, too, and says so.
        again = await repository.purge(purge("p", "n"))
        assert again == receipt
        assert again.bytes_pending is False
        assert found_in_files(tmp_path) == {}


@pytest.mark.parametrize("step", ["VACUUM", "DELETE FROM meta"])
async def test_bytes_that_another_process_purges_meanwhile_stay_pending(tmp_path: Path, step: str) -> None:
    file = tmp_path / "memory.db"
    async with open_sqlite_repository(file) as repository:
        await repository.apply(change("k", Create(draft("n", CANARY))))
        await repository.apply(change("l", Create(draft("m", CANARY))))
        db, other = connect(file), connect(file)
        codec = RowCodec(bytes(schema.read_meta(db, "file_key")))  # type: ignore[arg-type]
        with db:
            purge_rows(db, codec, purge("p", "n"))

        def meanwhile(_cursor: object, sql: str, _bindings: object) -> bool:
            if sql.startswith(step):
                db.exec_trace = None
                with other:
                    purge_rows(other, codec, purge("q", "m"))
            return True

        db.exec_trace = meanwhile
        assert finish_purge(db) is False
        db.close()
        other.close()
        assert (await repository.statistics()).purge_pending is True
        assert await repository.compact() is True
        assert found_in_files(tmp_path) == {}


async def test_bytes_are_pending_as_long_as_the_log_cannot_be_emptied(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    async with open_sqlite_repository(file) as repository:
        await repository.apply(change("k", Create(draft("n", CANARY))))
        db, reader = connect(file), connect(file)
        codec = RowCodec(bytes(schema.read_meta(db, "file_key")))  # type: ignore[arg-type]
        with db:
            purge_rows(db, codec, purge("p", "n"))

        def meanwhile(_cursor: object, sql: str, _bindings: object) -> bool:
            if sql.startswith("DELETE FROM meta"):
                reader.execute("BEGIN")
                assert reader.execute("SELECT count(*) FROM head").get == 0
            return True

        db.exec_trace = meanwhile
        assert finish_purge(db) is False
        assert bytes_pending(db)
        db.close()
        reader.close()
    async with open_sqlite_repository(file) as repository:
        assert (await repository.statistics()).purge_pending is False


async def test_a_purge_that_an_earlier_release_left_pending_is_finished(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    async with open_sqlite_repository(file):
        db = connect(file)
        db.execute("INSERT INTO meta(name, value) VALUES ('purge_pending', 1)")
        db.close()
    async with open_sqlite_repository(file) as repository:
        assert (await repository.statistics()).purge_pending is False


async def test_a_pending_purge_is_finished_by_the_next_opening(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    reader = None
    async with open_sqlite_repository(file) as repository:
        await repository.apply(change("k", Create(draft("n", CANARY))))
        reader = apsw.Connection(str(file), vfs="cksmvfs")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM head").get == 1
        assert (await repository.purge(purge("p", "n"))).bytes_pending is True
    assert found_in_files(tmp_path)
    reader.close()
    async with open_sqlite_repository(file):
        assert found_in_files(tmp_path) == {}


async def test_purges_and_writes_of_one_batch_happen_in_order(durable: Open) -> None:
    async with durable() as repository:
        results: dict[str, Any] = {}

        async def keep(name: str, call: Any) -> None:
            results[name] = await call

        async with trio.open_nursery() as nursery:
            for name, call in (
                ("create", repository.apply(change("a", Create(draft("a", CANARY))))),
                ("purge", repository.purge(purge("p", "a"))),
                ("again", repository.apply(change("b", Create(draft("a", "other"))))),
            ):
                nursery.start_soon(keep, name, call)
                await trio.testing.wait_all_tasks_blocked()
        assert results["create"].node("a").content == CANARY
        assert results["purge"].nodes == 1
        assert (await repository.get(NS, "a")).content == "other"


async def test_a_cancelled_purge_erases_all_or_nothing(opener: Open) -> None:
    async with opener() as repository:
        count = 0

        async def make_call() -> Any:
            nonlocal count
            count += 1
            await repository.apply(change(f"k{count}", Create(draft(f"n{count}")), Create(draft(f"m{count}"))))
            wanted = purge(f"p{count}", f"n{count}", f"m{count}")
            return lambda: repository.purge(wanted)

        async def check(call: CancelledCall[Any]) -> None:
            assert call.error is None
            left = await repository.get_heads(NS, [f"n{count}", f"m{count}"])
            assert len(left) == (2 if call.cancelled else 0)

        with trio.fail_after(60):
            assert await sweep_cancellation(make_call, check) >= 1


async def test_a_failed_rewriting_of_a_journal_keeps_the_old_one(tmp_path: Path) -> None:
    failing = False

    def sync(descriptor: int) -> None:
        if failing:
            raise OSError(5, "Input/output error")
        os.fsync(descriptor)

    async with open_file_repository(tmp_path / "journal", sync=sync) as repository:
        await repository.apply(change("k", Create(draft("n", CANARY))))
        before = (tmp_path / "journal" / "memory-v2.journal").read_bytes()
        failing = True
        with pytest.raises(Exception, match="Input/output"):
            await repository.purge(purge("p", "n"))
        assert await repository.get(NS, "n") is not None
        with pytest.raises(Exception, match="open it again"):
            await repository.apply(change("k2", Create(draft("n2"))))
    assert (tmp_path / "journal" / "memory-v2.journal").read_bytes() == before
    assert sorted(file.name for file in (tmp_path / "journal").iterdir()) == ["memory-v2.journal", "memory-v2.lock"]
    async with open_file_repository(tmp_path / "journal") as repository:
        assert (await repository.purge(purge("p", "n"))).nodes == 1
    assert found_in_files(tmp_path) == {}


async def test_a_damaged_base_state_is_corruption(tmp_path: Path) -> None:
    async with open_file_repository(tmp_path / "journal") as repository:
        await fill(repository)
        await repository.purge(purge("p", "doomed"))
    journal = tmp_path / "journal" / "memory-v2.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert all(json.loads(line)["version"] == 2 for line in lines)
    for place in range(len(lines)):
        flipped = lines[place][:100] + bytes([lines[place][100] ^ 1]) + lines[place][101:]
        for damaged in ([*lines[:place], *lines[place + 1 :]], [*lines[:place], flipped, *lines[place + 1 :]]):
            journal.write_bytes(b"".join(damaged))
            with pytest.raises(Exception, match=r"line \d+"):
                async with open_file_repository(tmp_path / "journal"):
                    pass
            assert journal.read_bytes() == b"".join(damaged)
    journal.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(Exception, match="out of place"):
        async with open_file_repository(tmp_path / "journal"):
            pass


async def test_every_backend_gives_the_receipt_of_the_reference(tmp_path: Path) -> None:
    receipts = []
    opens: list[Open] = [
        open_in_memory_repository,
        lambda: open_backend("sqlite", tmp_path),
        lambda: open_backend("journal", tmp_path),
    ]
    for each in opens:
        async with each() as repository:
            await fill(repository)
            receipt = await repository.purge(purge("p", "doomed"))
            receipts.append(attrs.evolve(receipt, change_sets=[item.key for item in receipt.change_sets]))
    assert receipts[0] == receipts[1] == receipts[2]
    assert CANARY not in repr(InMemoryRepository())


# -- killed in the middle ----------------------------------------------------------------------------------------------


async def purge_until_killed(backend: str, path: Path) -> None:
    """Run in a child: fill, say so, purge, say so, for ever."""
    async with open_backend(backend, path) as repository:
        number = 0
        while True:
            number += 1
            ids = [f"n{number}-{each}" for each in range(20)]
            await repository.apply(change(f"k{number}", *(Create(draft(node_id, CANARY)) for node_id in ids)))
            sys.stdout.write(f"filled {number}\n")
            sys.stdout.flush()
            await repository.purge(purge(f"p{number}", *ids))
            sys.stdout.write(f"purged {number}\n")
            sys.stdout.flush()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sqlite", "journal"])
async def test_a_kill_in_the_middle_leaves_the_whole_or_nothing(backend: str, tmp_path: Path) -> None:
    for turn in range(6):
        folder = tmp_path / str(turn)
        folder.mkdir()
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.test_purge", backend, str(folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        said = [child.stdout.readline()]
        assert said[0], "the child died by itself"
        time.sleep(0.004 * turn)
        child.send_signal(signal.SIGKILL)
        said += [line for line in child.stdout if line.endswith("\n")]
        child.stdout.close()
        child.wait()
        async with open_backend(backend, folder) as repository:
            left = (await repository.scan(ScanRequest(namespace=NS))).nodes
            assert len(left) in {0, 20}
            last = int(said[-1].split()[1])
            if said[-1].startswith("purged"):
                assert all(int(head.id[1:].split("-")[0]) > last for head in left)
            if left:
                number = left[0].id[1:].split("-")[0]
                await repository.purge(purge(f"p{number}", *(head.id for head in left)))
            if hasattr(repository, "verify"):
                assert await repository.verify() == ()
            assert found_in_files(folder) == {}


if __name__ == "__main__":
    trio.run(purge_until_killed, sys.argv[1], Path(sys.argv[2]))
