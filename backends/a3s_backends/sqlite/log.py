"""The repository's log: every change set and access event in the order they came. For exports."""

from __future__ import annotations

from typing import Final

import apsw
import attrs

from a3s_actors.memory._checks import whole
from a3s_actors.memory.decoding import decode
from a3s_actors.memory.errors import Corruption, MemoryRepositoryError
from a3s_actors.memory.operations import MemoryChangeSet
from a3s_actors.memory.reads import AccessRecord
from a3s_backends.sqlite.reading import access_record, stored_namespace

__all__ = ["LAST_NUMBER", "LogCursor", "LogPage", "read_log"]

LAST_NUMBER: Final = (1 << 63) - 1
"""SQLite has no larger whole numbers."""


@attrs.frozen(order=True)
class LogCursor:
    """A place in the log: the last change set and the last access event before it.

    Raises:
        InvalidInput: a number is none, or below 0.
    """

    change_no: int = attrs.field(default=0, validator=whole("logCursor.changeNo", 0))
    access_no: int = attrs.field(default=0, validator=whole("logCursor.accessNo", 0))


@attrs.frozen(kw_only=True)
class LogPage:
    """Records in order, and the cursor of the next page, None on the last."""

    records: tuple[MemoryChangeSet | AccessRecord, ...]
    next_after: LogCursor | None


def read_log(db: apsw.Connection, after: LogCursor, limit: int) -> LogPage:
    """Read a page of the log inside the caller's read transaction.

    Raises:
        Corruption: a stored change set is damaged.
    """
    change_no, access_no = min(after.change_no, LAST_NUMBER), min(after.access_no, LAST_NUMBER)
    changes = db.execute("SELECT no, payload FROM change WHERE no > ? ORDER BY no", (change_no,))
    events = db.execute(
        "SELECT change_no, tenant, principal, scope, no, kind, access.id, usage.id, rev, at, context"
        " FROM access JOIN usage USING (node) JOIN namespace ON namespace.ns = access.ns"
        " WHERE no > ? ORDER BY no",
        (access_no,),
    )
    try:
        return _merged(events, changes, LogCursor(change_no, access_no), limit)
    finally:
        # An error that somebody keeps must not keep a statement running.
        events.close()
        changes.close()


def _merged(events: apsw.Cursor, changes: apsw.Cursor, after: LogCursor, limit: int) -> LogPage:
    records: list[MemoryChangeSet | AccessRecord] = []
    change_no, access_no = after.change_no, after.access_no
    event, change = next(events, None), next(changes, None)
    while len(records) < limit:
        # Events that came before the next change set go first.
        if event is not None and (change is None or event[0] < change[0]):
            record = access_record(stored_namespace(*event[1:4]), event[4:])
            records.append(record)
            access_no = record.place
            event = next(events, None)
        elif change is not None:
            change_no, payload = change
            if payload is not None:  # else it was purged
                records.append(_change_set(change_no, payload))
            change = next(changes, None)
        else:
            break
    more = event is not None or change is not None
    return LogPage(records=tuple(records), next_after=LogCursor(change_no, access_no) if more else None)


def _change_set(number: int, payload: bytes) -> MemoryChangeSet:
    try:
        return decode(payload, MemoryChangeSet)
    except MemoryRepositoryError:
        raise Corruption(f"change set number {number}", "its stored form is damaged") from None
