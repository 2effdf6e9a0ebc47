"""A session's process that kills itself at one named point: `python -m tests.killed_turn FOLDER STORE POINT`.

Points are met by what is injected around the store, the repository and the model. What the model gets goes, synced, to
the file `got`, one JSON line a request, before anything else happens.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import trio

from a3s_actors.agent import (
    AgentSession,
    ExtractionPolicy,
    ModelReply,
    ModelRequest,
    RunMark,
    SessionOptions,
    SessionSnapshot,
    SessionStore,
    StoredSession,
    open_agent,
)
from a3s_actors.agent.model import RequestPurpose
from a3s_actors.memory import AccessEvent, ChangeSetResult, MemoryChangeSet, MemoryRepository
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession
from a3s_actors.testing import ScriptedModelClient, proposals_reply
from a3s_actors.testing.building import NS
from evals.gates.opening import counting_host, open_repository, open_store
from evals.gates.wrapping import Around

FACT = "The parcel service is deployed on Tuesdays."
QUESTION = "On which day is the parcel service deployed?"
LEARNED = "Its rollback takes four minutes."

POINTS = (
    *("before the admitting mark", "after the admitting mark"),
    *("before the admission", "after the admission"),
    *("before the dispatching mark", "after the dispatching mark"),
    *("in the model", "after the answer"),
    *("before the save", "after the save"),
    *("in the extraction", "before the proposal", "after the proposal"),
)


class Point:
    """Kills the process when it is met for the second turn."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self.armed = False

    def meet(self, name: str) -> None:
        if self.armed and name == self.wanted:
            os.kill(os.getpid(), signal.SIGKILL)


class Repository(Around):
    def __init__(self, inner: MemoryRepository, point: Point) -> None:
        super().__init__(inner)
        self.point = point

    async def record_admission(self, event: AccessEvent) -> None:
        self.point.meet("before the admission")
        await super().record_admission(event)
        self.point.meet("after the admission")

    async def apply(self, change_set: MemoryChangeSet) -> ChangeSetResult:
        self.point.meet("before the proposal")
        result = await super().apply(change_set)
        self.point.meet("after the proposal")
        return result


class Store:
    def __init__(self, inner: SessionStore, point: Point) -> None:
        self.inner = inner
        self.point = point

    async def save(self, snapshot: SessionSnapshot) -> None:
        self.point.meet("before the save")
        await self.inner.save(snapshot)
        self.point.meet("after the save")

    async def mark(self, session_id: str, generation: int, mark: RunMark) -> None:
        self.point.meet(f"before the {mark.kind.value} mark")
        await self.inner.mark(session_id, generation, mark)
        self.point.meet(f"after the {mark.kind.value} mark")

    async def load(self, session_id: str) -> StoredSession:
        return await self.inner.load(session_id)

    async def delete(self, session_id: str) -> bool:
        return await self.inner.delete(session_id)

    async def list(self) -> tuple[str, ...]:
        return await self.inner.list()


class Model(ScriptedModelClient):
    folder: Path
    point: Point

    async def generate(self, request: ModelRequest) -> ModelReply:
        if request.purpose is not RequestPurpose.TURN:
            self.point.meet("in the extraction")
            return await super().generate(request)
        descriptor = os.open(self.folder / "got", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, json.dumps(request.messages[-1].content).encode() + b"\n")
        os.fsync(descriptor)
        os.close(descriptor)
        self.point.meet("in the model")
        reply = await super().generate(request)
        self.point.meet("after the answer")
        return reply


async def converse(folder: Path, backend: str, wanted: str) -> None:
    point = Point(wanted)
    model = Model(otherwise="On Tuesdays.", extractions=["", proposals_reply({"content": LEARNED})])
    model.folder, model.point = folder, point
    async with open_repository(backend, folder) as repository, open_store(backend, folder) as store:
        durable = DurableMemorySession.active_recall(
            Repository(repository, point), NS, DurableMemoryRecallPolicy(5, 0.3)
        )
        options = SessionOptions(
            session_id="s", durable_memory=durable, store=Store(store, point), extraction=ExtractionPolicy()
        )
        async with open_agent(model, host=counting_host(100)) as agent, agent.open_session("w", options) as session:
            await session.send(QUESTION, run_id="first")
            await session.wait_extracted()
            await session.save()
            point.armed = True
            await _second(session)


async def _second(session: AgentSession) -> None:
    await session.send(QUESTION, run_id="second")
    await session.wait_extracted()


if __name__ == "__main__":
    trio.run(converse, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
