"""Damaged session files: every altered byte is noticed, the last good state stays, and there is a way back to it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a3s_actors.agent.errors import (
    SessionNotFound,
    SessionStoreConflict,
    SessionStoreCorrupt,
    SessionStoreUnavailable,
)
from a3s_actors.agent.store import RunMark, RunMarkKind, StoredSession
from a3s_actors.testing._session_registry import run_mark, small_snapshot
from a3s_backends.file_sessions import FileOperations, open_file_session_store
from a3s_backends.file_sessions.files import SessionFiles
from a3s_backends.file_sessions.format import FILE_SCHEMA, Header, mark_line, marks_of, read_header, session_name
from a3s_backends.file_sessions.reading import SessionPaths
from a3s_backends.sqlite_sessions.database import SessionDatabase

SECRET = "the-secret-of-the-conversation"
FIRST, SECOND, THIRD = (small_snapshot("s", generation, f"{SECRET} {generation}") for generation in (1, 2, 3))


def store(folder: Path) -> SessionFiles:
    """Another process's view of the folder: it has seen nothing yet."""
    files = SessionFiles(folder, FileOperations())
    files.prepare()
    return files


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    """A session of two generations, with two marks."""
    files = store(tmp_path)
    files.save(FIRST)
    files.save(SECOND)
    files.mark("s", 2, run_mark("r-1"))
    files.mark("s", 2, run_mark("r-2"))
    return SessionPaths.of(tmp_path, "s")


MARKS = (run_mark("r-1"), run_mark("r-2"))


def altered(data: bytes) -> Iterator[bytes]:
    """Every way to alter one byte to a few others, and every way to cut or lengthen the data."""
    for place in range(len(data)):
        yield data[:place]
        for flip in (0x01, 0x80, data[place] ^ 0x0A):
            if flip:
                yield data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
    yield data + b"\n"
    yield data + b"{}"


def test_each_altered_byte_and_each_cut_of_a_session_file_is_damage(paths: SessionPaths) -> None:
    files = store(paths.folder)
    previous = paths.previous.read_bytes()
    for data in altered(paths.current.read_bytes()):
        paths.current.write_bytes(data)
        with pytest.raises(SessionStoreCorrupt) as caught:
            files.load("s")
        assert caught.value.session_id == "s"
        assert SECRET not in str(caught.value)
        # A save must not make the damaged file the previous one.
        with pytest.raises(SessionStoreCorrupt):
            files.save(THIRD)
        assert paths.current.read_bytes() == data
        assert paths.previous.read_bytes() == previous
    assert {path.suffix for path in paths.folder.iterdir()} == {"", ".session", ".previous", ".marks"}


def test_an_altered_header_is_damage_to_a_list_and_a_mark_too(paths: SessionPaths) -> None:
    files = store(paths.folder)
    whole = paths.current.read_bytes()
    for place in range(whole.index(b"\n") + 1):
        paths.current.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
        with pytest.raises(SessionStoreCorrupt) as caught:
            files.list()
        assert caught.value.session_id == paths.name  # whose it is is not known
        with pytest.raises(SessionStoreCorrupt):
            files.mark("s", 2, run_mark("r"))


def test_an_altered_mark_is_damage_and_a_torn_last_one_never_was(paths: SessionPaths) -> None:
    files = store(paths.folder)
    whole = paths.marks.read_bytes()
    first = whole.index(b"\n") + 1
    for place in range(len(whole)):
        paths.marks.write_bytes(whole[:place])
        assert files.load("s").marks == MARKS[: (place >= first)]
        for flip in (0x01, 0x80, whole[place] ^ 0x0A):
            if flip:
                paths.marks.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
                with pytest.raises(SessionStoreCorrupt, match="mark") as caught:
                    files.load("s")
                assert "r-1" not in str(caught.value)
    paths.marks.write_bytes(whole[first:])  # a lost line
    with pytest.raises(SessionStoreCorrupt):
        files.load("s")
    paths.marks.unlink()
    assert files.load("s") == StoredSession(snapshot=SECOND)


def test_a_mark_after_a_torn_one_takes_its_place(paths: SessionPaths) -> None:
    whole = paths.marks.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in (first - 1, first, first + 1, len(whole) - 1):
        paths.marks.write_bytes(whole[:cut])
        files = store(paths.folder)
        files.mark("s", 2, run_mark("r-3"))
        assert [mark.run_id for mark in files.load("s").marks] == (["r-1", "r-3"] if cut >= first else ["r-3"])


