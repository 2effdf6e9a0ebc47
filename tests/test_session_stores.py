"""Every session store does what the protocol says, and each what it alone promises."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
import trio

from a3s_actors.actor import InlineRunner
from a3s_actors.agent.errors import SessionNotFound, SessionStoreCorrupt, SessionStoreUnavailable
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, SessionStore, StoredSession
from a3s_actors.memory.errors import InvalidInput, Persistence
from a3s_actors.testing import SESSION_STORE_CHECKS, SessionStoreCheck, run_session_store_conformance
from a3s_actors.testing._session_registry import run_mark, small_snapshot
from a3s_backends.file_sessions import open_file_session_store
from a3s_backends.file_sessions.format import session_name
from a3s_backends.in_memory_sessions import InMemorySessionStore, open_in_memory_session_store
from a3s_backends.sqlite import open_sqlite_repository
from a3s_backends.sqlite_sessions import open_sqlite_session_store
from a3s_backends.sqlite_sessions import schema as sqlite_schema

Opener = Callable[[Path], AbstractAsyncContextManager[SessionStore]]

OPENERS: dict[str, Opener] = {
    "memory": lambda _folder: open_in_memory_session_store(),
    "files": lambda folder: open_file_session_store(folder / "sessions"),
    "sqlite": lambda folder: open_sqlite_session_store(folder / "sessions.db"),
}
DURABLE = [name for name in OPENERS if name != "memory"]


@attrs.frozen
class Storage:
    folder: Path
    opener: Opener
    persistent: bool

    def __call__(self) -> AbstractAsyncContextManager[SessionStore]:
        return self.opener(self.folder)


CHECKS = [pytest.param(each, id=each.name) for each in SESSION_STORE_CHECKS]


@pytest.mark.parametrize("name", OPENERS)
@pytest.mark.parametrize("check", CHECKS)
async def test_a_store_does_what_the_protocol_says(check: SessionStoreCheck, name: str, tmp_path: Path) -> None:
    await check.run(Storage(tmp_path, OPENERS[name], name != "memory"))


class ForgetsMarks(InMemorySessionStore):
    async def load(self, session_id: str) -> StoredSession:
        return attrs.evolve(await super().load(session_id), marks=())


class TakesAnyGeneration(InMemorySessionStore):
    def _expect(self, session_id: str, generation: int) -> None:
        pass


class KeepsMarks(InMemorySessionStore):
    async def save(self, snapshot: SessionSnapshot) -> None:
        before = self._sessions.get(snapshot.session_id)
        await super().save(snapshot)
        if before is not None:
            self._sessions[snapshot.session_id].marks[:] = before.marks


class FoldsCase(InMemorySessionStore):
    async def delete(self, session_id: str) -> bool:
        return await super().delete(session_id.lower())


class NeverWaits(InMemorySessionStore):
    async def _begin(self, operation: str) -> None:
        pass


class SavesThenWaits(InMemorySessionStore):
    async def save(self, snapshot: SessionSnapshot) -> None:
        await super().save(snapshot)
        await trio.lowlevel.checkpoint()


class TakesAnyMark(InMemorySessionStore):
    async def mark(self, session_id: str, generation: int, mark: RunMark) -> None:
        await self._begin("mark")
        self._expect(session_id, generation)


BROKEN = [ForgetsMarks, TakesAnyGeneration, KeepsMarks, FoldsCase, NeverWaits, SavesThenWaits, TakesAnyMark]


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
async def test_the_suite_catches_a_broken_store(kind: type[InMemorySessionStore]) -> None:
    @asynccontextmanager
    async def opened(_folder: Path) -> AsyncIterator[SessionStore]:
        yield kind()

    results = await run_session_store_conformance(lambda: Storage(Path(), opened, False))
    assert len(results) == len(SESSION_STORE_CHECKS)
    assert [each for each in results if each.error is not None]
    assert [each for each in results if each.error is None]


@pytest.mark.parametrize("name", OPENERS)
async def test_a_closed_store_says_so(name: str, tmp_path: Path) -> None:
    async with OPENERS[name](tmp_path) as store:
        assert "closed" not in repr(store)
        assert isinstance(store, SessionStore)
    assert "closed" in repr(store)
    for operation, call in {
        "save": lambda: store.save(small_snapshot("s", 1)),
        "mark": lambda: store.mark("s", 1, run_mark("r")),
        "load": lambda: store.load("s"),
        "delete": lambda: store.delete("s"),
        "list": store.list,
    }.items():
        with pytest.raises(SessionStoreUnavailable, match="the store is closed; open it again") as caught:
            await call()
        assert caught.value.operation == operation


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("name", DURABLE)
async def test_nothing_stays_open(name: str, tmp_path: Path) -> None:
    async def use(generation: int) -> None:
        async with OPENERS[name](tmp_path) as store:
            await store.save(small_snapshot("s", generation))
            await store.mark("s", generation, run_mark("r"))
            await store.load("s")
            for bad in (store.load("t"), store.save(small_snapshot("s", 9)), store.mark("t", 1, run_mark("r"))):
                with pytest.raises(Exception, match="session"):
                    await bad
            await store.list()

    await use(1)  # opens the process's own, such as trio's and SQLite's
    before = descriptors()
    for generation in range(2, 5):
        await use(generation)
    assert descriptors() == before


@pytest.mark.parametrize("name", DURABLE)
async def test_a_new_store_is_its_owners_alone(name: str, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        async with OPENERS[name](tmp_path / "new" / "folder") as store:
            await store.save(small_snapshot("s", 1))
            await store.save(small_snapshot("s", 2))
            await store.mark("s", 2, run_mark("r"))
            for path in (tmp_path / "new").rglob("*"):
                mode = stat.S_IMODE(path.stat().st_mode)
                assert mode == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(old)


@pytest.mark.parametrize("name", DURABLE)
@pytest.mark.parametrize("path", ["", "a\0b", "\udcff", b"bytes"])
async def test_a_path_that_is_none_is_bad_input(name: str, path: Any) -> None:
    opener: Any = open_file_session_store if name == "files" else open_sqlite_session_store
    with pytest.raises(InvalidInput):
        async with opener(path):
            pass


@pytest.mark.parametrize("name", DURABLE)
async def test_a_path_that_cannot_be_is_unavailable(name: str, tmp_path: Path) -> None:
    opener: Any = open_file_session_store if name == "files" else open_sqlite_session_store
    (tmp_path / "file").write_text("text")
    for path in (tmp_path / ("x" * 300), tmp_path / "file" / "below", Path("/proc/none/such")):
        with pytest.raises(SessionStoreUnavailable) as caught:
            async with opener(path):
                pass
        assert caught.value.operation in {"open", "create"}


@pytest.mark.parametrize("name", DURABLE)
async def test_a_store_runs_inline_for_a_virtual_clock(name: str, tmp_path: Path) -> None:
    opener: Any = open_file_session_store if name == "files" else open_sqlite_session_store
    async with opener(tmp_path / "store", runner=InlineRunner()) as store:
        await store.save(small_snapshot("s", 1))
        assert (await store.load("s")).snapshot == small_snapshot("s", 1)


# -- files -------------------------------------------------------------------------------------------------------------


async def test_a_session_has_a_file_the_one_before_and_its_marks(tmp_path: Path) -> None:
    name = session_name("../s")
    async with open_file_session_store(tmp_path) as store:
        await store.save(small_snapshot("../s", 1, "first"))
        assert {path.name for path in tmp_path.iterdir()} == {".lock", f"{name}.session"}
        first = (tmp_path / f"{name}.session").read_bytes()
        await store.save(small_snapshot("../s", 2))
        assert (tmp_path / f"{name}.previous").read_bytes() == first
        second = (tmp_path / f"{name}.session").read_bytes()
        assert second.endswith(b"\n" + small_snapshot("../s", 2).to_json())
        await store.mark("../s", 2, run_mark("r"))
        assert (tmp_path / f"{name}.marks").stat().st_size > 64
        await store.save(small_snapshot("../s", 3))
        assert (tmp_path / f"{name}.marks").stat().st_size == 0
        assert (tmp_path / f"{name}.previous").read_bytes() == second
        assert {path.suffix for path in tmp_path.iterdir()} == {"", ".session", ".previous", ".marks"}
        await store.delete("../s")
        assert {path.name for path in tmp_path.iterdir()} == {".lock"}


async def test_a_read_only_folder_can_be_read(tmp_path: Path) -> None:
    async with open_file_session_store(tmp_path) as store:
        await store.save(small_snapshot("s", 1))
    (tmp_path / ".lock").unlink()
    tmp_path.chmod(0o500)
    try:
        async with open_file_session_store(tmp_path) as store:
            assert await store.list() == ("s",)
            assert (await store.load("s")).snapshot == small_snapshot("s", 1)
            if os.geteuid() != 0:
                with pytest.raises(SessionStoreUnavailable, match="permissions"):
                    await store.save(small_snapshot("s", 2))
    finally:
        tmp_path.chmod(0o700)


async def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    async with open_file_session_store(folder) as store:
        await store.save(small_snapshot("s", 1))
        mine = folder / f"{session_name('s')}.session"
        outside = mine.rename(tmp_path / "outside")
        mine.symlink_to(outside)
        for call in (store.load("s"), store.save(small_snapshot("s", 2)), store.mark("s", 1, run_mark("r"))):
            with pytest.raises(SessionStoreUnavailable, match="symbolic link"):
                await call
        mine.unlink()
        os.mkfifo(mine)
        with pytest.raises(SessionStoreUnavailable, match="regular"):
            await store.load("s")
        assert await store.delete("s")
        assert outside.exists()


async def test_a_folder_that_goes_is_no_empty_store(tmp_path: Path) -> None:
    async with open_file_session_store(tmp_path / "sessions") as store:
        await store.save(small_snapshot("s", 1))
        (tmp_path / "sessions").rename(tmp_path / "away")
        for call in (store.load("s"), store.list(), store.save(small_snapshot("s", 2)), store.delete("s")):
            with pytest.raises(SessionStoreUnavailable):
                await call


async def test_an_open_removes_what_killed_processes_were_writing(tmp_path: Path) -> None:
    name, end = session_name("s"), "0123456789abcdef"
    leftovers = [tmp_path / f"{name}.{end}.{kind}" for kind in ("new", "old")]
    others = [tmp_path / "notes.new", tmp_path / f"{name}.{end}.bak", tmp_path / f"{end}.new"]
    for path in [*leftovers, *others]:
        path.write_bytes(b"half a session")
    async with open_file_session_store(tmp_path):
        assert not any(path.exists() for path in leftovers)
        assert all(path.exists() for path in others)


# -- SQLite ------------------------------------------------------------------------------------------------------------


async def test_a_memory_repository_is_no_session_store_and_the_other_way_round(tmp_path: Path) -> None:
    memories, sessions = tmp_path / "memory.db", tmp_path / "sessions.db"
    async with open_sqlite_repository(memories):
        pass
    async with open_sqlite_session_store(sessions) as store:
        await store.save(small_snapshot("s", 1))
    before = memories.read_bytes()
    with pytest.raises(SessionStoreUnavailable, match="no session store"):
        async with open_sqlite_session_store(memories):
            pass
    assert memories.read_bytes() == before
    with pytest.raises(Persistence, match="no memory repository"):
        async with open_sqlite_repository(sessions):
            pass
    async with open_sqlite_session_store(sessions) as store:
        assert await store.list() == ("s",)


async def test_other_files_are_refused_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    for content, error in ((b"no database at all " * 300, SessionStoreCorrupt), (b"", SessionStoreUnavailable)):
        path.write_bytes(content)
        with pytest.raises(error):
            async with open_sqlite_session_store(path):
                pass
        assert path.read_bytes() == content
    path.unlink()
    (tmp_path / "sessions.db-wal").write_bytes(b"the log of a file that is gone")
    with pytest.raises(SessionStoreUnavailable, match="log"):
        async with open_sqlite_session_store(path):
            pass


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with open_sqlite_session_store(path):
        pass
    db = apsw.Connection(str(path))
    assert db.execute("PRAGMA application_id").get == sqlite_schema.APPLICATION_ID
    assert db.execute("PRAGMA user_version").get == sqlite_schema.SCHEMA_VERSION
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(SessionStoreUnavailable, match="newer release"):
        async with open_sqlite_session_store(path):
            pass


async def test_what_was_deleted_is_in_no_file(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with open_sqlite_session_store(path) as store:
        await store.save(small_snapshot("stays", 1))
        for generation in range(1, 4):
            await store.save(small_snapshot("s", generation, f"the secret {generation} " * 5000))
            await store.mark("s", generation, run_mark("the secret run"))
        assert any(b"the secret" in each.read_bytes() for each in tmp_path.iterdir())
        assert await store.delete("s")
        assert not any(b"the secret" in each.read_bytes() for each in tmp_path.iterdir())
        assert await store.list() == ("stays",)


async def test_leaving_the_block_waits_for_the_call_in_the_file(tmp_path: Path) -> None:
    errors: list[Exception] = []

    async def save(store: SessionStore, number: int) -> None:
        try:
            await store.save(small_snapshot(f"s-{number}", 1, "text " * 20000))
        except SessionStoreUnavailable as error:
            errors.append(error)

    async with trio.open_nursery() as nursery, open_sqlite_session_store(tmp_path / "sessions.db") as store:
        for number in range(20):
            nursery.start_soon(save, store, number)
        await trio.testing.wait_all_tasks_blocked()
    async with open_sqlite_session_store(tmp_path / "sessions.db") as store:
        assert len(await store.list()) == 20 - len(errors)
        with pytest.raises(SessionNotFound):
            await store.load("s")
