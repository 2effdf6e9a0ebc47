"""The base state with which a journal begins after a purge. Pure: records to lines and back.

A log cannot forget. After a purge the whole state is written anew, as lines of version 2 (which the a3s-memory crate
does not read), followed by lines of version 1 for what comes later. The last base line counts the others, so that a
base is whole or damaged.

Each line is `{"version":2,"checksum":C,"record":R}` and a newline, with C the hex SHA-256 of R.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from a3s_actors.memory.codec import (
    access_event_json,
    change_set_json,
    head_json,
    namespace_json,
    revision_json,
    string_json,
)
from a3s_actors.memory.decoding import structure
from a3s_actors.memory.operations import MemoryChangeSet
from a3s_actors.memory.purge import PurgeReceipt, receipt_json
from a3s_actors.memory.reads import AccessRecord
from a3s_actors.memory.state_records import (
    StateApplied,
    StateErased,
    StateEvent,
    StateHead,
    StateHeader,
    StateNamespace,
    StatePurge,
    StateRecord,
    StateRevision,
)
from a3s_actors.memory.values import AccessEvent, AccessKind, MemoryNamespace, NodeHead, NodeRevision

__all__ = ["MAX_BASE_LINE_BYTES", "BaseEnd", "BaseRecord", "base_lines", "base_record"]

MAX_BASE_LINE_BYTES: Final = 256 * 1024 * 1024
"""The longest base line: the receipt of a purge names every change set that it erased."""


@attrs.frozen
class BaseEnd:
    """The end of a base state, and how many records it has."""

    records: int


@attrs.frozen
class BaseRecord:
    """What one line of version 2 says: a part of the state that a purge left, or the end of it."""

    record: StateRecord | BaseEnd


def base_lines(records: Iterable[StateRecord]) -> Iterator[bytes]:
    """Yield the lines of a base state, newlines included, its end last."""
    count = 0
    for record in records:
        yield _line(_json(record))
        count += 1
    yield _line(f'{{"recordType":"base_end","records":{count}}}')


def _line(record: str) -> bytes:
    payload = record.encode()
    return b'{"version":2,"checksum":"%b","record":%b}\n' % (hashlib.sha256(payload).hexdigest().encode(), payload)


def _json(record: StateRecord) -> str:
    match record:
        case StateHeader():
            return f'{{"recordType":"base","key":"{record.key.hex()}","nextPlace":{record.next_place}}}'
        case StateNamespace():
            space = namespace_json(record.namespace)
            return f'{{"recordType":"namespace","namespace":{space},"sequence":{record.sequence}}}'
        case StateHead(head):
            return f'{{"recordType":"head","head":{head_json(head)}}}'
        case StateRevision(revision):
            return f'{{"recordType":"revision","revision":{revision_json(revision)}}}'
        case StateApplied(change_set, changed):
            made = json.dumps(changed, ensure_ascii=False, separators=(",", ":"))
            return f'{{"recordType":"applied","change_set":{change_set_json(change_set)},"changed":{made}}}'
        case StateErased(key, digest):
            return f'{{"recordType":"erased","key":{string_json(key)},"digest":{string_json(digest)}}}'
        case StatePurge():
            receipt = receipt_json(record.receipt)
            return f'{{"recordType":"purge","digest":"{record.digest.hex()}","receipt":{receipt}}}'
        case StateEvent(stored):
            event = access_event_json(stored.event)
            return f'{{"recordType":"access","kind":"{stored.kind.value}","place":{stored.place},"event":{event}}}'


def base_record(data: Any) -> BaseRecord:
    """Return the record of a line's parsed JSON.

    Raises:
        MemoryRepositoryError, LookupError, TypeError, ValueError: it is malformed.
    """
    return BaseRecord(_record(data))


def _record(data: Any) -> StateRecord | BaseEnd:
    match data["recordType"]:
        case "base":
            return StateHeader(key=bytes.fromhex(data["key"]), next_place=int(data["nextPlace"]))
        case "namespace":
            return StateNamespace(
                namespace=structure(data["namespace"], MemoryNamespace), sequence=int(data["sequence"])
            )
        case "head":
            return StateHead(structure(data["head"], NodeHead))
        case "revision":
            return StateRevision(structure(data["revision"], NodeRevision))
        case "applied":
            changed = tuple((str(node_id), int(revision)) for node_id, revision in data["changed"])
            return StateApplied(structure(data["change_set"], MemoryChangeSet), changed)
        case "erased":
            return StateErased(str(data["key"]), str(data["digest"]))
        case "purge":
            return StatePurge(digest=bytes.fromhex(data["digest"]), receipt=structure(data["receipt"], PurgeReceipt))
        case "access":
            event = structure(data["event"], AccessEvent)
            return StateEvent(AccessRecord(kind=AccessKind(data["kind"]), event=event, place=int(data["place"])))
        case "base_end":
            return BaseEnd(int(data["records"]))
        case _:
            raise ValueError("its record type is unknown")
