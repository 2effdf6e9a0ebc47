"""Every check of the conformance suite, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import attrs
import pytest

from a3s_actors.testing import REPOSITORY_CHECKS, RepositoryCheck, RepositoryFactory, run_conformance
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.journal import open_file_repository
from a3s_backends.sqlite import open_sqlite_repository


@attrs.frozen
class Factory:
    """A `RepositoryFactory` from an opening function."""

    open: Callable[[], AbstractAsyncContextManager[Any]]
    persistent: bool = True

    def __call__(self) -> AbstractAsyncContextManager[Any]:
        return self.open()


def factory_of(backend: str, folder: Path) -> RepositoryFactory:
    if backend == "in_memory":
        return Factory(open_in_memory_repository, persistent=False)
    if backend == "sqlite":
        # FULL is what users get; NORMAL is the same code without waiting for the disk.
        return Factory(lambda: open_sqlite_repository(folder / "memory.db", synchronous="NORMAL"))
    return Factory(lambda: open_file_repository(folder / "journal"))


@pytest.mark.parametrize("backend", ["in_memory", "sqlite", "journal"])
@pytest.mark.parametrize("check", REPOSITORY_CHECKS, ids=lambda check: check.name)
async def test_the_backend_conforms(check: RepositoryCheck, backend: str, tmp_path: Path) -> None:
    await check.run(factory_of(backend, tmp_path))


def test_every_check_says_what_holds() -> None:
    names = [check.name for check in REPOSITORY_CHECKS]
    assert len(set(names)) == len(names) >= 45
    assert all(len(check.description) > 20 and check.description.endswith(".") for check in REPOSITORY_CHECKS)


async def test_the_suite_runs_in_one_call_and_needs_no_framework(tmp_path: Path) -> None:
    chosen = [check for check in REPOSITORY_CHECKS if check.name.startswith("an_e")]
    results = await run_conformance(lambda: factory_of("in_memory", tmp_path), chosen)
    assert [result.error for result in results] == [None] * len(chosen)
