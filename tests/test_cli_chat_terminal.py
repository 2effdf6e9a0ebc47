"""The chat at a terminal: a real process on a pseudo-terminal, prompts, Ctrl-C and Ctrl-D."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from a3s_actors.cli.chat_script import SCHEMA
from tests.command_line import TENANT, Cli

pytestmark = pytest.mark.slow

SECONDS = 20
# The terminal becomes the process's own: Ctrl-C then sends it a signal.
OWNING = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path)
    made.ok("init")
    return made


@attrs.define
class Terminal:
    """A process on a pseudo-terminal, and what it has written so far."""

    process: subprocess.Popen[bytes]
    master: int
    said: str = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, text: str) -> str:
        """Read until a text comes that was not read before; return what was read up to its end."""
        until = time.monotonic() + SECONDS
        while text not in self.said:
            assert time.monotonic() < until, f"{text!r} did not come; there is {self.said!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    data = os.read(self.master, 65536)
                except OSError:  # the process has closed its side
                    data = b""
                assert data, f"{text!r} did not come before the end; there is {self.said!r}"
                self.said += data.decode()
        before, found, self.said = self.said.partition(text)
        return before + found

    def end(self) -> int:
        """Wait for the end, reading on; return the exit code."""
        until = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < until, "it does not end"
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.said += os.read(self.master, 65536).decode()
                except OSError:
                    break
        return self.process.wait(SECONDS)


@contextmanager
def chat(cli: Cli, turns: list[object], *words: str) -> Iterator[Terminal]:
    path = cli.db.parent / "script.json"
    path.write_text(json.dumps({"schema": SCHEMA, "turns": turns, "otherwise": "beyond the script"}))
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "a3s_actors", "--db", str(cli.db), *TENANT, "chat", *words, "--script", str(path)]
    with subprocess.Popen(
        [sys.executable, "-c", OWNING, *command], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env=os.environ | {"TERM": "dumb", "COLUMNS": "200"},
    ) as process:  # fmt: skip
        os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            process.kill()
            process.wait()
            os.close(master)


def test_ctrl_c_cancels_the_turn_alone_and_twice_at_the_prompt_ends_the_chat(cli: Cli) -> None:
    endless = {"say": ["begun ", *[". "] * 2000], "pause": 0.01}
    with chat(cli, [endless, "second"], "monday") as terminal:
        terminal.until("\n> ")
        terminal.type("first\n")
        terminal.until("< begun ")
        terminal.type("\x03")
        terminal.until("cancelled: nothing of this turn enters the conversation")
        terminal.until("the chat goes on")
        terminal.until("> ")
        terminal.type("again\n")
        terminal.until("< second")
        terminal.until("> ")
        terminal.type("half a li\x03")
        terminal.until("Ctrl-C once more, or Ctrl-D, ends the chat")
        terminal.until("> ")
        terminal.type("/help\n")  # what was half typed is gone, and the count begins anew
        terminal.until("this list")
        terminal.until("> ")
        terminal.type("\x03")
        terminal.until("Ctrl-C once more")
        terminal.until("> ")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "interrupted" in terminal.said
        assert "Traceback" not in terminal.said
    with chat(cli, [], "monday") as terminal:
        assert "resumed: 2 messages" in terminal.until("> ")  # the second turn alone
        terminal.type("\x04")
        assert terminal.end() == 0


def test_a_command_is_given_up_by_ctrl_c_and_questions_wait_for_their_answer(cli: Cli) -> None:
    with chat(cli, [{"say": "\x1b[2Jred\u202e"}]) as terminal:
        terminal.until("> ")
        terminal.type("/remember we deploy on tuesdays\n")
        terminal.until("activate it now? [y/N] ")
        terminal.type("\x03")
        terminal.until("given up; the chat goes on")
        terminal.until("> ")
        terminal.type("/remember we deploy on tuesdays\n")
        terminal.until("activate it now? [y/N] ")
        terminal.type("y\n")
        terminal.until("active: ")
        terminal.until("> ")
        terminal.type("when do we deploy\n")
        shown = terminal.until("· admitted  0.50 lexical")
        assert "\u241b[2Jred\ufffd" in shown
        assert "\x1b[2J" not in shown
        terminal.until("> ")
        terminal.type("/review\n")
        terminal.until("no candidates")
        terminal.until("> ")
        terminal.type("/quit\n")
        assert terminal.end() == 0


def test_the_end_of_the_terminal_ends_the_chat_in_the_middle_of_a_question(cli: Cli) -> None:
    with chat(cli, []) as terminal:
        terminal.until("> ")
        terminal.type("/remember something\n")
        terminal.until("activate it now? [y/N] ")
        terminal.type("\x04")
        assert terminal.end() == 0
    (node,) = cli.ok("list", "--json").json["nodes"]
    assert node["status"] == "candidate"


def test_what_a_turn_left_behind_is_told_when_it_is_known_and_waited_for_at_the_end(cli: Cli) -> None:
    def turn(content: str) -> dict[str, object]:
        proposal = {"type": "semantic", "content": content, "importance": 0.7, "confidence": 0.9}
        return {"say": "ok", "pause": 0.6, "propose": [proposal]}

    with chat(cli, [turn("we deploy on tuesdays"), turn("backups run at night")]) as terminal:
        terminal.until("> ")
        terminal.type("one\n")
        terminal.until("< ok")
        assert "proposed" not in terminal.until("> ")
        terminal.until("\n· 1 candidate proposed")
        terminal.until("> ")
        terminal.type("two\n")
        terminal.until("< ok")
        terminal.until("> ")
        terminal.type("/quit\n")
        terminal.until("a moment: the last turns are looked through")
        terminal.until("· 1 candidate proposed")
        assert terminal.end() == 0
    assert len(cli.ok("list", "--json").json["nodes"]) == 2
