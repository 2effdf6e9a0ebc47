"""Writing the lexical index: which tokens stand in which text, and which text is alive.

Every distinct text version of a node is one entry with a number of its own (``seq``, ascending in a
namespace); the node's row remembers it. New entries go to the *tail*, one row each; when the tail is full it
is sealed into a segment (see `lexical_segments`). A node that gets a new text is one `add` and one `remove`;
a node that changes status or time is one `set_meta`.

All functions are synchronous, keep no state in the process and run inside the caller's write transaction
(``BEGIN IMMEDIATE``); when it or a savepoint in it is rolled back, so is the index. None of them commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import apsw

from a3s_backends.sqlite import lexical_segments as sealed
from a3s_backends.sqlite.lexical_schema import (
    SCHEMA,
    TAIL_TEXTS,
    TAIL_TOKENS,
    LexicalIndexDamaged,
    TokenHashes,
    damage,
    fetch,
    hash_tokens,
)

__all__ = [
    "SCHEMA",
    "LexicalIndexDamaged",
    "TokenHashes",
    "add",
    "clear",
    "code_of",
    "compact",
    "erase",
    "hash_tokens",
    "remove",
    "set_meta",
]

_SATURATED = (-(1 << 63), (1 << 63) - 1)
_MINUTE = 60_000_000_000


def saturate(updated_ns: int) -> int:
    """Clamp a time to what an int64 column holds (years 1677 to 2262)."""
    return min(max(updated_ns, _SATURATED[0]), _SATURATED[1])


def is_inexact(updated: int) -> bool:
    """Tell whether a column value may stand for several times: a bound, or where leap seconds are put."""
    return updated in _SATURATED or updated % _MINUTE == _MINUTE - 1


def code_of(status: int, kind: int) -> int:
    """Pack status (1 to 15) and kind (0 to 15) into the code byte of a living entry.

    Raises:
        ValueError: One of them is out of range.
    """
    if not (1 <= status <= 15 and 0 <= kind <= 15):
        raise ValueError(f"status {status} must be 1..15 and kind {kind} 0..15")
    return status << 4 | kind


def add(
    db: apsw.Connection,
    ns: int,
    hashes: TokenHashes,
    *,
    status: int,
    kind: int,
    updated_ns: int,
    seal_at: int = TAIL_TEXTS,
) -> int:
    """Add an entry, sealing the tail when that fills it.

    Args:
        db: A connection inside a write transaction.
        ns: The namespace's number.
        hashes: The text's tokens, from `hash_tokens`.
        status: 1 to 15.
        kind: 0 to 15.
        updated_ns: The node's updated_at, in nanoseconds since the epoch.
        seal_at: Entries in the tail that seal it, at most 65,536; smaller segments only suit tests.

    Returns:
        The entry's ``seq``.

    Raises:
        ValueError: ``status`` or ``kind`` is out of range.
        LexicalIndexDamaged: The tail could not be sealed because its rows are not all there.
    """
    code = code_of(status, kind)
    # Reading, then writing is quicker than an upsert with RETURNING: 5 instead of 8 us.
    rows = fetch(db, "SELECT next_seq, change_no, tail_from, tail_tokens FROM lex_ns WHERE ns = ?", (ns,))
    if not rows:
        db.execute("INSERT INTO lex_ns VALUES (?, 0, 0, 0, 0, 0, 0)", (ns,))
        rows = [(0, 0, 0, 0)]
    seq, change_no, tail_from, tail_tokens = rows[0]
    change_no += 1
    tail_tokens += len(hashes) // 8
    db.execute(
        "UPDATE lex_ns SET next_seq = ?, change_no = ?, tail_tokens = ? WHERE ns = ?",
        (seq + 1, change_no, tail_tokens, ns),
    )
    db.execute(
        "INSERT INTO lex_tail(ns, seq, changed, updated, code, tokens) VALUES (?, ?, ?, ?, ?, ?)",
        (ns, seq, change_no, saturate(updated_ns), code, hashes),
    )
    if seq - tail_from >= seal_at - 1 or tail_tokens >= TAIL_TOKENS:
        _seal(db, ns, tail_from, seq + 1, change_no)
    return cast("int", seq)


def set_meta(db: apsw.Connection, ns: int, seq: int, *, status: int, kind: int, updated_ns: int) -> None:
    """Change what is known of an entry besides its text.

    Raises:
        ValueError: ``status`` or ``kind`` is out of range.
        LexicalIndexDamaged: There is no such living entry.
    """
    _overwrite(db, ns, seq, updated=saturate(updated_ns), code=code_of(status, kind))


def remove(db: apsw.Connection, ns: int, seq: int) -> None:
    """Make an entry dead: no query finds it again.

    A sealed entry's postings stay until `erase` or `compact`; nothing but keyed hashes is left of it.

    Raises:
        LexicalIndexDamaged: There is no such living entry.
    """
    _overwrite(db, ns, seq, updated=0, code=0)


def erase(db: apsw.Connection, ns: int, seqs: Iterable[int]) -> int:
    """Make entries dead, if they are not, and drop every posting of them.

    Rewrites each segment concerned (about 15 ms each). Bytes may survive in free pages until VACUUM.

    Args:
        db: A connection inside a write transaction.
        ns: The namespace's number.
        seqs: The entries; those that do not exist (any more) are passed over.

    Returns:
        How many sealed postings were dropped.

    Raises:
        LexicalIndexDamaged: A segment cannot be read.
    """
    doomed = sorted(set(seqs))
    if not doomed:
        return 0
    dropped = 0
    change_no, tail_from, count = _begin_rewrite(db, ns)
    db.executemany(
        "UPDATE lex_tail SET changed = ?, updated = 0, code = 0, tokens = x'' WHERE ns = ? AND seq = ?",
        ((change_no, ns, seq) for seq in doomed if seq >= tail_from),
    )
    for segment in sealed.segments(db, ns, count):
        inside = [seq - segment.first for seq in doomed if segment.first <= seq < segment.end]
        if inside:
            dropped += _rewrite(db, ns, segment, inside, change_no)
    return dropped


def compact(db: apsw.Connection, ns: int) -> int:
    """Drop the postings of all dead entries, and segments in which nothing lives.

    Returns:
        How many postings were dropped.

    Raises:
        LexicalIndexDamaged: A segment cannot be read.
    """
    change_no, _, count = _begin_rewrite(db, ns)
    return sum(_rewrite(db, ns, segment, [], change_no) for segment in sealed.segments(db, ns, count))


def clear(db: apsw.Connection, ns: int) -> None:
    """Forget all entries of a namespace, damaged or not; numbering starts again at 0.

    The first half of a rebuild: every node has to be added again and remember its new ``seq``.
    """
    db.execute("DELETE FROM lex_tail WHERE ns = ?", (ns,))
    for (segment,) in fetch(db, "SELECT id FROM lex_seg WHERE ns = ?", (ns,)):
        sealed.delete(db, segment)
    db.execute("DELETE FROM lex_seg WHERE ns = ?", (ns,))
    db.execute(
        "UPDATE lex_ns SET next_seq = 0, change_no = change_no + 1, generation = generation + 1,"
        " tail_from = 0, tail_tokens = 0, segments = 0 WHERE ns = ?",
        (ns,),
    )


def _overwrite(db: apsw.Connection, ns: int, seq: int, *, updated: int, code: int) -> None:
    head = fetch(db, "SELECT change_no + 1, tail_from FROM lex_ns WHERE ns = ?", (ns,))
    done = False
    if head:
        change_no, tail_from = head[0]
        db.execute("UPDATE lex_ns SET change_no = ? WHERE ns = ?", (change_no, ns))
        if seq >= tail_from:
            # A dead entry's hashes are of no use: drop them while that costs nothing.
            db.execute(
                "UPDATE lex_tail SET changed = ?1, updated = ?2, code = ?3, tokens = iif(?3, tokens, x'')"
                " WHERE ns = ?4 AND seq = ?5 AND code <> 0",
                (change_no, updated, code, ns, seq),
            )
            done = db.changes() == 1
        else:
            done = _overwrite_sealed(db, ns, seq, change_no, updated=updated, code=code)
    if not done:
        raise LexicalIndexDamaged(f"namespace {ns}: no living entry {seq}")


def _overwrite_sealed(db: apsw.Connection, ns: int, seq: int, change_no: int, *, updated: int, code: int) -> bool:
    home = fetch(
        db,
        "SELECT first_seq, end_seq, id FROM lex_seg WHERE ns = ? AND first_seq <= ? ORDER BY first_seq DESC LIMIT 1",
        (ns, seq),
    )
    if not home or seq >= home[0][1]:
        return False
    first, _, segment = home[0]
    db.execute("UPDATE lex_seg SET changed = ? WHERE ns = ? AND first_seq = ?", (change_no, ns, first))
    return sealed.write_slot(db, segment, seq - first, updated=updated, code=code)


def _seal(db: apsw.Connection, ns: int, first: int, end: int, change_no: int) -> None:
    """Turn the tail into a segment; dead entries leave a dead slot and no postings."""
    with damage(f"namespace {ns}: the tail"):
        _seal_rows(db, ns, first, end, change_no)


def _seal_rows(db: apsw.Connection, ns: int, first: int, end: int, change_no: int) -> None:
    import numpy as np

    rows = fetch(db, "SELECT updated, code, tokens FROM lex_tail WHERE ns = ? AND seq >= ? ORDER BY seq", (ns, first))
    if len(rows) != end - first:
        raise LexicalIndexDamaged(f"namespace {ns}: {len(rows)} of {end - first} entries of the tail")
    body = b"".join(sealed.SLOT.pack(updated, code) for updated, code, _ in rows)
    db.execute("INSERT INTO lex_slots(body) VALUES (?)", (body,))
    segment = db.last_insert_rowid()
    tokens = np.frombuffer(b"".join(row[2] for row in rows), "<u8").astype(np.uint64)
    slots = np.repeat(np.arange(end - first, dtype=np.uint16), [len(row[2]) // 8 for row in rows])
    order = np.argsort(tokens, kind="stable")  # slots stay ascending within a token
    sealed.write_postings(db, segment, tokens[order], slots[order])
    db.execute(
        "INSERT INTO lex_seg(ns, first_seq, end_seq, id, changed) VALUES (?, ?, ?, ?, ?)",
        (ns, first, end, segment, change_no),
    )
    db.execute("DELETE FROM lex_tail WHERE ns = ?", (ns,))
    db.execute("UPDATE lex_ns SET tail_from = ?, tail_tokens = 0, segments = segments + 1 WHERE ns = ?", (end, ns))


def _begin_rewrite(db: apsw.Connection, ns: int) -> tuple[int, int, int]:
    """Start a new generation: what readers cached of sealed postings is no longer to be used."""
    rows = fetch(
        db,
        "UPDATE lex_ns SET change_no = change_no + 1, generation = generation + 1 WHERE ns = ?"
        " RETURNING change_no, tail_from, segments",
        (ns,),
    )
    return cast("tuple[int, int, int]", rows[0]) if rows else (0, 0, 0)


def _rewrite(db: apsw.Connection, ns: int, segment: sealed.Segment, doomed: list[int], change_no: int) -> int:
    """Kill slots and drop the postings of all dead slots of a segment; returns how many were dropped."""
    with damage(f"segment {segment.id}"):
        return _rewrite_rows(db, ns, segment, doomed, change_no)


def _rewrite_rows(db: apsw.Connection, ns: int, segment: sealed.Segment, doomed: list[int], change_no: int) -> int:
    import numpy as np

    updated, code = sealed.read_slots(db, segment)
    updated[doomed] = 0
    code[doomed] = 0
    if not code.any():
        gone = len(sealed.read_postings(db, segment).slots)
        sealed.delete(db, segment.id)
        db.execute("DELETE FROM lex_seg WHERE ns = ? AND first_seq = ?", (ns, segment.first))
        db.execute("UPDATE lex_ns SET segments = segments - 1 WHERE ns = ?", (ns,))
        return gone
    postings = sealed.read_postings(db, segment)
    keep = code[postings.slots] != 0
    gone = len(keep) - int(np.count_nonzero(keep))
    if doomed:
        body = b"".join(map(sealed.SLOT.pack, updated.tolist(), code.tolist()))
        db.execute("UPDATE lex_slots SET body = ? WHERE seg = ?", (body, segment.id))
        db.execute("UPDATE lex_seg SET changed = ? WHERE ns = ? AND first_seq = ?", (change_no, ns, segment.first))
    if gone:
        tokens = np.repeat(postings.tokens, postings.counts)
        sealed.write_postings(db, segment.id, tokens[keep].astype(np.uint64), postings.slots[keep])
    return gone
