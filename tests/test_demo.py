"""The demo: its data say what its script says they say, and the whole of it runs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from a3s_actors.cli.chat_script import chat_data, read_chat_script
from a3s_actors.cli.demo_script import data_folder, read_script
from a3s_actors.cli.demo_session import LEARNED
from a3s_actors.cli.sources import read_source
from a3s_actors.memory import MemoryKind
from tests.command_line import Cli

SCRIPT = read_script()
SOURCES = [read_source(data_folder() / name, MemoryKind.EPISODIC, {}, name) for name in SCRIPT.files]
TEXTS = Counter(item.text for source in SOURCES for item in source.items)


def test_the_log_is_a_real_working_log_in_two_languages() -> None:
    chinese = [text for text in TEXTS if re.search("[\u4e00-\u9fff]", text)]
    assert 120 <= len(TEXTS) <= 160
    assert len(chinese) / len(TEXTS) >= 0.25
    assert {path.name for path in data_folder().iterdir()} == {*SCRIPT.files, "script.json"}
    for path in data_folder().iterdir():
        assert b"\r" not in path.read_bytes()


def test_every_memory_that_the_script_names_is_in_the_log_exactly_once() -> None:
    named = [
        *(step.memory for step in SCRIPT.activate),
        *(step.memory for step in SCRIPT.corroborate),
        *(step.memory for step in SCRIPT.revise),
        *(step.memory for step in SCRIPT.tombstone),
        *(text for step in SCRIPT.supersede for text in (step.old, step.new)),
        *(text for step in SCRIPT.conflict for text in (step.a, step.b)),
        *(text for pair in SCRIPT.relate for text in (pair.a, pair.b)),
    ]
    assert [text for text in named if TEXTS[text] != 1] == []
    activated = [step.memory for step in SCRIPT.activate]
    assert len(set(activated)) == len(activated)


def test_every_question_expects_what_is_active_and_excludes_what_is_not() -> None:
    active = {step.memory for step in SCRIPT.activate}
    for step in SCRIPT.revise:
        active.discard(step.memory)
        active.add(step.content)
    active -= {step.old for step in SCRIPT.supersede}
    active -= {text for step in SCRIPT.conflict if step.mark for text in (step.a, step.b)}
    for question in SCRIPT.recall:
        assert question.expect_first in active
        assert not active & set(question.absent)
        assert all(TEXTS[text] == 1 for text in question.absent)
    assert sum(bool(re.search("[\u4e00-\u9fff]", step.question)) for step in SCRIPT.recall) >= 4


def test_the_scripts_of_the_conversations_propose_what_the_demo_expects() -> None:
    scripts = {path.name: read_chat_script(str(path)) for path in chat_data().iterdir()}
    assert set(scripts) == {"example.json", "demo-learn.json", "demo-recall.json"}
    (learning,) = scripts["demo-learn.json"].turns
    assert not isinstance(learning, str)
    assert [each["content"] for each in learning.propose] == [LEARNED]


@pytest.mark.slow
def test_the_demo_runs_from_import_to_the_last_page(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    folder = tmp_path / "demo"
    answer = cli.raw("demo", "--in", str(folder))
    assert answer.code == 0, answer.err
    assert "none is missing" in answer.out
    assert "nothing damaged" in answer.out
    # What one process learned is in front of another one's model, and in the audit.
    assert "1 candidate proposed" in answer.out
    assert f"I was shown: {LEARNED}" in answer.out
    assert "was admitted once" in answer.out
    assert str(folder / "memory.db") in answer.out.replace("│", "")
    where = ["--db", str(folder / "memory.db"), "--tenant", "demo", "--principal", "team", "--scope", "working-log"]
    assert cli.raw(*where, "verify", "--json").json["ok"] is True
    superseded = cli.raw(*where, "list", "--status", "superseded", "--json").json["nodes"]
    assert {node["content"] for node in superseded} == {step.old for step in SCRIPT.supersede}
    assert len(cli.raw(*where, "audit", "--json").json["events"]) >= len(SCRIPT.recall)
    assert cli.raw("demo", "--in", str(folder)).code == 2
