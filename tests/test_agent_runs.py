"""Runs: the table of their life, the log that keeps the last ones, and the snapshot that outlives a process."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3s_actors.actor import IllegalTransition
from a3s_actors.agent import ModelMessage, ModelUsage, Role, RunIdentityConflict, RunState, SessionStoreCorrupt
from a3s_actors.agent.model import ToolCall
from a3s_actors.agent.resuming import recovered_runs
from a3s_actors.agent.runs import RUN, ContextRecord, RunEvent, RunLog, RunRecord, RunStep
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, RunMarkKind, StoredSession
from a3s_actors.memory import InvalidInput, LimitExceeded, Timestamp
from a3s_actors.testing.building import at


@pytest.mark.parametrize("step", list(RunStep))
@pytest.mark.parametrize("state", list(RunState))
def test_only_a_running_run_ends_and_it_ends_once(state: RunState, step: RunStep) -> None:
    record = RunRecord(run_id="r", state=state)
    if state is RunState.RUNNING:
        ended = record.after(step, at(5), "Why")
        assert (ended.ended_at, ended.error) == (at(5), "Why")
        assert ended.state is RUN.after(state, step) is not RunState.RUNNING
    else:
        with pytest.raises(IllegalTransition):
            record.after(step, at(5))


def test_the_oldest_run_goes_first_and_a_retained_id_is_refused_without_letting_one_go() -> None:
    log = RunLog("s", 2)
    first = RunRecord(run_id="a")
    log.reserve(first)
    log.reserve(RunRecord(run_id="b"))
    for taken in ("a", "b"):
        with pytest.raises(RunIdentityConflict) as refused:
            log.reserve(RunRecord(run_id=taken, error="other"))
        assert refused.value.run_id == taken
        assert [run.run_id for run in log.all()] == ["a", "b"]
        assert log.get("a") is first
    log.reserve(RunRecord(run_id="c"))
    assert [run.run_id for run in log.all()] == ["b", "c"]
    log.replace(RunRecord(run_id="a", error="late"))
    assert log.get("a") is None
    log.reserve(RunRecord(run_id="a"))
    assert [run.run_id for run in log.all()] == ["c", "a"]


@pytest.mark.parametrize("run_id", ["", " ", "x" * 257, "\ud800"])
def test_a_malformed_run_id_is_refused(run_id: str) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        RunLog("s", 1).reserve(RunRecord(run_id=run_id))


@given(st.lists(st.sampled_from("abcde"), max_size=30), st.integers(1, 4))
def test_the_log_keeps_the_last_ones_in_order(ids: list[str], limit: int) -> None:
    log = RunLog("s", limit)
    kept: list[str] = []
    for each in ids:
        if each in kept:
            with pytest.raises(RunIdentityConflict):
                log.reserve(RunRecord(run_id=each))
        else:
            log.reserve(RunRecord(run_id=each))
            kept = [*kept, each][-limit:]
        assert [run.run_id for run in log.all()] == kept


# -- what a resumed session knows --------------------------------------------------------------------------------------

ADMITTED = (("m", 2),)


def recovered(*marks: RunMark, runs: tuple[RunRecord, ...] = ()) -> tuple[RunRecord, ...]:
    snapshot = SessionSnapshot(session_id="s", generation=1, runs=runs)
    return recovered_runs(StoredSession(snapshot=snapshot, marks=marks), at(9))


def mark(kind: RunMarkKind, context: str | None = "c1", run: str = "r", removed: int = 0) -> RunMark:
    return RunMark(kind=kind, run_id=run, context_id=context, admitted=ADMITTED, removed=removed)


def test_what_was_admitted_and_never_sent_is_told_from_what_may_have_been_sent() -> None:
    (run,) = recovered(mark(RunMarkKind.ADMITTING))
    assert run.state is RunState.INTERRUPTED
    assert run.contexts == (ContextRecord(context_id="c1", admitted=ADMITTED, dispatched=False),)
    assert run.model_calls == 0
    (run,) = recovered(mark(RunMarkKind.ADMITTING), mark(RunMarkKind.DISPATCHING, removed=1))
    assert run.contexts == (ContextRecord(context_id="c1", admitted=ADMITTED, removed=1, dispatched=True),)
    assert run.model_calls == 1


def test_each_context_of_an_interrupted_run_is_told_by_itself() -> None:
    (run,) = recovered(
        mark(RunMarkKind.ADMITTING, "c1"),
        mark(RunMarkKind.DISPATCHING, "c1"),
        mark(RunMarkKind.ADMITTING, "c2"),
    )
    assert [(each.context_id, each.dispatched) for each in run.contexts] == [("c1", True), ("c2", False)]


def test_a_completed_run_stays_as_it_is_and_a_running_one_is_interrupted() -> None:
    done = RunRecord(run_id="done", state=RunState.COMPLETED)
    going = RunRecord(run_id="going", started_at=at(1))
    assert recovered(runs=(done, going)) == (done, going.after(RunStep.INTERRUPT, at(9), "process ended"))


# -- the snapshot ------------------------------------------------------------------------------------------------------

texts = st.text(max_size=30)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs"]), min_size=1, max_size=20)
times = st.none() | st.integers(0, 10**6).map(at)
contexts = st.builds(
    ContextRecord,
    context_id=st.none() | names,
    admitted=st.lists(st.tuples(names, st.integers(1, 9)), max_size=2).map(tuple),
    removed=st.integers(0, 3),
    dispatched=st.booleans(),
)
events = st.builds(RunEvent, name=names, detail=texts, at=times)
runs = st.builds(
    RunRecord,
    run_id=names,
    state=st.sampled_from(RunState),
    started_at=times,
    ended_at=times,
    usage=st.builds(ModelUsage, input_tokens=st.integers(0, 99), output_tokens=st.integers(0, 99)),
    model_calls=st.integers(0, 9),
    contexts=st.lists(contexts, max_size=2).map(tuple),
    events=st.lists(events, max_size=2).map(tuple),
    error=texts,
)
messages = st.one_of(
    st.builds(ModelMessage, role=st.sampled_from([Role.SYSTEM, Role.USER]), content=texts),
    st.builds(
        ModelMessage,
        role=st.just(Role.ASSISTANT),
        content=texts,
        tool_calls=st.lists(st.builds(ToolCall, id=names, name=names, arguments=texts), max_size=2).map(tuple),
    ),
    st.builds(ModelMessage, role=st.just(Role.TOOL), content=texts, tool_call_id=names),
)
snapshots = st.builds(
    SessionSnapshot,
    session_id=st.just("s"),
    generation=st.integers(1, 2**53),
    workspace=texts,
    tenant_id=st.none() | names,
    principal_id=st.none() | names,
    system_prompt=st.none() | texts,
    messages=st.lists(messages, max_size=3).map(tuple),
    runs=st.lists(runs, max_size=3, unique_by=lambda run: run.run_id).map(tuple),
    created_at=times,
    saved_at=times,
)


@given(snapshots)
def test_a_snapshot_is_read_back_as_it_was_written(snapshot: SessionSnapshot) -> None:
    data = snapshot.to_json()
    assert SessionSnapshot.from_json(data, "s") == snapshot
    assert SessionSnapshot.from_json(data, "s").to_json() == data


def whole() -> dict[str, Any]:
    run = RunRecord(
        run_id="r", contexts=(ContextRecord(context_id="c", admitted=ADMITTED),), events=(RunEvent(name="e"),)
    )
    message = ModelMessage(
        role=Role.ASSISTANT, content="x", tool_calls=(ToolCall(id="1", name="echo", arguments="{}"),)
    )
    snapshot = SessionSnapshot(session_id="s", generation=1, runs=(run,), messages=(message,), created_at=at(1))
    value: dict[str, Any] = json.loads(snapshot.to_json())
    return value


PLACES = [
    (),
    ("messages", 0),
    ("messages", 0, "toolCalls", 0),
    ("runs", 0),
    ("runs", 0, "contexts", 0),
    ("runs", 0, "events", 0),
]


def refused(value: object, session_id: str = "s") -> SessionStoreCorrupt:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(SessionStoreCorrupt) as caught:
        SessionSnapshot.from_json(data, session_id)
    return caught.value


@pytest.mark.parametrize("place", PLACES)
def test_a_field_that_nobody_knows_is_refused_wherever_it_stands(place: tuple[str | int, ...]) -> None:
    value = whole()
    target = value
    for step in place:
        target = target[step]  # type: ignore[index]
    target["hush"] = 1
    assert "hush" not in str(refused(value))


@pytest.mark.parametrize("name", sorted(whole()))
def test_a_snapshot_without_one_of_its_fields_is_refused(name: str) -> None:
    value = whole()
    del value[name]
    refused(value)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "a3s.code.session.v2"},
        {"generation": "1"},
        {"generation": True},
        {"generation": 1.5},
        {"messages": None},
        {"createdAt": "yesterday"},
        {"createdAt": "2026-13-01T00:00:00Z"},
        {"durableMemory": {}},
        {"durableMemory": 7},
        {"tenantId": 7},
    ],
)
def test_a_field_of_another_kind_is_refused(change: dict[str, object]) -> None:
    refused(whole() | change)


def test_another_sessions_snapshot_is_refused() -> None:
    refused(whole(), "t")


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"\xff", b"{" * 100_000, b'{"schema": "\\ud800"}'])
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    refused(data)


@given(st.binary(max_size=60), st.integers(0, 10**6))
def test_a_snapshot_with_bytes_put_into_it_is_refused_or_read_without_another_error(more: bytes, place: int) -> None:
    data = json.dumps(whole()).encode()
    place %= len(data)
    with contextlib.suppress(SessionStoreCorrupt):
        assert SessionSnapshot.from_json(data[:place] + more + data[place:], "s").session_id == "s"


def test_no_repr_of_a_snapshot_shows_a_text() -> None:
    snapshot = SessionSnapshot(
        session_id="s",
        generation=1,
        system_prompt="be quiet",
        messages=(ModelMessage(role=Role.USER, content="hush hush"),),
    )
    assert "quiet" not in repr(snapshot)
    assert "hush" not in repr(snapshot) + repr(snapshot.messages)
    assert attrs.evolve(snapshot, saved_at=Timestamp(1)) != snapshot
