"""Reading the lexical index: which entries hold most of a query's tokens.

The order is the kernel's: tokens matched descending, updated_at descending, node id ascending. The index
knows neither exact times beyond int64 nor ids; it asks the caller, and only about entries that tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from itertools import islice
from typing import TYPE_CHECKING

import apsw

from a3s_backends.sqlite import lexical_segments as sealed
from a3s_backends.sqlite.lexical_index import code_of, is_inexact
from a3s_backends.sqlite.lexical_schema import LexicalIndexDamaged, TokenHashes, damage
from a3s_backends.sqlite.lexical_view import TokenPostings, VersionedCache, View, load_view, postings_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.unsignedinteger]

Resolve = Callable[[list[int]], Iterable[tuple[int, int, str]]]
"""Given entries, their (seq, exact updated_at in ns, node id), in any order."""

WalkIds = Callable[[], Iterator[tuple[int, str]]]
"""(seq, node id) of all living nodes of the namespace, ascending by the id's UTF-8 bytes."""

DEFAULT_CACHE_BYTES = 48 * 1024 * 1024
_LONG_QUERY = 1024  # tokens from which a query reads segments whole and leaves the token cache alone
_MANY_MISSING = 192  # uncached tokens from which reading segments whole is cheaper than row by row
_MANY_TIED = 512  # tied entries from which walking ids is tried before reading all of them
_ALL_KINDS = frozenset(range(16))


