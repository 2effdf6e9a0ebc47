"""What the SQLite backend promises beyond the conformance suite: files, processes, batches, damage."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import trio

from a3s_actors.memory import (
    AccessEvent,
    AccessKind,
    Corruption,
    Create,
    EvidenceKind,
    EvidenceRef,
    IdempotencyConflict,
    InvalidInput,
    LimitExceeded,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryQuery,
    MemoryStatus,
    NodeAlreadyExists,
    Persistence,
    RepositoryClosed,
    RepositoryLocked,
    Revise,
    RevisionMode,
    ScanRequest,
    SetStatus,
    SnapshotRequest,
    Timestamp,
)
from a3s_backends.sqlite import LogCursor, SqliteMemoryRepository, connection, open_sqlite_repository, schema, upkeep
from a3s_backends.sqlite import repository as repository_module

NS = MemoryNamespace("tenant", "principal", "scope")
AT = Timestamp.parse("2026-01-02T03:04:05Z")
CANARY = "zanzibar-marmalade"


def evidence(name: str = "first") -> EvidenceRef:
    return EvidenceRef(uri=f"test://{name}", digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=AT)


def create(node_id: str, content: str = "a plain memory about trains") -> Create:
    return Create(
        MemoryNodeDraft(
            id=node_id,
            namespace=NS,
            kind=MemoryKind.SEMANTIC,
            status=MemoryStatus.ACTIVE,
            content=content,
            evidence=[evidence()],
            created_at=AT,
        )
    )


def change(key: str, *operations: object) -> MemoryChangeSet:
    return MemoryChangeSet(idempotency_key=key, namespace=NS, occurred_at=AT, operations=operations)  # type: ignore[arg-type]


def ids(repository_page: object) -> list[str]:
    return [node.id for node in repository_page.nodes]  # type: ignore[attr-defined]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "memory.db"


async def test_a_new_file_and_its_folder_are_private_and_nothing_else_is_left(path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k", create("n")))
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["memory.db"]


async def test_everything_survives_close_and_reopen(path: Path) -> None:
    event = AccessEvent(id="e", namespace=NS, node_id="n", node_revision=2, occurred_at=AT, context_id="c")
    revise = Revise(
        "n", expected_revision=1, content="about ships", mode=RevisionMode.CORRECTION, evidence=[evidence("second")]
    )
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k1", create("n")))
        result = await repository.apply(change("k2", revise))
        await repository.record_admission(event)
    async with open_sqlite_repository(path, create=False) as repository:
        assert await repository.get(NS, "n") == result.node("n")
        assert await repository.apply(change("k2", revise)) == result
        assert (await repository.namespace_change_token(NS)).sequence == 2
        assert (await repository.usage_summary(NS, "n")).admissions == 1
        assert [record.event for record in (await repository.access_events(NS)).records] == [event]
        assert [hit.node.id for hit in await repository.query(MemoryQuery(namespace=NS, text="ships"))] == ["n"]
        assert await repository.verify() == ()


async def test_a_missing_file_is_not_made_when_the_caller_says_so(path: Path) -> None:
    with pytest.raises(Persistence, match="no such file"):
        async with open_sqlite_repository(path, create=False):
            pass
    assert not path.exists()


async def test_a_foreign_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE t(x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(Persistence, match="no memory repository"):
        async with open_sqlite_repository(path):
            pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"not a database, only text that is long enough" * 100])
async def test_a_file_that_is_no_database_is_refused_with_a_typed_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.db"
    path.write_bytes(content)
    with pytest.raises((Persistence, Corruption)):
        async with open_sqlite_repository(path):
            pass
    assert path.read_bytes() == content


async def test_a_file_of_a_newer_release_is_refused(path: Path) -> None:
    async with open_sqlite_repository(path):
        pass
    db = connection.connect(path)
    db.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(Persistence, match="newer release"):
        async with open_sqlite_repository(path):
            pass


async def test_a_symbolic_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    async with open_sqlite_repository(path):
        pass
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with pytest.raises(Persistence, match="cannot be opened"):
        async with open_sqlite_repository(link):
            pass


async def test_an_unwritable_folder_gives_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Persistence):
        async with open_sqlite_repository(tmp_path / "file" / "memory.db"):
            pass


async def test_an_unknown_durability_is_refused_before_anything_is_made(path: Path) -> None:
    with pytest.raises(InvalidInput, match="synchronous"):
        async with open_sqlite_repository(path, synchronous="OFF"):  # type: ignore[arg-type]
            pass
    assert not path.exists()


async def test_two_opens_of_one_file_see_each_others_writes_at_once(path: Path) -> None:
    async with open_sqlite_repository(path) as one, open_sqlite_repository(path) as two:
        for number in range(20):
            writer, reader = (one, two) if number % 2 else (two, one)
            await writer.apply(change(f"k{number}", create(f"n{number:02}", f"number{number} of many")))
            assert (await reader.namespace_change_token(NS)).sequence == number + 1
            hits = await reader.query(MemoryQuery(namespace=NS, text=f"number{number}"))
            assert [hit.node.id for hit in hits] == [f"n{number:02}"]
        with pytest.raises(NodeAlreadyExists):
            await one.apply(change("again", create("n00")))


async def test_readers_do_not_wait_for_a_writer(path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k", create("n")))
        other = connection.connect(path)
        other.execute("BEGIN IMMEDIATE")
        try:
            with trio.fail_after(5):
                assert ids(await repository.scan(ScanRequest(namespace=NS))) == ["n"]
                assert len(await repository.query(MemoryQuery(namespace=NS, text="trains"))) == 1
        finally:
            other.execute("ROLLBACK")
            other.close()


async def test_a_writer_that_waits_too_long_says_who_is_to_blame(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.2)
    async with open_sqlite_repository(path) as repository:
        other = connection.connect(path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RepositoryLocked, match="another process"):
            await repository.apply(change("k", create("n")))
        other.execute("ROLLBACK")
        other.close()
        await repository.apply(change("k", create("n")))


async def test_eight_processes_that_open_a_new_file_first_all_write_to_one_file(path: Path) -> None:
    program = """
