"""Short ways to agents, sessions and memories, for the tests of agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

from a3s_actors.agent import Agent, AgentSession, HostEnv, ModelClient, SessionOptions, open_agent
from a3s_actors.memory import MemoryRepository, MemoryStatus, Timestamp
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession
from a3s_actors.testing import ScriptedModelClient
from a3s_actors.testing.building import NS, at, change, create

POLICY = DurableMemoryRecallPolicy(5, 0.3)
CANARY = "persimmon-canary-8842"


def counting_host(start: float = 100.0) -> HostEnv:
    """A host whose clock moves a second a look, and whose ids count: the same in every process."""
    seconds = count()
    numbers = count(1)
    return HostEnv(now=lambda: at(start + next(seconds)), new_id=lambda kind: f"{kind}-{next(numbers)}")


def bind(repository: MemoryRepository, policy: DurableMemoryRecallPolicy = POLICY) -> DurableMemorySession:
    return DurableMemorySession.active_recall(repository, NS, policy)


async def remember(
    repository: MemoryRepository, node_id: str, content: str, status: MemoryStatus = MemoryStatus.ACTIVE
) -> None:
    await repository.apply(change(f"make-{node_id}", create(node_id, content, status=status)))


@asynccontextmanager
async def open_both(
    model: ModelClient | None = None, options: SessionOptions | None = None, host: HostEnv | None = None
) -> AsyncIterator[tuple[Agent, AgentSession]]:
    client = ScriptedModelClient(otherwise="ok") if model is None else model
    chosen = counting_host() if host is None else host
    async with open_agent(client, host=chosen) as agent, agent.open_session("work", options) as session:
        yield agent, session


def clock(*instants: Timestamp | None) -> Callable[[], Timestamp | None]:
    left = list(instants)
    return lambda: left.pop(0) if len(left) > 1 else left[0]
