"""Checks of session stores: what comes back, who may save, which marks count."""

from __future__ import annotations

from typing import Any, Final

import attrs

from a3s_actors.agent.errors import SessionNotFound, SessionStoreConflict
from a3s_actors.agent.model import ModelMessage, Role
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, RunMarkKind, SessionStore, StoredSession
from a3s_actors.memory.errors import InvalidInput, LimitExceeded
from a3s_actors.testing._registry import expect, expect_equal
from a3s_actors.testing._session_registry import (
    bound_snapshot,
    check,
    full_snapshot,
    run_mark,
    session_refused,
    small_snapshot,
)

ODD_TEXT: Final = (
    "caf\u00e9 cafe\u0301 \u5317\u4eac \U0001f600 \ufeff \u2028 \u200e\u202e \x00\x01\x1f\x7f"
    " \"'\\/ \r\n\t %s ? * _ \uffff \U0010ffff"
)
ODD_IDS: Final = (
    "a",
    "A",
    " a",
    "a ",
    "caf\u00e9",
    "cafe\u0301",
    "\ufb01",
    "fi",
    "..",
    ".",
    "../a",
    "../../etc/passwd",
    "/a",
    "a/b",
    "a\\b",
    "a:b",
    "a\nb",
    "a\tb",
    "-rf",
    "~",
    "%",
    "_",
    "'; DROP TABLE session; --",
    '"a"',
    "\x01",
    "\U0001f600",
    "con",
    "a.session",
    ".lock",
    "x" * 256,
    "\u00e9" * 128,
    "x" * 255 + "y",
)
BAD_IDS: Final[tuple[tuple[Any, type[InvalidInput | LimitExceeded]], ...]] = (
    ("", InvalidInput),
    (" \t\n", InvalidInput),
    ("a\0b", InvalidInput),
    ("\ud800", InvalidInput),
    (None, InvalidInput),
    (b"a", InvalidInput),
    (7, InvalidInput),
    ("x" * 257, LimitExceeded),
    ("\u00e9" * 129, LimitExceeded),
)


@check
async def round_trip_every_field(store: SessionStore) -> None:
    """A snapshot comes back equal: every field, none, and after each further save."""
    empty = SessionSnapshot(session_id="s", generation=1)
    await store.save(empty)
    expect_equal(await store.load("s"), StoredSession(snapshot=empty), "the emptiest snapshot")
    for generation in range(2, 6):
        wanted = full_snapshot("s", generation, f"text {generation}")
        await store.save(wanted)
        expect_equal(await store.load("s"), StoredSession(snapshot=wanted), "a snapshot with every field")
    smaller = small_snapshot("s", 6)
    await store.save(smaller)
    expect_equal(await store.load("s"), StoredSession(snapshot=smaller), "a smaller one in its place")


@check
async def round_trip_memory_binding(store: SessionStore) -> None:
    """The binding of a session's durable memory comes back equal."""
    wanted = bound_snapshot("s", 1)
    await store.save(wanted)
    expect_equal(await store.load("s"), StoredSession(snapshot=wanted), "a snapshot with a binding")


@check
async def round_trip_any_text(store: SessionStore) -> None:
    """Texts come back as they were: normal forms, controls, U+0000, line separators, astral characters."""
    wanted = full_snapshot("s", 1, ODD_TEXT)
    await store.save(wanted)
    expect_equal(await store.load("s"), StoredSession(snapshot=wanted), "a snapshot of odd texts")


