"""Rows that somebody altered: each answer is right or a typed error, and the repository can always be closed."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import apsw
import pytest
import trio

from a3s_actors.memory import (
    MemoryQuery,
    MemoryRepositoryError,
    MemoryStatus,
    RelationKind,
    ScanRequest,
    SnapshotRequest,
    Timestamp,
)
from a3s_actors.testing.building import NS, access, add, change, create, purge, revise
from a3s_backends.sqlite import SqliteMemoryRepository, lexical_index, open_sqlite_repository, restore_sqlite_repository
from a3s_backends.sqlite.connection import connect

NUMBERS: Final = ("-1", "0", f"{1 << 62}")
TEXTS: Final = ("'garbage'", "'[]'", "CAST(x'ff41' AS TEXT)")
VALUES: Final = {
    "INTEGER": NUMBERS,
    "TEXT": TEXTS,
    "BLOB": ("x''", "x'00'", "NULL"),
    "ANY": (*NUMBERS, *TEXTS, "x''", "x'00'", "1.5"),
}
"""By the type of the column: the tables are strict, so a value of another type cannot be there."""
QUERY: Final = MemoryQuery(namespace=NS, text="a plain memory about things", limit=5)
EVERY: Final = SnapshotRequest(namespace=NS, statuses=frozenset(MemoryStatus))


async def fill(repository: SqliteMemoryRepository) -> None:
    """Make rows in every table, with a sealed segment and a tail in the index."""
    for number in range(6):
        await repository.apply(change(f"c{number}", create(f"n{number}", f"a plain memory about {number} things")))
    await repository.apply(change("r", revise("n1", "a plain correction")))
    related = RelationKind.RELATED_TO
    await repository.apply(change("d", add("n2", related, "n3"), add("n3", related, "n2")))
    for number in range(3):
        event = access(f"e{number}", f"n{number + 2}", 2 if number < 2 else 1)
        await repository.record_admission(event)
        await repository.record_use(event)
    await repository.purge(purge("p", "n0"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("altered") / "memory.db"

    async def make() -> None:
        async with open_sqlite_repository(path) as repository:
            await fill(repository)
            assert await repository.verify() == ()

    with pytest.MonkeyPatch.context() as patch:
        defaults = lexical_index.add.__kwdefaults__
        assert defaults is not None
        patch.setitem(defaults, "seal_at", 4)
        trio.run(make)
    return path


def columns(path: Path) -> list[tuple[str, str, str]]:
    db = connect(path)
    try:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
        return [(table, *row[1:3]) for table in tables for row in db.execute(f"PRAGMA table_info({table})")]
    finally:
        db.close()


def altered(template: Path, path: Path, table: str, column: str, kind: str) -> Iterator[str]:
    """Alter the last row of a table, all rows of `meta`, one value at a time, as far as the schema allows."""
    db = connect(template)
    keys = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[5]]
    rows = db.execute(f"SELECT {', '.join(keys)} FROM {table} ORDER BY 1").fetchall()
    db.close()
    assert rows, table
    where = " AND ".join(f"{name} = ?" for name in keys)
    for key in rows if table == "meta" else rows[-1:]:
        for value in VALUES[kind]:
            shutil.copy(template, path)
            db = connect(path)
            try:
                db.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}", key)
                changed = db.changes()
            except apsw.ConstraintError:
                changed = 0
            finally:
                db.close()
            if changed:
                yield f"{table}.{column} = {value} where {keys} = {key}"


async def answers(repository: SqliteMemoryRepository, folder: Path) -> list[object]:
    """Ask everything; return what is known to be right, or the typed error."""

    async def event() -> None:
        await repository.record_use(access("e1", "n3", 2))

    async def digest() -> str:
        return (await repository.snapshot_namespace(EVERY)).digest

    async def verify() -> bool:
        return await repository.verify() == ()

    def asked() -> Iterator[Callable[[], Awaitable[Any]]]:
        yield lambda: repository.query(QUERY)
        yield lambda: repository.query(MemoryQuery(namespace=NS, limit=3))
        for number in range(6):
            yield lambda node_id=f"n{number}": repository.get(NS, node_id)  # type: ignore[misc]
        yield lambda: repository.scan(ScanRequest(namespace=NS))
        yield digest
        yield lambda: repository.history(NS, "n1")
        yield verify
        yield repository.namespaces
        yield lambda: repository.access_events(NS)
        yield lambda: repository.usage_summary(NS, "n2")
        yield repository.log
        yield repository.statistics
        yield lambda: repository.backup(folder / "copy.db")
        yield lambda: restore_sqlite_repository(repository.path, folder / "restored.db")
        # A replay, a new change, an event that is there, a new one, a purge, upkeep.
        yield lambda: repository.apply(change("r", revise("n1", "a plain correction")))
        yield lambda: repository.apply(change("new", create("new", "quite new"), revise("n4", "a plain correction")))
        yield event
        yield lambda: repository.record_admission(access("new", "n5", 1))
        yield lambda: repository.purge(purge("p", "n0"))
        yield lambda: repository.purge(purge("q", "n2"))
        yield lambda: repository.roll_up_access_events(NS, Timestamp(0))
        yield lambda: repository.query(QUERY)
        yield repository.rebuild_index
        yield lambda: repository.purge(purge("all"))
        yield repository.compact
        yield verify

    results: list[object] = []
    for ask in asked():
        try:
            results.append(await ask())
        except MemoryRepositoryError as error:
            results.append(error)
    return results


VERIFIED: Final = 11
"""The place of the verification: the answers before it are of memories alone."""


async def tried(path: Path) -> list[object]:
    try:
        async with open_sqlite_repository(path, synchronous="NORMAL") as repository:
            return await answers(repository, path.parent)
    finally:
        for name in ("copy.db", "restored.db", "memory.db-wal", "memory.db-shm"):
            (path.parent / name).unlink(missing_ok=True)


async def test_whatever_is_altered_every_answer_is_right_or_a_typed_error(template: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    shutil.copy(template, path)
    right = await tried(path)
    assert not [each for each in right if isinstance(each, Exception)]
    mistakes = []
    count = 0
    for table, column, kind in columns(template):
        for what in altered(template, path, table, column, kind):
            count += 1
            try:
                found = await tried(path)
            except MemoryRepositoryError:
                continue  # it cannot be opened
            except BaseException as error:
                mistakes.append(f"{what}: {error!r}")
                continue
            if found[VERIFIED] is not True:
                continue
            wrong = [
                number
                for number in range(VERIFIED)
                if found[number] != right[number] and not isinstance(found[number], Exception)
            ]
            if wrong:
                mistakes.append(f"{what}: verified, but answers {wrong} differ")
    assert mistakes == []
    assert count > 100


async def test_an_error_that_is_kept_does_not_hold_up_a_purge(template: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    shutil.copy(template, path)
    db = connect(path)
    db.execute("UPDATE rev SET json = x'00' WHERE id = 'n3'")
    db.execute("UPDATE access SET context = x'ff'")
    db.execute("UPDATE change SET payload = x'00' WHERE key = 'c3'")
    db.close()
    kept: list[MemoryRepositoryError] = []
    async with open_sqlite_repository(path) as repository:
        for ask in (
            lambda: repository.get(NS, "n3"),
            lambda: repository.history(NS, "n3"),
            lambda: repository.snapshot_namespace(EVERY),
            lambda: repository.access_events(NS),
            repository.log,
            lambda: repository.apply(change("r", revise("n3", "a correction", 2))),
        ):
            with pytest.raises(MemoryRepositoryError) as refused:
                await ask()
            kept.append(refused.value)
        assert (await repository.purge(purge("q", "n5"))).bytes_pending is False
    assert len(kept) == 6


async def test_a_rebuilt_index_leaves_nothing_of_a_damaged_one(template: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    shutil.copy(template, path)
    db = connect(path)
    db.execute("UPDATE lex_seg SET id = 1 << 62")
    async with open_sqlite_repository(path) as repository:
        assert await repository.verify() != ()
        await repository.rebuild_index()
        assert await repository.verify() == ()
        assert [db.execute(f"SELECT count(*) FROM {table}").get for table in ("lex_post", "lex_slots")] == [0, 0]
        assert len(await repository.query(QUERY)) == 5
    db.close()
