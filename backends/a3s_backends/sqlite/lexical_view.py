"""What one read transaction sees of a namespace's index, and the cache that makes it cheap.

A `View` holds the columns of all entries and the tail's hashes; a `TokenPostings` the entries of one token
in all sealed segments. Both are immutable and shared by reader threads. What keeps them true:

- A view is used only when the ``change_no`` and ``generation`` read in the *same transaction* are its own.
  An older view of the same generation is brought up to date by reading what changed since.
- Within a generation segments are only appended and their postings never change, so token postings made by
  a newer or older snapshot serve every snapshot: they are cut at the end of its segments, or extended to it.
- A reader on an older snapshot never replaces what a newer one left.
- A connection that is writing sees what may be rolled back: it gets an empty cache of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import apsw
import attrs

from a3s_backends.sqlite import lexical_segments as sealed
from a3s_backends.sqlite.lexical_schema import LexicalIndexDamaged, fetch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_OVERHEAD = 400  # bytes of Python objects about an array in the cache, measured generously
MAX_TEXTS = 1 << 31
"""More texts than a namespace can have; a counter above it would be taken for the size of an array."""

_MASKS = 4  # filters remembered a view; hosts use one or two


@attrs.frozen(kw_only=True, eq=False)
class View:
    """One state of a namespace's index. Arrays are indexed by ``seq``; nobody writes to them.

    Attributes:
        generation: Of the sealed postings.
        change_no: Of the whole index.
        sealed_end: Texts below it are in segments (or gone), the rest in the tail.
        segments: In ``seq`` order.
        updated: Saturated nanoseconds.
        code: Status and kind; 0 = dead.
        tail_tokens: The tail's hashes, entry by entry.
        tail_seqs: The entry of each.
    """

    generation: int
    change_no: int
    sealed_end: int
    segments: tuple[sealed.Segment, ...]
    updated: NDArray[np.int64]
    code: NDArray[np.uint8]
    tail_tokens: NDArray[np.uint64]
    tail_seqs: NDArray[np.intp]
    _masks: OrderedDict[frozenset[int], NDArray[np.uint8]] = attrs.field(factory=OrderedDict, init=False)
    _masks_lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    @property
    def size(self) -> int:
        """Entries, dead ones included."""
        return len(self.code)

    @property
    def nbytes(self) -> int:
        """Memory it holds, its masks included before they are made."""
        columns = self.updated.nbytes + self.code.nbytes * (1 + _MASKS)
        return columns + self.tail_tokens.nbytes + self.tail_seqs.nbytes + _OVERHEAD

    @property
    def version(self) -> tuple[int, int]:
        """What orders views of one namespace in time."""
        return self.generation, self.change_no

    def mask(self, codes: frozenset[int]) -> NDArray[np.uint8]:
        """Make a column that is 1 where the code is one of these, else 0."""
        import numpy as np

        with self._masks_lock:
            known = self._masks.get(codes)
            if known is None:
                wanted = np.zeros(256, np.uint8)
                wanted[list(codes)] = 1
                known = self._masks[codes] = wanted.take(self.code)
                if len(self._masks) > _MASKS:
                    self._masks.popitem(last=False)
            return known


@attrs.frozen(eq=False)
class TokenPostings:
    """The sealed entries of one token below ``end``: ascending ``seq``, or a byte each when that is less."""

    generation: int
    end: int
    seqs: NDArray[np.intp] | None
    dense: NDArray[np.uint8] | None

    @property
    def nbytes(self) -> int:
        """Memory it holds."""
        array = self.dense if self.seqs is None else self.seqs
        return _OVERHEAD + (0 if array is None else array.nbytes)

    @property
    def version(self) -> tuple[int, int]:
        """What orders the postings of one token in time."""
        return self.generation, self.end

    def below(self, end: int) -> NDArray[np.intp]:
        """List the entries below ``end``, ascending."""
        import numpy as np

        seqs = self.seqs if self.seqs is not None else np.flatnonzero(self.dense)  # type: ignore[arg-type]
        return seqs[: int(seqs.searchsorted(end))]

    def add_to(self, counts: NDArray[np.unsignedinteger], end: int) -> None:
        """Add one to the counter of every entry below ``end``."""
        if self.dense is not None:
            cut = min(end, self.end)
            counts[:cut] += self.dense[:cut]
        else:
            counts[self.below(end)] += 1


def postings_of(generation: int, end: int, seqs: NDArray[np.intp]) -> TokenPostings:
    """Make postings in whichever form is smaller, from ascending entries."""
    import numpy as np

    if seqs.nbytes <= end:
        return TokenPostings(generation, end, seqs, None)
    dense = np.zeros(end, np.uint8)
    dense[seqs] = 1
    return TokenPostings(generation, end, None, dense)


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...

    @property
    def version(self) -> tuple[int, int]: ...


_K = TypeVar("_K")
_V = TypeVar("_V", bound=_Sized)


class VersionedCache(Generic[_K, _V]):
    """Least recently used values up to a number of bytes, never replaced by older ones. Thread-safe."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._used = 0
        self._values: OrderedDict[_K, _V] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        with self._lock:
            return self._used

    def get(self, keys: Iterable[_K]) -> dict[_K, _V]:
        """Find those of the keys that are there."""
        found = {}
        with self._lock:
            for key in keys:
                value = self._values.get(key)
                if value is not None:
                    self._values.move_to_end(key)
                    found[key] = value
        return found

    def offer(self, values: Mapping[_K, _V]) -> None:
        """Keep values, unless newer ones are there or they alone exceed the budget."""
        with self._lock:
            for key, value in values.items():
                old = self._values.get(key)
                if value.nbytes > self._budget or (old is not None and old.version > value.version):
                    continue
                self._used += value.nbytes - (0 if old is None else old.nbytes)
                self._values[key] = value
                self._values.move_to_end(key)
            while self._used > self._budget:
                self._used -= self._values.popitem(last=False)[1].nbytes


