"""System calls that fail, processes that end between any two of them, and disks that fail under SQLite."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from a3s_actors.agent.errors import (
    SessionNotFound,
    SessionStoreCorrupt,
    SessionStoreUnavailable,
)
from a3s_actors.agent.store import StoredSession
from a3s_actors.testing._session_registry import run_mark, small_snapshot
from a3s_backends.file_sessions import FileOperations, disk, open_file_session_store
from a3s_backends.file_sessions.files import SessionFiles

ROOT = Path(__file__).resolve().parents[1]
SECRET = "the-secret-of-the-conversation"


class Killed(BaseException):
    """The process has ended: nothing after it happens."""


@attrs.define
class Faults:
    """Lets the n-th call, and as many after it as wanted, go wrong."""

    number: int = 0
    error: Callable[[], BaseException] = lambda: OSError(errno.EIO, os.strerror(errno.EIO))
    lasting: bool = False
    torn: bool = False
    calls: list[str] = attrs.Factory(list)

    def operations(self) -> FileOperations:
        real = FileOperations()
        names = [field.name for field in attrs.fields(FileOperations)]
        return FileOperations(**{name: self._wrap(name, getattr(real, name)) for name in names})

    def _wrap(self, name: str, real: Any) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append(name)
            count = len(self.calls)
            if count == self.number or (self.lasting and count > self.number > 0):
                if self.torn and name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                raise self.error()
            return real(*args)

        return call


def prepared(folder: Path) -> None:
    files = SessionFiles(folder, FileOperations())
    files.prepare()
    files.save(small_snapshot("s", 1, "one"))
    files.save(small_snapshot("s", 2, "two"))
    files.mark("s", 2, run_mark("r-1"))


BEFORE = StoredSession(snapshot=small_snapshot("s", 2, "two"), marks=(run_mark("r-1"),))
AFTER = {
    "save": StoredSession(snapshot=small_snapshot("s", 3, f"{SECRET} three")),
    "mark": attrs.evolve(BEFORE, marks=(run_mark("r-1"), run_mark("r-2"))),
    "first": StoredSession(snapshot=small_snapshot("new", 1)),
    "delete": None,
}
CALLS: dict[str, Callable[[SessionFiles], object]] = {
    "save": lambda files: files.save(small_snapshot("s", 3, f"{SECRET} three")),
    "mark": lambda files: files.mark("s", 2, run_mark("r-2")),
    "first": lambda files: files.save(small_snapshot("new", 1)),
    "delete": lambda files: files.delete("s"),
}


def found(folder: Path, session_id: str) -> StoredSession | None:
    files = SessionFiles(folder, FileOperations())
    try:
        return files.load(session_id)
    except SessionNotFound:
        return None


MANNERS: dict[str, dict[str, Any]] = {
    "fails once": {},
    "fails from then on": {"lasting": True},
    "full disk": {"error": lambda: OSError(errno.ENOSPC, "no space"), "torn": True},
    "killed": {"error": Killed, "lasting": True, "torn": True},
}


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("what", CALLS)
def test_each_system_call_may_go_wrong(what: str, manner: str) -> None:
    session_id = "new" if what == "first" else "s"
    before = None if what == "first" else BEFORE
    for number in range(1, 60):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepared(folder)
            faults = Faults(number=number, **MANNERS[manner])
            files = SessionFiles(folder, faults.operations())
            try:
                CALLS[what](files)
            except SessionStoreUnavailable as error:
                told = f"{error} {error.__cause__}"
            except Killed:
                told = "killed"
            else:
                assert found(folder, session_id) == AFTER[what]
                if len(faults.calls) < number:
                    assert number > 2
                    return
                continue  # what went wrong did not matter
            assert (told == "killed") == (manner == "killed")
            assert SECRET not in told
            assert manner != "full disk" or "the disk is full" in told
            state = found(folder, session_id)
            if what == "delete":
                assert state in (BEFORE, None)
            elif what == "mark":
                assert state in (BEFORE, AFTER["mark"])
            elif manner == "killed":
                assert state in (before, AFTER[what])
            elif manner != "fails from then on":
                # What failed has not happened, so that it can be done again.
                assert state == before
                assert not list(folder.glob("*.new"))
            # A later process goes on from what it finds.
            later = SessionFiles(folder, FileOperations())
            later.prepare()
            assert not [path for path in folder.iterdir() if path.suffix in {".new", ".old"}]
            if state == before or what == "delete":
                CALLS[what](later)
            assert found(folder, session_id) == AFTER[what]
    pytest.fail("the call goes on for ever")


def test_a_failed_sync_of_a_mark_leaves_nothing_that_the_next_one_builds_on(tmp_path: Path) -> None:
    prepared(tmp_path)
    faults = Faults()
    files = SessionFiles(tmp_path, faults.operations())
    size = next(tmp_path.glob("*.marks")).stat().st_size
    files.load("s")
    faults.number = len(faults.calls) + 1 + 1  # write, then the sync
    with pytest.raises(SessionStoreUnavailable):
        files.mark("s", 2, run_mark("r-2"))
    assert faults.calls[-2:] == ["fdatasync", "ftruncate"]
    assert next(tmp_path.glob("*.marks")).stat().st_size == size
    files.mark("s", 2, run_mark("r-3"))
    assert [mark.run_id for mark in files.load("s").marks] == ["r-1", "r-3"]


def test_what_another_process_saved_is_made_durable_before_a_mark_rests_on_it(tmp_path: Path) -> None:
    prepared(tmp_path)
    faults = Faults()
    files = SessionFiles(tmp_path, faults.operations())
    files.load("s")
    files.mark("s", 2, run_mark("r-2"))
    assert faults.calls == ["write", "fdatasync", "fsync"]
    files.mark("s", 2, run_mark("r-3"))
    assert faults.calls == ["write", "fdatasync", "fsync", "write", "fdatasync"]


def test_a_save_syncs_its_bytes_before_they_count_and_the_folder_before_it_returns(tmp_path: Path) -> None:
    prepared(tmp_path)
    faults = Faults()
    SessionFiles(tmp_path, faults.operations()).save(small_snapshot("s", 3))
    calls = [call for call in faults.calls if call in {"write", "fdatasync", "fsync", "link", "rename"}]
    assert calls == ["write", "write", "fdatasync", "link", "rename", "rename", "fsync"]


async def test_a_folder_in_use_is_waited_for_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_file_session_store(tmp_path) as store:
        await store.save(small_snapshot("s", 1))
        async with trio.open_nursery() as nursery:
            with disk.folder_lock(tmp_path, "test"):
                assert (await store.load("s")).snapshot == small_snapshot("s", 1)  # reading does not wait
                with trio.move_on_after(0.05) as scope:
                    await store.save(small_snapshot("s", 2))
                assert scope.cancelled_caught
                assert not list(tmp_path.glob("*.new"))
                monkeypatch.setattr(disk, "LOCK_SECONDS", 0.02)
                with pytest.raises(SessionStoreUnavailable, match="in use"):
                    await store.mark("s", 1, run_mark("r"))
                monkeypatch.setattr(disk, "LOCK_SECONDS", 5.0)
                nursery.start_soon(store.save, small_snapshot("s", 2))
                await trio.sleep(0.05)
                assert (await store.load("s")).snapshot.generation == 1
        assert (await store.load("s")).snapshot.generation == 2


# -- SQLite, in a process of its own: the faulty disk has to lie below the checksum VFS --------------------------------


def faulty_sqlite() -> None:
    """In the child: let each disk operation of each call fail in each manner."""
    from a3s_backends.sqlite.faults import Fault, install_faulty_disk

    faulty = install_faulty_disk()
    from a3s_backends.sqlite_sessions.database import SessionDatabase

    struck = 0
    for operation, manners in {"write": ("fail", "full", "tear"), "sync": ("fail",), "read": ("fail", "short")}.items():
        for manner in manners:
            for number in (1, 2, 3, 4, 6, 9):
                with tempfile.TemporaryDirectory() as name:
                    path = Path(name) / "sessions.db"
                    database = SessionDatabase.open(path)
                    database.save(small_snapshot("s", 1, "one " * 20000))
                    database.save(small_snapshot("s", 2, "two " * 20000))
                    database.close()
                    database = SessionDatabase.open(path)
                    three, four = (small_snapshot("s", each, f"{SECRET} " * 20000) for each in (3, 4))
                    fault: Any = Fault(operation, number, manner)  # type: ignore[arg-type]
                    faulty.arm(fault)
                    told = ""
                    try:
                        database.save(three)
                        database.mark("s", 3, run_mark("r"))
                        database.save(four)
                        database.load("s")
                    except (SessionStoreUnavailable, SessionStoreCorrupt) as error:
                        told = f"{error} {error.__cause__}"
                    assert SECRET not in told
                    assert manner != "full" or not told or "the disk is full" in told
                    struck += faulty.struck
                    faulty.disarm()
                    with contextlib.suppress(SessionStoreUnavailable):
                        database.close()
                    database = SessionDatabase.open(path)
                    stored = database.load("s").snapshot
                    assert stored.generation in ((4,) if not told else (2, 3, 4))
                    assert stored == small_snapshot("s", 2, "two " * 20000) or stored in (three, four)
                    database.save(small_snapshot("s", stored.generation + 1))
                    database.close()
    assert struck > 15, struck
    print("done", struck)


@pytest.mark.slow
def test_a_failing_disk_under_sqlite_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.test_session_stores_faults"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done")


if __name__ == "__main__":
    faulty_sqlite()
