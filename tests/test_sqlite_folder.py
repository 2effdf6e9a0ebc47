"""Files that come, go and are replaced while other processes open them: nobody ever uses a file that is not there."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from a3s_actors.memory import InvalidInput, MemoryPurge, Persistence, RepositoryLocked
from a3s_backends.sqlite import folder as folder_module
from a3s_backends.sqlite import open_sqlite_repository, restore_sqlite_repository
from a3s_backends.sqlite.backup import restore_file
from a3s_backends.sqlite.connection import connect
from a3s_backends.sqlite.folder import BUILDING, being_opened, being_replaced, building, leftovers
from tests.test_sqlite_copies import AT, NS, change, draft, evidence, files, fill

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
async def pair(tmp_path: Path) -> Path:
    """memory.db, and its backup copy.db, in a folder."""
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        await fill(repository, 3, 100)
        await repository.backup(tmp_path / "copy.db")
        await repository.apply(change("later", draft("later", "later")))
    return tmp_path


def open_here(path: Path) -> int:
    """Count how often this process has a file open."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a worker thread has closed it meanwhile
            count += os.readlink(link) == str(path)  # noqa: PTH115 - the link itself, which may name no file
    return count


# -- replacing ---------------------------------------------------------------------------------------------------------


async def test_a_file_that_came_while_a_restore_waited_for_the_old_one_is_not_replaced(pair: Path) -> None:
    path = pair / "memory.db"
    shutil.copy(pair / "copy.db", pair / "newer.db")
    holder = connect(path)
    holder.execute("BEGIN IMMEDIATE")
    before = open_here(path)
    refused: list[str] = []

    async def restore() -> None:
        try:
            await restore_sqlite_repository(pair / "copy.db", path, replace=True)
        except RepositoryLocked as error:
            refused.append(str(error))

    newer = (pair / "newer.db").stat().st_ino
    async with trio.open_nursery() as nursery:
        nursery.start_soon(restore)
        while open_here(path) == before:
            await trio.sleep(0.001)
        (pair / "newer.db").rename(path)
        holder.close()
    assert len(refused) == 1
    assert path.stat().st_ino == newer
    assert not list(pair.glob("*.replaced-*"))


@pytest.mark.slow
async def test_of_many_restores_and_openers_at_once_none_replaces_a_file_in_use(pair: Path) -> None:
    source = """
import sys, trio
from pathlib import Path
from a3s_actors.memory import RepositoryLocked
from a3s_backends.sqlite import open_sqlite_repository, restore_sqlite_repository
from tests.test_sqlite_copies import change, draft

async def main(folder, role, name):
    path = folder / "memory.db"
    sys.stdin.readline()
    for number in range(6):
        try:
            if role == "restore":
                await restore_sqlite_repository(folder / "copy.db", path, replace=True)
            else:
                async with open_sqlite_repository(path, create=False) as repository:
                    ids = [f"{name}-{number}-{part}" for part in range(5)]
                    for each in ids:
                        await repository.apply(change(each, draft(each, each)))
                    # What this process was told is stored lies in the file at the path, as long as it has it open.
                    async with open_sqlite_repository(path, create=False) as again:
                        heads = await again.get_heads(draft("x", "x").namespace, ids)
                        assert sorted(heads) == sorted(ids), heads.keys()
                        assert await again.verify() == ()
        except RepositoryLocked:
            pass

trio.run(main, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
"""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", source, str(pair), role, f"{role}{number}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        for role in ("restore", "open")
        for number in range(3)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
    for child in children:
        code = await trio.to_thread.run_sync(child.wait)
        assert child.stderr is not None
        assert code == 0, child.stderr.read().decode()[-2000:]
        child.stderr.close()
    for file in pair.glob("memory.db*"):
        if not file.name.endswith(("-wal", "-shm")):
            async with open_sqlite_repository(file, create=False) as repository:
                assert await repository.verify() == ()


