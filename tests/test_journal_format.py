"""The journal's lines: one spelling for each record, and what is said about anything else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from a3s_actors.memory import (
    AccessKind,
    AccessRecord,
    Corruption,
    LimitExceeded,
    MemoryChangeSet,
    Persistence,
)
from a3s_backends.journal import BaseRecord, JournalEvent, JournalRecord, TornTail, read_journal, record_line
from a3s_backends.journal.format import MAX_RECORD_BYTES
from tests.journal_data import change, create, event, revise

CANARY = "zanzibar-marmalade"
RECORDS: list[JournalRecord] = [
    change("k1", create("n", CANARY), create("m")),
    JournalEvent(AccessKind.ADMISSION, event("e1", "n")),
    change("k2", revise("n", 1, f"{CANARY} again")),
    JournalEvent(AccessKind.USE, event("e2", "n", 2)),
]
LINES = [record_line(record) for record in RECORDS]


def sealed(payload: bytes, version: int = 1) -> bytes:
    """Write the envelope by hand: the format, independently of the code under test."""
    checksum = hashlib.sha256(payload).hexdigest()
    return b'{"version":%d,"checksum":"%s","record":%s}\n' % (version, checksum.encode(), payload)


def payload_of(line: bytes) -> bytes:
    return line[line.index(b'"record":') + len(b'"record":') : -2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.journal"


def read(path: Path, data: bytes) -> list[JournalRecord]:
    path.write_bytes(data)
    with read_journal(path) as reader:
        records = [record for record in reader if not isinstance(record, BaseRecord)]
    assert path.read_bytes() == data
    return records


def test_records_come_back_equal_and_in_order(path: Path) -> None:
    assert read(path, b"".join(LINES)) == RECORDS
    assert read(path, b"") == []


def test_a_line_is_the_version_the_checksum_and_the_canonical_record() -> None:
    line = record_line(JournalEvent(AccessKind.USE, event("e", "n")))
    payload = (
        b'{"recordType":"use","event":{"id":"e","namespace":{"tenantId":"tenant","principalId":"principal",'
        b'"scopeId":"scope"},"nodeId":"n","nodeRevision":1,"occurredAt":"2026-01-02T03:04:05Z","contextId":null}}'
    )
    assert line == sealed(payload)


def test_an_access_record_of_another_backend_has_the_same_line() -> None:
    record = AccessRecord(kind=AccessKind.USE, event=event("e", "n"), place=17)
    assert record_line(record) == record_line(JournalEvent(AccessKind.USE, event("e", "n")))


def resealed(find: bytes, replacement: bytes) -> bytes:
    payload = payload_of(LINES[2])
    assert find in payload
    return sealed(payload.replace(find, replacement))


DAMAGE = {
    "empty": (b"\n", "empty"),
    "blank": (b"  \n", "not JSON"),
    "no JSON": (b"hello\n", "not JSON"),
    "no UTF-8": (LINES[2].replace(CANARY.encode(), b"\xff" * 18), "not JSON"),
    "another value": (b"[1]\n", "no record"),
    "another object": (b"{}\n", "no record"),
    "newer version": (sealed(payload_of(LINES[2]), version=3), "version 3"),
    "version zero": (sealed(payload_of(LINES[2]), version=0), "version 0"),
    "changed content": (LINES[2].replace(b"again", b"AGAIN"), "checksum"),
    "upper case checksum": (LINES[2][:25] + LINES[2][25:89].upper() + LINES[2][89:], "checksum"),
    "space in the envelope": (LINES[2].replace(b"1,", b"1, ", 1), "canonical"),
    "carriage return": (LINES[2].replace(b"\n", b"\r\n"), "checksum"),
    "key beside the record": (LINES[2].replace(b"}\n", b',"more":1}\n'), "checksum"),
    "unknown record type": (resealed(b'"change"', b'"chance"'), "record type is unknown"),
    "record type of no text": (resealed(b'"change"', b"[1]"), "record type is unknown"),
    "record that is a list": (sealed(b"[]"), "record type is unknown"),
    "space in the record": (resealed(b'"change",', b'"change", '), "canonical"),
    "escaped letter": (resealed(b"again", b"\\u0061gain"), "canonical"),
    "repeated key": (
        resealed(b'"idempotencyKey":"k2"', b'"idempotencyKey":"k2","idempotencyKey":"k2"'),
        "InvalidInput",
    ),
    "extra key": (resealed(b'"change",', b'"change","event":null,'), "canonical"),
    "offset time": (resealed(b"2026-01-02T03:04:05Z", b"2026-01-02T04:04:05+01:00"), "canonical"),
    "longer decimal": (resealed(b'"confidence":null', b'"confidence":0.50'), "canonical"),
    "unknown field": (resealed(b'"idempotencyKey"', b'"more":1,"idempotencyKey"'), "InvalidInput"),
    "missing field": (resealed(b'"idempotencyKey":"k2",', b""), "InvalidInput"),
    "too long key": (resealed(b'"k2"', b'"' + b"k" * 257 + b'"'), "LimitExceeded"),
    "no change set": (sealed(b'{"recordType":"change"}'), "InvalidInput"),
    "no event": (sealed(b'{"recordType":"use"}'), "InvalidInput"),
    "deep nesting": (sealed(b"[" * 100_000 + b"]" * 100_000), "InvalidInput"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_anything_else_is_corruption_that_names_the_place_and_no_content(path: Path, name: str) -> None:
    line, reason = DAMAGE[name]
    path.write_bytes(LINES[0] + LINES[1] + line + LINES[3])
    before = path.read_bytes()
    reader = read_journal(path)
    assert [next(reader), next(reader)] == RECORDS[:2]
    with pytest.raises(Corruption, match=reason) as caught:
        next(reader)
    assert caught.value.where == f"some.journal, byte {len(LINES[0]) + len(LINES[1])}, line 3"
    assert CANARY not in str(caught.value) + repr(caught.value)
    assert list(reader) == []  # it is closed
    assert path.read_bytes() == before


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80])
def test_no_flipped_bit_is_ever_read_as_something_else(path: Path, mask: int) -> None:
    data = b"".join(LINES)
    for place in range(len(data) - 1):
        flipped = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
        path.write_bytes(flipped)
        with pytest.raises(Corruption), read_journal(path) as reader:
            list(reader)
    # The very last newline is what tells a whole line from a torn one.
    assert read(path, data[:-1] + bytes([data[-1] ^ mask])) == RECORDS[:3]


def test_a_torn_last_line_is_reported_and_not_cut_wherever_it_was_cut(path: Path) -> None:
    whole = b"".join(LINES[:3])
    for size in range(len(LINES[3])):
        path.write_bytes(whole + LINES[3][:size])
        with read_journal(path) as reader:
            assert list(reader) == RECORDS[:3]
        assert reader.torn_tail == (TornTail(len(whole), size) if size else None)
        assert reader.end == len(whole)
        assert path.stat().st_size == len(whole) + size


def filled_to(size: int) -> MemoryChangeSet:
    """Return a change set whose line has exactly `size` bytes: control characters take six bytes each."""
    block = "a" + "\x01" * 65535
    operations = [create(f"n{number:03}", block) for number in range(size // (6 * 65536 + 1000))]
    missing = size - len(record_line_unlimited(change("k", *operations, create("fill", "a"))))
    content = "a" + "\x01" * (missing // 6) + "b" * (missing % 6)
    return change("k", *operations, create("fill", content))


def record_line_unlimited(change_set: MemoryChangeSet) -> bytes:
    from a3s_actors.memory.codec import change_set_json

    return sealed(b'{"recordType":"change","change_set":%s}' % change_set_json(change_set).encode())


def test_a_record_may_have_sixteen_mebibytes_and_not_one_byte_more(path: Path) -> None:
    largest = filled_to(MAX_RECORD_BYTES)
    line = record_line(largest)
    assert len(line) == MAX_RECORD_BYTES == 16 * 1024 * 1024
    assert read(path, line + LINES[0]) == [largest, RECORDS[0]]
    with pytest.raises(LimitExceeded) as caught:
        record_line(filled_to(MAX_RECORD_BYTES + 1))
    assert (caught.value.limit, caught.value.actual) == (MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1)


def test_a_writer_that_counts_the_record_alone_is_read(path: Path) -> None:
    line = record_line_unlimited(filled_to(MAX_RECORD_BYTES + len(sealed(b""))))
    assert len(payload_of(line)) == MAX_RECORD_BYTES
    assert len(read(path, line)) == 1


@pytest.mark.parametrize("ending", [b"\n", b""])
def test_an_endless_line_is_damage_when_it_ends_and_torn_when_it_does_not(path: Path, ending: bytes) -> None:
    size = 18 * 1024 * 1024
    path.write_bytes(LINES[0] + b"\0" * size + ending)
    with read_journal(path) as reader:
        assert next(reader) == RECORDS[0]
        if ending:
            with pytest.raises(Corruption, match="longer than a record may be"):
                next(reader)
        else:
            assert list(reader) == []
            assert reader.torn_tail == TornTail(len(LINES[0]), size)


def test_a_file_that_cannot_be_read_gives_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(Persistence, match=r"missing\.journal: No such file"):
        read_journal(tmp_path / "missing.journal")
    with pytest.raises(Persistence, match="directory"):
        read_journal(tmp_path)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_reader_that_is_left_early_closes_its_file(path: Path) -> None:
    path.write_bytes(b"".join(LINES))
    before = open_files()
    with read_journal(path) as reader:
        assert next(reader) == RECORDS[0]
        assert open_files() == before + 1
    assert open_files() == before
    assert list(reader) == []
