"""A secret in prompts, replies, tools, proposals and memories is in no log, error, repr or file but the transcript."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from a3s_actors.agent import (
    AgentError,
    AgentMemory,
    ContextItem,
    ContextRequest,
    ExtractionPolicy,
    ModelUnavailable,
    ProposalRefusal,
    SessionOptions,
    Tool,
    ToolInvocation,
    ToolRoundsExceeded,
    open_agent,
)
from a3s_actors.memory import MemoryRepositoryError, ScanRequest
from a3s_actors.recall import DurableMemorySession
from a3s_actors.testing import ScriptedModelClient, proposals_reply, tool_call
from a3s_actors.testing.building import NS
from evals.gates.opening import BACKENDS, open_repository, open_store
from tests.agents import POLICY, counting_host

# Looks like a key, so that redaction sees it; made for this test.
SECRET = "ghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"
TEXT = f"the deploy key of the parcel service is {SECRET} for now"


class Provider:
    name = "host"

    def __init__(self) -> None:
        self.fails = False

    async def provide(self, request: ContextRequest) -> list[ContextItem]:
        if self.fails:
            raise RuntimeError(SECRET)
        return [ContextItem(id="note", source="wiki", content=TEXT)]


async def tell(arguments: Mapping[str, Any], invocation: ToolInvocation) -> str:
    if arguments["text"].startswith("fail"):
        raise RuntimeError(TEXT)
    return TEXT


TELL = Tool(
    name="tell",
    description="tells",
    parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    run=tell,
)


def chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException | None] = [error]
    while seen:
        each = seen.pop()
        if each is not None:
            yield each
            seen += [each.__cause__, each.__context__]
            if isinstance(each, BaseExceptionGroup):
                seen += each.exceptions


def said_by(error: BaseException) -> list[str]:
    # A host's own exception says what the host wrote into it; only ours are looked at.
    ours = [each for each in chain(error) if isinstance(each, AgentError | MemoryRepositoryError)]
    return [f"{each} {each!r} {each.args} {getattr(each, '__notes__', '')}" for each in ours]


def holding(folder: Path) -> set[str]:
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and SECRET.encode() in file.read_bytes()
    }


@pytest.mark.parametrize("redacted", [False, True], ids=["plain", "redacted"])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_canary_is_nowhere_but_in_the_transcript_that_the_host_wants(
    backend: str, redacted: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    provider, memory = Provider(), AgentMemory()
    model = ScriptedModelClient(
        turns=[
            tool_call("tell", {"text": SECRET}),
            tool_call("tell", {"text": f"fail {SECRET}"}),
            tool_call("tell", {"wrong": SECRET}),
            tool_call(SECRET[:60], {"text": SECRET}),
            TEXT,
            *[tool_call("tell", {"text": SECRET})] * 3,
            ModelUnavailable("overloaded"),
        ],
        extractions=[
            proposals_reply(
                {"content": TEXT}, {"content": "The parcel service is deployed on Tuesdays.", "reason": TEXT}
            ),
            f"not JSON {SECRET}",
        ],
        otherwise=TEXT,
    )
    with structlog.testing.capture_logs() as logs:
        async with open_repository(backend, tmp_path) as repository, open_store(backend, tmp_path) as store:
            durable = DurableMemorySession.active_recall(repository, NS, POLICY)
            options = SessionOptions(
                session_id="s",
                system_prompt=f"Be careful with {SECRET}.",
                durable_memory=durable,
                memory=memory,
                context_providers=[provider],
                tools=[TELL],
                extraction=ExtractionPolicy(),
                store=store,
                redact_transcript=redacted,
                max_tool_rounds=4,
            )
            async with open_agent(model, host=counting_host()) as agent:
                async with agent.open_session("work", options) as session:
                    reply = await session.send(f"Remember: {TEXT}", run_id="r1")
                    assert reply.tool_rounds == 4
                    provider.fails = True
                    attrs_of_errors = []
                    for bad in (f"again {TEXT}", f"once more {TEXT}"):
                        with contextlib.suppress(ModelUnavailable, ToolRoundsExceeded):
                            reply = await session.send(bad)
                        shown += [repr(session.runs()), repr(reply), repr(reply.context)]
                    for wrong in (SECRET + "\0" * 300, "\ud800" + SECRET, ""):
                        try:
                            await session.send(wrong, run_id=wrong)
                        except Exception as error:
                            attrs_of_errors += said_by(error)
                    await session.wait_extracted()
                    reports = session.extractions()
                    shown += attrs_of_errors
                    shown += [repr(each) for each in (session, agent, options, reports, session.statistics(), model)]
                    shown += [
                        repr(session.messages),
                        repr(memory),
                        repr(durable),
                        repr(store),
                        repr(TELL),
                        repr(repository),
                    ]
                    shown.append(repr(await session.close()))
                snapshot = (await store.load("s")).snapshot
                shown += [repr(snapshot), repr(await agent.close())]
            nodes = (await repository.scan(ScanRequest(namespace=NS))).nodes
    refused = {reason: count for report in reports for reason, count in report.refused.items()}
    assert refused[ProposalRefusal.SECRET] == 2
    assert nodes == ()
    assert memory.recent(10) == ()
    out, err = capfd.readouterr()
    for text in (*shown, repr(logs), out, err):
        assert SECRET not in text
        assert "deploy key" not in text
    found = holding(tmp_path)
    assert all(name.startswith("sessions") for name in found)
    assert bool(found) == (not redacted)
