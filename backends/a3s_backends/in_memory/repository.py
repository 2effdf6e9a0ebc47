"""`InMemoryRepository`: the reference state machine as a repository."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from a3s_actors.memory.operations import ChangeSetResult, MemoryChangeSet
from a3s_actors.memory.purge import MemoryPurge, PurgeReceipt
from a3s_actors.memory.reads import check_type
from a3s_actors.memory.reference import ReferenceState
from a3s_actors.memory.values import AccessEvent, AccessKind
from a3s_backends.in_memory.reads import ReferenceReads

__all__ = ["InMemoryRepository", "open_in_memory_repository"]


class InMemoryRepository(ReferenceReads):
    """A `MemoryRepository` that lives as long as its block. Made by `open_in_memory_repository`.

    There is no writer task and no mailbox: a synchronous function is already atomic in trio.

    Cancellation: each method is one checkpoint, before it does anything. Past it the method completes.
    """

    def __init__(self) -> None:
        super().__init__(ReferenceState())

    def __repr__(self) -> str:
        return f"<InMemoryRepository{' closed' if self._closed else ''}>"

    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        """See `MemoryRepository.apply`."""
        check_type("changeSet", change_set, MemoryChangeSet)
        await self._enter()
        return self._state.apply(change_set)

    async def record_admission(self, event: AccessEvent) -> None:
        """See `MemoryRepository.record_admission`."""
        check_type("accessEvent", event, AccessEvent)
        await self._enter()
        self._state.record(AccessKind.ADMISSION, event)

    async def record_use(self, event: AccessEvent) -> None:
        """See `MemoryRepository.record_use`."""
        check_type("accessEvent", event, AccessEvent)
        await self._enter()
        self._state.record(AccessKind.USE, event)

    async def purge(self, purge: MemoryPurge) -> PurgeReceipt:
        """See `MemoryRepository.purge`. Nothing is on a disk, so no bytes are ever pending."""
        check_type("purge", purge, MemoryPurge)
        await self._enter()
        return self._state.purge(purge)


@asynccontextmanager
async def open_in_memory_repository() -> AsyncIterator[InMemoryRepository]:
    """Open an empty repository for the length of the block; afterwards every method raises `RepositoryClosed`.

    Cancellation: entering is a checkpoint.
    """
    await trio.lowlevel.checkpoint()
    repository = InMemoryRepository()
    try:
        yield repository
    finally:
        repository._closed = True
