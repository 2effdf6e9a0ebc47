"""Copies of a SQLite file of any size: whole, compact, of one instant, and ended at any moment without a trace."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from a3s_actors.memory import (
    Create,
    EvidenceKind,
    EvidenceRef,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNodeDraft,
    MemoryPurge,
    MemoryQuery,
    MemoryStatus,
    SnapshotRequest,
    Timestamp,
)
from a3s_backends.sqlite import SqliteMemoryRepository, open_sqlite_repository, restore_sqlite_repository
from a3s_backends.sqlite.backup import backup_file, restore_file
from a3s_backends.sqlite.connection import connect

NS = MemoryNamespace("acme", "alice", "project")
AT = Timestamp.of("2026-03-01T00:00:00Z")
EVERY = frozenset(MemoryStatus)
CANARY = "xylophonic-zanzibar-7731"


def evidence(uri: str) -> EvidenceRef:
    return EvidenceRef(uri=uri, digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=AT)


def draft(node_id: str, content: str) -> MemoryNodeDraft:
    return MemoryNodeDraft(
        id=node_id,
        namespace=NS,
        kind=MemoryKind.SEMANTIC,
        status=MemoryStatus.ACTIVE,
        content=content,
        evidence=[evidence(f"source://{node_id}")],
        created_at=AT,
    )


def change(key: str, *drafts: MemoryNodeDraft) -> MemoryChangeSet:
    return MemoryChangeSet(
        idempotency_key=key, namespace=NS, occurred_at=AT, operations=[Create(each) for each in drafts]
    )


async def fill(repository: SqliteMemoryRepository, count: int = 120, size: int = 40_000) -> None:
    """Make a file far larger than SQLite's page cache, so that pages are written before the commit."""
    texts = [draft(f"n{number:03}", f"number{number} {'longer ' * (size // 7)}") for number in range(count)]
    for start in range(0, count, 40):
        await repository.apply(change(f"c{start}", *texts[start : start + 40]))


async def digest(repository: SqliteMemoryRepository) -> str:
    return (await repository.snapshot_namespace(SnapshotRequest(namespace=NS, statuses=EVERY))).digest


async def found(repository: SqliteMemoryRepository, text: str) -> list[str]:
    return [hit.node.id for hit in await repository.query(MemoryQuery(namespace=NS, text=text))]


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


async def test_a_file_of_many_megabytes_goes_to_a_backup_and_back(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository)
        receipt = await repository.backup(tmp_path / "copy.db")
        assert receipt.bytes > 4 << 20
        before = await digest(repository)
        await repository.apply(change("later", draft("later", "later")))
    await restore_sqlite_repository(tmp_path / "copy.db", tmp_path / "memory.db", replace=True)
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        assert await repository.verify() == ()
        assert await digest(repository) == before
        assert await found(repository, "number77") == ["n077"]
        assert await repository.get(NS, "later") is None
    assert files(tmp_path) == {"memory.db", "copy.db", "memory.db.replaced-1"}