def load_view(db: apsw.Connection, ns: int, cached: View | None) -> View | None:
    """Read what the current transaction sees of a namespace, reusing a cached view as far as it is true.

    Args:
        db: A connection inside a transaction.
        ns: The namespace's number.
        cached: Any earlier or later view of the namespace.

    Returns:
        ``cached`` itself when it is exact, a new view, or None when the namespace has no entries.

    Raises:
        LexicalIndexDamaged: Rows are missing.
    """
    head = fetch(db, "SELECT next_seq, change_no, generation, tail_from, segments FROM lex_ns WHERE ns = ?", (ns,))
    if not head or head[0][0] == 0:
        return None
    size, change_no, generation, tail_from, segment_count = head[0]
    if cached is not None and cached.version == (generation, change_no):
        return cached
    if not 0 <= tail_from <= size <= MAX_TEXTS:
        raise LexicalIndexDamaged(f"namespace {ns}: its counters")
    import numpy as np

    base = cached
    if base is None or base.generation != generation or base.change_no > change_no:
        base = View(
            generation=generation,
            change_no=-1,
            sealed_end=0,
            segments=(),
            updated=np.zeros(0, np.int64),
            code=np.zeros(0, np.uint8),
            tail_tokens=np.zeros(0, np.uint64),
            tail_seqs=np.zeros(0, np.intp),
        )
    known = max(base.size, tail_from)
    rows = fetch(db, "SELECT updated, code, tokens FROM lex_tail WHERE ns = ? AND seq >= ? ORDER BY seq", (ns, known))
    if len(rows) != size - known or any(len(row[2]) % 8 for row in rows):
        raise LexicalIndexDamaged(f"namespace {ns}: {len(rows)} of {size - known} entries of the tail")
    updated = np.zeros(size, np.int64)
    code = np.zeros(size, np.uint8)
    updated[: base.size] = base.updated
    code[: base.size] = base.code
    segments = sealed.segments(db, ns, segment_count)
    for segment in segments:
        if segment.changed > base.change_no:
            here = slice(segment.first, segment.end)
            updated[here], code[here] = sealed.read_slots(db, segment)
    for seq, time, byte in fetch(
        db,
        "SELECT seq, updated, code FROM lex_tail WHERE ns = ? AND seq < ? AND changed > ?",
        (ns, known, base.change_no),
    ):
        updated[seq], code[seq] = time, byte
    if rows:
        updated[known:] = [row[0] for row in rows]
        code[known:] = [row[1] for row in rows]
    kept = int(base.tail_seqs.searchsorted(tail_from))
    fresh = np.frombuffer(b"".join(row[2] for row in rows), "<u8")
    fresh_seqs = np.repeat(np.arange(known, size), [len(row[2]) // 8 for row in rows])
    return View(
        generation=generation,
        change_no=change_no,
        sealed_end=tail_from,
        segments=segments,
        updated=updated,
        code=code,
        tail_tokens=np.concatenate((base.tail_tokens[kept:], fresh)).astype(np.uint64, copy=False),
        tail_seqs=np.concatenate((base.tail_seqs[kept:], fresh_seqs)),
    )
