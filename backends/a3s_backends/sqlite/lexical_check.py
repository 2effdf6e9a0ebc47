"""Comparing the lexical index with the content it was made from (for `verify`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import apsw
import attrs

from a3s_backends.sqlite import lexical_segments as sealed
from a3s_backends.sqlite.lexical_index import code_of, saturate
from a3s_backends.sqlite.lexical_schema import LexicalIndexDamaged, TokenHashes, damage, fetch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Expected = tuple[int, TokenHashes, int, int, int]
"""seq, the text's tokens, status, kind, updated_at in ns."""


@attrs.frozen
class _Entry:
    seq: int
    code: int
    updated: int
    tokens: bytes  # ascending uint64


def check(db: apsw.Connection, ns: int, expected: Iterable[Expected]) -> list[str]:
    """Compare every living entry of a namespace with what it should be.

    Reads the whole index, a segment at a time; memory does not grow with the namespace.

    Args:
        db: A connection inside a transaction.
        ns: The namespace's number.
        expected: What should be there, ascending by seq.

    Returns:
        What differs, in words that name places and numbers and never content; empty when all is well.

    Raises:
        ValueError: ``expected`` does not ascend, or a status or kind is out of range.
    """
    problems: list[str] = []
    unreadable: list[range] = []
    entries = _living(db, ns, problems, unreadable)
    entry = next(entries, None)
    last = -1
    for seq, hashes, status, kind, updated_ns in expected:
        if seq <= last:
            raise ValueError(f"entry {seq} was given after entry {last}")
        last = seq
        while entry is not None and entry.seq < seq:
            problems.append(f"entry {entry.seq}: no node has this text")
            entry = next(entries, None)
        if entry is None or entry.seq > seq:
            if not any(seq in part for part in unreadable):
                problems.append(f"entry {seq}: missing")
            continue
        if entry.code != code_of(status, kind):
            problems.append(f"entry {seq}: status or kind differs")
        if entry.updated != saturate(updated_ns):
            problems.append(f"entry {seq}: time differs")
        if entry.tokens != _ascending(hashes):
            problems.append(f"entry {seq}: tokens differ")
        entry = next(entries, None)
    while entry is not None:
        problems.append(f"entry {entry.seq}: no node has this text")
        entry = next(entries, None)
    return problems


def _living(db: apsw.Connection, ns: int, problems: list[str], unreadable: list[range]) -> Iterator[_Entry]:
    """Yield the living entries in order; what cannot be read becomes a problem and is left out."""
    head = fetch(db, "SELECT next_seq, tail_from, segments FROM lex_ns WHERE ns = ?", (ns,))
    size, tail_from, count = head[0] if head else (0, 0, 0)
    try:
        segments = sealed.segments(db, ns, count)
    except LexicalIndexDamaged as error:
        problems.append(error.where)
        unreadable.append(range(tail_from))
        segments = ()
    end = 0
    for segment in segments:
        if not end <= segment.first < segment.end <= tail_from:
            problems.append(f"segment {segment.id}: it covers what is not its own")
            unreadable.append(range(segment.first, segment.end))
            continue
        end = segment.end
        try:
            with damage(f"segment {segment.id}"):
                found = list(_living_in(db, segment))
        except LexicalIndexDamaged as error:
            problems.append(error.where)
            unreadable.append(range(segment.first, segment.end))
        else:
            yield from found
    rows = fetch(db, "SELECT seq, code, updated, tokens FROM lex_tail WHERE ns = ? ORDER BY seq", (ns,))
    if len(rows) != size - tail_from or any(row[0] != place for place, row in enumerate(rows, tail_from)):
        problems.append(f"namespace {ns}: the tail is not entries {tail_from} to {size - 1}")
    for seq, code, updated, tokens in rows:
        if code:
            yield _Entry(seq, code, updated, _ascending(tokens))


def _living_in(db: apsw.Connection, segment: sealed.Segment) -> Iterator[_Entry]:
    import numpy as np

    updated, code = sealed.read_slots(db, segment)
    postings = sealed.read_postings(db, segment)
    order = np.argsort(postings.slots, kind="stable")  # keeps each slot's tokens ascending
    tokens: NDArray[np.uint64] = np.repeat(postings.tokens, postings.counts)[order]
    bounds = np.searchsorted(postings.slots[order], np.arange(len(code) + 1)).tolist()
    for slot in np.flatnonzero(code).tolist():
        here = tokens[bounds[slot] : bounds[slot + 1]].tobytes()
        yield _Entry(segment.first + slot, int(code[slot]), int(updated[slot]), here)


def _ascending(hashes: bytes) -> bytes:
    import numpy as np

    return np.sort(np.frombuffer(hashes[: len(hashes) // 8 * 8], "<u8")).tobytes()