async def test_an_opening_waits_for_a_restore_and_gets_the_restored_file(pair: Path) -> None:
    path = pair / "memory.db"
    seen: list[object] = []

    async def use() -> None:
        async with open_sqlite_repository(path, create=False) as repository:
            await repository.apply(change("mine", draft("mine", "mine")))
            seen.append(await repository.get(NS, "later"))

    async with trio.open_nursery() as nursery:
        with being_replaced(pair, 1):
            nursery.start_soon(use)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert seen == []
            shutil.copy(pair / "copy.db", pair / "newer.db")
            (pair / "newer.db").rename(path)
    assert seen == [None]
    async with open_sqlite_repository(path, create=False) as repository:
        assert await repository.get(NS, "mine") is not None
        assert await repository.verify() == ()


def test_an_opening_that_waits_too_long_says_that_a_restore_goes_on(tmp_path: Path) -> None:
    with (
        being_replaced(tmp_path, 0),
        pytest.raises(RepositoryLocked, match="being restored"),
        being_opened(tmp_path, 0.01),
    ):
        pass
    with (
        being_opened(tmp_path, 0),
        being_opened(tmp_path, 0),
        pytest.raises(RepositoryLocked, match="restores"),
        being_replaced(tmp_path, 0.01),
    ):
        pass


async def test_a_file_that_cannot_be_read_but_is_in_use_is_not_replaced(pair: Path) -> None:
    path = pair / "memory.db"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import apsw, sys; db = apsw.Connection(sys.argv[1]); db.execute('SELECT 1 FROM meta').fetchall();"
            "db.execute('BEGIN'); db.execute('SELECT 1 FROM meta').fetchall(); print(flush=True); sys.stdin.readline()",
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with path.open("r+b") as file:
        file.write(os.urandom(100))
    with pytest.raises(RepositoryLocked, match="uses the file"):
        await restore_sqlite_repository(pair / "copy.db", path, replace=True)
    await trio.to_thread.run_sync(holder.communicate, b"\n")
    receipt = await restore_sqlite_repository(pair / "copy.db", path, replace=True)
    assert receipt.replaced is not None


@pytest.mark.parametrize("kind", ["pipe", "folder", "symbolic link"])
async def test_only_a_regular_file_is_replaced(pair: Path, kind: str) -> None:
    target = pair / "target"
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    else:
        target.symlink_to(pair / "memory.db")
    with pytest.raises(InvalidInput, match="regular file"):
        await restore_sqlite_repository(pair / "copy.db", target, replace=True)
    assert files(pair) == {"memory.db", "copy.db", "target"}


async def test_a_restore_after_one_that_was_killed_keeps_the_old_file_once(pair: Path) -> None:
    os.link(pair / "memory.db", pair / "memory.db.replaced-1")  # what a kill just before the replacing leaves
    receipt = await restore_sqlite_repository(pair / "copy.db", pair / "memory.db", replace=True)
    assert receipt.replaced == pair / "memory.db.replaced-1"
    assert files(pair) == {"memory.db", "copy.db", "memory.db.replaced-1"}
    async with open_sqlite_repository(pair / "memory.db.replaced-1") as old:
        assert await old.get(NS, "later") is not None


@pytest.mark.parametrize("end", ["-wal", "-journal"])
async def test_no_file_is_made_beside_the_log_of_one_that_is_gone(pair: Path, end: str) -> None:
    # SQLite would play it into the new file.
    path = pair / "gone.db"
    log = pair / f"gone.db{end}"
    log.write_bytes(b"log")
    with pytest.raises(Persistence, match="gone"):
        async with open_sqlite_repository(path):
            pass
    with pytest.raises(Persistence, match="gone"):
        await restore_sqlite_repository(pair / "copy.db", path)
    assert files(pair) == {"memory.db", "copy.db", log.name}


# -- leftovers ---------------------------------------------------------------------------------------------------------

BUILDER = """
import sys, time
from pathlib import Path
from a3s_backends.sqlite.folder import building

with building(Path(sys.argv[1])) as new:
    new.write_bytes(b"every text")
    print(flush=True)
    time.sleep(100)
"""


