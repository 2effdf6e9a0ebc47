"""Backup, restore, loading, audit roll-up, rebuilding, compacting and schema upgrades of a SQLite file."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from a3s_actors.memory import (
    AccessEvent,
    Corruption,
    Create,
    EvidenceKind,
    EvidenceRef,
    InvalidInput,
    InvariantViolation,
    MemoryChangeSet,
    MemoryKind,
    MemoryNamespace,
    MemoryNode,
    MemoryNodeDraft,
    MemoryPurge,
    MemoryQuery,
    MemoryRepositoryError,
    MemoryStatus,
    Persistence,
    RepositoryClosed,
    RepositoryLocked,
    Revise,
    RevisionMode,
    SnapshotRequest,
    Timestamp,
)
from a3s_backends.sqlite import (
    SqliteMemoryRepository,
    open_sqlite_repository,
    restore_sqlite_repository,
    schema,
)
from a3s_backends.sqlite.connection import connect

NS = MemoryNamespace("acme", "alice", "project")
OTHER = MemoryNamespace("acme", "alice", "other")
AT = Timestamp.of("2026-03-01T00:00:00Z")
EVERY = frozenset(MemoryStatus)


def at(day: int) -> Timestamp:
    return Timestamp.of(f"2026-03-{day:02}T00:00:00Z")


def evidence(uri: str) -> EvidenceRef:
    return EvidenceRef(uri=uri, digest="sha256:0", kind=EvidenceKind.MANUAL, occurred_at=AT)


def create(node_id: str, content: str = "plain text", namespace: MemoryNamespace = NS) -> MemoryChangeSet:
    draft = MemoryNodeDraft(
        id=node_id,
        namespace=namespace,
        kind=MemoryKind.SEMANTIC,
        status=MemoryStatus.ACTIVE,
        content=content,
        evidence=[evidence(f"source://{node_id}")],
        created_at=AT,
    )
    return MemoryChangeSet(
        idempotency_key=f"create-{node_id}", namespace=namespace, occurred_at=AT, operations=[Create(draft)]
    )


def revise(node_id: str, content: str, revision: int) -> MemoryChangeSet:
    operation = Revise(
        node_id,
        expected_revision=revision,
        content=content,
        mode=RevisionMode.CORRECTION,
        evidence=[evidence(f"revision://{revision}")],
    )
    return MemoryChangeSet(
        idempotency_key=f"revise-{node_id}-{revision}", namespace=NS, occurred_at=AT, operations=[operation]
    )


def use(event_id: str, node_id: str, when: Timestamp) -> AccessEvent:
    return AccessEvent(id=event_id, namespace=NS, node_id=node_id, node_revision=1, occurred_at=when)


async def fill(repository: SqliteMemoryRepository) -> None:
    for number in range(20):
        await repository.apply(create(f"n{number}", f"text number {number}"))
    await repository.apply(revise("n0", "corrected text", 1))
    await repository.apply(create("theirs", namespace=OTHER))
    await repository.record_use(use("u1", "n1", at(2)))


async def digest(repository: SqliteMemoryRepository, namespace: MemoryNamespace = NS) -> str:
    return (await repository.snapshot_namespace(SnapshotRequest(namespace=namespace, statuses=EVERY))).digest


async def sequence(repository: SqliteMemoryRepository, namespace: MemoryNamespace = NS) -> int:
    return (await repository.namespace_change_token(namespace)).sequence


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


# -- backup -------------------------------------------------------------------------------------------------------


async def test_a_backup_is_the_same_repository_in_one_private_file(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository)
        receipt = await repository.backup(tmp_path / "copy.db")
        await repository.apply(create("after"))
        assert (receipt.path, receipt.namespaces, receipt.nodes) == (tmp_path / "copy.db", 2, 21)
        assert receipt.bytes == (tmp_path / "copy.db").stat().st_size
    assert files(tmp_path) == {"memory.db", "copy.db"}
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    async with open_sqlite_repository(tmp_path / "copy.db", create=False) as copy:
        assert await copy.verify() == ()
        assert await copy.get(NS, "after") is None
        node = await copy.get(NS, "n0")
        assert node is not None
        assert (node.content, node.history[0].content) == ("corrected text", "text number 0")
        assert (await copy.usage_summary(NS, "n1")).uses == 1
        # The copy knows the keys: a replay is a replay there, too.
        assert (await copy.apply(create("n1", "text number 1"))).node("n1").revision == 1
        assert [hit.node.id for hit in await copy.query(MemoryQuery(namespace=NS, text="corrected"))] == ["n0"]


async def test_a_backup_is_of_one_point_while_writers_go_on(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository)
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                for number in range(40):
                    await repository.apply(create(f"w{number}"))

            nursery.start_soon(write)
            for number in range(3):
                await repository.backup(tmp_path / f"copy{number}.db")
    for number in range(3):
        async with open_sqlite_repository(tmp_path / f"copy{number}.db") as copy:
            assert await copy.verify() == ()
            written = [f"w{each}" for each in range(40)]
            heads = await copy.get_heads(NS, written)
            assert sorted(heads) == sorted(written[: len(heads)])


async def test_a_backup_never_replaces_anything(tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_bytes(b"precious")
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        for target, error in (
            (tmp_path / "copy.db", InvalidInput),
            (tmp_path / "memory.db", InvalidInput),
            (tmp_path / "none" / "x.db", Persistence),
        ):
            with pytest.raises(error):
                await repository.backup(target)
    assert (tmp_path / "copy.db").read_bytes() == b"precious"
    assert files(tmp_path) == {"memory.db", "copy.db"}
    with pytest.raises(RepositoryClosed):
        await repository.backup(tmp_path / "late.db")


async def test_a_cancelled_backup_leaves_no_file(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository)
        with trio.CancelScope() as scope:
            scope.cancel()
            await repository.backup(tmp_path / "copy.db")
        assert scope.cancelled_caught
        assert not [name for name in files(tmp_path) if "copy" in name]


async def test_a_damaged_file_gives_no_backup(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository)
        db = connect(tmp_path / "memory.db")
        db.execute("DELETE FROM rev")
        db.close()
        with pytest.raises(Corruption, match="backup"):
            await repository.backup(tmp_path / "copy.db")
    assert files(tmp_path) == {"memory.db"}


# -- restore ------------------------------------------------------------------------------------------------------


async def backed_up(tmp_path: Path) -> str:
    """Make memory.db, its backup copy.db, and go on writing; return the digest of the backup."""
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository)
        await repository.backup(tmp_path / "copy.db")
        before = await digest(repository)
        for number in range(5):
            await repository.apply(create(f"later{number}"))
        return before


async def test_a_restore_brings_the_backup_back_and_keeps_what_it_replaced(tmp_path: Path) -> None:
    before = await backed_up(tmp_path)
    copy = (tmp_path / "copy.db").read_bytes()
    receipt = await restore_sqlite_repository(tmp_path / "copy.db", tmp_path / "memory.db", replace=True)
    assert (receipt.namespaces, receipt.nodes, receipt.replaced) == (2, 21, tmp_path / "memory.db.replaced-1")
    assert files(tmp_path) == {"memory.db", "copy.db", "memory.db.replaced-1"}
    assert (tmp_path / "copy.db").read_bytes() == copy
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        assert await digest(repository) == before
        assert await repository.verify() == ()
        # 21 change sets are in the backup, 26 in the file that was replaced.
        assert await sequence(repository) == 27
        await repository.apply(create("new"))
        assert await sequence(repository) == 28
        assert await repository.verify() == ()
    async with open_sqlite_repository(tmp_path / "memory.db.replaced-1") as old:
        assert await old.get(NS, "later4") is not None
    again = await restore_sqlite_repository(tmp_path / "copy.db", tmp_path / "memory.db", replace=True)
    assert again.replaced == tmp_path / "memory.db.replaced-2"


async def test_a_restore_to_a_new_name_is_the_backup_itself(tmp_path: Path) -> None:
    before = await backed_up(tmp_path)
    receipt = await restore_sqlite_repository(tmp_path / "copy.db", tmp_path / "other.db")
    assert receipt.replaced is None
    async with open_sqlite_repository(tmp_path / "other.db") as repository:
        assert await digest(repository) == before
        assert await sequence(repository) == 21
        assert (await repository.apply(create("n1", "text number 1"))).node("n1").revision == 1


async def test_a_namespace_that_the_backup_lacks_keeps_its_place_in_time(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await repository.backup(tmp_path / "copy.db")
        await repository.apply(create("a"))
    await restore_sqlite_repository(tmp_path / "copy.db", tmp_path / "memory.db", replace=True)
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        assert await repository.get(NS, "a") is None
        assert await sequence(repository) == 2
        await repository.apply(create("b"))
        assert await sequence(repository) == 3
        assert await repository.verify() == ()


async def test_a_file_in_use_is_not_replaced(tmp_path: Path) -> None:
    await backed_up(tmp_path)
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        with pytest.raises(RepositoryLocked, match="close every user"):
            await restore_sqlite_repository(tmp_path / "copy.db", tmp_path / "memory.db", replace=True)
        await repository.apply(create("still works"))
    assert not [name for name in files(tmp_path) if "replaced" in name or name.endswith(".new")]
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        assert await repository.get(NS, "later0") is not None
        assert await repository.verify() == ()


async def test_a_restore_without_leave_replaces_nothing(tmp_path: Path) -> None:
    await backed_up(tmp_path)
    before = (tmp_path / "memory.db").read_bytes()
    for source, replace in (("copy.db", False), ("none.db", True), ("memory.db", True)):
        with pytest.raises(InvalidInput):
            await restore_sqlite_repository(tmp_path / source, tmp_path / "memory.db", replace=replace)
    assert (tmp_path / "memory.db").read_bytes() == before


@pytest.mark.parametrize("damage", ["flipped", "cut", "foreign", "rows"])
async def test_a_backup_that_does_not_verify_replaces_nothing(tmp_path: Path, damage: str) -> None:
    await backed_up(tmp_path)
    copy = tmp_path / "copy.db"
    data = bytearray(copy.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
        copy.write_bytes(data)
    elif damage == "cut":
        copy.write_bytes(data[: len(data) // 2])
    elif damage == "foreign":
        copy.unlink()
        other = apsw.Connection(str(copy))
        other.execute("CREATE TABLE t(x)")
        other.close()
    else:
        db = connect(copy)
        db.execute("DELETE FROM head WHERE id = 'n3'")
        db.close()
    before = (tmp_path / "memory.db").read_bytes()
    with pytest.raises((Corruption, Persistence)):
        await restore_sqlite_repository(copy, tmp_path / "memory.db", replace=True)
    assert (tmp_path / "memory.db").read_bytes() == before
    assert files(tmp_path) == {"memory.db", "copy.db"}


async def test_a_file_that_cannot_be_read_any_more_is_replaced_and_tokens_jump_past_it(tmp_path: Path) -> None:
    before = await backed_up(tmp_path)
    (tmp_path / "memory.db").write_bytes(os.urandom(100_000))
    receipt = await restore_sqlite_repository(tmp_path / "copy.db", tmp_path / "memory.db", replace=True)
    assert receipt.replaced is not None
    assert receipt.replaced.stat().st_size == 100_000
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        assert await digest(repository) == before
        assert await sequence(repository) > 1 << 32
        assert await repository.verify() == ()


# -- loading whole nodes ------------------------------------------------------------------------------------------


async def whole(repository: SqliteMemoryRepository) -> tuple[MemoryNode, ...]:
    request = SnapshotRequest(namespace=NS, statuses=EVERY)
    return (await repository.snapshot_namespace(request)).verify_deep(request)


async def test_loaded_nodes_give_the_snapshot_they_came_from(tmp_path: Path) -> None:
    async with (
        open_sqlite_repository(tmp_path / "a.db") as source,
        open_sqlite_repository(tmp_path / "b.db") as target,
    ):
        await fill(source)
        token = await target.load_namespace(NS, reversed(await whole(source)))
        assert token.sequence == 1
        assert await digest(target) == await digest(source)
        assert await target.verify() == ()
        assert [hit.node.id for hit in await target.query(MemoryQuery(namespace=NS, text="corrected"))] == ["n0"]
        await target.apply(revise("n0", "further", 2))
        assert await sequence(target) == 2
        assert await target.verify() == ()
        with pytest.raises(InvalidInput, match="already"):
            await target.load_namespace(NS, await whole(source))


async def test_nothing_is_loaded_when_one_node_is_wrong(tmp_path: Path) -> None:
    import attrs

    async with (
        open_sqlite_repository(tmp_path / "a.db") as source,
        open_sqlite_repository(tmp_path / "b.db") as target,
    ):
        await fill(source)
        nodes = await whole(source)
        first = nodes[0]
        wrong: list[list[MemoryNode]] = [
            [*nodes, first],
            [*nodes[1:], attrs.evolve(first, namespace=OTHER)],
            [*nodes[1:], attrs.evolve(first, history=())],
            [*nodes[1:], attrs.evolve(first, evidence=())],
            [*nodes[1:], attrs.evolve(first, updated_at=Timestamp(0))],
            [*nodes[1:], attrs.evolve(first, status=MemoryStatus.SUPERSEDED)],
        ]
        for each in wrong:
            with pytest.raises(MemoryRepositoryError):
                await target.load_namespace(NS, each)
        assert await sequence(target) == 0
        assert await target.namespaces() == ()


async def test_a_tombstone_that_hides_a_supersession_which_never_was_is_not_loaded(tmp_path: Path) -> None:
    import attrs

    from a3s_actors.testing import building as build

    async with (
        open_sqlite_repository(tmp_path / "a.db") as source,
        open_sqlite_repository(tmp_path / "b.db") as target,
    ):
        await source.apply(build.change("c", build.create("old"), build.create("new")))
        await source.apply(build.change("s", *build.supersede("old", "new")))
        await source.apply(build.change("t", build.set_status("old", MemoryStatus.TOMBSTONED, 3)))
        request = SnapshotRequest(namespace=build.NS, statuses=EVERY)
        new, old = (await source.snapshot_namespace(request)).verify_deep(request)
        history = [
            attrs.evolve(each, status=MemoryStatus.ACTIVE) if each.status is MemoryStatus.SUPERSEDED else each
            for each in old.history
        ]
        with pytest.raises(InvariantViolation, match="superseded before"):
            await target.load_namespace(build.NS, [new, attrs.evolve(old, history=tuple(history))])
        assert (await target.load_namespace(build.NS, [new, old])).sequence == 1
        assert await target.verify() == ()


class _Uncertain:
    """A connection whose next commit is stored, or is not, and fails either way."""

    def __init__(self, db: apsw.Connection, *, stored: bool) -> None:
        self._db = db
        self._stored = stored
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *args: Any) -> Any:
        if sql == "COMMIT" and not self._failed:
            self._failed = True
            self._db.execute("COMMIT" if self._stored else "ROLLBACK")
            raise apsw.IOError("nobody knows")
        return self._db.execute(sql, *args)


@pytest.mark.parametrize("stored", [True, False])
async def test_the_outcome_of_upkeep_is_right_when_its_commit_is_uncertain(tmp_path: Path, stored: bool) -> None:
    async with (
        open_sqlite_repository(tmp_path / "a.db") as source,
        open_sqlite_repository(tmp_path / "b.db") as target,
    ):
        await fill(source)
        nodes = await whole(source)
        writer = target._writer
        real = writer.db

        def uncertain() -> None:
            writer.db = _Uncertain(real, stored=stored)  # type: ignore[assignment]

        uncertain()
        assert (await target.load_namespace(NS, nodes)).sequence == 1
        await target.record_use(use("u1", "n1", at(2)))
        uncertain()
        assert await target.roll_up_access_events(NS, at(5)) == 1
        uncertain()
        assert await target.rebuild_index() == 20
        writer.db = real
        assert await target.verify() == ()
        assert (await target.usage_summary(NS, "n1")).uses == 1
        assert await sequence(target) == 1


# -- audit --------------------------------------------------------------------------------------------------------


async def test_a_roll_up_keeps_the_counts_and_refuses_what_it_cannot_tell_any_more(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository)
        for day in range(3, 9):
            await repository.record_use(use(f"d{day}", "n1", at(day)))
            await repository.record_admission(use(f"d{day}", "n2", at(day)))
        assert await repository.roll_up_access_events(NS, at(5)) == 5
        assert await repository.roll_up_access_events(NS, at(4)) == 0
        assert await repository.roll_up_access_events(OTHER, at(5)) == 0
        assert await repository.roll_up_access_events(MemoryNamespace("no", "such", "one"), at(5)) == 0
        assert (await repository.usage_summary(NS, "n1")).uses == 7
        assert (await repository.usage_summary(NS, "n2")).admissions == 6
        assert len((await repository.access_events(NS)).records) == 8
        assert await repository.verify() == ()
        with pytest.raises(InvalidInput, match="roll-up"):
            await repository.record_use(use("d3", "n1", at(3)))
        await repository.record_use(use("d5", "n1", at(5)))  # an exact replay is still known
        await repository.record_use(use("new", "n1", at(5)))
        assert (await repository.usage_summary(NS, "n1")).uses == 8
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        assert await repository.verify() == ()
        await repository.purge(
            MemoryPurge(idempotency_key="p", namespace=NS, node_ids=["n1"], reason=evidence("t://1"), occurred_at=at(9))
        )
        assert await repository.verify() == ()


# -- index and size -----------------------------------------------------------------------------------------------


async def test_a_damaged_index_is_rebuilt_from_the_texts(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository)
        db = connect(tmp_path / "memory.db")
        db.execute("UPDATE lex_tail SET tokens = x''")
        db.close()
        assert await repository.verify() != ()
        assert await repository.rebuild_index() == 21
        assert await repository.verify() == ()
        assert [hit.node.id for hit in await repository.query(MemoryQuery(namespace=NS, text="corrected"))] == ["n0"]


async def test_compacting_frees_space_unless_a_reader_needs_it(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        for number in range(50):
            await repository.apply(create(f"n{number}", "long text " * 500))
        ids = [f"n{number}" for number in range(50)]
        await repository.purge(
            MemoryPurge(idempotency_key="p", namespace=NS, node_ids=ids, reason=evidence("t://1"), occurred_at=AT)
        )
        assert (await repository.statistics()).free_bytes == 0
        await repository.apply(create("last"))
        reader = connect(tmp_path / "memory.db")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM head").get == 1
        assert await repository.compact() is False
        reader.execute("ROLLBACK")
        reader.close()
        assert await repository.compact() is True
        assert await repository.verify() == ()


# -- schema -------------------------------------------------------------------------------------------------------


async def old_file(path: Path) -> dict[str, Any]:
    """Make a filled file of schema 1, as the release before wrote it."""
    async with open_sqlite_repository(path) as repository:
        await fill(repository)
        kept = {"digest": await digest(repository), "sequence": await sequence(repository)}
    db = connect(path)
    db.execute("ALTER TABLE namespace DROP COLUMN token_raised")
    db.execute("ALTER TABLE namespace DROP COLUMN rolled_up")
    db.execute("ALTER TABLE usage DROP COLUMN rolled_up")
    db.execute("PRAGMA user_version = 1")
    db.close()
    return kept


async def test_a_file_of_schema_1_is_upgraded_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    kept = await old_file(path)
    async with open_sqlite_repository(path, create=False) as repository:
        assert (await repository.statistics()).schema == schema.SCHEMA_VERSION
        assert await digest(repository) == kept["digest"]
        assert await sequence(repository) == kept["sequence"]
        assert await repository.verify() == ()
        assert await repository.roll_up_access_events(NS, at(9)) == 1


async def test_a_schema_that_was_upgraded_equals_that_of_a_new_file(tmp_path: Path) -> None:
    await old_file(tmp_path / "old.db")

    def columns(path: Path) -> list[tuple[Any, ...]]:
        db = connect(path)
        try:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
            return [(table, *row) for table in tables for row in db.execute(f"PRAGMA table_info({table})")]
        finally:
            db.close()

    for name in ("old.db", "new.db"):
        async with open_sqlite_repository(tmp_path / name):
            pass
    assert columns(tmp_path / "old.db") == columns(tmp_path / "new.db")


async def test_several_opens_at_once_upgrade_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    kept = await old_file(path)
    digests: list[str] = []

    async def one() -> None:
        async with open_sqlite_repository(path, create=False) as repository:
            digests.append(await digest(repository))

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(one)
    assert digests == [kept["digest"]] * 8


async def test_a_backup_of_schema_1_can_be_restored(tmp_path: Path) -> None:
    kept = await old_file(tmp_path / "old.db")
    await restore_sqlite_repository(tmp_path / "old.db", tmp_path / "memory.db")
    async with open_sqlite_repository(tmp_path / "memory.db", create=False) as repository:
        assert await digest(repository) == kept["digest"]
