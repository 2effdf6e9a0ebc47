"""Sealed segments of the lexical index: how 4,096 texts become rows and come back.

A segment owns a contiguous range of text numbers (``seq``); a *slot* is a position in that range. Its
postings are written once, in 256 rows chosen by the top byte of the token's hash: a query reads one row of
about 1.5 kB a token and segment, a flush appends to the end of one b-tree, and a lost row shows because
every segment has all 256. Its slots are one blob of 9-byte records (``updated`` in ns, a code byte), so a
change of a node's status or time overwrites nine bytes and leaves the postings alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import apsw
import attrs

from a3s_backends.sqlite.lexical_schema import LexicalIndexDamaged, fetch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Slots = NDArray[np.uint16]

BUCKETS = 256
BUCKET_SHIFT = 56
_MAX_ID = (1 << 55) - 1  # so that the numbers of its rows are whole numbers of SQLite
SLOT = struct.Struct("<qB")

PostingsRow = tuple[int, bytes, bytes, bytes]


@attrs.frozen(kw_only=True)
class Segment:
    """Where a sealed segment lies.

    Attributes:
        id: Its number in the file; key of its slots, and times 256 of its postings.
        first: The first ``seq`` it covers.
        end: One past the last.
        changed: The namespace's ``change_no`` at which its slots last changed.
    """

    id: int
    first: int
    end: int
    changed: int


@attrs.frozen(eq=False)
class Postings:
    """Rows of postings joined.

    Attributes:
        tokens: Hashes, ascending within a row.
        counts: How many slots each has.
        slots: The slots of one token after another, ascending within a token.
    """

    tokens: Hashes
    counts: Slots
    slots: Slots


def segments(db: apsw.Connection, ns: int, expected: int) -> tuple[Segment, ...]:
    """Read the sealed segments of a namespace in ``seq`` order.

    Raises:
        LexicalIndexDamaged: There are not ``expected`` of them, or one is none.
    """
    rows = fetch(db, "SELECT id, first_seq, end_seq, changed FROM lex_seg WHERE ns = ? ORDER BY first_seq", (ns,))
    if len(rows) != expected:
        raise LexicalIndexDamaged(f"namespace {ns}: {len(rows)} segments, {expected} recorded")
    for i, first, end, changed in rows:
        if not (0 <= i <= _MAX_ID and 0 <= first < end <= first + (1 << 16) and changed >= 0):
            raise LexicalIndexDamaged(f"namespace {ns}: the segment from {first} on")
    return tuple(Segment(id=i, first=first, end=end, changed=changed) for i, first, end, changed in rows)


def read_slots(db: apsw.Connection, segment: Segment) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Read the slots of a segment as two columns: ``updated`` and code."""
    import numpy as np

    rows = fetch(db, "SELECT body FROM lex_slots WHERE seg = ?", (segment.id,))
    if not rows or len(rows[0][0]) != SLOT.size * (segment.end - segment.first):
        raise LexicalIndexDamaged(f"slots of segment {segment.id}")
    table = np.frombuffer(rows[0][0], np.dtype([("updated", "<i8"), ("code", "u1")]))
    return table["updated"].copy(), table["code"].copy()


def write_slot(db: apsw.Connection, segment: int, slot: int, *, updated: int, code: int) -> bool:
    """Overwrite one slot in place; a slot that is dead stays dead.

    Returns:
        Whether the slot was alive and is now overwritten.
    """
    try:
        blob = db.blob_open("main", "lex_slots", "body", segment, True)
    except apsw.SQLError as error:
        raise LexicalIndexDamaged(f"slots of segment {segment}") from error
    with blob:  # an open handle would block the caller's savepoints
        at = slot * SLOT.size
        if at + SLOT.size > blob.length():
            raise LexicalIndexDamaged(f"slots of segment {segment}")
        blob.seek(at)
        if SLOT.unpack(blob.read(SLOT.size))[1] == 0:
            return False
        blob.seek(at)
        blob.write(SLOT.pack(updated, code))
    return True


