"""A session killed at every named point of a turn: the next process knows what the model got, and what it did not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from a3s_actors.agent import RunState, SessionOptions, open_agent
from a3s_actors.memory import ScanRequest
from a3s_actors.recall import DurableMemoryRecallPolicy, DurableMemorySession
from a3s_actors.testing import ScriptedModelClient
from a3s_actors.testing.building import NS
from evals.gates.opening import BACKENDS, counting_host, open_repository, open_store, read_admissions
from tests.agents import remember
from tests.killed_turn import FACT, LEARNED, POINTS, QUESTION

ROOT = Path(__file__).resolve().parents[1]
NOT_SENT = POINTS[: POINTS.index("after the dispatching mark")]
"""Killed here, the model has surely not been called."""
EXTRACTING = POINTS[POINTS.index("in the extraction") :]
"""Killed here, the turn is done, and kept or about to be: it is saved while the extraction goes on."""


def kill(folder: Path, backend: str, point: str) -> None:
    command = [sys.executable, "-m", "tests.killed_turn", str(folder), backend, point]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
async def test_after_a_kill_at_any_point_the_resumed_session_tells_the_truth(backend: str, tmp_path: Path) -> None:
    async def one(point: str, limit: trio.CapacityLimiter) -> None:
        folder = tmp_path / point.replace(" ", "-")
        folder.mkdir()
        async with open_repository(backend, folder) as repository:
            await remember(repository, "fact", FACT)
        await trio.to_thread.run_sync(kill, folder, backend, point, limiter=limit)
        await check(folder, backend, point)

    limit = trio.CapacityLimiter(2)
    async with trio.open_nursery() as nursery:
        for point in POINTS:
            nursery.start_soon(one, point, limit, name=point)


async def check(folder: Path, backend: str, point: str) -> None:
    got = [json.loads(line) for line in (folder / "got").read_text().splitlines()]
    model = ScriptedModelClient(otherwise="On Tuesdays.")
    async with open_repository(backend, folder) as repository, open_store(backend, folder) as store:
        admissions = await read_admissions(repository, NS)
        # Nothing that the model got is without its record.
        assert sum(FACT in text for text in got) <= len(admissions)
        durable = DurableMemorySession.active_recall(repository, NS, DurableMemoryRecallPolicy(5, 0.3))
        options = SessionOptions(durable_memory=durable, store=store)
        async with (
            open_agent(model, host=counting_host(500)) as agent,
            agent.resume_session("s", options) as session,
        ):
            runs = {run.run_id: run for run in session.runs()}
            assert runs["first"].state is RunState.COMPLETED
            first = runs["first"].contexts[-1]
            assert first.dispatched
            assert ("fact", 1, first.context_id) in admissions
            if point == POINTS[0]:
                assert "second" not in runs  # nothing had been noted, admitted or sent
                assert len(got) == len(admissions) == 1
            else:
                second = runs["second"]
                context = second.contexts[-1]
                assert context.admitted == (("fact", 1),)
                if point == "after the save" or (point in EXTRACTING and second.state is not RunState.INTERRUPTED):
                    assert second.state is RunState.COMPLETED
                    assert context.dispatched
                    assert len(session.messages) == 4
                else:
                    assert second.state is RunState.INTERRUPTED
                    assert context.dispatched == (point not in NOT_SENT)
                    assert len(session.messages) == 2
                # What was sent was admitted to that very context; what was not sent is marked so.
                assert len(got) <= 1 + context.dispatched
                if len(got) == 2:
                    assert ("fact", 1, context.context_id) in admissions
            candidates = [node.content for node in (await repository.scan(ScanRequest(namespace=NS))).nodes]
            assert candidates.count(LEARNED) <= 1
            if point == "after the proposal":
                assert LEARNED in candidates
            elif point not in {"before the save", "after the save"}:  # while it is saved, the extraction goes on
                assert LEARNED not in candidates
            # It goes on: the same run id is free only where nothing is retained of it.
            reply = await session.send(QUESTION)
            assert reply.context.items[0].id == "fact"
        assert len(await read_admissions(repository, NS)) == len(admissions) + 1
        contexts = [context for _, _, context in await read_admissions(repository, NS)]
        assert len(set(contexts)) == len(contexts)
