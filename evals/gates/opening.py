"""Opens the repositories and session stores that gates run on, by name."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path

from a3s_actors.agent import HostEnv, SessionStore
from a3s_actors.memory import MemoryNamespace, MemoryRepository
from a3s_actors.testing.building import at
from a3s_backends.file_sessions import open_file_session_store
from a3s_backends.journal import open_file_repository
from a3s_backends.sqlite import open_sqlite_repository
from a3s_backends.sqlite_sessions import open_sqlite_session_store

__all__ = ["BACKENDS", "counting_host", "open_repository", "open_store", "read_admissions"]

BACKENDS = ("journal", "sqlite")
"""The durable backends: the journal with sessions in files, SQLite with sessions in SQLite."""


def open_repository(backend: str, folder: Path) -> AbstractAsyncContextManager[MemoryRepository]:
    """Return the opening of a backend's repository in a folder."""
    return open_sqlite_repository(folder / "memory.db") if backend == "sqlite" else open_file_repository(folder / "m")


def open_store(backend: str, folder: Path) -> AbstractAsyncContextManager[SessionStore]:
    """Return the opening of the session store that goes with a backend."""
    if backend == "sqlite":
        return open_sqlite_session_store(folder / "sessions.db")
    return open_file_session_store(folder / "sessions")


def counting_host(start: float) -> HostEnv:
    """Return a host whose ids begin anew in every process, and whose clock moves a second a look."""
    seconds, numbers = count(), count(1)
    return HostEnv(now=lambda: at(start + next(seconds)), new_id=lambda kind: f"{kind}-{next(numbers)}")


async def read_admissions(repository: MemoryRepository, namespace: MemoryNamespace) -> list[tuple[str, int, str]]:
    """Return node, revision and context of every admission of a namespace, in order of arrival."""
    found: list[tuple[str, int, str]] = []
    after: int | None = 0
    while after is not None:
        page = await repository.access_events(namespace, None, after, 100)
        found += [
            (each.event.node_id, each.event.node_revision, each.event.context_id or "")
            for each in page.records
            if each.kind.value == "admission"
        ]
        after = page.next_after
    return found