def test_marks_of_another_snapshot_are_left_out_also_where_its_generation_is_the_same(paths: SessionPaths) -> None:
    marks, current, previous = (path.read_bytes() for path in (paths.marks, paths.current, paths.previous))
    files = store(paths.folder)
    files.save(THIRD)
    paths.marks.write_bytes(marks)  # as when a save is killed before it has removed them
    assert files.load("s") == StoredSession(snapshot=THIRD)
    files.mark("s", 3, run_mark("r-3"))
    assert files.load("s").marks == (run_mark("r-3"),)
    paths.current.write_bytes(previous)
    paths.marks.unlink()
    store(paths.folder).save(small_snapshot("s", 2, "another"))
    paths.marks.write_bytes(marks)
    assert files.load("s").marks == ()
    paths.current.write_bytes(current)
    assert files.load("s") == StoredSession(snapshot=SECOND, marks=MARKS)


async def test_a_damaged_session_can_go_back_to_the_one_before(paths: SessionPaths) -> None:
    async with open_file_session_store(paths.folder) as files:
        assert await files.restore_previous("s") == 2  # it is whole
        assert await files.load("s") == StoredSession(snapshot=SECOND, marks=MARKS)
        paths.current.write_bytes(paths.current.read_bytes()[:-1])
        with pytest.raises(SessionStoreCorrupt):
            await files.load("s")
        assert await files.restore_previous("s") == 1
        assert await files.load("s") == StoredSession(snapshot=FIRST)
        await files.save(SECOND)
        paths.current.unlink()
        for call in (files.load("s"), files.save(THIRD), files.save(FIRST)):
            with pytest.raises(SessionStoreCorrupt, match="missing"):
                await call
        assert await files.restore_previous("s") == 1
        paths.current.write_bytes(b"")
        paths.previous.write_bytes(b"")
        with pytest.raises(SessionStoreCorrupt, match="before it"):
            await files.restore_previous("s")
        assert await files.delete("s")
        with pytest.raises(SessionNotFound):
            await files.restore_previous("s")
        await files.save(FIRST)


async def test_damaged_marks_can_be_dropped(paths: SessionPaths) -> None:
    paths.marks.write_bytes(b"x" + paths.marks.read_bytes()[1:])
    async with open_file_session_store(paths.folder) as files:
        with pytest.raises(SessionStoreCorrupt):
            await files.load("s")
        assert await files.restore_previous("s") == 2
        assert await files.load("s") == StoredSession(snapshot=SECOND)


def test_files_that_changed_places_are_damage(paths: SessionPaths) -> None:
    files = store(paths.folder)
    files.save(small_snapshot("t", 1))
    other = SessionPaths.of(paths.folder, "t")
    other.current.write_bytes(paths.current.read_bytes())
    for call in (lambda: files.load("t"), files.list, lambda: files.save(small_snapshot("t", 2))):
        with pytest.raises(SessionStoreCorrupt, match="another session"):
            call()


def test_a_file_that_changed_behind_the_stores_back_is_read_anew(paths: SessionPaths) -> None:
    files = store(paths.folder)
    files.load("s")
    paths.current.write_bytes(paths.previous.read_bytes())
    with pytest.raises(SessionStoreConflict):
        files.mark("s", 2, run_mark("r"))
    with pytest.raises(SessionStoreConflict):
        files.save(THIRD)
    files.save(SECOND)
    assert files.load("s").snapshot == SECOND


texts = st.text(min_size=1, max_size=60).filter(lambda text: text.strip() and "\0" not in text)
marks = st.builds(
    RunMark,
    kind=st.sampled_from(RunMarkKind),
    run_id=texts,
    context_id=st.none() | texts,
    admitted=st.lists(st.tuples(texts, st.integers(1, 2**63 - 1)), max_size=4).map(tuple),
    removed=st.integers(0, 2**63 - 1),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), marks), max_size=6), st.binary(max_size=40))
