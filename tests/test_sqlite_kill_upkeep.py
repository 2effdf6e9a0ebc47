"""SIGKILL during backup, restore, purge and migration: nothing acknowledged is lost, and no text lies about."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from a3s_actors.memory import MemoryStatus, SnapshotRequest
from a3s_actors.testing.building import NS, change, create, purge
from a3s_backends.sqlite import SqliteMemoryRepository, open_sqlite_repository
from a3s_backends.sqlite.connection import connect
from a3s_backends.sqlite.folder import BUILDING
from tests.killed_upkeep import CANARY

ROOT = Path(__file__).resolve().parents[1]
KILLS = 12
DOOMED = ("doomed0", "doomed1", "doomed2")


@attrs.define(eq=False)
class Killer:
    """Starts an operation in a process of its own and kills it after some time."""

    server: subprocess.Popen[str]

    def run(self, operation: str, folder: Path, seconds: float | None) -> tuple[list[str], float]:
        """Return what was acknowledged and how long it took."""
        answers = folder.with_suffix(".answers")
        answers.unlink(missing_ok=True)
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        start = time.monotonic()
        self.server.stdin.write(f"{operation} {folder} {answers}\n")
        self.server.stdin.flush()
        pid = int(self.server.stdout.readline())
        if seconds is not None:
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):  # it was quicker
                os.kill(pid, signal.SIGKILL)
        code = int(self.server.stdout.readline())
        assert code in {0, -signal.SIGKILL}
        assert seconds is not None or code == 0
        said = answers.read_text().splitlines() if answers.exists() else []
        return said, time.monotonic() - start


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.killed_upkeep"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        yield Killer(server)


async def fill(path: Path) -> None:
    """Make a file larger than SQLite's page cache, some of it to be erased."""
    async with open_sqlite_repository(path) as repository:
        kept = [create(f"kept{number}", f"number {number} " + "longer " * 5000) for number in range(70)]
        await repository.apply(change("kept", *kept))
        for each in DOOMED:
            await repository.apply(change(each, create(each, f"{CANARY} {each}")))


async def digest(repository: SqliteMemoryRepository) -> str:
    request = SnapshotRequest(namespace=NS, statuses=frozenset(MemoryStatus))
    return (await repository.snapshot_namespace(request)).digest


async def digest_of(path: Path) -> str:
    async with open_sqlite_repository(path, create=False) as repository:
        assert await repository.verify() == ()
        return await digest(repository)


def rounds(killer: Killer, operation: str, template: Path, folder: Path) -> Iterator[list[str]]:
    """Let the operation be killed at moments spread over its length, each time on a new copy of the template."""
    length = 0.0
    for number in range(KILLS + 1):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(template, folder)
        # The first round is not killed: it says how long the operation takes.
        said, took = killer.run(operation, folder, None if number == 0 else length * number / (KILLS + 1))
        length = length or took
        yield said


def holding(folder: Path, text: str) -> list[str]:
    return [str(file) for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


def built(folder: Path) -> list[Path]:
    return list(folder.glob(f"{BUILDING}*"))


@pytest.mark.slow
async def test_a_killed_backup_loses_nothing_and_leaves_no_text(killer: Killer, tmp_path: Path) -> None:
    template, folder = tmp_path / "template", tmp_path / "work"
    await fill(template / "memory.db")
    for said in rounds(killer, "backup", template, folder):
        async with open_sqlite_repository(folder / "memory.db", create=False) as repository:
            assert built(folder) == []
            assert await repository.verify() == ()
            created = [line.split()[1] for line in said if line.startswith("created")]
            assert (await repository.get_heads(NS, created)).keys() == set(created)
            copies = list(folder.glob("backup-*.db"))
            assert len(copies) >= len([line for line in said if line.startswith("backup")])
            for copy in copies:
                async with open_sqlite_repository(copy, create=False) as restored:
                    assert await restored.verify() == ()
                    assert await restored.get(NS, "kept69") is not None
                for file in folder.glob(f"{copy.name}*"):
                    file.unlink()
            await repository.purge(purge("all"))
        assert holding(folder, CANARY) == []


@pytest.mark.slow
async def test_a_killed_restore_leaves_the_old_file_or_the_new_one_whole(killer: Killer, tmp_path: Path) -> None:
    template, folder = tmp_path / "template", tmp_path / "work"
    await fill(template / "memory.db")
    async with open_sqlite_repository(template / "memory.db") as repository:
        await repository.backup(template / "copy.db")
        new = await digest(repository)
        await repository.apply(change("later", create("later")))
        old = await digest(repository)
    for said in rounds(killer, "restore", template, folder):
        found = await digest_of(folder / "memory.db")
        assert built(folder) == []
        assert found == new if said else found in {old, new}
        aside = sorted(folder.glob("memory.db.replaced-?"))
        if found == new:
            # What the old file had is in the file that was put aside.
            assert await digest_of(aside[0]) == old
        assert [line.split()[1] for line in said] == [file.name for file in aside][: len(said)]


@pytest.mark.slow
async def test_a_killed_purge_is_finished_by_the_next_opening_or_never_was(killer: Killer, tmp_path: Path) -> None:
    template, folder = tmp_path / "template", tmp_path / "work"
    await fill(template / "memory.db")
    for said in rounds(killer, "purge", template, folder):
        async with open_sqlite_repository(folder / "memory.db", create=False) as repository:
            assert await repository.verify() == ()
            heads = await repository.get_heads(NS, [*DOOMED, "kept0", "kept69"])
            assert {"kept0", "kept69"} <= heads.keys()
            for each in DOOMED:
                assert not (f"purged {each}" in said and each in heads)
                assert bool(holding(folder, f"{CANARY} {each}")) == (each in heads)


@pytest.mark.slow
async def test_a_killed_migration_is_done_by_the_next_opening(killer: Killer, tmp_path: Path) -> None:
    template, folder = tmp_path / "template", tmp_path / "work"
    await fill(template / "memory.db")
    before = await digest_of(template / "memory.db")
    db = connect(template / "memory.db")
    db.execute("ALTER TABLE namespace DROP COLUMN token_raised")
    db.execute("ALTER TABLE namespace DROP COLUMN rolled_up")
    db.execute("ALTER TABLE usage DROP COLUMN rolled_up")
    db.execute("UPDATE meta SET value = 'an earlier profile' WHERE name = 'tokenizer'")
    db.execute("PRAGMA user_version = 1")
    db.close()
    for said in rounds(killer, "migration", template, folder):
        async with open_sqlite_repository(folder / "memory.db", create=False) as repository:
            assert built(folder) == []
            assert await repository.verify() == ()
            assert (await repository.statistics()).schema == 2
            there = await repository.get(NS, "new") is not None
            assert there or "created new" not in said
            assert there or await digest(repository) == before
