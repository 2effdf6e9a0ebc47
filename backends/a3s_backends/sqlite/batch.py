"""Group commit: many waiting writes in one transaction, each with its own outcome.

A refused write has written nothing (see `writing`), so it simply gets its refusal. When storage fails inside
the transaction, SQLite may already have rolled all of it back; then nothing of the batch is stored, and the
writes are done again one by one, so that one bad write does not take its neighbours along. The same goes for an
exception that nobody expects: only the write that raises it fails. When COMMIT itself fails, the outcome is unknown
until the keys are read again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import apsw
import attrs
import outcome

from a3s_actors.actor.events import warn
from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.operations import ChangeSetResult
from a3s_actors.memory.purge import PurgeReceipt
from a3s_backends.sqlite.connection import storage_errors, translated
from a3s_backends.sqlite.folder import remove_leftovers
from a3s_backends.sqlite.lexical_schema import LexicalIndexDamaged
from a3s_backends.sqlite.purging import PurgeRequest, bytes_pending, finish_purge, purge_rows
from a3s_backends.sqlite.rows import RowCodec
from a3s_backends.sqlite.upkeep import UpkeepRequest, UpkeepResult
from a3s_backends.sqlite.writing import ApplyRequest, EventRequest, apply_change_set, record_event

__all__ = ["CompactRequest", "WriteOutcome", "WriteRequest", "WriteResult", "Writer"]


@attrs.frozen(eq=False)
class CompactRequest:
    """The wish for a file without free space."""


WriteRequest = ApplyRequest | EventRequest | PurgeRequest | UpkeepRequest | CompactRequest
WriteResult = ChangeSetResult | PurgeReceipt | UpkeepResult | bool | None
WriteOutcome = outcome.Outcome[WriteResult]


@attrs.define(eq=False)
class Writer:
    """The one writing connection of a repository. Synchronous; used by one thread at a time."""

    db: apsw.Connection
    codec: RowCodec

    def commit(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        """Do all requests, durably, and return the outcome of each in order. Never raises an Exception."""
        outcomes: list[WriteOutcome] = []
        for together, group in itertools.groupby(requests, _goes_with_others):
            members = list(group)
            outcomes += self._commit_group(members) if together else map(self._by_itself, members)
        return outcomes

    def _by_itself(self, request: WriteRequest) -> WriteOutcome:
        if isinstance(request, CompactRequest):
            return outcome.capture(self._compact)
        return self._purge(request) if isinstance(request, PurgeRequest) else self._alone(request)

    def _compact(self) -> bool:
        with storage_errors("compact"):
            return finish_purge(self.db)

    def _commit_group(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        outcomes = self._transaction(requests)
        if outcomes is not None:
            return outcomes
        return [self._alone(request) for request in requests]

    def _purge(self, request: WriteRequest) -> WriteOutcome:
        result = self._alone(request)
        if isinstance(result, outcome.Error):
            return result
        receipt = result.unwrap()
        assert isinstance(receipt, PurgeReceipt)
        # A killed backup or restore has left the erased texts, too.
        remove_leftovers(Path(self.db.filename).parent)
        return outcome.Value(attrs.evolve(receipt, bytes_pending=not self.finish_purge()))

    def finish_purge(self) -> bool:
        """Erase what bytes a purge has left, if any; return whether all are gone."""
        try:
            return not bytes_pending(self.db) or finish_purge(self.db)
        except apsw.Error as error:
            warn("a3s_backends.sqlite", "sqlite_purge_unfinished", error=type(error).__name__)
            return False

    def _transaction(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome] | None:
        """Return the outcomes, or None when nothing was stored and the requests should go one by one."""
        try:
            with storage_errors("write"):
                self.db.execute("BEGIN IMMEDIATE")
        except MemoryRepositoryError as error:
            return [outcome.Error(error) for _ in requests]
        outcomes: list[WriteOutcome] = []
        try:
            outcomes.extend(map(self._perform, requests))
            self.db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - one request's, and goes to its caller
            self._roll_back()
            if len(requests) > 1:
                return None
            if isinstance(error, apsw.Error | LexicalIndexDamaged):
                return [self._settle(requests[0], error, outcomes)]
            return [outcome.Error(_as_failure(error))]
        except BaseException:
            self._roll_back()
            raise
        return outcomes

    def _perform(self, request: WriteRequest) -> WriteOutcome:
        before = self.db.total_changes()
        try:
            return outcome.Value(self._do(request))
        except MemoryRepositoryError as error:
            # `writing` refuses before it writes; damage may be found later. Half a write must not be committed.
            if self.db.total_changes() != before:
                raise
            return outcome.Error(error)

    def _do(self, request: WriteRequest) -> WriteResult:
        if isinstance(request, ApplyRequest):
            return apply_change_set(self.db, self.codec, request)
        if isinstance(request, PurgeRequest):
            return purge_rows(self.db, self.codec, request.purge)
        if isinstance(request, UpkeepRequest):
            return request.perform(self.db, self.codec)
        assert isinstance(request, EventRequest)
        record_event(self.db, self.codec, request.kind, request.event)
        return None

    def _alone(self, request: WriteRequest) -> WriteOutcome:
        # A replay of what the failed batch may have stored after all returns the stored result.
        outcomes = self._transaction([request])
        assert outcomes is not None
        return outcomes[0]

    def _settle(
        self, request: WriteRequest, error: apsw.Error | LexicalIndexDamaged, performed: list[WriteOutcome]
    ) -> WriteOutcome:
        """Find out what became of a single write whose transaction ended in a storage error.

        Args:
            request: the write.
            error: what ended its transaction.
            performed: its outcome, if only the commit failed.
        """
        failure = _as_failure(error)
        try:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                if performed and isinstance(request, UpkeepRequest) and request.is_done(self.db):
                    self._roll_back()
                    return performed[0]
                # If it was stored, doing it again is a replay and changes nothing; else this is one more try.
                result = self._perform(request)
                self.db.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        except Exception:  # noqa: BLE001 - whatever it was, the first failure says what happened
            return outcome.Error(failure)
        return result

    def _roll_back(self) -> None:
        # After a full disk or an I/O error SQLite has rolled back by itself, and ROLLBACK would be an error.
        if self.db.in_transaction:
            # If even this fails, the next BEGIN says so.
            with contextlib.suppress(apsw.Error):
                self.db.execute("ROLLBACK")


def _as_failure(error: Exception) -> Exception:
    """Translate what ended a write. A mistake of ours goes to its caller as it is, and takes nobody else along."""
    failure = error if isinstance(error, MemoryRepositoryError) else translated("write", error)
    if failure is None:
        warn("a3s_backends.sqlite", "sqlite_write_bug", error=type(error).__name__)
        return error
    return failure


def _goes_with_others(request: WriteRequest) -> bool:
    return isinstance(request, ApplyRequest | EventRequest)