async def test_every_page_of_a_large_copy_carries_its_checksum(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository)
        await repository.backup(tmp_path / "copy.db")
    data = bytearray((tmp_path / "copy.db").read_bytes())
    for place in range(5000, len(data), len(data) // 9):
        data[place] ^= 1
        (tmp_path / "copy.db").write_bytes(data)
        db = connect(tmp_path / "copy.db")
        with pytest.raises(apsw.Error):
            db.execute("PRAGMA integrity_check").fetchall()
        db.close()
        data[place] ^= 1


async def test_a_copy_is_of_one_instant_while_another_connection_commits_all_the_time(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with open_sqlite_repository(path) as repository:
        await fill(repository)
        before = await digest(repository)
        other = connect(path)
        commits = 0

        def commit() -> None:
            # Wrong on purpose: were any of it in the copy, it would not verify.
            nonlocal commits
            other.execute("UPDATE namespace SET token = token + 1")
            commits += 1

        backup_file(path, tmp_path / "copy.db", commit)
        other.close()
        assert commits > 5
    async with open_sqlite_repository(tmp_path / "copy.db") as copy:
        assert await copy.verify() == ()
        assert await digest(copy) == before


async def test_a_copy_holds_nothing_of_what_a_purge_left_in_the_pages(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with open_sqlite_repository(path) as repository:
        await fill(repository, 10, 1000)
        await repository.apply(change("doomed", draft("doomed", f"{CANARY} " * 1000)))
        reader = connect(path)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM head").get == 11
        receipt = await repository.purge(
            MemoryPurge(
                idempotency_key="p", namespace=NS, node_ids=["doomed"], reason=evidence("t://1"), occurred_at=AT
            )
        )
        assert receipt.bytes_pending
        await repository.backup(tmp_path / "copy.db")
        reader.close()
    copy = (tmp_path / "copy.db").read_bytes()
    assert CANARY.encode() not in copy
    async with open_sqlite_repository(tmp_path / "copy.db") as repository:
        counts = await repository.statistics()
        assert (counts.purge_pending, counts.free_bytes) == (False, 0)


class Stop(BaseException):
    """What a cancelled caller raises inside the worker thread."""


@pytest.mark.parametrize("operation", ["backup", "restore"])
async def test_a_copy_can_be_ended_at_any_moment_and_leaves_nothing(tmp_path: Path, operation: str) -> None:
    path = tmp_path / "memory.db"
    async with open_sqlite_repository(path) as repository:
        await fill(repository, 40)
        await repository.backup(tmp_path / "copy.db")
        before = await digest(repository)
    there = files(tmp_path)
    passed = 0
    last: int | None = None

    def check() -> None:
        nonlocal passed
        passed += 1
        if passed == last:
            raise Stop

    def work(*, replace: bool) -> None:
        nonlocal passed
        passed = 0
        if operation == "backup":
            backup_file(path, tmp_path / "other.db", check)
        else:
            restore_file(tmp_path / "copy.db", path if replace else tmp_path / "other.db", replace=replace, check=check)

    work(replace=False)
    (tmp_path / "other.db").unlink()
    assert passed >= 5
    for number in sorted({1 + passed * part // 8 for part in range(8)}):
        last = number
        with pytest.raises(Stop):
            work(replace=True)
        assert files(tmp_path) == there
    async with open_sqlite_repository(path) as repository:
        assert await digest(repository) == before
        assert await repository.verify() == ()


async def test_objects_that_no_repository_has_do_not_come_along_from_a_backup(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository, 3, 100)
        await repository.backup(tmp_path / "copy.db")
    db = connect(tmp_path / "copy.db")
    db.execute("CREATE TRIGGER t AFTER INSERT ON change BEGIN DELETE FROM head; END")
    db.execute("CREATE VIEW v AS SELECT * FROM head")
    db.close()
    await restore_sqlite_repository(tmp_path / "copy.db", tmp_path / "other.db")
    db = connect(tmp_path / "other.db")
    assert db.execute("SELECT count(*) FROM sqlite_schema WHERE type IN ('trigger', 'view')").get == 0
    db.close()


async def test_a_backup_of_another_lexical_profile_is_restored_with_a_new_index(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository, 3, 100)
        await repository.backup(tmp_path / "copy.db")
        before = await digest(repository)
    db = connect(tmp_path / "copy.db")
    db.execute("UPDATE meta SET value = 'an earlier one' WHERE name = 'tokenizer'")
    db.execute("UPDATE lex_tail SET tokens = zeroblob(8)")
    db.close()
    await restore_sqlite_repository(tmp_path / "copy.db", tmp_path / "memory.db", replace=True)
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        assert await repository.verify() == ()
        assert await digest(repository) == before
        assert await found(repository, "number2") == ["n002"]
