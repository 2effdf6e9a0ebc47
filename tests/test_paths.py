"""A path that the file system refuses is a typed error at every door, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from a3s_actors.agent import AgentError
from a3s_actors.memory import MemoryRepositoryError
from a3s_backends.file_sessions import open_file_session_store
from a3s_backends.journal import open_file_repository
from a3s_backends.sqlite import open_sqlite_repository, restore_sqlite_repository
from a3s_backends.sqlite_sessions import open_sqlite_session_store


async def _repository(path: Path) -> None:
    async with open_sqlite_repository(path):
        pass


async def _journal(path: Path) -> None:
    async with open_file_repository(path):
        pass


async def _sessions(path: Path) -> None:
    async with open_sqlite_session_store(path):
        pass


async def _session_files(path: Path) -> None:
    async with open_file_session_store(path):
        pass


async def _backup(path: Path) -> None:
    async with open_sqlite_repository(path.parents[3] / "source.db") as repository:
        await repository.backup(path)


async def _restore_from(path: Path) -> None:
    await restore_sqlite_repository(path, path.parents[3] / "restored.db")


async def _restore_to(path: Path) -> None:
    source = path.parents[3] / "source.db"
    copy = path.parents[3] / "copy.db"
    async with open_sqlite_repository(source) as repository:
        await repository.backup(copy)
    await restore_sqlite_repository(copy, path)


def _under_a_file(folder: Path) -> Path:
    (folder / "file").write_text("x")
    return folder / "file" / "under"


def _too_long(folder: Path) -> Path:
    return folder / "deep" / ("x" * 300)


def _loop(folder: Path) -> Path:
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop" / "in"


DOORS = [_repository, _journal, _sessions, _session_files, _backup, _restore_from, _restore_to]


@pytest.mark.parametrize("make", [_under_a_file, _too_long, _loop])
@pytest.mark.parametrize("door", DOORS)
async def test_what_the_file_system_refuses_is_a_typed_error(
    door: Callable[[Path], Awaitable[None]], make: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    path = make(folder)
    with pytest.raises((MemoryRepositoryError, AgentError)) as refused:
        await door(path)
    assert not isinstance(refused.value, OSError)


@pytest.mark.parametrize("door", [_repository, _sessions, _backup, _restore_from, _restore_to])
async def test_a_folder_in_the_place_of_a_file_is_a_typed_error(
    door: Callable[[Path], Awaitable[None]], tmp_path: Path
) -> None:
    place = tmp_path / "a" / "b" / "c" / "place"
    (place / "inside").mkdir(parents=True)
    with pytest.raises((MemoryRepositoryError, AgentError)):
        await door(place)
    assert (place / "inside").is_dir()