async def use(folder: Path, how: str, name: str) -> None:
    async with open_sqlite_repository((folder if how in {"open", "purge"} else folder.parent) / "memory.db") as opened:
        if how == "backup":
            await opened.backup(folder / name)
        elif how == "purge":
            await opened.purge(
                MemoryPurge(
                    idempotency_key=name, namespace=NS, node_ids=["n001"], reason=evidence("t://1"), occurred_at=AT
                )
            )
    if how == "restore":
        await restore_sqlite_repository(folder / "copy.db", folder / name)


@pytest.mark.parametrize("how", ["open", "purge", "backup", "restore"])
async def test_what_a_killed_process_was_building_goes_but_not_what_a_living_one_builds(pair: Path, how: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", BUILDER, str(pair)], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    child.stdout.readline()
    (place,) = pair.glob(f"{BUILDING}*")
    if how != "purge":
        await use(pair, how, "first.db")
    assert place.exists()
    assert leftovers(pair) == []
    child.kill()
    child.communicate()
    assert leftovers(pair) == [place]
    await use(pair, how, "second.db")
    assert not place.exists()


async def test_a_purge_takes_along_what_was_killed_while_the_file_was_open(pair: Path) -> None:
    async with open_sqlite_repository(pair / "memory.db") as repository:
        place = pair / f"{BUILDING}0123456789abcdef"
        place.mkdir()
        (place / "new.db").write_bytes(b"every text")
        await repository.purge(
            MemoryPurge(idempotency_key="p", namespace=NS, node_ids=["n001"], reason=evidence("t://1"), occurred_at=AT)
        )
        assert not place.exists()


def test_a_name_that_only_looks_like_a_leftover_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (tmp_path / f"{BUILDING}link").symlink_to(precious)
    (tmp_path / f"{BUILDING}file").touch()
    (tmp_path / f"{BUILDING}full" / "folder").mkdir(parents=True)
    with building(tmp_path):
        pass
    assert (precious / "file").exists()
    assert len(leftovers(tmp_path)) == 3


def test_a_place_that_is_taken_for_a_leftover_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = folder_module._hold
    early = [True]

    def remove_first(place: Path) -> int | None:
        if early.pop() if early else False:
            place.rmdir()
        return hold(place)

    monkeypatch.setattr(folder_module, "_hold", remove_first)
    with building(tmp_path) as new:
        assert new.stat().st_size == 0
    assert files(tmp_path) == set()


# -- what the file system refuses --------------------------------------------------------------------------------------


async def test_a_file_system_that_says_no_is_an_error_of_the_repository(pair: Path) -> None:
    (pair / "loop").symlink_to(pair / "loop")
    impossible = [pair / ("x" * 300), pair / "loop" / "x.db", pair / "copy.db" / "x.db", pair / ("y" * 250) / "z.db"]
    async with open_sqlite_repository(pair / "memory.db") as repository:
        for path in impossible[:3]:
            with pytest.raises(Persistence):
                async with open_sqlite_repository(path):
                    pass
            with pytest.raises(Persistence):
                await repository.backup(path)
            with pytest.raises(Persistence):
                await restore_sqlite_repository(pair / "copy.db", path)
        for path in (*impossible, pair / "none" / "x.db"):
            with pytest.raises((Persistence, InvalidInput)):
                await restore_sqlite_repository(path, pair / "other.db")
    assert files(pair) == {"memory.db", "copy.db", "loop"}


async def test_a_folder_that_forbids_looking_is_an_error_of_the_repository(pair: Path) -> None:
    def forbidden(*_args: object, **_kwargs: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "stat", forbidden)
        with pytest.raises(Persistence, match="Permission denied"):
            async with open_sqlite_repository(pair / "memory.db"):
                pass
    for name in ("stat", "lstat"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, name, forbidden)
            with pytest.raises(Persistence, match="Permission denied"):
                restore_file(pair / "copy.db", pair / "other.db", replace=False, check=lambda: None)
