"""How checks of session stores are written: the registry, ways to say no, and sessions to store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Protocol

import attrs

from a3s_actors.agent.errors import AgentError
from a3s_actors.agent.model import ModelMessage, ModelUsage, Role, ToolCall
from a3s_actors.agent.runs import ContextRecord, RunEvent, RunRecord, RunState
from a3s_actors.agent.snapshot import SessionSnapshot
from a3s_actors.agent.store import RunMark, RunMarkKind, SessionStore
from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import MemoryNamespace
from a3s_actors.recall.binding import DurableMemoryBindingV1
from a3s_actors.recall.policy import DurableMemoryRecallPolicy
from a3s_actors.testing._registry import ConformanceFailure, expect, expect_equal

__all__ = [
    "SessionStoreCheck",
    "SessionStoreFactory",
    "bound_snapshot",
    "check",
    "check_storage",
    "full_snapshot",
    "registered",
    "run_mark",
    "session_refused",
    "small_snapshot",
]


class SessionStoreFactory(Protocol):
    """Opens one storage, empty at first: every call opens the same one, also while it is open already."""

    @property
    def persistent(self) -> bool:
        """Whether what was acknowledged is there for a second opening; if not, each opening is an empty storage."""
        ...

    def __call__(self) -> AbstractAsyncContextManager[SessionStore]:
        """Open the storage for the length of a block."""
        ...


@attrs.frozen
class SessionStoreCheck:
    """One thing that a session store has to do.

    Attributes:
        name: as an identifier: group, underscore, what.
        description: what holds, as a sentence.
        run: raises when it does not; takes a factory whose storage is empty.
    """

    name: str
    description: str
    run: Callable[[SessionStoreFactory], Awaitable[None]] = attrs.field(repr=False)


_checks: list[SessionStoreCheck] = []


def check(function: Callable[[SessionStore], Awaitable[None]]) -> Callable[[SessionStore], Awaitable[None]]:
    """Register a check that needs one open store."""

    async def run(factory: SessionStoreFactory) -> None:
        async with factory() as store:
            await function(store)

    _register(function, run)
    return function


def check_storage(
    function: Callable[[SessionStoreFactory], Awaitable[None]],
) -> Callable[[SessionStoreFactory], Awaitable[None]]:
    """Register a check that opens and closes the storage itself; it is passed over where nothing persists."""

    async def run(factory: SessionStoreFactory) -> None:
        if factory.persistent:
            await function(factory)

    _register(function, run)
    return function


def _register(function: Callable[..., Any], run: Callable[[SessionStoreFactory], Awaitable[None]]) -> None:
    description = (function.__doc__ or "").strip().split("\n")[0]
    _checks.append(SessionStoreCheck(function.__name__, description, run))


def registered() -> tuple[SessionStoreCheck, ...]:
    """Return every check that was registered so far."""
    return tuple(_checks)


@contextmanager
def session_refused(kind: type[AgentError | MemoryRepositoryError], **fields: object) -> Iterator[None]:
    """Expect the block to raise exactly that error, with those fields."""
    try:
        yield
    except (AgentError, MemoryRepositoryError) as error:
        expect(type(error) is kind, f"expected {kind.__name__}, got {type(error).__name__}: {error}")
        for name, wanted in fields.items():
            expect_equal(getattr(error, name), wanted, f"{kind.__name__}.{name}")
        return
    raise ConformanceFailure(f"expected {kind.__name__}, nothing was refused")


def small_snapshot(session_id: str, generation: int, content: str = "hello") -> SessionSnapshot:
    """Return a snapshot with one message."""
    return SessionSnapshot(
        session_id=session_id, generation=generation, messages=(ModelMessage(role=Role.USER, content=content),)
    )


def run_mark(run_id: str, kind: RunMarkKind = RunMarkKind.ADMITTING) -> RunMark:
    """Return a mark with every field."""
    return RunMark(kind=kind, run_id=run_id, context_id="ctx-1", admitted=(("m-1", 1), ("m-2", 7)), removed=3)


def full_snapshot(session_id: str, generation: int, text: str = "text") -> SessionSnapshot:
    """Return a snapshot that has something in every field but the binding, with `text` where any text may be."""
    at = Timestamp.parse("2026-01-02T03:04:05.123456789Z")
    later = Timestamp.parse("2026-01-02T03:04:06Z")
    context = ContextRecord(context_id="ctx-1", admitted=(("m-1", 2),), removed=1, dispatched=True)
    run = RunRecord(
        run_id="r-1",
        state=RunState.FAILED,
        started_at=at,
        ended_at=later,
        usage=ModelUsage(input_tokens=12, output_tokens=34),
        model_calls=2,
        contexts=(context, ContextRecord(context_id=None)),
        events=(RunEvent(name="tool", detail=text, at=at), RunEvent(name="model")),
        error="ToolRoundsExceeded",
    )
    return SessionSnapshot(
        session_id=session_id,
        generation=generation,
        workspace=text,
        tenant_id="acme",
        principal_id="alice",
        system_prompt=text,
        messages=(
            ModelMessage(role=Role.SYSTEM, content=text),
            ModelMessage(role=Role.USER, content=text),
            ModelMessage(
                role=Role.ASSISTANT, content="", tool_calls=(ToolCall(id="c1", name="look", arguments='{"a": 1}'),)
            ),
            ModelMessage(role=Role.TOOL, content=text, tool_call_id="c1"),
        ),
        runs=(run, *(RunRecord(run_id=f"r-{state.value}", state=state) for state in RunState)),
        created_at=at,
        saved_at=later,
    )


def bound_snapshot(session_id: str, generation: int) -> SessionSnapshot:
    """Return a snapshot of a session with a durable memory."""
    policy = DurableMemoryRecallPolicy(5, 0.4, max_related_lookups=8)
    binding = DurableMemoryBindingV1(namespace=MemoryNamespace("acme", "alice", "proj\u00e9ct"), policy=policy)
    return attrs.evolve(full_snapshot(session_id, generation), durable_memory=binding)