import sys, trio
from tests.test_sqlite_repository import change, create, open_sqlite_repository
async def main(path, me):
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change(f"k{me}", create(f"n{me}")))
trio.run(main, sys.argv[1], sys.argv[2])
"""
    root = Path(__file__).resolve().parents[1]
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(path), str(number)], cwd=root) for number in range(8)
    ]
    assert [await trio.to_thread.run_sync(child.wait) for child in children] == [0] * 8
    async with open_sqlite_repository(path, create=False) as repository:
        assert ids(await repository.scan(ScanRequest(namespace=NS))) == [f"n{number}" for number in range(8)]
        assert await repository.verify() == ()
    assert [file.name for file in path.parent.iterdir()] == ["memory.db"]


async def test_waiting_writes_share_a_transaction_and_each_gets_its_own_outcome(path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("first", create("n")))
        outcomes: dict[str, object] = {}

        async def write(key: str, *operations: object) -> None:
            try:
                outcomes[key] = (await repository.apply(change(key, *operations))).nodes[0].id
            except Exception as error:
                outcomes[key] = type(error)

        blocker = connection.connect(path)
        blocker.execute("BEGIN IMMEDIATE")  # everything that comes now waits in one queue
        async with trio.open_nursery() as writers:
            writers.start_soon(write, "head", create("head"))
            await trio.testing.wait_all_tasks_blocked()
            for number in range(10):
                writers.start_soon(write, f"k{number}", create(f"n{number}"))
            writers.start_soon(write, "bad", create("n"))
            writers.start_soon(write, "k3b", create("n3"))
            await trio.testing.wait_all_tasks_blocked()
            blocker.execute("ROLLBACK")
        blocker.close()
        assert outcomes.pop("bad") is NodeAlreadyExists
        clash = {outcomes.pop("k3"), outcomes.pop("k3b")}
        assert clash == {"n3", NodeAlreadyExists}
        assert outcomes == {"head": "head"} | {f"k{n}": f"n{n}" for n in range(10) if n != 3}
        assert (await repository.namespace_change_token(NS)).sequence == 12


async def test_a_full_disk_refuses_one_write_and_keeps_its_neighbours(path: Path) -> None:
    big = "words of a long text " * 3000
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("first", create("first")))
        writer = _writer_of(repository)
        pages = writer.execute("PRAGMA page_count").get
        writer.execute(f"PRAGMA max_page_count = {pages + 12}").fetchall()
        outcomes: dict[str, object] = {}

        async def write(key: str, content: str) -> None:
            try:
                await repository.apply(change(key, create(key, content)))
                outcomes[key] = "stored"
            except Persistence as error:
                outcomes[key] = str(error)

        blocker = connection.connect(path)
        blocker.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as writers:
            writers.start_soon(write, "a", "small")
            await trio.testing.wait_all_tasks_blocked()
            for key, content in (("b", "small"), ("c", big), ("d", "small")):
                writers.start_soon(write, key, content)
                await trio.testing.wait_all_tasks_blocked()
            blocker.execute("ROLLBACK")
        blocker.close()
        assert "disk is full" in str(outcomes.pop("c"))
        assert outcomes == {"a": "stored", "b": "stored", "d": "stored"}
        writer.execute("PRAGMA max_page_count = 1000000").fetchall()
        await repository.apply(change("c", create("c", big)))
        assert ids(await repository.scan(ScanRequest(namespace=NS))) == ["a", "b", "c", "d", "first"]
        assert await repository.verify() == ()


def _writer_of(repository: SqliteMemoryRepository) -> apsw.Connection:
    return repository._writer.db


async def test_a_caller_cancelled_while_its_commit_runs_still_gets_the_result(path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("first", create("first")))
        blocker = connection.connect(path)
        blocker.execute("BEGIN IMMEDIATE")
        got: list[str] = []

        async def write(scope: trio.CancelScope) -> None:
            with scope:
                got.append((await repository.apply(change("k", create("n")))).nodes[0].id)

        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()
            nursery.start_soon(write, scope)
            await trio.testing.wait_all_tasks_blocked(0.05)
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert got == []
            blocker.execute("ROLLBACK")
        blocker.close()
        assert got == ["n"]


async def test_a_caller_cancelled_in_the_queue_leaves_nothing_behind(path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("first", create("first")))
        blocker = connection.connect(path)
        blocker.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repository.apply, change("running", create("running")))
            await trio.testing.wait_all_tasks_blocked(0.05)
            with trio.move_on_after(0.05) as scope:
                await repository.apply(change("queued", create("queued")))
            assert scope.cancelled_caught
            blocker.execute("ROLLBACK")
        blocker.close()
        assert ids(await repository.scan(ScanRequest(namespace=NS))) == ["first", "running"]


async def test_a_cancelled_read_ends_soon_and_the_next_one_works(path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        for part in range(8):
            await repository.apply(
                change(f"k{part}", *(create(f"n{part}-{n}", f"text {n} " * 300) for n in range(128)))
            )
        with trio.move_on_after(0.001) as scope:
            while True:
                await repository.snapshot_namespace(SnapshotRequest(namespace=NS))
        assert scope.cancelled_caught
        assert len(await repository.query(MemoryQuery(namespace=NS, text="text"))) == 20


async def test_closing_wakes_waiting_writers_with_a_typed_error(path: Path) -> None:
    outcomes: list[object] = []
    blocker: apsw.Connection | None = None
    async with trio.open_nursery() as nursery, open_sqlite_repository(path, settle=0.2) as repository:
        blocker = connection.connect(path)
        blocker.execute("BEGIN IMMEDIATE")

        async def write(key: str) -> None:
            try:
                await repository.apply(change(key, create(key)))
                outcomes.append("stored")
            except RepositoryClosed:
                outcomes.append("closed")

        nursery.start_soon(write, "running")
        await trio.testing.wait_all_tasks_blocked(0.05)
        nursery.start_soon(write, "queued")
        await trio.testing.wait_all_tasks_blocked(0.05)

        async def release() -> None:
            while "closed" not in outcomes:
                await trio.sleep(0.01)
            assert blocker is not None
            blocker.execute("ROLLBACK")
            blocker.close()

        nursery.start_soon(release)
    assert "closed" in outcomes
    with pytest.raises(RepositoryClosed):
        await repository.apply(change("late", create("late")))
    with pytest.raises(RepositoryClosed):
        await repository.namespaces()


async def test_a_changed_tokenizer_rebuilds_the_index_at_opening(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k1", *(create(f"n{n}", f"train number{n}") for n in range(50))))
        revise = Revise(
            "n1", expected_revision=1, content="ship number1", mode=RevisionMode.CORRECTION, evidence=[evidence("b")]
        )
        await repository.apply(change("k2", revise))
    for module in (schema, repository_module, upkeep):
        monkeypatch.setattr(module, "fingerprint", lambda: "sha256:another")
    async with open_sqlite_repository(path) as repository:
        assert await repository.verify() == ()
        hits = await repository.query(MemoryQuery(namespace=NS, text="number1 ship"))
        assert [hit.node.id for hit in hits] == ["n1"]
    db = connection.connect(path)
    assert db.execute("SELECT value FROM meta WHERE name = 'tokenizer'").get == "sha256:another"
    db.close()


async def test_no_text_of_a_memory_is_stored_in_the_index(path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k", create("n", f"the word {CANARY}")))
    db = connection.connect(path)
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE name GLOB 'lex_*' AND type = 'table'")]
    assert len(tables) >= 4
    for table in tables:
        for row in db.execute(f"SELECT * FROM {table}"):
            assert all(CANARY.encode() not in (v if isinstance(v, bytes) else str(v).encode()) for v in row)
    db.close()


DAMAGE = {
    "a column of a node": "UPDATE head SET status = 1",
    "the text of a node": "UPDATE head SET json = CAST(replace(CAST(json AS TEXT), 'trains', 'planes') AS BLOB)",
    "an earlier revision": "UPDATE rev SET json = CAST(replace(CAST(json AS TEXT), 'trains', 'planes') AS BLOB)",
    "a lost node": "DELETE FROM head WHERE id = 'b'",
    "a lost revision": "DELETE FROM rev",
    "a changed sum": "UPDATE tally SET bytes = bytes + 1",
    "a lost index entry": "UPDATE lex_tail SET code = 0 WHERE seq = 1",
    "foreign tokens": "UPDATE lex_tail SET tokens = x'0102030405060708'",
    "a lost change set": "DELETE FROM change WHERE key = 'k2'",
    "a lost audit record": "DELETE FROM access",
    "a lost namespace": "DELETE FROM namespace",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE.keys())
async def test_verify_names_what_was_altered_behind_the_repositorys_back(path: Path, statement: str) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k1", create("a"), create("b", "about trains too")))
        revise = Revise(
            "a", expected_revision=1, content="about ships", mode=RevisionMode.CORRECTION, evidence=[evidence("c")]
        )
        await repository.apply(change("k2", revise))
        await repository.record_use(AccessEvent(id="e", namespace=NS, node_id="a", node_revision=1, occurred_at=AT))
        assert await repository.verify() == ()
    db = connection.connect(path)
    db.execute(statement)
    db.close()
    async with open_sqlite_repository(path) as repository:
        findings = await repository.verify()
        assert findings
        assert all("trains" not in finding.message + finding.where for finding in findings)


@pytest.mark.parametrize("name", ["a column of a node", "the text of a node", "a lost node", "a changed sum"])
async def test_a_snapshot_of_altered_rows_is_an_error_and_never_a_wrong_view(path: Path, name: str) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k1", create("a"), create("b")))
    db = connection.connect(path)
    db.execute(DAMAGE[name])
    db.close()
    async with open_sqlite_repository(path) as repository:
        with pytest.raises(Corruption):
            await repository.snapshot_namespace(SnapshotRequest(namespace=NS))


async def test_a_query_never_returns_a_text_that_the_index_only_claims_to_match(path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k1", create("a", "about trains"), create("b", "about ships")))
    db = connection.connect(path)
    db.execute("UPDATE lex_tail SET tokens = (SELECT tokens FROM lex_tail WHERE seq = 0) WHERE seq = 1")
    db.close()
    async with open_sqlite_repository(path) as repository:
        with pytest.raises(Corruption, match="does not match its text"):
            await repository.query(MemoryQuery(namespace=NS, text="trains"))


async def test_a_flipped_bit_anywhere_in_a_text_is_noticed(path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k1", *(create(f"n{n:03}", f"{CANARY} {n}") for n in range(20))))
    clean = path.read_bytes()
    places = [place for place in range(len(clean)) if clean.startswith(CANARY.encode(), place)]
    assert len(places) == 40  # each text stands in its node and in the change set
    for place in places:
        data = bytearray(clean)
        data[place] ^= 4
        path.write_bytes(data)
        async with open_sqlite_repository(path) as repository:
            findings = await repository.verify()
        assert findings
        assert CANARY not in str(findings)


async def test_the_log_replays_into_an_equal_repository(path: Path, tmp_path: Path) -> None:
    async with open_sqlite_repository(path) as repository:
        for number in range(30):
            await repository.apply(change(f"k{number}", create(f"n{number:02}", f"text {number}")))
            await repository.record_admission(
                AccessEvent(id=f"e{number}", namespace=NS, node_id="n00", node_revision=1, occurred_at=AT)
            )
        tombstone = SetStatus("n00", expected_revision=1, status=MemoryStatus.TOMBSTONED)
        await repository.apply(change("late", tombstone))
        request = SnapshotRequest(namespace=NS, statuses=set(MemoryStatus))
        wanted = await repository.snapshot_namespace(request)
        async with open_sqlite_repository(tmp_path / "copy.db") as copy:
            cursor: LogCursor | None = LogCursor()
            while cursor is not None:
                page = await repository.log(cursor, limit=7)
                cursor = page.next_after
                for record in page.records:
                    if isinstance(record, MemoryChangeSet):
                        await copy.apply(record)
                    elif record.kind is AccessKind.ADMISSION:
                        await copy.record_admission(record.event)
            assert (await copy.snapshot_namespace(request)).digest == wanted.digest
            assert (await copy.usage_summary(NS, "n00")).admissions == 30


async def test_an_event_id_of_the_engines_own_form_round_trips(path: Path) -> None:
    name = "a3s-code-admission-" + "0f" * 32
    event = AccessEvent(id=name, namespace=NS, node_id="n", node_revision=1, occurred_at=AT, context_id=name + "x")
    async with open_sqlite_repository(path) as repository:
        await repository.apply(change("k", create("n")))
        await repository.record_admission(event)
        await repository.record_admission(event)
        assert [record.event for record in (await repository.access_events(NS)).records] == [event]
        other = AccessEvent(id=name, namespace=NS, node_id="n", node_revision=1, occurred_at=AT)
        with pytest.raises(IdempotencyConflict):
            await repository.record_admission(other)


async def test_an_oversized_change_set_is_refused_before_anything_is_queued(path: Path) -> None:
    big = "x" * 65_536
    operations = [create("n", big)] + [
        Revise(
            "n",
            expected_revision=1,
            content=big,
            mode=RevisionMode.CORRECTION,
            evidence=[
                EvidenceRef(uri=f"u{n}-{m}" + "y" * 2000, digest="d" * 250, kind=EvidenceKind.MANUAL, occurred_at=AT)
                for m in range(60)
            ],
        )
        for n in range(100)
    ]
    async with open_sqlite_repository(path) as repository:
        with pytest.raises(LimitExceeded, match="change-set bytes"):
            await repository.apply(change("k", *operations))
        assert await repository.namespaces() == ()


async def test_no_descriptor_or_thread_is_left_after_many_opens(path: Path) -> None:
    async def use() -> None:
        async with open_sqlite_repository(path) as repository:
            await repository.apply(change("k", create("n")))
            await repository.get(NS, "n")

    await use()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(10):
        await use()
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


@pytest.mark.parametrize("name", ["", "a\0b", "\udcff.db"])
async def test_a_path_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="path"):
        async with open_sqlite_repository(name):
            pass


@pytest.mark.slow
def test_the_first_openings_of_a_process_may_be_many_at_once(tmp_path: Path) -> None:
    program = """
import sys, trio
from a3s_backends.sqlite import open_sqlite_repository

async def one(path):
    async with open_sqlite_repository(path):
        pass

async def main():
    async with trio.open_nursery() as nursery:
        for number in range(16):
            nursery.start_soon(one, f"{sys.argv[1]}/{number}.db")

trio.run(main)
"""
    for number in range(3):
        (folder := tmp_path / str(number)).mkdir()
        subprocess.run([sys.executable, "-c", program, str(folder)], check=True)