def test_marks_are_read_as_they_were_written(lines: list[tuple[bool, RunMark]], tail: bytes) -> None:
    own, other = Header.of("s", 2, b"two"), Header.of("s", 1, b"one")
    data = b""
    for mine, mark in lines:
        data += mark_line(own if mine else other, mark, len(data))
    wanted = tuple(mark for mine, mark in lines if mine)
    assert marks_of(own, data) == wanted
    assert marks_of(own, data + tail.replace(b"\n", b"")) == wanted


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=256), st.integers(1, 2**63 - 1), st.binary(max_size=50), st.data())
def test_headers_are_read_as_they_were_written(
    session_id: str, generation: int, body: bytes, data: st.DataObject
) -> None:
    header = Header.of(session_id, generation, body)
    assert len(header.line) <= 4096
    name = session_name(session_id)
    assert read_header(header.line + body, name, session_id) == header
    header.check_body(body)
    cut = data.draw(st.integers(0, len(header.line) - 1))
    with pytest.raises(SessionStoreCorrupt):
        read_header(header.line[:cut], name, session_id)


@pytest.mark.parametrize(
    "line",
    [
        b'{"schema":"a3s.session-file.v2","sessionId":"s","generation":1,"bytes":0,"sha256":""}',
        b'{"schema":"SCHEMA","sessionId":"s","generation":0,"bytes":0,"sha256":""}',
        b'{"schema":"SCHEMA","sessionId":"s","generation":9223372036854775808,"bytes":0,"sha256":""}',
        b'{"schema":"SCHEMA","sessionId":"t","generation":1,"bytes":0,"sha256":""}',
        b'{"schema":"SCHEMA","sessionId":"s","generation":1,"bytes":0,"sha256":"","more":1}',
        b'{"schema":"SCHEMA","sessionId":"s","generation":1}',
        b"\xff",
    ],
)
def test_a_sealed_header_of_another_kind_is_refused(line: bytes) -> None:
    import hashlib

    line = line.replace(b"SCHEMA", FILE_SCHEMA.encode())
    whole = hashlib.sha256(line).hexdigest().encode() + b" " + line + b"\n"
    with pytest.raises(SessionStoreCorrupt):
        read_header(whole, session_name("s"), "s")


def test_damage_in_sqlite_is_noticed_or_was_not_in_use(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    database = SessionDatabase.open(path)
    database.save(FIRST)
    database.save(SECOND)
    database.mark("s", 2, run_mark("r-1"))
    database.close()
    whole = path.read_bytes()
    chance = random.Random(7)
    used = [place for place, byte in enumerate(whole) if byte]
    places = {*range(100), *chance.sample(used, 300), *chance.sample(range(len(whole)), 50)}
    told: list[str] = []
    for place in sorted(places):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :])
        try:
            database = SessionDatabase.open(path)
            try:
                assert database.list() == ("s",)
                assert database.load("s") == StoredSession(snapshot=SECOND, marks=(run_mark("r-1"),))
            finally:
                database.close()
        except (SessionStoreCorrupt, SessionStoreUnavailable) as error:
            told.append(f"{error} {error.__cause__}")
    assert len(told) > 300
    assert SECRET not in "".join(told)


def test_rows_that_were_altered_by_hand_are_damage(tmp_path: Path) -> None:
    from a3s_backends.sqlite.connection import connect

    path = tmp_path / "sessions.db"
    database = SessionDatabase.open(path)
    database.save(FIRST)
    for run in ("r-1", "r-2", "r-3"):
        database.mark("s", 1, run_mark(run))
    database.save(small_snapshot("t", 1))
    database.close()
    whole = path.read_bytes()
    statements = [
        "UPDATE session SET body = CAST(replace(body, 'secret', 'sEcret') AS BLOB)",
        "UPDATE session SET digest = zeroblob(32)",
        "UPDATE session SET generation = 2",
        "UPDATE mark SET json = CAST(replace(json, 'r-2', 'r-9') AS BLOB)",
        "UPDATE mark SET digest = zeroblob(32) WHERE place = 3",
        "DELETE FROM mark WHERE place = 2",
        "UPDATE session SET id = CASE id WHEN 's' THEN 't2' ELSE 's' END",
    ]
    for statement in statements:
        path.write_bytes(whole)
        db = connect(path)
        db.execute(statement)
        db.close()
        database = SessionDatabase.open(path)
        with pytest.raises(SessionStoreCorrupt):
            database.load("s")
        database.close()
