"""The other processes of the demo: commands that read, conversations, and a writer that is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import trio

from a3s_actors.cli.running import Refused
from a3s_actors.memory.values import MemoryNamespace

__all__ = ["converse", "in_new_process", "kill_a_writer"]

_ACKNOWLEDGED: Final = 25
_CHILD_SECONDS: Final = 60


def _arguments(file: Path, namespace: MemoryNamespace) -> list[str]:
    where = ["--tenant", namespace.tenant_id, "--principal", namespace.principal_id, "--scope", namespace.scope_id]
    return [sys.executable, "-m", "a3s_actors", "--db", str(file), *where]


async def in_new_process(file: Path, namespace: MemoryNamespace, *words: str) -> Any:
    """Run a command in a process of its own and return what it printed as JSON.

    Raises:
        subprocess.CalledProcessError: it failed.
        trio.TooSlowError: it took more than a minute.

    Cancellation: ends the process.
    """
    with trio.fail_after(_CHILD_SECONDS):
        done = await trio.run_process([*_arguments(file, namespace), *words, "--json"], capture_stdout=True)
    return json.loads(done.stdout)


async def converse(file: Path, namespace: MemoryNamespace, name: str, script: Path, prompt: str) -> list[str]:
    """Say one thing in a chat of its own process with a scripted model.

    Returns:
        The lines that it printed from the model's answer on.

    Raises:
        Refused: the turn failed.
        trio.TooSlowError: it took more than a minute.

    Cancellation: ends the process.
    """
    words = ["chat", name, "--script", str(script)]
    with trio.fail_after(_CHILD_SECONDS):
        done = await trio.run_process(
            [*_arguments(file, namespace), *words], stdin=f"{prompt}\n".encode(), capture_stdout=True, check=False
        )
    lines = done.stdout.decode().splitlines()
    answered = next((place for place, line in enumerate(lines) if line.startswith("< ")), None)
    if done.returncode != 0 or answered is None:
        raise Refused("a conversation of the demo failed")
    return lines[answered:]


async def kill_a_writer(file: Path, namespace: MemoryNamespace) -> list[str]:
    """Start a process that writes, kill it in the middle, and return the ids that it saw acknowledged.

    Raises:
        trio.TooSlowError: it took more than a minute.

    Cancellation: kills the process.
    """
    parts = [namespace.tenant_id, namespace.principal_id, namespace.scope_id]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "a3s_actors.cli.demo_writer", str(file), *parts], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    told = b""
    try:
        with trio.fail_after(_CHILD_SECONDS):
            async for chunk in process.stdout:
                told += chunk
                if told.count(b"\n") >= _ACKNOWLEDGED:
                    process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):  # a killed process ends at once; it must not be left unreaped
            await process.wait()
            await process.stdout.aclose()
    # The last line may have been cut off in the middle: then its acknowledgement was not heard.
    return told.decode().split("\n")[:-1]
