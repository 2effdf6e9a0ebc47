"""The crate's operations, answers and journal, against the in-memory and the journal backend."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

from a3s_actors.memory import MemoryChangeSet, MemoryRepository
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.journal import BaseRecord, open_file_repository, read_journal, record_line
from tests.golden import GOLDEN, check_final_state, needs_golden, run_golden, summary

pytestmark = needs_golden

OPERATIONS = 260


async def test_the_crates_journal_opens_with_the_crates_state_and_is_not_touched(tmp_path: Path) -> None:
    journal = tmp_path / "memory-v2.journal"
    shutil.copyfile(GOLDEN / "repo" / "memory-v2.journal", journal)
    before = journal.read_bytes()
    async with open_file_repository(tmp_path) as repository:
        await check_final_state(repository)
    assert journal.read_bytes() == before


async def test_the_reference_answers_every_operation_as_the_crate_does() -> None:
    async with open_in_memory_repository() as repository:

        async def reopen() -> MemoryRepository:
            return repository

        assert await run_golden(repository, reopen) == OPERATIONS
        await check_final_state(repository)


async def test_the_journal_backend_answers_and_writes_as_the_crate_does(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        current = await stack.enter_async_context(open_file_repository(tmp_path / "repo"))
        opened: list[MemoryRepository] = [current]

        async def reopen() -> MemoryRepository:
            await stack.aclose()
            opened.append(await stack.enter_async_context(open_file_repository(tmp_path / "repo")))
            return opened[-1]

        assert await run_golden(current, reopen) == OPERATIONS
        assert len(opened) == 2
        await check_final_state(opened[-1])
    written = (tmp_path / "repo" / "memory-v2.journal").read_bytes()
    facts = summary()["journal"]
    assert len(written) == facts["bytes"]
    assert hashlib.sha256(written).hexdigest() == facts["sha256"]
    assert written == (GOLDEN / "repo" / "memory-v2.journal").read_bytes()


def test_every_line_of_the_crate_is_read_and_written_again_the_same() -> None:
    lines = (GOLDEN / "repo" / "memory-v2.journal").read_bytes().splitlines(keepends=True)
    with read_journal(GOLDEN / "repo" / "memory-v2.journal") as reader:
        records = [record for record in reader if not isinstance(record, BaseRecord)]
    assert reader.torn_tail is None
    assert [record_line(record) for record in records] == lines
    assert len(records) == summary()["journal"]["records"]
    described = [
        ("change", record.idempotency_key)
        if isinstance(record, MemoryChangeSet)
        else (record.kind.value, record.event.id)
        for record in records
    ]
    assert described == [(wanted["recordType"], wanted["key"]) for wanted in summary()["records"]]