@check
async def round_trip_large(store: SessionStore) -> None:
    """A transcript of 1.25 MiB, and a single message of that size, come back whole."""
    for generation, (count, size) in enumerate(((640, 2048), (1, 1280 * 1024)), 1):
        messages = tuple(
            ModelMessage(
                role=Role.USER if number % 2 == 0 else Role.ASSISTANT, content=f"{number:08d}\u00e9." * (size // 11)
            )
            for number in range(count)
        )
        wanted = SessionSnapshot(session_id="s", generation=generation, messages=messages)
        await store.save(wanted)
        expect_equal(await store.load("s"), StoredSession(snapshot=wanted), "a large snapshot")


@check
async def ids_never_mix(store: SessionStore) -> None:
    """Ids are exact: case, Unicode form, spaces, separators, dots and length never mix or escape."""
    for number, session_id in enumerate(ODD_IDS):
        await store.save(small_snapshot(session_id, 1, f"content {number}"))
    expect_equal(await store.list(), tuple(sorted(ODD_IDS)), "the listed ids")
    for number, session_id in enumerate(ODD_IDS):
        wanted = StoredSession(snapshot=small_snapshot(session_id, 1, f"content {number}"))
        expect_equal(await store.load(session_id), wanted, f"session {session_id!r}")
    for session_id in ODD_IDS[::2]:
        expect(await store.delete(session_id), f"session {session_id!r} was there to delete")
    expect_equal(await store.list(), tuple(sorted(ODD_IDS[1::2])), "the ids that were not deleted")


@check
async def save_needs_the_generation_before(store: SessionStore) -> None:
    """A save replaces the generation before its own and no other; a refused one changes nothing."""
    with session_refused(SessionStoreConflict, session_id="s", expected=1, actual=0):
        await store.save(small_snapshot("s", 2))
    expect_equal(await store.list(), (), "nothing stored by a refused save")
    await store.save(small_snapshot("s", 1, "one"))
    await store.mark("s", 1, run_mark("r"))
    for generation in (1, 3, 4, (1 << 63) - 1):
        with session_refused(SessionStoreConflict, session_id="s", expected=generation - 1, actual=1):
            await store.save(small_snapshot("s", generation, "other"))
    wanted = StoredSession(snapshot=small_snapshot("s", 1, "one"), marks=(run_mark("r"),))
    expect_equal(await store.load("s"), wanted, "the session after refused saves")
    await store.save(small_snapshot("s", 2, "two"))
    with session_refused(SessionStoreConflict, expected=0, actual=2):
        await store.save(small_snapshot("s", 1, "one"))
    expect_equal((await store.load("s")).snapshot, small_snapshot("s", 2, "two"), "the second generation")
    await store.save(small_snapshot("other", 1))


@check
async def marks_come_back_in_order(store: SessionStore) -> None:
    """Marks come back in their order, with every field, also when they repeat; those of others stay theirs."""
    marks = (
        run_mark("r-1"),
        run_mark("r-1", RunMarkKind.DISPATCHING),
        run_mark("r-1"),
        RunMark(kind=RunMarkKind.DISPATCHING, run_id="r-2", context_id=None),
        RunMark(
            kind=RunMarkKind.ADMITTING,
            run_id="r \u5317\u4eac \n\x00 \u2028",
            context_id="c\ncafe\u0301",
            admitted=tuple((f"m-\u00e9\n{number}", number + 1) for number in range(300)),
            removed=12,
        ),
    )
    await store.save(small_snapshot("s", 1))
    await store.save(small_snapshot("t", 1))
    for number, mark in enumerate(marks, 1):
        await store.mark("s", 1, mark)
        expect_equal((await store.load("s")).marks, marks[:number], "the marks so far")
    expect_equal((await store.load("t")).marks, (), "another session's marks")


@check
async def marks_are_of_a_generation(store: SessionStore) -> None:
    """A mark needs its generation stored; a save, and nothing else, ends the marks before it."""
    with session_refused(SessionStoreConflict, session_id="s", expected=1, actual=0):
        await store.mark("s", 1, run_mark("r"))
    await store.save(small_snapshot("s", 1))
    for generation in (2, 3, (1 << 63) - 1):
        with session_refused(SessionStoreConflict, session_id="s", expected=generation, actual=1):
            await store.mark("s", generation, run_mark("r"))
    expect_equal((await store.load("s")).marks, (), "no mark of a refused call")
    await store.mark("s", 1, run_mark("r-1"))
    await store.save(small_snapshot("s", 2))
    expect_equal((await store.load("s")).marks, (), "no mark after a save")
    with session_refused(SessionStoreConflict, expected=1, actual=2):
        await store.mark("s", 1, run_mark("r-1"))
    await store.mark("s", 2, run_mark("r-2"))
    expect_equal((await store.load("s")).marks, (run_mark("r-2"),), "the marks of the second generation")


@check
async def delete_removes_everything(store: SessionStore) -> None:
    """Deleting removes session and marks, tells whether there was one, and lets the id begin anew."""
    expect(not await store.delete("s"), "nothing was there to delete")
    for content in ("one", "two"):
        await store.save(small_snapshot("s", 1, content))
        await store.save(small_snapshot("t", 1)) if content == "one" else None
        expect_equal(await store.load("s"), StoredSession(snapshot=small_snapshot("s", 1, content)), "a new session")
        await store.mark("s", 1, run_mark("r"))
        await store.save(small_snapshot("s", 2, content))
        await store.mark("s", 2, run_mark("r"))
        expect(await store.delete("s"), "the session was there to delete")
        expect(not await store.delete("s"), "it was deleted")
        with session_refused(SessionNotFound, session_id="s"):
            await store.load("s")
        with session_refused(SessionStoreConflict, expected=2, actual=0):
            await store.mark("s", 2, run_mark("r"))
        with session_refused(SessionStoreConflict, expected=2, actual=0):
            await store.save(small_snapshot("s", 3))
        expect_equal(await store.list(), ("t",), "the other session")


@check
async def bad_input_is_refused(store: SessionStore) -> None:
    """What is malformed is refused as such, whatever is stored, and changes nothing."""
    wrong: Any
    for session_id, kind in BAD_IDS:
        with session_refused(kind):
            await store.save(small_snapshot(session_id, 1))
        with session_refused(kind):
            await store.mark(session_id, 1, run_mark("r"))
        with session_refused(kind):
            await store.load(session_id)
        with session_refused(kind):
            await store.delete(session_id)
    await store.save(small_snapshot("s", 1))
    for wrong, kind in ((0, InvalidInput), (-1, InvalidInput), (1 << 63, LimitExceeded), (1.0, InvalidInput)):
        with session_refused(kind):
            await store.save(small_snapshot("s", wrong))
        with session_refused(kind):
            await store.mark("s", wrong, run_mark("r"))
    for wrong in ("1", None, True):
        with session_refused(InvalidInput):
            await store.mark("s", wrong, run_mark("r"))
    texts = ({"workspace": None}, {"workspace": "\udfff"}, {"system_prompt": b"x"}, {"tenant_id": 7})
    broken = [attrs.evolve(small_snapshot("s", 2), **change) for change in texts]
    for wrong in (None, "s", {}, small_snapshot("s", 2).to_json(), *broken):
        with session_refused(InvalidInput):
            await store.save(wrong)
    marks = ({"kind": "admitting"}, {"run_id": 7}, {"run_id": "\udfff"}, {"context_id": 1}, {"removed": -1})
    admitted = ({"admitted": (("m", 0),)}, {"admitted": (("m",),)}, {"admitted": ["m"]}, {"admitted": ((1, 1),)})
    for change in (*marks, *admitted):
        whole: dict[str, Any] = {"kind": RunMarkKind.ADMITTING, "run_id": "r", "context_id": None}
        with session_refused(InvalidInput):
            await store.mark("s", 1, RunMark(**(whole | change)))
    for wrong in (None, "r", {"kind": "admitting"}):
        with session_refused(InvalidInput):
            await store.mark("s", 1, wrong)
    expect_equal(await store.list(), ("s",), "the ids after refusals")
    expect_equal(await store.load("s"), StoredSession(snapshot=small_snapshot("s", 1)), "the session after refusals")