class LexicalReader:
    """Searches one file's index. One instance serves all reader connections and threads of a process.

    It keeps views of namespaces and postings of tokens, a third and two thirds of ``cache_bytes``, and
    trusts them only as far as the calling transaction confirms (see `lexical_view`). Its lock is held for
    dictionary work only, never while reading the file.
    """

    def __init__(self, *, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._views: VersionedCache[int, View] = VersionedCache(cache_bytes // 3)
        self._tokens: VersionedCache[tuple[int, int], TokenPostings] = VersionedCache(cache_bytes * 2 // 3)

    @property
    def nbytes(self) -> int:
        """Bytes the caches hold now."""
        return self._views.nbytes + self._tokens.nbytes

    def search(
        self,
        db: apsw.Connection,
        ns: int,
        hashes: TokenHashes,
        *,
        statuses: Set[int],
        kinds: Set[int] | None,
        limit: int,
        resolve: Resolve,
        walk_ids: WalkIds | None = None,
    ) -> list[tuple[int, int]]:
        """Find the entries that hold most of the query's tokens.

        Args:
            db: A connection inside a transaction. One that has begun to write is searched without caches.
            ns: The namespace's number.
            hashes: The query's tokens, from `hash_tokens`.
            statuses: Entries with another status are passed over.
            kinds: Entries with another kind are passed over; None or empty = all kinds.
            limit: How many to return at most; from 1.
            resolve: Called with entries that tie in count and time, inside the same transaction.
            walk_ids: Called instead when very many tie, and read only until enough are found.

        Returns:
            (seq, distinct tokens matched >= 1), best first.

        Raises:
            ValueError: No transaction is open, ``limit`` < 1, or a status or kind is out of range.
            LexicalIndexDamaged: Rows of the index are missing or do not fit each other, or ``resolve`` does
                not know an entry.
            apsw.InterruptError: The connection was interrupted; the caches are as before.
        """
        if not db.in_transaction:
            raise ValueError("a search needs an open transaction: its caches are checked against it")
        if limit < 1:
            raise ValueError(f"limit {limit} must be at least 1")
        codes = frozenset(code_of(status, kind) for status in statuses for kind in kinds or _ALL_KINDS)
        reader = LexicalReader() if db.txn_state("main") == apsw.SQLITE_TXN_WRITE else self
        cached = reader._views.get((ns,)).get(ns)
        with damage(f"namespace {ns}: rows that do not fit each other"):
            view = load_view(db, ns, cached)
            if view is None or not hashes or not codes:
                return []
            if view is not cached:
                reader._views.offer({ns: view})
            counts = reader._count(db, ns, view, hashes)
            counts *= view.mask(codes)
            return _best(view, counts, limit, resolve, walk_ids)

    def _count(self, db: apsw.Connection, ns: int, view: View, hashes: TokenHashes) -> Counts:
        """Count for every entry the query's tokens it holds."""
        import numpy as np

        query = np.unique(np.frombuffer(hashes, "<u8")).astype(np.uint64, copy=False)
        counts: Counts = np.zeros(view.size, np.uint8 if len(query) < 256 else np.uint32)
        if len(query) >= _LONG_QUERY:
            _count_whole(db, view, query, counts)
            _count_tail_sorted(view, query, counts)
            return counts
        tokens: list[int] = query.tolist()
        found = self._tokens.get((ns, token) for token in tokens)
        known = {key[1]: entry for key, entry in found.items() if entry.generation == view.generation}
        short = [token for token in tokens if token not in known or known[token].end < view.sealed_end]
        if len(short) >= _MANY_MISSING:
            _count_whole(db, view, np.array(short, np.uint64), counts)
            for token in short:
                known.pop(token, None)
        elif short:
            fresh = _read_tokens(db, view, short, known)
            self._tokens.offer({(ns, token): entry for token, entry in fresh.items()})
            known |= fresh
        for entry in known.values():
            entry.add_to(counts, view.sealed_end)
        if len(query) > 64:
            _count_tail_sorted(view, query, counts)
        else:
            for value in query:
                counts[view.tail_seqs[view.tail_tokens == value]] += 1
        return counts


def _read_tokens(
    db: apsw.Connection, view: View, tokens: list[int], known: dict[int, TokenPostings]
) -> dict[int, TokenPostings]:
    """Read the postings of some tokens, one row a token and segment, continuing what is known of them."""
    import numpy as np

    together: dict[tuple[int, int], list[int]] = {}  # tokens found in the same rows
    for token in tokens:
        end = known[token].end if token in known else 0
        together.setdefault((end, token >> sealed.BUCKET_SHIFT), []).append(token)
    fresh = {}
    for (end, bucket), group in together.items():
        segments = [segment for segment in view.segments if segment.first >= end]
        rows = sealed.read_bucket(db, segments, bucket)
        postings = sealed.decode(rows)
        stops = postings.counts.cumsum(dtype=np.intp)
        firsts = np.repeat([segment.first for segment in segments], [len(row[1]) // 8 for row in rows])
        for token in group:
            parts = [known[token].below(end)] if end else [np.zeros(0, np.intp)]
            for place in np.flatnonzero(postings.tokens == np.uint64(token)).tolist():
                stop = int(stops[place])
                parts.append(postings.slots[stop - int(postings.counts[place]) : stop] + firsts[place])
            seqs = np.concatenate(parts)
            if len(seqs) and (seqs[-1] >= view.sealed_end or (seqs[1:] <= seqs[:-1]).any()):
                raise LexicalIndexDamaged(f"rows {bucket} of postings: entries out of order")
            fresh[token] = postings_of(view.generation, view.sealed_end, seqs)
    return fresh


def _count_whole(db: apsw.Connection, view: View, query: NDArray[np.uint64], counts: Counts) -> None:
    """Count many tokens in the sealed segments, reading each segment whole and keeping nothing."""
    import numpy as np

    for segment in view.segments:
        postings = sealed.read_postings(db, segment)
        matched = np.repeat(_among(postings.tokens, query), postings.counts)
        here = np.bincount(postings.slots[matched], minlength=segment.end - segment.first)
        counts[segment.first : segment.end] += here.astype(counts.dtype)


def _count_tail_sorted(view: View, query: NDArray[np.uint64], counts: Counts) -> None:
    """Count many tokens in the tail."""
    import numpy as np

    matched = view.tail_seqs[_among(view.tail_tokens, query)]
    here = np.bincount(matched - view.sealed_end, minlength=view.size - view.sealed_end)
    counts[view.sealed_end :] += here.astype(counts.dtype)


def _among(values: NDArray[np.uint64], query: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Tell for each value whether the sorted query holds it."""
    places = query.searchsorted(values)
    places[places == len(query)] = 0
    found: NDArray[np.bool_] = query[places] == values
    return found


def _best(view: View, counts: Counts, limit: int, resolve: Resolve, walk_ids: WalkIds | None) -> list[tuple[int, int]]:
    """Take the best entries level by level, highest count first; ``counts`` is used up."""
    import numpy as np

    best: list[tuple[int, int]] = []
    while len(best) < limit:
        level = int(counts.max())
        if level == 0:
            break
        there = np.flatnonzero(counts == level)
        for group in _by_time(view.updated, there, limit - len(best)):
            need = limit - len(best)
            chosen = [int(group[0])] if len(group) == 1 else _tied(view, group, need, resolve, walk_ids)
            best.extend((seq, level) for seq in chosen)
        counts[there] = 0
    return best


def _by_time(updated: NDArray[np.int64], there: NDArray[np.intp], need: int) -> Iterator[NDArray[np.intp]]:
    """Split entries into groups of one time, latest first, as far as ``need`` entries reach."""
    import numpy as np

    times = updated[there]
    if len(there) > need:
        cut = np.partition(times, len(times) - need)[len(times) - need]
        tied = there[times == cut]
        above = times > cut
        there, times = there[above], times[above]
    else:
        tied = there[:0]
    order = np.argsort(times, kind="stable")[::-1]
    there, times = there[order], times[order]
    if len(there):
        yield from np.split(there, np.flatnonzero(times[1:] != times[:-1]) + 1)
    if len(tied):
        yield tied


def _tied(view: View, group: NDArray[np.intp], need: int, resolve: Resolve, walk_ids: WalkIds | None) -> list[int]:
    """Order entries of one count and one column time, and cut to ``need``.

    Reading 100,000 ids after a bulk import costs half a second; walking ids in order until enough are met
    half a millisecond, unless the ids that tie come late: the walk gives up after as many steps as reading
    all would take. Saturated times and leap seconds may differ, so they must be read.
    """
    if walk_ids is not None and len(group) > max(need, _MANY_TIED) and not is_inexact(int(view.updated[group[0]])):
        member = bytearray(view.size)
        for seq in group.tolist():
            member[seq] = 1
        chosen: list[int] = []
        for seq, _ in islice(walk_ids(), len(group)):
            if member[seq]:
                chosen.append(seq)
                if len(chosen) == need:
                    return chosen
    asked = group.tolist()
    rows = sorted((-exact, node_id, seq) for seq, exact, node_id in resolve(asked))
    if len(rows) != len(asked):
        raise LexicalIndexDamaged(f"{len(asked) - len(rows)} entries without a node")
    return [seq for _, _, seq in rows[:need]]
