"""Resuming: exactly the session that was saved, with the memory it was saved with, by one owner; or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from a3s_actors.agent import (
    ModelRequest,
    RunState,
    SessionExists,
    SessionInUse,
    SessionNotFound,
    SessionNotSaved,
    SessionOptions,
    SessionStore,
    SessionStoreConflict,
    SessionStoreUnavailable,
    Tool,
    open_agent,
)
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, StoredSession
from a3s_actors.memory import InvalidInput, MemoryNamespace, MemoryRepository
from a3s_actors.recall import DurableMemoryBindingMismatch, DurableMemoryRecallPolicy, DurableMemorySession
from a3s_actors.testing import ScriptedModelClient, tool_call
from a3s_actors.testing.building import NS
from a3s_backends.file_sessions import open_file_session_store
from a3s_backends.in_memory import open_in_memory_repository
from a3s_backends.in_memory_sessions import open_in_memory_session_store
from a3s_backends.sqlite_sessions import open_sqlite_session_store
from tests.agents import POLICY, bind, counting_host, remember
from tests.test_agent_session import ECHO

Open = Callable[[], AbstractAsyncContextManager[SessionStore]]


@pytest.fixture(params=["in_memory", "file", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    opens: dict[str, Any] = {
        "in_memory": open_in_memory_session_store,
        "file": lambda: open_file_session_store(tmp_path / "sessions"),
        "sqlite": lambda: open_sqlite_session_store(tmp_path / "sessions.db"),
    }
    async with opens[request.param]() as opened:
        yield opened


@pytest.fixture
async def repository() -> AsyncIterator[MemoryRepository]:
    async with open_in_memory_repository() as opened:
        yield opened


@asynccontextmanager
async def agent_of(model: ScriptedModelClient | None = None, start: float = 100) -> AsyncIterator[Any]:
    client = ScriptedModelClient(otherwise="ok") if model is None else model
    async with open_agent(client, host=counting_host(start)) as agent:
        yield agent


async def say(store: SessionStore, *prompts: str, **options: Any) -> None:
    """Let a new session "s" say something, and close it."""
    async with (
        agent_of() as agent,
        agent.open_session("w", SessionOptions(session_id="s", store=store, **options)) as s,
    ):
        for number, prompt in enumerate(prompts):
            await s.send(prompt, run_id=f"r{number}")


async def test_a_resumed_session_goes_on_where_it_was(store: SessionStore) -> None:
    model = ScriptedModelClient([tool_call("echo", {"text": "é"}), "first"])
    options = SessionOptions(session_id="s", store=store, tools=[ECHO], system_prompt="be kind")
    async with agent_of(model) as agent, agent.open_session("w", options) as session:
        await session.send("one", run_id="a")
        before = (session.messages, session.runs())
    model = ScriptedModelClient(otherwise="second")
    async with agent_of(model, 500) as agent, agent.resume_session("s", SessionOptions(store=store)) as session:
        assert (session.messages, session.runs()) == before
        assert (session.workspace, session.system_prompt) == ("w", "be kind")
        await session.send("two", run_id="b")
    assert [each.content for each in model.requests[0].messages] == [
        "be kind",
        "one",
        "",
        "echo é",
        "first",
        "two",
    ]


async def test_instructions_that_the_host_gives_anew_are_used(store: SessionStore) -> None:
    await say(store, "one", system_prompt="old")
    options = SessionOptions(store=store, system_prompt="new")
    async with agent_of() as agent, agent.resume_session("s", options) as session:
        assert session.system_prompt == "new"


async def test_a_session_that_is_not_there_cannot_be_resumed(store: SessionStore) -> None:
    async with agent_of() as agent:
        with pytest.raises(SessionNotFound):
            async with agent.resume_session("s", SessionOptions(store=store)):
                pass


async def test_a_stored_id_cannot_be_opened_as_new(store: SessionStore) -> None:
    await say(store, "one")
    before = await store.load("s")
    async with agent_of() as agent:
        with pytest.raises(SessionExists):
            async with agent.open_session("w", SessionOptions(session_id="s", store=store)):
                pass
        assert agent.sessions() == ()
    assert await store.load("s") == before


OTHER = MemoryNamespace(NS.tenant_id, NS.principal_id, NS.scope_id + " ")


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("durableMemory", lambda _: {"durable_memory": None}),
        ("namespace.scopeId", lambda r: {"durable_memory": DurableMemorySession.active_recall(r, OTHER, POLICY)}),
        (
            "recallPolicy.maxResults",
            lambda r: {"durable_memory": bind(r, DurableMemoryRecallPolicy(6, POLICY.min_lexical_score))},
        ),
        (
            "recallPolicy.minLexicalScore",
            lambda r: {"durable_memory": bind(r, DurableMemoryRecallPolicy(5, 0.301))},
        ),
        ("recallPolicy.maxRelatedLookups", lambda r: {"durable_memory": bind(r, DurableMemoryRecallPolicy(5, 0.3, 1))}),
    ],
)
async def test_a_memory_that_drifted_is_refused_by_name_before_anything_happens(
    store: SessionStore, repository: MemoryRepository, field: str, change: Callable[[MemoryRepository], dict[str, Any]]
) -> None:
    await say(store, "one", durable_memory=bind(repository))
    before = await store.load("s")
    silent = ScriptedModelClient()
    async with agent_of(silent) as agent:
        with pytest.raises(DurableMemoryBindingMismatch) as refused:
            async with agent.resume_session("s", SessionOptions(store=store, **change(repository))):
                pass
        assert refused.value.field == field
        assert agent.sessions() == ()
        async with agent.resume_session("s", SessionOptions(store=store, durable_memory=bind(repository))) as session:
            assert len(session.runs()) == 1
    assert silent.requests == []
    assert before.snapshot.messages == (await store.load("s")).snapshot.messages


async def test_a_session_saved_without_a_memory_takes_none(store: SessionStore, repository: MemoryRepository) -> None:
    await say(store, "one", tenant_id=NS.tenant_id, principal_id=NS.principal_id)
    async with agent_of() as agent:
        with pytest.raises(DurableMemoryBindingMismatch, match="without"):
            async with agent.resume_session("s", SessionOptions(store=store, durable_memory=bind(repository))):
                pass


async def test_another_owner_is_refused(store: SessionStore) -> None:
    await say(store, "one", tenant_id="t")
    async with agent_of() as agent:
        right = SessionOptions(store=store, tenant_id="t")
        for owner in ({"tenant_id": None}, {"tenant_id": "T"}, {"principal_id": "p"}):
            with pytest.raises(DurableMemoryBindingMismatch):
                async with agent.resume_session("s", attrs.evolve(right, **owner)):
                    pass
        async with agent.resume_session("s", right) as session:
            assert session.tenant_id == "t"


async def test_arguments_of_a_resume_are_checked_first(store: SessionStore) -> None:
    async with agent_of() as agent:
        for session_id, options in (
            ("s", SessionOptions()),
            ("s", SessionOptions(store=store, session_id="t")),
            ("", SessionOptions(store=store)),
            ("s", None),
        ):
            with pytest.raises(InvalidInput):
                async with agent.resume_session(session_id, options):
                    pass


async def test_one_agent_has_a_session_open_once(store: SessionStore) -> None:
    await say(store, "one")
    async with agent_of() as agent, agent.resume_session("s", SessionOptions(store=store)):
        with pytest.raises(SessionInUse):
            async with agent.resume_session("s", SessionOptions(store=store)):
                pass


async def test_whoever_resumes_last_owns_the_session_and_the_other_one_writes_no_more(store: SessionStore) -> None:
    await say(store, "one")
    first, second = ScriptedModelClient(otherwise="1"), ScriptedModelClient(otherwise="2")
    async with (
        agent_of(first) as one,
        agent_of(second, 500) as two,
        one.resume_session("s", SessionOptions(store=store)) as old,
        two.resume_session("s", SessionOptions(store=store)) as new,
    ):
        with pytest.raises(SessionStoreConflict):
            await old.send("from the old owner", run_id="old")
        assert first.requests == [], "the mark before the call was refused: the model got nothing"
        assert (await new.send("from the new owner", run_id="new")).content == "2"
    assert [run.run_id for run in (await store.load("s")).snapshot.runs] == ["r0", "new"]


class Trouble:
    """A store that stores and says that it could not, or does not store; as often as it is told."""

    def __init__(self, inner: SessionStore) -> None:
        self.inner = inner
        self.lost_answers = 0
        self.failures = 0

    async def save(self, snapshot: SessionSnapshot) -> None:
        if self.failures:
            self.failures -= 1
            raise SessionStoreUnavailable("save", "no space is left; make room")
        await self.inner.save(snapshot)
        if self.lost_answers:
            self.lost_answers -= 1
            raise SessionStoreUnavailable("save", "the sync failed; try again")

    async def mark(self, session_id: str, generation: int, mark: RunMark) -> None:
        await self.inner.mark(session_id, generation, mark)

    async def load(self, session_id: str) -> StoredSession:
        return await self.inner.load(session_id)

    async def delete(self, session_id: str) -> bool:
        return await self.inner.delete(session_id)

    async def list(self) -> tuple[str, ...]:
        return await self.inner.list()


@pytest.mark.parametrize("manner", ["failures", "lost_answers"])
async def test_a_turn_whose_save_failed_says_so_and_the_next_save_makes_up_for_it(
    store: SessionStore, manner: str
) -> None:
    trouble = Trouble(store)
    async with agent_of() as agent, agent.open_session("w", SessionOptions(session_id="s", store=trouble)) as session:
        setattr(trouble, manner, 1)
        with pytest.raises(SessionNotSaved) as told:
            await session.send("one", run_id="a")
        assert told.value.run_id == "a"
        assert session.runs()[0].state is RunState.COMPLETED
        assert len(session.messages) == 2
        await session.save()
        assert (await store.load("s")).snapshot.messages == session.messages
        setattr(trouble, manner, 1)
        with pytest.raises(SessionNotSaved):
            await session.send("two", run_id="b")
        assert (await session.send("three", run_id="c")).content == "ok"
    stored = (await store.load("s")).snapshot
    assert [run.run_id for run in stored.runs] == ["a", "b", "c"]
    assert len(stored.messages) == 6


@pytest.mark.parametrize("manner", ["failures", "lost_answers"])
async def test_a_session_whose_last_save_fails_says_so_in_its_report(store: SessionStore, manner: str) -> None:
    trouble = Trouble(store)
    async with agent_of() as agent, agent.open_session("w", SessionOptions(session_id="s", store=trouble)) as session:
        setattr(trouble, manner, 5)
        with pytest.raises(SessionNotSaved):
            await session.send("one")
        report = await session.close()
        assert report.saved is False


async def test_a_cancelled_turn_is_in_the_store_as_cancelled(store: SessionStore) -> None:
    async def hang(_request: ModelRequest) -> str:
        await trio.sleep_forever()
        raise AssertionError

    options = SessionOptions(session_id="s", store=store)
    async with agent_of(ScriptedModelClient([hang])) as agent, agent.open_session("w", options) as session:
        with trio.move_on_after(0.05):
            await session.send("one", run_id="a")
        stored = await store.load("s")
    assert [(run.run_id, run.state) for run in stored.snapshot.runs] == [("a", RunState.CANCELLED)]
    assert stored.snapshot.messages == ()
    assert stored.marks == ()


async def test_the_stored_transcript_can_be_redacted_while_the_session_keeps_the_words(store: SessionStore) -> None:
    secret = "ghp_" + "wWPw5k4aXcaT4fNP0UcnZwJUVFk6LO0pINUx"
    model = ScriptedModelClient([tool_call("echo", {"text": secret}), f"noted {secret}"], otherwise="ok")
    options = SessionOptions(session_id="s", store=store, tools=[ECHO], redact_transcript=True)
    async with agent_of(model) as agent, agent.open_session("w", options) as session:
        await session.send(f"use {secret}")
        assert any(secret in each.content for each in session.messages)
    stored = (await store.load("s")).snapshot
    assert secret.encode() not in stored.to_json()
    assert len(stored.messages) == 4
    again = SessionOptions(store=store, tools=[ECHO])
    async with agent_of(None, 500) as agent, agent.resume_session("s", again) as session:
        assert (await session.send("and now", run_id="later")).content == "ok"


async def test_tools_and_providers_are_the_hosts_to_give_again(store: SessionStore) -> None:
    async def other(_arguments: object, _invocation: object) -> str:
        return "the new tool"

    await say(store, "one", tools=[ECHO])
    tool = Tool(name="other", description="x", parameters={"type": "object"}, run=other)
    model = ScriptedModelClient([tool_call("other"), "end"])
    again = SessionOptions(store=store, tools=[tool])
    async with agent_of(model) as agent, agent.resume_session("s", again) as session:
        await session.send("go")
    assert [each.name for each in model.requests[0].tools] == ["other"]


async def test_a_resumed_session_recalls_and_its_admissions_are_new_contexts(
    store: SessionStore, repository: MemoryRepository
) -> None:
    await remember(repository, "deploy", "We deploy on Tuesdays.")
    contexts = []
    for start in (100, 500, 900):
        async with agent_of(None, start) as agent:  # the ids of the host's generator begin anew each time
            options = SessionOptions(session_id="s", store=store, durable_memory=bind(repository), max_retained_runs=1)
            opening = (
                agent.open_session("w", options)
                if start == 100
                else agent.resume_session("s", attrs.evolve(options, session_id=None))
            )
            async with opening as session:
                reply = await session.send("when do we deploy", run_id=f"r{start}")
                contexts.append(reply.context.context_id)
    assert len(set(contexts)) == 3
    assert (await repository.usage_summary(NS, "deploy")).admissions == 3
