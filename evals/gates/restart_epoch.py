"""One epoch of the restart endurance gate, in a process of its own: `python -m evals.gates.restart_epoch …`.

Four agents open or resume their sessions, and say the same question twice, all at once. What each model got, and what
was seen on the way, goes to the standard output as one JSON line.
"""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import trio

from a3s_actors.agent import AgentSession, SessionNotFound, SessionOptions, open_agent
from a3s_actors.memory import AccessEvent, MemoryNamespace, MemoryRepository
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession
from a3s_actors.testing import ScriptedModelClient
from evals.gates.opening import counting_host, open_repository, open_store
from evals.gates.wrapping import Around

__all__ = ["AGENTS", "FOREIGN", "MINE", "QUESTION", "WAVES"]

MINE: Final = MemoryNamespace("acme", "platform", "on-call")
FOREIGN: Final = MemoryNamespace("acme", "platform", "on-call ")
"""Another owner: its scope has one more space."""
QUESTION: Final = "Who answers the pager of the parcel service?"
AGENTS: Final = 4
WAVES: Final = 2
_POLICY: Final = DurableMemoryRecallPolicy(5, 0.4)
_EPOCH_SECONDS: Final = 1000.0


class _Forgetful(Around):
    """Says that admissions are recorded, and records none."""

    async def record_admission(self, event: AccessEvent) -> None:  # noqa: ARG002 - that is what is wrong with it
        await trio.lowlevel.checkpoint()


async def _session(
    stack: AsyncExitStack, number: int, epoch: int, options: SessionOptions, model: ScriptedModelClient
) -> tuple[AgentSession, bool]:
    name = f"agent-{number}"
    # A host's ids begin anew with each process, so that run ids come again; its clock goes on.
    host = counting_host(epoch * _EPOCH_SECONDS)
    agent = await stack.enter_async_context(open_agent(model, host=host))
    try:
        return await stack.enter_async_context(agent.resume_session(name, options)), True
    except SessionNotFound:
        given = SessionOptions(
            session_id=name, durable_memory=options.durable_memory, store=options.store, max_retained_runs=1
        )
        return await stack.enter_async_context(agent.open_session("on call", given)), False


async def _epoch(backend: str, folder: Path, epoch: int, broken: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    async with AsyncExitStack() as stack:
        repository: MemoryRepository = await stack.enter_async_context(open_repository(backend, folder))
        sessions = folder if broken != "sessions are resumed" else folder / f"epoch-{epoch}"
        store = await stack.enter_async_context(open_store(backend, sessions))
        served = _Forgetful(repository) if broken == "every context is audited" else repository
        for number in range(AGENTS):
            namespace = FOREIGN if broken == "namespaces are exact" and number == 0 else MINE
            durable = DurableMemorySession.active_recall(served, namespace, _POLICY)
            options = SessionOptions(durable_memory=durable, store=store, max_retained_runs=1)
            model = ScriptedModelClient(otherwise="I shall ask them.")
            session, resumed = await _session(stack, number, epoch, options, model)
            found.append({"session": session, "model": model, "resumed": resumed})
        for _ in range(WAVES):
            async with trio.open_nursery() as nursery:
                for each in found:
                    nursery.start_soon(each["session"].send, QUESTION)
        for each in found:
            session, model = each.pop("session"), each.pop("model")
            each["inputs"] = ["\n".join(part.content for part in request.messages[-1:]) for request in model.requests]
            each["runs"] = [run.run_id for run in session.runs()]
            each["messages"] = len(session.messages)
    return {"agents": found}


def main(arguments: list[str]) -> int:
    """Run one epoch; return the exit code."""
    backend, folder, epoch, broken = arguments
    print(json.dumps(trio.run(_epoch, backend, Path(folder), int(epoch), broken)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
