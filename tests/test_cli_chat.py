"""The chat on pipes: turns, commands, sessions, scripts; what it refuses, and what it never prints."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from a3s_actors.agent import ContextReport, ProviderOutcome, ProviderReport
from a3s_actors.cli.chat_input import Lines
from a3s_actors.cli.chat_script import SCHEMA, read_chat_script
from a3s_actors.cli.chat_show import ReplyPrinter, tell_context
from a3s_actors.cli.running import BadInput
from a3s_actors.recall import RemovalReason, RemovedItem
from tests.command_line import TENANT, Answer, Cli
from tests.http_server import DONE, Stream, chunked, event, head, says, serving, writes

CANARY = "persimmon-canary-8842"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path)
    made.ok("init")
    return made


def script(folder: Path, *turns: object, **more: object) -> str:
    path = folder / "script.json"
    path.write_text(json.dumps({"schema": SCHEMA, "turns": turns, **more}))
    return str(path)


def remember(cli: Cli, node_id: str, text: str) -> None:
    cli.ok("propose", text, "--id", node_id, "--evidence", f"chat://{node_id}", "sha256:00", "user_statement")
    cli.ok("activate", node_id, "--because", "checked")


def talk(cli: Cli, *lines: str, words: tuple[str, ...] = (), turns: tuple[object, ...] = ("ok",) * 9) -> Answer:
    stdin = "".join(f"{line}\n" for line in lines)
    return cli.run("chat", *words, "--script", script(cli.db.parent, *turns), stdin=stdin)


def status(cli: Cli, node_id: str) -> str:
    return str(cli.node(node_id)["status"])


def proposal(content: str, **more: object) -> dict[str, object]:
    return {"type": "semantic", "content": content, "importance": 0.7, "confidence": 0.9, **more}


# -- turns -------------------------------------------------------------------------------------------------------------


def test_a_newcomer_can_try_it_without_a_server(cli: Cli) -> None:
    answer = cli.run("chat", "--script", "example", stdin="hello\nwhen?\nand now?\n")
    assert answer.code == 0, answer.err
    assert answer.out.count("< ") == 3
    assert "1 candidate proposed" in answer.out
    assert f"{cli.db}.sessions.db" in answer.out
    assert re.search(r"session session-\w+, new; resume it with: a3s-actors chat session-", answer.out)
    assert "> " not in answer.out.replace("->", "")  # no prompt on a pipe
    assert Path(f"{cli.db}.sessions.db").stat().st_mode & 0o777 == 0o600


def test_a_turn_shows_what_was_admitted_and_why(cli: Cli) -> None:
    remember(cli, "deploy", "we deploy on tuesdays")
    remember(cli, "canary", "watch the error rate for an hour")
    cli.ok("relate", "deploy", "canary", "--because", "belongs together")
    answer = talk(cli, "when do we deploy", words=("--related", "3"), turns=("I was shown {recalled}.",))
    assert answer.code == 0
    assert "< I was shown we deploy on tuesdays; watch the error rate for an hour." in answer.out
    assert re.search(r"· admitted  0\.50 lexical  deploy revision \d  we deploy on tuesdays", answer.out)
    assert re.search(r"· admitted  0\.38 related from deploy  canary revision \d", answer.out)
    (events,) = [cli.ok("audit", "--json").json["events"]]
    assert {each["event"]["nodeId"] for each in events} == {"deploy", "canary"}


def test_a_turn_says_what_did_not_fit(cli: Cli) -> None:
    said = [line for number in range(22) for line in (f"/remember deploy note {number}", "y")]
    answer = talk(cli, *said, "deploy", words=("--max-results", "30"))
    assert answer.out.count("· admitted") == 20
    assert "· reduced   2 recalled but left out" in answer.out


def test_a_removed_memory_and_a_failed_recall_are_told_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    late = ProviderReport(name="durable-memory", outcome=ProviderOutcome.FAILED, detail="Persistence")
    for reason in RemovalReason:
        tell_context(ContextReport(removed=(RemovedItem("n1", reason),), providers=(late,)))
        out = capsys.readouterr().out
        assert f"· removed   n1  {reason.value}: " in out
        assert "· reduced   durable-memory failed (Persistence)" in out


def test_what_a_turn_leaves_behind_is_told_unless_it_is_off(cli: Cli) -> None:
    secret = "the token is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    turns = (
        {"say": "a", "propose": [proposal("we deploy on tuesdays"), proposal("backups run at night")]},
        {"say": "b", "propose": [proposal(secret)]},
    )
    answer = talk(cli, "one", "two", turns=turns)
    assert "· 2 candidates proposed; /review decides" in answer.out
    assert "· nothing proposed; refused: 1 secret" in answer.out
    nodes = cli.ok("list", "--json").json["nodes"]
    assert {node["status"] for node in nodes} == {"candidate"}
    assert len(nodes) == 2
    quiet = talk(cli, "one", words=("--no-extract",), turns=({"say": "a", "propose": [proposal("something new")]},))
    assert "proposed" not in quiet.out
    assert len(cli.ok("list", "--json").json["nodes"]) == 2


def test_a_failed_turn_is_told_the_next_one_works_and_the_exit_code_says_so(cli: Cli) -> None:
    remember(cli, "deploy", f"we deploy {CANARY}")
    turns = ({"say": ["half ", "an answer"], "error": "timeout"}, "whole")
    answer = talk(cli, f"deploy {CANARY}", "again", turns=turns)
    assert answer.code == 1
    assert "< half an answer\n· admitted" in answer.out
    assert "· ModelUnavailable: the model did not answer: timeout" in answer.out
    assert "< whole" in answer.out
    assert answer.err == "error: 1 of the lines failed\n"


def test_no_input_is_no_failure(cli: Cli) -> None:
    for stdin in ("", "\n \n", "/quit\n/nonsense\n"):
        assert talk(cli, stdin).code == 0


def test_the_last_line_needs_no_end(cli: Cli) -> None:
    answer = cli.run("chat", "--script", script(cli.db.parent, "one", "two"), stdin="first\r\nsecond")
    assert "< two" in answer.out
    assert answer.code == 0


def test_a_line_may_begin_with_a_slash(cli: Cli) -> None:
    remember(cli, "path", "/etc/hosts is generated")
    answer = talk(cli, "//etc/hosts", turns=("{recalled}",))
    assert "< /etc/hosts is generated" in answer.out


def test_hostile_text_drives_no_terminal_and_passes_for_nothing_else(cli: Cli) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07\u202egnol\r· admitted  1.00 lexical\n· admitted  9.99\x9b31m\u2028x\x00"
    remember(cli, "bad", "hostile \x1b[31mred\u202e words")
    answer = talk(cli, "hostile words", turns=({"say": [hostile[:1], hostile[1:]]},))
    assert answer.code == 0
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", answer.out)
    assert answer.out.count("\n· admitted") == 1
    assert "\n  · admitted  9.99" in answer.out


def test_a_reply_is_marked_line_by_line_however_it_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    text = "one\ntwo\n\n· three"
    printed = set()
    for size in range(1, len(text) + 1):
        printer = ReplyPrinter()
        for start in range(0, len(text), size):
            printer.add(text[start : start + size])
        printer.end()
        printed.add(capsys.readouterr().out)
    assert printed == {"< one\n  two\n  \n  · three\n"}


# -- commands ----------------------------------------------------------------------------------------------------------


def test_remember_serves_only_after_a_yes(cli: Cli) -> None:
    answer = talk(
        cli, "/remember we deploy on tuesdays", "n", "when do we deploy", "/remember we deploy on tuesdays", "y",
        "when do we deploy", turns=("first {recalled}", "second {recalled}"), words=("monday",),
    )  # fmt: skip
    assert answer.code == 0
    assert "it stays a candidate" in answer.out
    assert "< first nothing" in answer.out
    assert "< second we deploy on tuesdays" in answer.out
    (node,) = cli.ok("list", "--json").json["nodes"]
    kinds = {item["kind"]: item["uri"] for item in node["evidence"]}
    assert set(kinds) == {"user_statement", "manual"}
    assert kinds["user_statement"].startswith("a3s://session/monday/remember/")
    assert "confirmed in the chat session monday" in cli.ok("show", node["id"][:8]).out
    assert "known already: " in talk(cli, "/remember we deploy on tuesdays").out


def test_the_end_of_the_input_is_no_yes(cli: Cli) -> None:
    assert talk(cli, "/remember we deploy on tuesdays").code == 0
    (node,) = cli.ok("list", "--json").json["nodes"]
    assert node["status"] == "candidate"


def test_a_secret_is_not_remembered(cli: Cli) -> None:
    answer = talk(cli, "/remember the token is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
    assert answer.code == 1
    assert "seems to hold a secret" in answer.out
    assert cli.ok("list", "--json").json["nodes"] == []


def test_review_decides_about_the_candidates_one_by_one(cli: Cli) -> None:
    turns = ({"say": "a", "propose": [proposal("we deploy on tuesdays"), proposal("backups run at night")]},)
    answer = talk(cli, "one", "/review", "a", "the team said so", "t", "nonsense", "/review", turns=turns)
    assert answer.code == 0
    assert "1 activated, 0 edited, 1 tombstoned, 0 skipped" in answer.out
    assert "no candidates" in answer.out


def test_recall_in_the_chat_records_nothing(cli: Cli) -> None:
    remember(cli, "deploy", "we deploy on tuesdays")
    answer = talk(cli, "/recall deploy", "/recall unknown")
    assert re.search(r"1\.000  we deploy on tuesdays\n +lexical", answer.out)
    assert "· nothing recalled" in answer.out
    assert cli.ok("audit", "--json").json["events"] == []


def test_forget_needs_a_yes_and_names_the_purge(cli: Cli) -> None:
    remember(cli, "deploy", "we deploy on tuesdays")
    assert talk(cli, "/forget deploy", "no").code == 0
    assert status(cli, "deploy") == "active"
    answer = talk(cli, "/forget depl", "yes", "when do we deploy", turns=("{recalled}",))
    assert answer.code == 0
    assert "< nothing" in answer.out
    assert status(cli, "deploy") == "tombstoned"
    (purge,) = [line.strip() for line in answer.out.splitlines() if "purge" in line]
    assert purge == f"a3s-actors --db {cli.db} {' '.join(TENANT)} purge deploy --because WHY"
    assert cli.raw(*purge.split()[1:], "--yes").code == 0


def test_why_shows_score_channel_evidence_and_the_audit_event(cli: Cli) -> None:
    remember(cli, "deploy", "we deploy on tuesdays")
    answer = talk(cli, "/why", "when do we deploy", "/why", "xyzzy", "/why")
    assert "· there was no turn yet in this process" in answer.out
    assert "· 0.50 lexical  we deploy on tuesdays" in answer.out
    assert "deploy revision 2 · 2 pieces of evidence" in answer.out
    (found,) = cli.ok("audit", "--json").json["events"]
    assert f"audit event {found['place']}: {found['event']['id']}" in answer.out
    assert "· nothing was admitted to the last turn's context" in answer.out


def test_help_lists_the_commands_and_an_unknown_one_says_what_there_is(cli: Cli) -> None:
    answer = talk(cli, "/help")
    names = re.findall(r"^· (/\w+)", answer.out, re.MULTILINE)
    assert names == ["/remember", "/review", "/recall", "/forget", "/why", "/help", "/quit"]
    unknown = talk(cli, f"/{CANARY}")
    assert unknown.code == 1
    assert all(name in unknown.out for name in names)
    assert CANARY not in unknown.out + unknown.err


@pytest.mark.parametrize("line", ["/remember", "/recall ", "/forget"])
def test_a_command_without_its_argument_says_what_it_needs(cli: Cli, line: str) -> None:
    answer = talk(cli, line)
    assert answer.code == 1
    assert "needs more" in answer.out


def test_forgetting_what_is_not_there_is_refused(cli: Cli) -> None:
    answer = talk(cli, "/forget nothing")
    assert answer.code == 1
    assert "NodeNotFound" in answer.out


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_is_resumed_by_its_name_with_its_conversation(cli: Cli) -> None:
    assert "session monday, new\n" in talk(cli, "one", "two", words=("monday",)).out
    again = talk(cli, "three", words=("monday",))
    assert "session monday, resumed: 4 messages" in again.out
    assert "new" in talk(cli, words=("tuesday",)).out


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--scope", "other"], "namespace.scopeId"),
        (["--principal", "bob"], "namespace.principalId"),
        (["--max-results", "7"], "recallPolicy.maxResults"),
        (["--min-score", "0.5"], "recallPolicy.minLexicalScore"),
        (["--related", "1"], "recallPolicy.maxRelatedLookups"),
    ],
)
def test_a_session_is_not_resumed_with_another_memory(cli: Cli, words: list[str], field: str) -> None:
    talk(cli, f"about {CANARY}", words=("monday",))
    answer = talk(cli, "three", words=("monday", *words))
    assert answer.code == 1
    assert answer.err.startswith(f"error: DurableMemoryBindingMismatch: durable memory binding, {field}: ")
    assert "< " not in answer.out
    assert CANARY not in answer.err
    assert talk(cli, "four", words=("monday",)).code == 0


def test_a_damaged_session_file_is_refused_and_left_alone(cli: Cli) -> None:
    file = Path(f"{cli.db}.sessions.db")
    file.write_bytes(b"no database at all, but long enough to look like one" * 100)
    before = file.read_bytes()
    answer = talk(cli, "one")
    assert answer.code == 1
    assert answer.err.startswith("error: SessionStore")
    assert file.read_bytes() == before


def test_secrets_do_not_stay_in_the_session_file(cli: Cli) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    assert talk(cli, f"my token is {secret}", words=("monday",)).code == 0
    kept = b"".join(path.read_bytes() for path in cli.db.parent.glob("*.sessions.db*"))
    assert b"my token is" in kept
    assert secret.encode() not in kept


def arguments(cli: Cli, *words: str) -> list[str]:
    return [sys.executable, "-m", "a3s_actors", "--db", str(cli.db), *TENANT, "chat", *words]


@pytest.mark.slow
def test_a_turn_that_was_killed_is_told_when_its_session_is_resumed(cli: Cli) -> None:
    remember(cli, "deploy", "we deploy on tuesdays")
    slow = script(cli.db.parent, "begun", {"say": ["second", "never"], "pause": 3600})
    with subprocess.Popen(
        arguments(cli, "monday", "--script", slow), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"hello\nwhen do we deploy\n")
        process.stdin.flush()
        while b"< begun" not in process.stdout.readline():
            pass
        while len(cli.ok("audit", "--json").json["events"]) == 0:
            pass
        process.send_signal(signal.SIGKILL)
    answer = talk(cli, "again", words=("monday",))
    assert answer.code == 0
    assert "resumed: 2 messages" in answer.out
    assert re.search(r"· interrupted: run run-\w+ did not end before its process did; the model ", answer.out)
    assert "interrupted" not in talk(cli, "more", words=("monday",)).out  # told once


# -- who answers -------------------------------------------------------------------------------------------------------


def chunk(text: str | None = None, finish: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


async def run(cli: Cli, *words: str, stdin: bytes, **environment: str) -> Any:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("A3S_", "OPENAI_"))}
    with trio.fail_after(20):
        return await trio.run_process(
            arguments(cli, *words), stdin=stdin, env=env | environment, capture_stdout=True, capture_stderr=True,
            check=False,
        )  # fmt: skip


@pytest.mark.slow
async def test_a_real_server_streams_and_the_answer_is_shown_as_it_comes(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    await trio.to_thread.run_sync(cli.ok, "init")
    await trio.to_thread.run_sync(remember, cli, "deploy", "we deploy on tuesdays")
    seen = trio.Event()

    async def answer(stream: Stream) -> bool:
        first, *rest = chunked([chunk("On "), chunk("tuesdays."), chunk(finish="stop"), DONE])
        await writes(head(200, "text/event-stream", "transfer-encoding: chunked"), first)(stream)
        await seen.wait()
        return await writes(*rest, keep=True)(stream)

    async with serving(answer) as server:
        proposals = json.dumps({"proposals": [proposal("tuesdays are for deploys")]})
        message = {"role": "assistant", "content": proposals}
        server.will(says({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}))
        env = {name: value for name, value in os.environ.items() if not name.startswith(("A3S_", "OPENAI_"))}
        process = await trio.lowlevel.open_process(
            arguments(cli, "--model", "m1", "--base-url", server.url, "--key-env", "MY_KEY"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env | {"MY_KEY": "key-value-1"},
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        told = b""
        with trio.fail_after(20):
            await process.stdin.send_all(b"when do we deploy\n")
            async for data in process.stdout:
                told += data
                if b"< On " in told and not seen.is_set():
                    assert b"tuesdays.\n" not in told
                    seen.set()
                if b"proposed" in told:
                    await process.stdin.aclose()
            assert await process.wait() == 0
        await process.stdout.aclose()
    out = told.decode()
    assert "< On tuesdays.\n· admitted  0.50 lexical  deploy" in out
    assert "· 1 candidate proposed" in out
    assert "key-value-1" not in out
    first, second = server.received
    assert first.headers["authorization"] == "Bearer key-value-1"
    assert first.json["stream"] is True
    assert "we deploy on tuesdays" in first.json["messages"][-1]["content"]
    assert second.json.get("stream") in (None, False)


@pytest.mark.slow
async def test_a_server_that_refuses_fails_the_turn_and_nothing_private_is_in_the_error(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    await trio.to_thread.run_sync(cli.ok, "init")
    async with serving() as server:
        server.always(says({"error": {"message": f"no {CANARY}"}}, 401))
        done = await run(
            cli, "--model", "m1", "--base-url", server.url, stdin=f"say {CANARY}\n".encode(), OPENAI_API_KEY="key-22"
        )
    assert done.returncode == 1
    assert b"ModelRefused" in done.stdout
    for private in (CANARY.encode(), b"key-22"):
        assert private not in done.stdout + done.stderr


def test_without_the_extra_the_error_names_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "a3s_backends.openai_http.connections", raising=False)
    answer = cli.run("chat", "--model", "m", "--base-url", "http://127.0.0.1:1/v1", stdin="hello\n")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "pip install 'a3s-actors[openai]'" in answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--script example"),
        (["--model", "m"], "--base-url"),
        (["--base-url", "http://127.0.0.1/v1"], "--model"),
        (["--script", "example", "--model", "m"], "either"),
        (["--model", "m", "--base-url", "http://127.0.0.1/v1", "--key-env", "A3S_NO_SUCH_KEY"], "--key-env"),
        (["--model", "m", "--base-url", "ftp://x"], "baseUrl"),
        (["--script", "example", "--min-score", "2"], "minLexicalScore"),
        (["x" * 300, "--script", "example"], "sessionId"),
    ],
)
def test_bad_options_are_bad_input(cli: Cli, words: list[str], said: str) -> None:
    answer = cli.run("chat", *words, stdin="hello\n")
    assert answer.code == 2
    assert said in answer.err
    assert "< " not in answer.out


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "[" * 100_000, '{"schema":"a3s.chat.script.v1"}', f'{{"schema":"{CANARY}","turns":[]}}',
        f'{{"schema":"a3s.chat.script.v1","turns":[],"{CANARY}":1}}',
        f'{{"schema":"a3s.chat.script.v1","turns":[{{"say":"x","{CANARY}":1}}]}}',
        '{"schema":"a3s.chat.script.v1","turns":[{"say":1}]}', '{"schema":"a3s.chat.script.v1","turns":[1]}',
        '{"schema":"a3s.chat.script.v1","turns":[{"say":"x","pause":-1}]}',
        '{"schema":"a3s.chat.script.v1","turns":[{"say":"x","pause":1e300}]}',
        '{"schema":"a3s.chat.script.v1","turns":["\\ud800"]}',
    ],
)  # fmt: skip
def test_a_script_that_is_none_is_bad_input_and_not_quoted(cli: Cli, text: str) -> None:
    file = cli.db.parent / "script.json"
    file.write_text(text)
    answer = cli.run("chat", "--script", str(file), stdin="hello\n")
    assert answer.code == 2
    assert str(file) in answer.err
    assert len(answer.err) < 500
    assert CANARY not in answer.err
    assert "Traceback" not in answer.err


def test_a_script_that_is_missing_names_the_example(cli: Cli) -> None:
    answer = cli.run("chat", "--script", "no/such.json", stdin="")
    assert answer.code == 2
    assert "--script example" in answer.err
    with pytest.raises(BadInput):
        read_chat_script("nul\0name")


def test_a_script_that_has_run_out_fails_the_turn(cli: Cli) -> None:
    answer = talk(cli, "one", "two", turns=("only one",))
    assert answer.code == 1
    assert "script_ended" in answer.out


# -- the input ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """What is written here is standard input."""
    receiver, sender = os.pipe()
    with os.fdopen(receiver) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield sender


async def test_waiting_for_a_line_can_be_given_up_and_loses_nothing(sender: int) -> None:
    lines = Lines()
    os.write(sender, b"fir")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.next)
        await wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    os.write(sender, b"st\nsecond")
    with trio.fail_after(5):
        assert await lines.next() == "first"
        os.close(sender)
        assert await lines.next() == "second"
        assert await lines.next() is None
        assert await lines.next() is None


def test_a_line_without_an_end_is_not_read_for_ever(cli: Cli) -> None:
    answer = cli.run("chat", "--script", "example", stdin="x" * (3 << 20))
    assert answer.code == 2
    assert "longer than" in answer.err


@pytest.mark.slow
def test_a_file_and_nothing_at_all_are_inputs_too(cli: Cli) -> None:
    said = cli.db.parent / "said.txt"
    said.write_text("one\ntwo\n")
    command = arguments(cli, "--script", script(cli.db.parent, "first", "second"))
    with said.open() as stdin:
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=True, timeout=20)
    assert "< second" in done.stdout
    closed = subprocess.run(
        [sys.executable, "-c", "import os, sys; os.close(0); os.execv(sys.executable, sys.argv[1:])", *command],
        capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    assert "session session-" in closed.stdout


@pytest.mark.slow
def test_a_session_that_somebody_else_has_resumed_cannot_go_on(cli: Cli) -> None:
    command = arguments(cli, "monday", "--script", script(cli.db.parent, "first", "second"))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        while b"< first" not in process.stdout.readline():
            pass
        assert talk(cli, "mine now", words=("monday",)).code == 0
        out, err = process.communicate(b"two\n", timeout=20)
    assert process.returncode == 1
    assert b"< second" not in out
    assert err.splitlines()[-1].startswith(b"error: SessionStoreConflict: ")
    assert "resumed: 4 messages" in talk(cli, words=("monday",)).out


@pytest.mark.slow
def test_an_interrupt_on_a_pipe_ends_the_process(cli: Cli) -> None:
    endless = {"say": ["begun\n", *["."] * 2000], "pause": 0.01}
    command = arguments(cli, "--script", script(cli.db.parent, endless))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        while b"< begun" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == b"interrupted\n"
