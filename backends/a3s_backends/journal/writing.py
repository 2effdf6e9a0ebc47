"""How waiting writes become one synced append, and how a journal becomes a state again.

There are two states. `ahead` is what the journal says once the batch in hand is written; the writer decides
against it, in its thread. The published one is what readers see; it follows, in the trio thread, when the batch is
durable. They share all values, so the second one costs its dictionaries only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import outcome

from a3s_actors.memory.errors import MemoryRepositoryError, Persistence
from a3s_actors.memory.operations import ChangeSetResult, MemoryChangeSet
from a3s_actors.memory.purge import MemoryPurge, PurgeReceipt
from a3s_actors.memory.reference import PreparedApply, PreparedEvent, PreparedPurge, ReferenceState
from a3s_actors.memory.state_records import StateHeader, StateRecord
from a3s_backends.journal.base import BaseEnd, BaseRecord, base_lines
from a3s_backends.journal.file import JournalFile
from a3s_backends.journal.format import JournalRecord, record_line
from a3s_backends.journal.reading import JournalReader

__all__ = ["Prepared", "WriteRequest", "Writer", "publish", "replay"]

Prepared = PreparedApply | PreparedEvent | PreparedPurge
WriteRequest = JournalRecord | MemoryPurge

_CHECK_EVERY: Final = 256
"""Records between two looks at whether the opening was cancelled."""


@attrs.define(eq=False)
class Writer:
    """The writing side of a repository. Synchronous; used by one thread at a time."""

    file: JournalFile
    ahead: ReferenceState

    def write(self, requests: Sequence[WriteRequest]) -> list[outcome.Outcome[Prepared]]:
        """Decide requests in order, each on what those before it make, and write the new records in one append.

        When that append fails, every record of the batch has failed: what was decided rests on what is not
        stored. A purge ends a batch: what stands before it is stored first.

        Returns:
            For each request what to publish, or the error that refuses it.
        """
        decided: list[outcome.Outcome[Prepared]] = []
        records: list[JournalRecord] = []
        for request in requests:
            if isinstance(request, MemoryPurge):
                decided += self._write(records)
                records = []
                decided.append(self._purge(request))
            else:
                records.append(request)
        return decided + self._write(records)

    def _purge(self, purge: MemoryPurge) -> outcome.Outcome[Prepared]:
        try:
            self.file.check_usable()
            prepared = self.ahead.prepare_purge(purge)
            if not prepared.replay:
                self.ahead.commit_purge(prepared)
                self.file.rewrite(base_lines(self.ahead.dump()))
        except MemoryRepositoryError as error:
            return outcome.Error(error)
        return outcome.Value(prepared)

    def _write(self, records: Sequence[JournalRecord]) -> list[outcome.Outcome[Prepared]]:
        try:
            self.file.check_usable()
            decided, lines = self._decide(records)
            if lines:
                self.file.append(b"".join(lines))
        except Persistence as error:
            return [outcome.Error(error) for _ in records]
        return decided

    def _decide(self, records: Sequence[JournalRecord]) -> tuple[list[outcome.Outcome[Prepared]], list[bytes]]:
        decided: list[outcome.Outcome[Prepared]] = []
        lines: list[bytes] = []
        for record in records:
            try:
                prepared = _prepare(self.ahead, record)
                line = record_line(record) if _is_novel(prepared) else None
            except Exception as error:  # noqa: BLE001 - nothing has changed; it goes to the one caller
                decided.append(outcome.Error(error))
                continue
            if line is not None:
                lines.append(line)
                publish(self.ahead, prepared)
            decided.append(outcome.Value(prepared))
        return decided, lines


def publish(state: ReferenceState, prepared: Prepared) -> ChangeSetResult | PurgeReceipt | None:
    """Make a decided request true and return what its caller gets."""
    if isinstance(prepared, PreparedApply):
        return state.commit_apply(prepared)
    if isinstance(prepared, PreparedPurge):
        return state.commit_purge(prepared)
    state.commit_event(prepared)
    return None


def replay(reader: JournalReader, states: Sequence[ReferenceState], check_cancelled: Callable[[], None]) -> None:
    """Bring empty states to where a journal ends.

    Args:
        reader: at its beginning; it is exhausted.
        states: all become equal.
        check_cancelled: called now and then; what it raises ends the replay.

    Raises:
        Corruption: a line is damaged, repeats an earlier record, or breaks a rule.
        Persistence: the file cannot be read.
    """
    for record in reader:
        if reader.line % _CHECK_EVERY == 0:
            check_cancelled()
        if isinstance(record, BaseRecord):
            if reader.line != 1 or not isinstance(record.record, StateHeader):
                raise reader.damaged("the base record is out of place")
            _load_base(record.record, reader, states, check_cancelled)
            continue
        try:
            prepared = _prepare(states[0], record)
        except MemoryRepositoryError as error:
            raise reader.damaged(f"the record does not apply ({type(error).__name__})") from error
        if not _is_novel(prepared):
            raise reader.damaged("the record repeats an earlier one")
        for state in states:
            publish(state, prepared)


def _load_base(
    header: StateHeader, reader: JournalReader, states: Sequence[ReferenceState], check_cancelled: Callable[[], None]
) -> None:
    records: list[StateRecord] = [header]
    for record in reader:
        if reader.line % _CHECK_EVERY == 0:
            check_cancelled()
        part = record.record if isinstance(record, BaseRecord) else None
        if part is None or isinstance(part, BaseEnd):
            if part is None or part.records != len(records):
                raise reader.damaged("the base state lacks records")
            break
        records.append(part)
    else:
        raise reader.damaged("the base state has no end")
    try:
        for state in states:
            state.load(records)
    except ValueError as error:
        raise reader.damaged(f"the base state holds {error}") from error


def _prepare(state: ReferenceState, record: JournalRecord) -> PreparedApply | PreparedEvent:
    if isinstance(record, MemoryChangeSet):
        return state.prepare_apply(record)
    return state.prepare_event(record.kind, record.event)


def _is_novel(prepared: PreparedApply | PreparedEvent) -> bool:
    return prepared.replay is None if isinstance(prepared, PreparedApply) else prepared.novel
