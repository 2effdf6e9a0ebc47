"""What a line of the journal is. Pure: bytes to records and back.

After a purge a journal begins with lines of version 2, see `base`. All others are of version 1:
a line is `{"version":1,"checksum":C,"record":R}` and a newline, where R is the record's canonical JSON and C the hex
SHA-256 of R. R is `{"recordType":"change","change_set":…}` or `{"recordType":"admission"|"use","event":…}`. Every
record has exactly one line, so whatever differs from it by a byte is damage.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import attrs

from a3s_actors.memory.codec import access_event_json, change_set_json
from a3s_actors.memory.decoding import parse_json, structure
from a3s_actors.memory.errors import LimitExceeded, MemoryRepositoryError
from a3s_actors.memory.limits import MAX_CHANGE_SET_BYTES
from a3s_actors.memory.operations import MemoryChangeSet
from a3s_actors.memory.reads import AccessRecord
from a3s_actors.memory.values import AccessEvent, AccessKind
from a3s_backends.journal.base import BaseRecord, base_record

__all__ = [
    "MAX_LINE_BYTES",
    "MAX_RECORD_BYTES",
    "JournalEvent",
    "JournalRecord",
    "LineDamaged",
    "parse_line",
    "record_line",
]


@attrs.frozen
class JournalEvent:
    """One access event as the journal records it."""

    kind: AccessKind
    event: AccessEvent


JournalRecord = MemoryChangeSet | JournalEvent
"""What one line of version 1 says."""

MAX_RECORD_BYTES: Final = MAX_CHANGE_SET_BYTES
"""The longest line that is written, its newline included: 16 MiB."""

_VERSION: Final = 1
_BASE_VERSION: Final = 2


def _before_checksum(version: int) -> bytes:
    return f'{{"version":{version},"checksum":"'.encode()


_BEFORE_CHECKSUM: Final = _before_checksum(_VERSION)
_BEFORE_RECORD: Final = b'","record":'
_HEX: Final = hashlib.sha256().digest_size * 2
_RECORD_AT: Final = len(_BEFORE_CHECKSUM) + _HEX + len(_BEFORE_RECORD)
_END: Final = b"}\n"

MAX_LINE_BYTES: Final = MAX_RECORD_BYTES + _RECORD_AT + len(_END)
"""The longest line that is read: other writers may count the 16 MiB without what surrounds the record."""


class LineDamaged(Exception):
    """A line is no record. The text says why, and nothing of what the line holds."""


def record_line(record: JournalRecord | AccessRecord) -> bytes:
    """Return a record's line, newline included. An access record's place is not part of it.

    Raises:
        LimitExceeded: the line is longer than 16 MiB.
    """
    payload = _payload(record)
    line = _head(payload, _VERSION) + payload + _END
    if len(line) > MAX_RECORD_BYTES:
        raise LimitExceeded("journal record bytes", MAX_RECORD_BYTES, len(line))
    return line


def parse_line(line: bytes) -> JournalRecord | BaseRecord:
    """Return the record of a line that ends with its newline.

    Args:
        line: at most `MAX_LINE_BYTES`, or `MAX_BASE_LINE_BYTES` for one of version 2.

    Raises:
        LineDamaged: anything but a record's one canonical line.
    """
    payload = line[_RECORD_AT : -len(_END)]
    if line[:_RECORD_AT] == _head(payload, _BASE_VERSION) and line.endswith(_END):
        try:
            return base_record(parse_json(payload))
        except (MemoryRepositoryError, LookupError, TypeError, ValueError) as error:
            raise LineDamaged(f"its base record is malformed ({type(error).__name__})") from None
    if line[:_RECORD_AT] != _head(payload, _VERSION) or not line.endswith(_END):
        raise LineDamaged(_why_foreign(line))
    try:
        record = _structure(parse_json(payload))
    except MemoryRepositoryError as error:
        raise LineDamaged(f"its record is malformed ({type(error).__name__})") from None
    if _payload(record) != payload:
        raise LineDamaged("its record is not canonical JSON")
    return record


def _head(payload: bytes, version: int) -> bytes:
    return _before_checksum(version) + hashlib.sha256(payload).hexdigest().encode() + _BEFORE_RECORD


def _payload(record: JournalRecord | AccessRecord) -> bytes:
    if isinstance(record, MemoryChangeSet):
        return f'{{"recordType":"change","change_set":{change_set_json(record)}}}'.encode()
    return f'{{"recordType":"{record.kind.value}","event":{access_event_json(record.event)}}}'.encode()


def _structure(data: Any) -> JournalRecord:
    kind = data.get("recordType") if isinstance(data, dict) else None
    if kind == "change":
        return structure(data.get("change_set"), MemoryChangeSet)
    if kind in (AccessKind.ADMISSION.value, AccessKind.USE.value):
        return JournalEvent(AccessKind(kind), structure(data.get("event"), AccessEvent))
    raise LineDamaged("its record type is unknown")


def _why_foreign(line: bytes) -> str:
    if line == b"\n":
        return "the line is empty"
    try:
        data = parse_json(line)
    except MemoryRepositoryError:
        return "the line is not JSON"
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and version not in {_VERSION, _BASE_VERSION}:
        return f"the line has version {version}; this release reads versions {_VERSION} and {_BASE_VERSION}"
    if (
        line.startswith((_BEFORE_CHECKSUM, _before_checksum(_BASE_VERSION)))
        and line[_RECORD_AT - len(_BEFORE_RECORD) : _RECORD_AT] == _BEFORE_RECORD
    ):
        return "the checksum is not that of the record"
    return "the line is no record in canonical JSON"