def encode(tokens: Hashes, slots: Slots) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    """Turn (token, slot) pairs in ascending order into the 256 rows: bucket, tokens, counts, slots."""
    import numpy as np

    first = np.ones(len(tokens), np.bool_)  # of its token
    first[1:] = tokens[1:] != tokens[:-1]
    distinct = tokens[first].astype("<u8")
    bounds = np.append(np.flatnonzero(first), len(tokens))
    counts = np.diff(bounds).astype("<u2")
    packed = slots.astype("<u2")
    buckets = np.arange(BUCKETS, dtype=np.uint64) << np.uint64(BUCKET_SHIFT)
    edges = [*np.searchsorted(distinct, buckets).tolist(), len(distinct)]
    for bucket in range(BUCKETS):
        low, high = edges[bucket], edges[bucket + 1]
        inside = packed[bounds[low] : bounds[high]]
        yield bucket, distinct[low:high].tobytes(), counts[low:high].tobytes(), inside.tobytes()


def decode(rows: Sequence[PostingsRow]) -> Postings:
    """Join rows of ``lex_post``.

    Raises:
        LexicalIndexDamaged: The columns of a row do not fit each other.
    """
    import numpy as np

    for key, tokens, counts, slots in rows:
        if len(tokens) % 8 or len(tokens) != 4 * len(counts) or len(slots) % 2:
            raise LexicalIndexDamaged(_place(key))
    found = Postings(
        np.frombuffer(b"".join([row[1] for row in rows]), "<u8"),
        np.frombuffer(b"".join([row[2] for row in rows]), "<u2"),
        np.frombuffer(b"".join([row[3] for row in rows]), "<u2"),
    )
    if int(found.counts.sum(dtype=np.int64)) != len(found.slots):
        raise LexicalIndexDamaged(f"{_place(rows[0][0])} or one of {len(rows) - 1} read with it")
    return found


def read_bucket(db: apsw.Connection, segments: Sequence[Segment], bucket: int) -> list[PostingsRow]:
    """Read one row of postings from each of some segments, in their order.

    Raises:
        LexicalIndexDamaged: A row is missing.
    """
    rows = db.executemany(
        "SELECT id, tokens, counts, slots FROM lex_post WHERE id = ?",
        ((segment.id * BUCKETS + bucket,) for segment in segments),
    ).fetchall()
    if len(rows) != len(segments):
        raise LexicalIndexDamaged(f"postings: {len(rows)} of {len(segments)} rows {bucket}")
    return cast("list[PostingsRow]", rows)


def read_postings(db: apsw.Connection, segment: Segment) -> Postings:
    """Read all postings of a segment, ascending by token and slot.

    Raises:
        LexicalIndexDamaged: A row is missing or does not hold what it should.
    """
    first_row = segment.id * BUCKETS
    rows = fetch(
        db,
        "SELECT id, tokens, counts, slots FROM lex_post WHERE id BETWEEN ? AND ? ORDER BY id",
        (first_row, first_row + BUCKETS - 1),
    )
    if len(rows) != BUCKETS:
        raise LexicalIndexDamaged(f"segment {segment.id}: {len(rows)} of {BUCKETS} rows of postings")
    whole = decode(cast("list[PostingsRow]", rows))
    if len(whole.slots) and int(whole.slots.max()) >= segment.end - segment.first:
        raise LexicalIndexDamaged(f"segment {segment.id}: a posting outside it")
    return whole


def write_postings(db: apsw.Connection, segment: int, tokens: Hashes, slots: Slots) -> None:
    """Write (or write anew) all postings of a segment from ascending (token, slot) pairs."""
    db.executemany(
        "INSERT OR REPLACE INTO lex_post(id, tokens, counts, slots) VALUES (?, ?, ?, ?)",
        ((segment * BUCKETS + bucket, *columns) for bucket, *columns in encode(tokens, slots)),
    )


def delete(db: apsw.Connection, segment: int) -> None:
    """Delete the slots and postings of a segment; of a number that no segment can have there are none."""
    if not 0 <= segment <= _MAX_ID:
        return
    db.execute(
        "DELETE FROM lex_post WHERE id BETWEEN ? AND ?",
        (segment * BUCKETS, segment * BUCKETS + BUCKETS - 1),
    )
    db.execute("DELETE FROM lex_slots WHERE seg = ?", (segment,))


def delete_strays(db: apsw.Connection) -> None:
    """Delete slots and postings that belong to no segment: damage only leaves such."""
    db.execute("DELETE FROM lex_post WHERE id >> 8 NOT IN (SELECT id FROM lex_seg)")
    db.execute("DELETE FROM lex_slots WHERE seg NOT IN (SELECT id FROM lex_seg)")


def _place(key: int) -> str:
    return f"segment {key // BUCKETS}: row {key % BUCKETS} of its postings"
