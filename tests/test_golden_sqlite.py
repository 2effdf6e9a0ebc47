"""The crate's operations, answers and journal, against the SQLite backend."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from a3s_actors.memory import AccessKind, MemoryChangeSet, MemoryRepository
from a3s_backends.journal import BaseRecord, read_journal, record_line
from a3s_backends.sqlite import LogCursor, SqliteMemoryRepository, open_sqlite_repository
from tests.golden import GOLDEN, check_final_state, needs_golden, run_golden

pytestmark = needs_golden


async def _as_journal(repository: SqliteMemoryRepository) -> bytes:
    lines = []
    cursor: LogCursor | None = LogCursor()
    while cursor is not None:
        page = await repository.log(cursor, limit=5)
        lines += [record_line(record) for record in page.records]
        cursor = page.next_after
    return b"".join(lines)


async def test_sqlite_answers_every_operation_as_the_crate_does_and_exports_its_journal(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        path = tmp_path / "memory.db"
        opened = [await stack.enter_async_context(open_sqlite_repository(path))]

        async def reopen() -> MemoryRepository:
            await stack.aclose()
            opened.append(await stack.enter_async_context(open_sqlite_repository(path)))
            return opened[-1]

        assert await run_golden(opened[0], reopen) == 260
        assert len(opened) == 2
        await check_final_state(opened[-1])
        assert await opened[-1].verify() == ()
        assert await _as_journal(opened[-1]) == (GOLDEN / "repo" / "memory-v2.journal").read_bytes()


async def test_the_crates_journal_can_be_replayed_into_sqlite(tmp_path: Path) -> None:
    async with open_sqlite_repository(tmp_path / "memory.db") as repository:
        for record in read_journal(GOLDEN / "repo" / "memory-v2.journal"):
            if isinstance(record, MemoryChangeSet):
                await repository.apply(record)
            elif isinstance(record, BaseRecord):
                pytest.fail("the crate writes no base state")
            elif record.kind is AccessKind.ADMISSION:
                await repository.record_admission(record.event)
            else:
                await repository.record_use(record.event)
        await check_final_state(repository)
        assert await repository.verify() == ()
