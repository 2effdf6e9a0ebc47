"""Asking all context providers at the same time, under one deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from a3s_actors.agent.agent_memory import AgentMemory
from a3s_actors.agent.context import ContextItem, ContextPolicy, ContextProvider, ContextRequest
from a3s_actors.agent.reports import ProviderOutcome, ProviderReport
from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.recall.admission import DURABLE_SOURCE, DurableMemoryTurn

__all__ = ["AGENT_MEMORY_SOURCE", "DURABLE_PROVIDER", "RESERVED_PROVIDERS", "gather"]

AGENT_MEMORY_SOURCE: Final = "a3s.agent-memory.v1"
"""The source of context items that are V1 items."""

DURABLE_PROVIDER: Final = "durable-memory"
_AGENT_MEMORY_PROVIDER: Final = "agent-memory"
RESERVED_PROVIDERS: Final = frozenset({DURABLE_PROVIDER, _AGENT_MEMORY_PROVIDER})
"""Names that the host's providers cannot have."""


async def gather(
    request: ContextRequest,
    policy: ContextPolicy,
    *,
    durable: DurableMemoryTurn | None,
    memory: AgentMemory | None,
    providers: Sequence[ContextProvider],
    now: Timestamp | None,
) -> tuple[list[ContextItem], tuple[ProviderReport, ...]]:
    """Return what the providers offer, and how each did. One that fails or is late is left out.

    The lexical recall of durable memory is not bound by the deadline of the others: it is given up with the caller's
    own scope only.

    Cancellation: always a checkpoint; nothing changes.
    """
    answers: dict[str, tuple[list[ContextItem], ProviderReport]] = {}
    await trio.lowlevel.checkpoint()
    async with trio.open_nursery() as nursery:
        if durable is not None:
            nursery.start_soon(_ask_durable, durable, request.prompt, answers, name="context: durable memory")
        if providers:
            nursery.start_soon(_ask_hosts, request, policy, providers, answers, name="context: providers")
        if memory is not None and now is not None:
            _ask_memory(memory, request, now, answers)
    items = [item for given, _ in answers.values() for item in given]
    order = [DURABLE_PROVIDER, _AGENT_MEMORY_PROVIDER, *(each.name for each in providers)]
    return items, tuple(answers[name][1] for name in order if name in answers)


async def _ask_durable(
    turn: DurableMemoryTurn, prompt: str, answers: dict[str, tuple[list[ContextItem], ProviderReport]]
) -> None:
    try:
        recalled = await turn.recall(prompt)
    except MemoryRepositoryError as error:
        report = ProviderReport(name=DURABLE_PROVIDER, outcome=ProviderOutcome.FAILED, detail=type(error).__name__)
        answers[DURABLE_PROVIDER] = [], report
        return
    items = [
        ContextItem(
            id=item.node_id,
            source=DURABLE_SOURCE,
            content=item.content,
            relevance=item.hit.score,
            trust=1.0,
            updated_at=item.hit.node.updated_at,
            durable=item,
        )
        for item in recalled
    ]
    report = ProviderReport(name=DURABLE_PROVIDER, outcome=ProviderOutcome.USED, items=len(items))
    answers[DURABLE_PROVIDER] = items, report


def _ask_memory(
    memory: AgentMemory,
    request: ContextRequest,
    now: Timestamp,
    answers: dict[str, tuple[list[ContextItem], ProviderReport]],
) -> None:
    found = memory.search(request.prompt, now, limit=max(1, request.max_items))
    items = [
        ContextItem(
            id=each.item.id,
            source=AGENT_MEMORY_SOURCE,
            content=each.item.content,
            relevance=each.score,
            trust=0.3,
            updated_at=each.item.created_at,
        )
        for each in found
    ]
    report = ProviderReport(name=_AGENT_MEMORY_PROVIDER, outcome=ProviderOutcome.USED, items=len(items))
    answers[_AGENT_MEMORY_PROVIDER] = items, report


async def _ask_hosts(
    request: ContextRequest,
    policy: ContextPolicy,
    providers: Sequence[ContextProvider],
    answers: dict[str, tuple[list[ContextItem], ProviderReport]],
) -> None:
    with trio.move_on_after(policy.provider_seconds):
        async with trio.open_nursery() as nursery:
            for provider in providers:
                nursery.start_soon(_ask_host, provider, request, policy, answers, name=f"context: {provider.name}")
    for provider in providers:
        if provider.name not in answers:
            answers[provider.name] = [], ProviderReport(name=provider.name, outcome=ProviderOutcome.LATE)


async def _ask_host(
    provider: ContextProvider,
    request: ContextRequest,
    policy: ContextPolicy,
    answers: dict[str, tuple[list[ContextItem], ProviderReport]],
) -> None:
    name = provider.name
    try:
        given: object = await provider.provide(request)
    except Exception as error:  # noqa: BLE001 - a provider is foreign code; the turn goes on without it
        report = ProviderReport(name=name, outcome=ProviderOutcome.FAILED, detail=type(error).__name__[:64])
        answers[name] = [], report
        return
    items = list(given[: policy.max_provider_items]) if isinstance(given, Sequence) and given is not None else None
    # What is recalled and admitted is the engine's to say: nobody else's item passes for a durable memory.
    if items is None or not all(isinstance(item, ContextItem) and item.durable is None for item in items):
        answers[name] = [], ProviderReport(name=name, outcome=ProviderOutcome.MALFORMED)
        return
    answers[name] = items, ProviderReport(name=name, outcome=ProviderOutcome.USED, items=len(items))
