"""The lexical index of the SQLite backend against a scan of the same content."""

from __future__ import annotations

import random
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from a3s_backends.sqlite import lexical_index as index
from a3s_backends.sqlite.lexical_check import Expected, check
from a3s_backends.sqlite.lexical_search import LexicalReader

KEY = b"0123456789abcdef"
ACTIVE, TOMBSTONED = 2, 5
FAR = 1 << 70  # nanoseconds no int64 holds


def hashed(*words: str) -> index.TokenHashes:
    return index.hash_tokens(words, KEY)


def split(hashes: bytes) -> set[bytes]:
    return {hashes[at : at + 8] for at in range(0, len(hashes), 8)}


class Host:
    """What the repository does around the index: one table of nodes, and the oracle that scans it."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.db = apsw.Connection(str(path))
        self.db.set_busy_timeout(2000)
        self.db.execute("PRAGMA journal_mode = wal").fetchall()
        self.db.execute("PRAGMA synchronous = off").fetchall()
        self.resolved = 0
        self.walked = 0
        if create:
            for statement in index.SCHEMA:
                self.db.execute(statement)
            self.db.execute(
                "CREATE TABLE node(ns, id TEXT, seq, status, kind, updated TEXT, tokens BLOB, PRIMARY KEY(ns, id))"
            )
            self.db.execute("CREATE INDEX node_seq ON node(ns, seq)")

    def rows(self, sql: str, *bindings: int | str) -> list[Any]:
        return self.db.execute(sql, bindings).fetchall()

    def seq_of(self, node_id: str, ns: int) -> int:
        (row,) = self.rows("SELECT seq FROM node WHERE ns = ? AND id = ?", ns, node_id)
        return int(row[0])

    def ids(self, ns: int = 1) -> list[str]:
        return [row[0] for row in self.rows("SELECT id FROM node WHERE ns = ?", ns)]

    def begin(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")

    def snapshot(self) -> None:
        self.db.execute("BEGIN")
        self.db.execute("SELECT count(*) FROM node").fetchall()

    def commit(self) -> None:
        self.db.execute("COMMIT")

    def rollback(self) -> None:
        self.db.execute("ROLLBACK")

    def put(
        self,
        node_id: str,
        *words: str,
        ns: int = 1,
        status: int = ACTIVE,
        kind: int = 1,
        updated: int = 0,
        seal_at: int = 4096,
    ) -> int:
        tokens = hashed(*words)
        for (old,) in self.rows("SELECT seq FROM node WHERE ns = ? AND id = ?", ns, node_id):
            index.remove(self.db, ns, old)
        seq = index.add(self.db, ns, tokens, status=status, kind=kind, updated_ns=updated, seal_at=seal_at)
        self.db.execute(
            "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?)",
            (ns, node_id, seq, status, kind, str(updated), tokens),
        )
        return seq

    def set_meta(self, node_id: str, *, ns: int = 1, status: int, kind: int, updated: int) -> None:
        seq = self.seq_of(node_id, ns)
        index.set_meta(self.db, ns, seq, status=status, kind=kind, updated_ns=updated)
        self.db.execute(
            "UPDATE node SET status = ?, kind = ?, updated = ? WHERE ns = ? AND id = ?",
            (status, kind, str(updated), ns, node_id),
        )

    def drop(self, node_id: str, *, ns: int = 1, erase: bool = False) -> None:
        seq = self.seq_of(node_id, ns)
        if erase:
            index.erase(self.db, ns, [seq])
        else:
            index.remove(self.db, ns, seq)
        self.db.execute("DELETE FROM node WHERE ns = ? AND id = ?", (ns, node_id))

    def rebuild(self, *, ns: int = 1, seal_at: int = 4096) -> None:
        index.clear(self.db, ns)
        for row in self.rows("SELECT * FROM node WHERE ns = ?", ns):
            _, node_id, _, status, kind, updated, tokens = row
            seq = index.add(self.db, ns, tokens, status=status, kind=kind, updated_ns=int(updated), seal_at=seal_at)
            self.db.execute("UPDATE node SET seq = ? WHERE ns = ? AND id = ?", (seq, ns, node_id))

    def expected(self, ns: int = 1) -> Iterator[Expected]:
        for seq, tokens, status, kind, updated in self.db.execute(
            "SELECT seq, tokens, status, kind, updated FROM node WHERE ns = ? ORDER BY seq", (ns,)
        ):
            yield seq, tokens, status, kind, int(updated)

    def scan(
        self, query: bytes, *, ns: int = 1, statuses: set[int], kinds: set[int] | None, limit: int
    ) -> list[tuple[int, int]]:
        wanted = split(query)
        found = []
        for node_id, seq, status, kind, updated, tokens in self.db.execute(
            "SELECT id, seq, status, kind, updated, tokens FROM node WHERE ns = ?", (ns,)
        ):
            matched = len(wanted & split(tokens))
            if matched and status in statuses and (not kinds or kind in kinds):
                found.append((-matched, -int(updated), node_id.encode(), seq))
        return [(seq, -matched) for matched, _, _, seq in sorted(found)[:limit]]

    def search(
        self,
        reader: LexicalReader,
        query: index.TokenHashes,
        *,
        ns: int = 1,
        statuses: set[int] | None = None,
        kinds: set[int] | None = None,
        limit: int = 5,
    ) -> list[tuple[int, int]]:
        def resolve(seqs: list[int]) -> Iterator[tuple[int, int, str]]:
            self.resolved += len(seqs)
            for seq in seqs:
                for found, updated, node_id in self.db.execute(
                    "SELECT seq, updated, id FROM node WHERE ns = ? AND seq = ?", (ns, seq)
                ):
                    yield found, int(updated), node_id

        def walk() -> Iterator[tuple[int, str]]:
            for row in self.db.execute("SELECT seq, id FROM node WHERE ns = ? ORDER BY id", (ns,)):
                self.walked += 1
                yield row

        return reader.search(
            self.db,
            ns,
            query,
            statuses={ACTIVE} if statuses is None else statuses,
            kinds=kinds,
            limit=limit,
            resolve=resolve,
            walk_ids=walk,
        )

    def compare(
        self,
        reader: LexicalReader,
        query: index.TokenHashes,
        *,
        ns: int = 1,
        statuses: set[int] | None = None,
        kinds: set[int] | None = None,
        limit: int = 5,
    ) -> list[tuple[int, int]]:
        statuses = {ACTIVE} if statuses is None else statuses
        found = self.search(reader, query, ns=ns, statuses=statuses, kinds=kinds, limit=limit)
        assert found == self.scan(query, ns=ns, statuses=statuses, kinds=kinds, limit=limit)
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
def host(path: Path) -> Iterator[Host]:
    opened = Host(path, create=True)
    yield opened
    opened.db.close()


@pytest.fixture
def other(path: Path, host: Host) -> Iterator[Host]:
    opened = Host(path)
    yield opened
    opened.db.close()


# Against the scan, in every order of events.

WORDS = st.lists(st.sampled_from("abcdefgh"), max_size=5).map(tuple)
NAMES = st.sampled_from(["n1", "n2", "n3", "N1", "ü", "水", "\U0001f40d", "￿"])
TIMES = st.sampled_from([0, 1, 2, -5, FAR, FAR + 1, -FAR, -FAR - 1, (1 << 63) - 1, 1 << 63])
STATUSES = st.integers(1, 5)
KINDS = st.integers(0, 2)
SPACES = st.sampled_from([1, 2])


class IndexMachine(RuleBasedStateMachine):
    """A writer that may roll back, and two readers that may stay on old snapshots, sharing one cache."""

    @initialize(seal_at=st.integers(1, 6), cache=st.sampled_from([0, 3000, 10**7]))
    def open(self, seal_at: int, cache: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "index.db"
        self.writer = Host(path, create=True)
        self.readers = [Host(path), Host(path)]
        self.cache = LexicalReader(cache_bytes=cache)
        self.budget = cache
        self.seal_at = seal_at
        self.savepoints = 0

    def teardown(self) -> None:
        for host in (self.writer, *self.readers):
            host.db.close(True)
        self.folder.cleanup()

    def writing(self) -> None:
        if not self.writer.db.in_transaction:
            self.writer.begin()

    @rule(ns=SPACES, name=NAMES, words=WORDS, status=STATUSES, kind=KINDS, updated=TIMES)
    def put(self, ns: int, name: str, words: tuple[str, ...], status: int, kind: int, updated: int) -> None:
        self.writing()
        self.writer.put(name, *words, ns=ns, status=status, kind=kind, updated=updated, seal_at=self.seal_at)

    @rule(ns=SPACES, pick=st.randoms(), status=STATUSES, kind=KINDS, updated=TIMES)
    def set_meta(self, ns: int, pick: random.Random, status: int, kind: int, updated: int) -> None:
        self.writing()
        if ids := self.writer.ids(ns):
            self.writer.set_meta(pick.choice(ids), ns=ns, status=status, kind=kind, updated=updated)

    @rule(ns=SPACES, pick=st.randoms(), erase=st.booleans())
    def drop(self, ns: int, pick: random.Random, erase: bool) -> None:
        self.writing()
        if ids := self.writer.ids(ns):
            self.writer.drop(pick.choice(ids), ns=ns, erase=erase)

    @rule(ns=SPACES, how=st.sampled_from(["compact", "rebuild"]))
    def tidy(self, ns: int, how: str) -> None:
        self.writing()
        if how == "compact":
            index.compact(self.writer.db, ns)
        else:
            self.writer.rebuild(ns=ns, seal_at=self.seal_at)

    @precondition(lambda self: self.writer.db.in_transaction)
    @rule()
    def savepoint(self) -> None:
        self.savepoints += 1
        self.writer.db.execute(f"SAVEPOINT s{self.savepoints}")

    @precondition(lambda self: self.savepoints)
    @rule(keep=st.booleans())
    def end_savepoint(self, keep: bool) -> None:
        if not keep:
            self.writer.db.execute(f"ROLLBACK TO s{self.savepoints}")
        self.writer.db.execute(f"RELEASE s{self.savepoints}")
        self.savepoints -= 1

    @precondition(lambda self: self.writer.db.in_transaction)
    @rule(keep=st.sampled_from([True, True, False]))
    def end_transaction(self, keep: bool) -> None:
        self.savepoints = 0
        if keep:
            self.writer.commit()
        else:
            self.writer.rollback()

    @rule(which=st.integers(0, 1))
    def move_reader(self, which: int) -> None:
        reader = self.readers[which]
        if reader.db.in_transaction:
            reader.commit()
        else:
            reader.snapshot()

    @rule(
        who=st.integers(0, 2),
        ns=SPACES,
        words=WORDS,
        statuses=st.sets(STATUSES),
        kinds=st.one_of(st.none(), st.sets(KINDS)),
        limit=st.integers(1, 6),
    )
    def query(
        self,
        who: int,
        ns: int,
        words: tuple[str, ...],
        statuses: set[int],
        kinds: set[int] | None,
        limit: int,
    ) -> None:
        host = (self.writer, *self.readers)[who]
        open_before = host.db.in_transaction
        if not open_before:
            host.snapshot()
        host.compare(self.cache, hashed(*words), ns=ns, statuses=statuses, kinds=kinds, limit=limit)
        if not open_before:
            host.commit()

    @invariant()
    def index_and_content_agree_everywhere(self) -> None:
        for host in (self.writer, *self.readers):
            if host.db.in_transaction:
                for ns in (1, 2):
                    assert check(host.db, ns, host.expected(ns)) == []
                    host.compare(self.cache, hashed("a", "b", "c"), ns=ns, statuses={1, 2, 3, 4, 5})
        assert self.cache.nbytes <= self.budget


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@pytest.mark.slow
def test_random_prose_across_real_segments_is_found_as_by_a_scan(host: Host, other: Host) -> None:
    rng = random.Random(7)
    words = [f"w{number}" for number in range(3000)]
    weights = [1 / (rank + 1) for rank in range(3000)]
    reader = LexicalReader()
    sizes = (4095, 1, 1, 4300)  # just below a boundary, on it, past it, past the next
    number = 0
    for size in sizes:
        host.begin()
        for _ in range(size):
            host.put(
                f"n{rng.random()}",
                *rng.choices(words, weights, k=12),
                status=rng.randint(1, 3),
                kind=rng.randint(0, 2),
                updated=rng.randint(0, 50),
            )
            number += 1
        names = host.ids()
        for name in rng.sample(names, 200):
            host.set_meta(name, status=rng.randint(1, 3), kind=rng.randint(0, 2), updated=rng.randint(0, 50))
        for name in rng.sample(names, 20):
            host.drop(name)
        host.commit()
        other.snapshot()
        for length in (1, 2, 5, 30, 300):
            query = hashed(*rng.choices(words, weights, k=length))
            other.compare(reader, query, limit=20)
            other.compare(reader, query, statuses={1, 3}, kinds={0, 2}, limit=100)
        other.commit()
    other.snapshot()
    assert check(other.db, 1, other.expected()) == []
    assert other.db.execute("SELECT count(*) FROM lex_seg").fetchall() == [(2,)]
    other.commit()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), TIMES), max_size=12), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_ties_are_ordered_by_exact_time_then_by_the_bytes_of_the_id(
    nodes: list[tuple[int, str, int]], limit: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = Host(Path(folder) / "index.db", create=True)
        host.begin()
        for count, name, updated in nodes:
            host.put(name + str(updated), *"xyz"[:count], updated=updated)
        host.compare(LexicalReader(), hashed("x", "y", "z"), limit=limit)
        host.rollback()
        host.db.close()


# Ties of very many.


def storm(host: Host, size: int, *, updated: int = 0, name: str = "n{:05d}") -> None:
    host.begin()
    for number in range(size):
        host.put(name.format(number * 7919 % size), "common", updated=updated)
    host.commit()
    host.snapshot()


def test_a_tie_of_very_many_reads_only_as_many_ids_as_are_needed(host: Host) -> None:
    storm(host, 2000)
    host.compare(LexicalReader(), hashed("common"), limit=5)
    assert host.resolved == 0
    assert host.walked == 5


def test_a_walk_that_meets_no_tied_entry_gives_up_and_reads_the_ties(host: Host) -> None:
    host.begin()
    for number in range(800):
        host.put(f"a{number:04d}", "else")
    host.commit()
    storm(host, 700)
    host.compare(LexicalReader(), hashed("common"), limit=5)
    assert host.walked <= 700
    assert host.resolved == 700


def test_many_entries_of_saturated_time_are_ordered_by_their_exact_times(host: Host) -> None:
    host.begin()
    for number in range(600):
        host.put(f"n{number:04d}", "common", updated=FAR + number % 7)
    host.commit()
    host.snapshot()
    host.compare(LexicalReader(), hashed("common"), limit=100)
    assert host.walked == 0


def test_single_winners_need_no_ids_at_all(host: Host) -> None:
    host.begin()
    for number in range(50):
        host.put(f"n{number}", "common", updated=number)
    host.compare(LexicalReader(), hashed("common"), limit=5)
    assert host.resolved == 0
    host.rollback()


# Extremes of size.


def test_a_64_kib_run_of_cjk_characters_matches_only_itself(host: Host) -> None:
    run = "".join(chr(0x4E00 + number * 7 % 20000) for number in range(21845))
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    host.begin()
    for number in range(14):  # seals the tail early, by the number of its tokens
        host.put(f"run{number}", run + str(number), *pairs)
    host.put("near", run + "x", *pairs[:-5000])
    assert host.db.execute("SELECT segments FROM lex_ns").fetchall() == [(1,)]
    host.commit()
    host.snapshot()
    found = host.compare(LexicalReader(), hashed(run + "3", *pairs), limit=15)
    assert found[0] == (3, len(set(pairs)) + 1)
    assert check(host.db, 1, host.expected()) == []


def test_a_query_of_a_hundred_thousand_tokens_counts_beyond_a_byte_and_16_bits(host: Host) -> None:
    words = [f"w{number}" for number in range(100_000)]
    host.begin()
    host.put("all", *words, updated=1)
    host.put("most", *words[:70_000], "other", updated=2)
    host.put("wrap", *words[:65_536], updated=3)
    for number in range(5):
        host.put(f"tail{number}", *words[number * 10 : number * 10 + 256], updated=4)
    host.commit()
    host.snapshot()
    found = host.compare(LexicalReader(), hashed(*words), limit=10)
    assert [matched for _, matched in found] == [100_000, 70_000, 65_536, 256, 256, 256, 256, 256]


@pytest.mark.parametrize("length", [255, 256, 257, 512, 1023, 1024])
@pytest.mark.parametrize("seal_at", [2, 4096])
def test_counters_do_not_wrap_at_any_length_of_query(host: Host, length: int, seal_at: int) -> None:
    words = [f"w{number}" for number in range(length)]
    host.begin()
    for number in range(5):
        host.put(f"n{number}", *words[number:], seal_at=seal_at)
    host.commit()
    host.snapshot()
    reader = LexicalReader()
    for _ in range(2):  # from the file, then from the cache
        assert host.compare(reader, hashed(*words))[0] == (0, length)


def test_repeated_tokens_count_once_and_texts_without_tokens_are_kept(host: Host) -> None:
    assert hashed("a", "b", "a") == hashed("b", "a")
    assert len(hashed("a", "b", "a")) == 16
    host.begin()
    host.put("empty")
    host.put("double", "a", "a", "b")
    doubled = index.TokenHashes(hashed("a") + hashed("a"))
    assert host.search(LexicalReader(), doubled) == [(1, 1)]
    assert host.search(LexicalReader(), hashed()) == []
    assert check(host.db, 1, host.expected()) == []
    host.rollback()


def test_hashes_depend_on_the_key_and_short_keys_are_refused() -> None:
    assert index.hash_tokens(["a"], KEY) != index.hash_tokens(["a"], KEY[::-1])
    with pytest.raises(ValueError, match="15 bytes"):
        index.hash_tokens(["a"], KEY[:15])


# Caches and transactions.


def test_an_old_snapshot_still_answers_for_its_time_after_a_seal_and_an_erase(host: Host, other: Host) -> None:
    reader = LexicalReader()
    host.begin()
    for number in range(6):
        host.put(f"n{number}", "word", f"w{number}", updated=number, seal_at=4)
    host.commit()
    other.snapshot()
    before = other.compare(reader, hashed("word"), limit=100)
    host.begin()
    for number in range(6, 9):
        host.put(f"n{number}", "word", updated=number, seal_at=4)
    host.drop("n1", erase=True)
    host.put("n0", "changed")
    host.compare(reader, hashed("word"), limit=100)
    host.commit()
    host.snapshot()
    after = host.compare(reader, hashed("word"), limit=100)
    assert other.compare(reader, hashed("word"), limit=100) == before
    assert other.compare(reader, hashed("word", "w3"), limit=100)
    assert host.compare(reader, hashed("word"), limit=100) == after != before
    assert check(other.db, 1, other.expected()) == []


def test_what_a_writer_saw_before_its_rollback_is_not_remembered(host: Host, other: Host) -> None:
    reader = LexicalReader()
    host.begin()
    host.put("kept", "word", seal_at=2)
    host.commit()
    host.begin()
    for number in range(3):
        host.put(f"lost{number}", "word", "lost", seal_at=2)
    assert len(host.compare(reader, hashed("lost"))) == 3
    host.rollback()
    host.begin()  # the same numbers of change and entry, with other texts
    for number in range(3):
        host.put(f"new{number}", "word", "new", seal_at=2)
    host.commit()
    other.snapshot()
    assert other.compare(reader, hashed("lost")) == []
    assert len(other.compare(reader, hashed("new"))) == 3
    assert reader.nbytes > 0


def test_a_savepoint_rolled_back_takes_its_entries_along(host: Host) -> None:
    host.begin()
    host.put("kept", "word", seal_at=2)
    host.db.execute("SAVEPOINT one")
    host.put("lost", "word", seal_at=2)
    host.set_meta("kept", status=TOMBSTONED, kind=1, updated=9)
    host.db.execute("ROLLBACK TO one")
    host.db.execute("RELEASE one")
    assert host.put("next", "word", seal_at=2) == 1
    host.commit()
    host.snapshot()
    assert len(host.compare(LexicalReader(), hashed("word"))) == 2
    assert check(host.db, 1, host.expected()) == []


def test_reader_threads_share_one_cache_while_a_writer_writes(path: Path, host: Host) -> None:
    reader = LexicalReader(cache_bytes=20_000)
    words = [f"w{number}" for number in range(40)]
    stop = threading.Event()
    failures: list[BaseException] = []
    compared = [0, 0, 0]

    def read(which: int) -> None:
        mine = Host(path)
        rng = random.Random(which)
        try:
            while not stop.is_set():
                mine.snapshot()
                mine.compare(reader, hashed(*rng.choices(words, k=4)), limit=10)
                mine.commit()
                compared[which] += 1
        except BaseException as error:
            failures.append(error)
        finally:
            mine.db.close()

    threads = [threading.Thread(target=read, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    rng = random.Random(9)
    for step in range(150):
        host.begin()
        host.put(f"n{rng.randrange(60)}", *rng.choices(words, k=6), updated=step % 5, seal_at=8)
        if step % 40 == 39:
            index.compact(host.db, 1)
        host.commit()
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert min(compared) > 0


def test_the_cache_keeps_to_its_bytes(host: Host) -> None:
    reader = LexicalReader(cache_bytes=30_000)
    host.begin()
    for number in range(400):
        host.put(f"n{number}", f"w{number}", "common", seal_at=100)
    host.commit()
    host.snapshot()
    held = 0
    for number in range(400):
        host.search(reader, hashed(f"w{number}", "common"))
        held = max(held, reader.nbytes)
    assert 10_000 < held <= 30_000


def test_a_second_query_reads_no_postings(host: Host) -> None:
    host.begin()
    for number in range(10):
        host.put(f"n{number}", "word", seal_at=4)
    host.commit()
    host.snapshot()
    reader = LexicalReader()
    host.compare(reader, hashed("word", "absent"))
    statements: list[str] = []

    def trace(_: object, sql: str, __: object) -> bool:
        statements.append(sql)
        return True

    host.db.exec_trace = trace
    host.search(reader, hashed("word", "absent"))
    host.db.exec_trace = None
    assert not [sql for sql in statements if "lex_post" in sql or "lex_tail" in sql or "lex_slots" in sql]


def test_a_search_outside_a_transaction_is_refused(host: Host) -> None:
    with pytest.raises(ValueError, match="transaction"):
        host.search(LexicalReader(), hashed("a"))


def test_limits_and_codes_out_of_range_are_refused(host: Host) -> None:
    host.begin()
    with pytest.raises(ValueError, match="limit 0"):
        host.search(LexicalReader(), hashed("a"), limit=0)
    for status, kind in ((0, 1), (16, 1), (1, 16), (1, -1)):
        with pytest.raises(ValueError, match="status"):
            index.add(host.db, 1, hashed("a"), status=status, kind=kind, updated_ns=0)
        with pytest.raises(ValueError, match="status"):
            host.search(LexicalReader(), hashed("a"), statuses={status}, kinds={kind})
    host.rollback()


def test_a_namespace_without_entries_finds_nothing(host: Host) -> None:
    host.snapshot()
    assert host.search(LexicalReader(), hashed("a"), ns=77) == []
    assert check(host.db, 77, []) == []


def test_an_interrupted_search_leaves_the_caches_as_they_were(host: Host) -> None:
    host.begin()
    for number in range(600):
        host.put(f"n{number}", "word", f"w{number}", seal_at=50)
    host.commit()
    host.snapshot()
    reader = LexicalReader()
    host.db.set_progress_handler(lambda: True, 50)
    with pytest.raises(apsw.InterruptError):
        host.search(reader, hashed("word"))
    host.db.set_progress_handler(None)
    assert reader.nbytes == 0
    host.compare(reader, hashed("word", "w7"))


# Removing.


@pytest.mark.parametrize("seal_at", [1, 3, 4096])
def test_erased_tokens_are_in_no_byte_of_the_file(host: Host, path: Path, seal_at: int) -> None:
    host.begin()
    for number in range(3):
        host.put(f"n{number}", "shared", f"secret{number}", seal_at=seal_at)
    host.commit()
    host.begin()
    host.drop("n1", erase=True)
    host.commit()
    host.db.execute("VACUUM")
    host.db.execute("PRAGMA wal_checkpoint(truncate)").fetchall()
    assert path.read_bytes().find(hashed("secret1")) == -1
    assert path.read_bytes().find(hashed("secret0")) >= 0
    host.snapshot()
    assert len(host.compare(LexicalReader(), hashed("shared", "secret1"))) == 2


def test_a_dead_entry_stays_dead_and_an_unknown_one_is_an_error(host: Host) -> None:
    host.begin()
    for seal_at in (2, 2, 4096):
        index.add(host.db, 1, hashed("a"), status=2, kind=1, updated_ns=0, seal_at=seal_at)
    for seq in (0, 2):  # sealed; in the tail
        index.remove(host.db, 1, seq)
        with pytest.raises(index.LexicalIndexDamaged, match=f"entry {seq}"):
            index.set_meta(host.db, 1, seq, status=2, kind=1, updated_ns=0)
    for ns, seq in ((1, 3), (1, -1), (9, 0)):
        with pytest.raises(index.LexicalIndexDamaged, match="no living entry"):
            index.remove(host.db, ns, seq)
    host.rollback()


def test_compacting_drops_dead_postings_and_empty_segments_and_nothing_else(host: Host) -> None:
    host.begin()
    for number in range(8):
        host.put(f"n{number}", "a", f"w{number}", seal_at=4)
    for number in (0, 1, 2, 3, 5):
        host.drop(f"n{number}")
    assert index.compact(host.db, 1) == 10
    assert index.compact(host.db, 1) == 0
    assert host.db.execute("SELECT count(*) FROM lex_post").fetchall() == [(256,)]
    assert host.db.execute("SELECT sum(length(slots)) FROM lex_post").fetchall() == [(12,)]
    host.commit()
    host.snapshot()
    assert len(host.compare(LexicalReader(), hashed("a"))) == 3
    assert check(host.db, 1, host.expected()) == []


def test_erasing_what_is_not_there_is_harmless(host: Host) -> None:
    host.begin()
    assert index.erase(host.db, 5, [1]) == 0
    host.put("n", "a")
    assert index.erase(host.db, 1, []) == 0
    assert index.erase(host.db, 1, [7, 99]) == 0
    assert len(host.compare(LexicalReader(), hashed("a"))) == 1
    host.rollback()


# Damage.

DAMAGES = {
    "a row of postings": "DELETE FROM lex_post WHERE id = (SELECT min(id) FROM lex_post WHERE length(tokens) > 0)",
    "all postings": "DELETE FROM lex_post",
    "the tokens of a row": "UPDATE lex_post SET tokens = x'0102' WHERE length(tokens) > 0",
    "the counts of a row": "UPDATE lex_post SET counts = x'ffff' WHERE length(tokens) = 8",
    "a posting": "UPDATE lex_post SET slots = x'6300' WHERE length(slots) = 2",
    "a segment": "DELETE FROM lex_seg WHERE first_seq = 0",
    "slots": "DELETE FROM lex_slots",
    "part of the slots": "UPDATE lex_slots SET body = substr(body, 10)",
    "an entry of the tail": "DELETE FROM lex_tail WHERE seq = (SELECT max(seq) FROM lex_tail)",
}


@pytest.fixture
def filled(host: Host) -> Host:
    host.begin()
    for number in range(10):
        host.put(f"n{number}", f"w{number}", "all", updated=number, seal_at=4)
    host.commit()
    return host


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_an_error_or_is_reported_and_never_a_wrong_answer(filled: Host, damage: str) -> None:
    filled.begin()
    filled.db.execute(DAMAGES[damage])
    filled.commit()
    filled.snapshot()
    assert check(filled.db, 1, filled.expected())
    query = hashed("all", *(f"w{number}" for number in range(10)))
    with pytest.raises(index.LexicalIndexDamaged):
        filled.search(LexicalReader(), query, limit=10)
    filled.commit()
    filled.begin()
    filled.rebuild(seal_at=4)
    filled.commit()
    filled.snapshot()
    assert check(filled.db, 1, filled.expected()) == []
    assert len(filled.compare(LexicalReader(), query, limit=10)) == 10


def test_entries_without_a_node_are_an_error(filled: Host) -> None:
    filled.begin()
    filled.db.execute("DELETE FROM node WHERE id IN ('n1', 'n9')")
    for name in ("n2", "n8"):
        filled.set_meta(name, status=ACTIVE, kind=1, updated=1)
    with pytest.raises(index.LexicalIndexDamaged, match="without a node"):
        filled.search(LexicalReader(), hashed("all"), limit=10)
    filled.rollback()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE node SET status = 1 WHERE seq = {}", "entry {}: status or kind differs"),
        ("UPDATE node SET kind = 2 WHERE seq = {}", "entry {}: status or kind differs"),
        ("UPDATE node SET updated = '77' WHERE seq = {}", "entry {}: time differs"),
        ("UPDATE node SET tokens = substr(tokens, 1, 8) WHERE seq = {}", "entry {}: tokens differ"),
        ("DELETE FROM node WHERE seq = {}", "entry {}: no node has this text"),
    ],
)
@pytest.mark.parametrize("seq", [1, 7, 9])
def test_a_check_names_the_entry_that_differs_from_its_node(filled: Host, change: str, problem: str, seq: int) -> None:
    filled.begin()
    filled.db.execute(change.format(seq))
    assert check(filled.db, 1, filled.expected()) == [problem.format(seq)]
    filled.rollback()


def test_a_check_names_entries_the_index_lacks(filled: Host) -> None:
    filled.begin()
    for seq in (2, 8):
        index.remove(filled.db, 1, seq)
    assert check(filled.db, 1, filled.expected()) == ["entry 2: missing", "entry 8: missing"]
    with pytest.raises(ValueError, match="entry 0 was given after entry 0"):
        check(filled.db, 1, [next(filled.expected())] * 2)
    filled.rollback()


def test_a_changed_time_in_the_index_is_found_by_a_check(filled: Host) -> None:
    filled.begin()
    filled.db.execute(
        "UPDATE lex_slots SET body = CAST(? || substr(body, 9) AS BLOB) WHERE seg = 1", (struct.pack("<q", 5),)
    )
    assert check(filled.db, 1, filled.expected()) == ["entry 0: time differs"]
    filled.rollback()


def test_errors_and_problems_carry_no_text(filled: Host) -> None:
    error = index.LexicalIndexDamaged("namespace 1")
    assert error.where == "namespace 1"
    assert "rebuild" in str(error)
