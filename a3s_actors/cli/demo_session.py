"""The demo's conversations: what one process learns, another one recalls, once somebody has decided about it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from a3s_actors.cli.chat_script import chat_data
from a3s_actors.cli.demo_processes import converse, in_new_process
from a3s_actors.cli.output import brief_id, one_line, say
from a3s_actors.cli.running import Refused
from a3s_actors.memory.values import MemoryNamespace

__all__ = ["LEARNED", "sessions"]

LEARNED: Final = "Priya writes Lantern's release notes before each deploy."
"""What the first conversation's script proposes."""

_TOLD: Final = "From now on Priya writes Lantern's release notes before each deploy."
_ASKED: Final = "Who writes Lantern's release notes?"
_REASON: Final = "Priya agreed in the stand-up"


async def sessions(file: Path, namespace: MemoryNamespace) -> int:
    """Hold two conversations, each in a process of its own, with a decision between them; both models are scripts.

    Args:
        file: the repository.
        namespace: whose memories.

    Returns:
        How many admissions the second one recorded.

    Raises:
        Refused: something was not learned, not recalled, or not recorded.

    Cancellation: ends the process that runs.
    """
    await _talk(file, namespace, "monday", "demo-learn.json", _TOLD)
    words = ["list", "--status", "candidate", "--evidence-uri", "a3s://session/monday/"]
    candidates = (await in_new_process(file, namespace, *words))["nodes"]
    if [node["content"] for node in candidates] != [LEARNED]:
        raise Refused("the first conversation did not leave the candidate that its script proposes")
    node_id = str(candidates[0]["id"])
    await in_new_process(file, namespace, "activate", node_id, "--because", _REASON)
    say(f"  activated {brief_id(node_id)}")
    say(f"      because: {_REASON}", style="dim")
    shown = await _talk(file, namespace, "tuesday", "demo-recall.json", _ASKED)
    if not any(LEARNED in line for line in shown if not line.startswith("· ")):
        raise Refused("the second conversation's model was not shown what the first one learned")
    events = (await in_new_process(file, namespace, "audit", node_id))["events"]
    if [event["kind"] for event in events] != ["admission"]:
        raise Refused("the audit does not have the admission of what was recalled")
    context = str(events[0]["event"]["contextId"])
    say(f"  audit: {brief_id(node_id)} was admitted once, into {one_line(context)[:32]}…", style="green")
    return sum(line.startswith("· admitted") for line in shown)


async def _talk(file: Path, namespace: MemoryNamespace, name: str, script: str, prompt: str) -> list[str]:
    say(f"  {name}> {prompt}", style="bold")
    lines = await converse(file, namespace, name, chat_data() / script, prompt)
    for line in lines:
        say(f"    {line}", style="dim" if line.startswith("· ") else None)
    return lines
