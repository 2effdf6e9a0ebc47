"""Tables, limits and errors of the lexical index, and the one form in which tokens reach it.

No text is stored, only 64-bit keyed hashes of tokens: a dictionary of words would outlive the purge of the
text that brought them, and keyed hashes cannot be guessed without the file's key. Two tokens of one file
collide with a chance of 1 in 2**64 a pair; a collision counts a token too many and nothing else.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NewType, cast

import apsw

SCHEMA: tuple[str, ...] = (
    # One row a namespace, for ever: its counters must not start again, caches rely on them.
    """CREATE TABLE lex_ns(
        ns INTEGER PRIMARY KEY,
        next_seq INTEGER NOT NULL,     -- the number the next text gets
        change_no INTEGER NOT NULL,    -- goes up with every change of this namespace's index
        generation INTEGER NOT NULL,   -- goes up when sealed postings are rewritten
        tail_from INTEGER NOT NULL,    -- texts from here on are in lex_tail, older ones in segments
        tail_tokens INTEGER NOT NULL,  -- hashes in lex_tail, counted when they were added
        segments INTEGER NOT NULL      -- rows of lex_seg, so that a lost one is noticed
    ) STRICT""",
    """CREATE TABLE lex_tail(
        ns INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        changed INTEGER NOT NULL,      -- change_no at which updated or code last changed
        updated INTEGER NOT NULL,      -- nanoseconds since the epoch, saturated
        code INTEGER NOT NULL,         -- status * 16 + kind; 0 = dead
        tokens BLOB NOT NULL,
        PRIMARY KEY(ns, seq)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE lex_seg(
        ns INTEGER NOT NULL,
        first_seq INTEGER NOT NULL,
        end_seq INTEGER NOT NULL,
        id INTEGER NOT NULL,
        changed INTEGER NOT NULL,      -- change_no at which a slot last changed
        PRIMARY KEY(ns, first_seq)
    ) STRICT, WITHOUT ROWID""",
    # Apart from lex_seg, whose rows are updated: SQLite rewrites a row with all its overflow pages.
    "CREATE TABLE lex_slots(seg INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT",
    """CREATE TABLE lex_post(
        id INTEGER PRIMARY KEY,        -- segment * 256 + top byte of the hashes
        tokens BLOB NOT NULL,          -- ascending hashes, uint64
        counts BLOB NOT NULL,          -- postings of each, uint16
        slots BLOB NOT NULL            -- the postings, uint16
    ) STRICT""",
)

TAIL_TEXTS = 4096
"""Texts in the tail that seal it into a segment."""

TAIL_TOKENS = 1 << 18
"""Hashes in the tail that seal it early: long texts must not make the tail slow to read and to seal."""

TokenHashes = NewType("TokenHashes", bytes)
"""Distinct 8-byte hashes, one after another, in byte order; made by `hash_tokens` only."""


class LexicalIndexDamaged(Exception):
    """The index contradicts itself or its content; a rebuild (`clear`, then `add` everything) cures it.

    Attributes:
        where: The place, in numbers of namespaces, segments and texts; never content.
    """

    def __init__(self, where: str) -> None:
        super().__init__(f"the lexical index is damaged at {where}; rebuild it")
        self.where = where


@contextmanager
def damage(where: str) -> Iterator[None]:
    """Turn what numbers and bytes that were never written do to the code inside the block into one error.

    Rows are checked where that is cheap. That each column of each row fits every other would have to be checked
    by the same arithmetic that trips over it.
    """
    try:
        yield
    except (ValueError, IndexError, OverflowError, MemoryError, struct.error) as error:
        raise LexicalIndexDamaged(where) from error


def fetch(db: apsw.Connection, sql: str, bindings: tuple[int, ...]) -> list[tuple[Any, ...]]:
    """Run a statement to its end. The tables are STRICT, so columns have the types the schema names."""
    return cast("list[tuple[Any, ...]]", db.execute(sql, bindings).fetchall())


def hash_tokens(tokens: Iterable[str], key: bytes) -> TokenHashes:
    """Hash the tokens of a text or query; repeated tokens count once.

    Args:
        tokens: What the lexical profile cut the text into.
        key: 16 to 64 random bytes, the same for the life of a file.

    Returns:
        The distinct hashes in the form the index takes.

    Raises:
        ValueError: The key is too short or too long.
    """
    if not 16 <= len(key) <= 64:
        raise ValueError(f"the key has {len(key)} bytes; 16 to 64 are needed")
    empty = hashlib.blake2b(digest_size=8, key=key)
    digests = set()
    for token in set(tokens):
        state = empty.copy()  # the key block is compressed once: 0.7 instead of 1.1 us a token
        state.update(token.encode())
        digests.add(state.digest())
    return TokenHashes(b"".join(sorted(digests)))
