"""The repository's log: every change set and access event in the order they came. For exports."""

from __future__ import annotations

import apsw
import attrs

from a3s_actors.memory.decoding import decode
from a3s_actors.memory.errors import Corruption, MemoryRepositoryError
from a3s_actors.memory.operations import MemoryChangeSet
from a3s_actors.memory.reads import AccessRecord
from a3s_actors.memory.values import MemoryNamespace
from a3s_backends.sqlite.reading import access_record

__all__ = ["LogCursor", "LogPage", "read_log"]


@attrs.frozen(order=True)
class LogCursor:
    """A place in the log: the last change set and the last access event before it."""

    change_no: int = 0
    access_no: int = 0


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
    records: list[MemoryChangeSet | AccessRecord] = []
    change_no, access_no = after.change_no, after.access_no
    while len(records) < limit:
        # Events that came after the change set in hand, then the next change set.
        row = db.execute(
            "SELECT tenant, principal, scope, no, kind, access.id, usage.id, rev, at, context"
            " FROM access JOIN usage USING (node) JOIN namespace ON namespace.ns = access.ns"
            " WHERE no > ? AND change_no <= ? ORDER BY no LIMIT 1",
            (access_no, change_no),
        ).fetchone()
        if row is not None:
            record = access_record(MemoryNamespace(*row[:3]), row[3:])
            access_no = record.place
            records.append(record)
            continue
        change = db.execute("SELECT no, payload FROM change WHERE no > ? ORDER BY no LIMIT 1", (change_no,)).fetchone()
        if change is None:
            return LogPage(records=tuple(records), next_after=None)
        change_no = change[0]
        if change[1] is None:
            continue  # purged
        try:
            records.append(decode(change[1], MemoryChangeSet))
        except MemoryRepositoryError:
            raise Corruption(f"change set number {change_no}", "its stored form is damaged") from None
    return LogPage(records=tuple(records), next_after=LogCursor(change_no, access_no))
