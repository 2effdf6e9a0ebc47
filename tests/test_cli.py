"""The command line: every command, its JSON, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from a3s_actors.cli.files import parse_change_set
from a3s_actors.cli.output import safe
from a3s_actors.memory import InvalidInput
from tests.command_line import TENANT, Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path)
    made.ok("init")
    return made


def propose(cli: Cli, node_id: str, text: str, *, active: bool = True) -> None:
    cli.ok("propose", text, "--id", node_id, "--evidence", f"chat://{node_id}", "sha256:00", "user_statement")
    if active:
        cli.ok("activate", node_id, "--because", "checked")


def statuses(cli: Cli) -> dict[str, str]:
    return {node["id"]: node["status"] for node in cli.ok("list", "--json").json["nodes"]}


# -- where -------------------------------------------------------------------------------------------------------------


def test_init_makes_a_private_file_and_leaves_an_existing_one(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    assert cli.ok("init", "--json").json == {"file": str(cli.db), "created": True}
    assert stat.S_IMODE(cli.db.stat().st_mode) == 0o600
    propose(cli, "a", "kept")
    assert cli.ok("init", "--json").json["created"] is False
    assert statuses(cli) == {"a": "active"}


def test_a_command_without_a_file_says_how_to_name_one(tmp_path: Path) -> None:
    answer = Cli(tmp_path).raw(*TENANT, "list")
    assert (answer.code, answer.out) == (2, "")
    assert "--db" in answer.err
    assert "A3S_DB" in answer.err


def test_no_command_but_init_makes_a_file(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    for words in (["list"], ["stats"], ["verify"], ["propose", "x", "--because", "y"], ["recall", "x"]):
        answer = cli.run(*words)
        assert answer.code == 2
        assert "init" in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["tenant", "principal", "scope"])
def test_no_part_of_the_namespace_has_a_default(cli: Cli, missing: str) -> None:
    place = TENANT.index(f"--{missing}")
    answer = cli.raw("--db", str(cli.db), *TENANT[:place], *TENANT[place + 2 :], "list")
    assert answer.code == 2
    assert f"--{missing}" in answer.err
    assert f"A3S_{missing.upper()}" in answer.err


def test_file_and_namespace_may_stand_before_or_after_the_command_or_in_the_environment(cli: Cli) -> None:
    propose(cli, "a", "text")
    where = ["--db", str(cli.db), *TENANT]
    environment = {"A3S_DB": str(cli.db), "A3S_TENANT": "acme", "A3S_PRINCIPAL": "alice", "A3S_SCOPE": "project"}
    before, after = cli.raw(*where, "list", "--json"), cli.raw("list", "--json", *where)
    from_environment = cli.raw("list", "--json", env=environment)
    assert before == after == from_environment
    assert len(before.json["nodes"]) == 1
    other = cli.raw("--scope", "before", "list", "--json", "--scope", "after", env=environment)
    assert other.json == {"nodes": [], "nextAfter": None}


def test_an_unknown_command_or_option_is_bad_input(cli: Cli) -> None:
    assert cli.run("nonsense").code == 2
    assert cli.run("list", "--nonsense").code == 2
    assert cli.run("recall").code == 2


def test_a_file_that_is_no_repository_is_refused_and_left_alone(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.db.write_bytes(b"not a database, but long enough to look like one" * 100)
    before = cli.db.read_bytes()
    answer = cli.run("list")
    assert answer.code == 1
    assert answer.err.startswith("error: ")
    assert "Traceback" not in answer.err
    assert cli.db.read_bytes() == before


# -- changing ----------------------------------------------------------------------------------------------------------


def test_a_proposal_is_a_candidate_that_recall_does_not_serve(cli: Cli) -> None:
    propose(cli, "a", "deploy on tuesday", active=False)
    assert statuses(cli) == {"a": "candidate"}
    assert cli.ok("recall", "deploy", "--json").json == {"hits": []}
    assert [hit["node"]["id"] for hit in cli.ok("query", "deploy", "--status", "candidate", "--json").json["hits"]] == [
        "a"
    ]


def test_a_proposal_without_an_id_is_named_by_its_text(cli: Cli) -> None:
    cli.ok(
        "propose",
        "周二部署",
        "--because",
        "said",
        "--kind",
        "procedural",
        "--label",
        "team=core",
        "--confidence",
        "0.9",
    )
    (node,) = cli.ok("list", "--json").json["nodes"]
    assert re.fullmatch("[0-9a-f]{64}", node["id"])
    assert (node["kind"], node["labels"], node["confidence"], node["importance"]) == (
        "procedural",
        {"team": "core"},
        0.9,
        0.5,
    )
    again = cli.run("propose", "周二部署", "--because", "said")
    assert again.code == 1
    assert "NodeAlreadyExists" in again.err


def test_text_can_come_from_stdin(cli: Cli) -> None:
    cli.ok("propose", "-", "--id", "a", "--because", "said", stdin="from a pipe\nsecond line")
    assert cli.node("a")["content"] == "from a pipe\nsecond line"


@pytest.mark.parametrize("kind", ["user_statement", "tool_result", "artifact", "session_turn"])
def test_only_manual_and_verification_evidence_activates_or_changes_an_active_text(cli: Cli, kind: str) -> None:
    propose(cli, "a", "text", active=False)
    refused = cli.run("activate", "a", "--evidence", "x://1", "sha256:00", kind)
    assert (refused.code, statuses(cli)) == (2, {"a": "candidate"})
    cli.ok("activate", "a", "--evidence", "x://2", "sha256:00", "verification")
    refused = cli.run("revise", "a", "other", "--mode", "correction", "--evidence", "x://3", "sha256:00", kind)
    assert refused.code == 2
    assert "manual or verification" in refused.err
    assert cli.node("a")["content"] == "text"
    propose(cli, "b", "candidate text", active=False)
    refused = cli.run("supersede", "a", "--by", "b", "--evidence", "x://4", "sha256:00", kind)
    assert (refused.code, statuses(cli)) == (2, {"a": "active", "b": "candidate"})
    cli.ok("revise", "b", "candidate text 2", "--mode", "refinement", "--evidence", "x://5", "sha256:00", kind)
    cli.ok("corroborate", "a", "--evidence", "x://6", "sha256:00", kind)


@pytest.mark.parametrize("given", [[], ["--because", "x", "--evidence", "u://1", "d", "manual"]])
def test_a_decision_takes_exactly_one_sort_of_evidence(cli: Cli, given: list[str]) -> None:
    propose(cli, "a", "text", active=False)
    answer = cli.run("activate", "a", *given)
    assert answer.code == 2
    assert "--because" in answer.err


def test_evidence_of_an_unknown_kind_is_bad_input_that_lists_the_kinds(cli: Cli) -> None:
    propose(cli, "a", "text", active=False)
    answer = cli.run("activate", "a", "--evidence", "x://1", "d", "rumour")
    assert answer.code == 2
    assert "verification" in answer.err


def test_revise_keeps_the_history(cli: Cli) -> None:
    propose(cli, "a", "first")
    cli.ok("revise", "a", "second", "--mode", "correction", "--because", "it was wrong", "--confidence", "1")
    page = cli.ok("history", "a", "--json").json
    assert [(each["revision"], each["content"], each["revisionKind"]) for each in page["revisions"]] == [
        (1, "first", "created"),
        (2, "first", "activated"),
        (3, "second", "corrected"),
    ]
    assert page["nextAfter"] is None
    shown = cli.ok("history", "a").out
    assert "it was wrong" in shown
    assert "second" in shown
    first = cli.ok("history", "a", "--limit", "1", "--json").json
    assert (len(first["revisions"]), first["nextAfter"]) == (1, 1)
    assert "--after 1" in cli.ok("history", "a", "--limit", "1").out


def test_supersede_is_one_change_set_that_activates_a_candidate_successor(cli: Cli) -> None:
    propose(cli, "old", "deploy on tuesday")
    propose(cli, "new", "deploy on thursday", active=False)
    sequence = cli.ok("snapshot", "--json").json["changeToken"]["sequence"]
    cli.ok("supersede", "old", "--by", "new", "--because", "the calendar says so")
    assert statuses(cli) == {"old": "superseded", "new": "active"}
    assert cli.ok("snapshot", "--json").json["changeToken"]["sequence"] == sequence + 1
    assert cli.node("old")["relations"] == [{"kind": "superseded_by", "targetId": "new"}]
    assert cli.node("new")["relations"] == [{"kind": "supersedes", "targetId": "old"}]
    assert [hit["node"]["id"] for hit in cli.ok("recall", "deploy", "--json").json["hits"]] == ["new"]


def test_conflict_relates_and_with_mark_stops_both_from_serving(cli: Cli) -> None:
    for name in "ab":
        propose(cli, name, f"deploy {name}")
    cli.ok("conflict", "a", "b", "--because", "they differ")
    assert statuses(cli) == {"a": "active", "b": "active"}
    cli.ok("conflict", "a", "b", "--mark", "--because", "they still differ")
    assert statuses(cli) == {"a": "conflicted", "b": "conflicted"}
    assert cli.node("a")["relations"] == [{"kind": "conflicts_with", "targetId": "b"}]
    assert cli.ok("recall", "deploy", "--json").json["hits"] == []


def test_relate_and_unrelate_change_both_sides(cli: Cli) -> None:
    for name in "ab":
        propose(cli, name, f"text {name}")
    cli.ok("relate", "a", "b", "--because", "same matter")
    assert [hit["channel"] for hit in cli.ok("recall", "a", "--related", "1", "--json").json["hits"]] == [
        "lexical",
        "related",
    ]
    cli.ok("unrelate", "b", "a", "--because", "it is not")
    assert cli.node("a")["relations"] == cli.node("b")["relations"] == []
    assert cli.run("unrelate", "b", "a", "--because", "again").code == 1
    assert cli.run("relate", "a", "a", "--because", "itself").code == 2


def test_a_tombstone_keeps_the_history_and_the_reason(cli: Cli) -> None:
    propose(cli, "a", "wrong text")
    cli.ok("tombstone", "a", "--because", "nobody said that")
    assert statuses(cli) == {"a": "tombstoned"}
    assert "nobody said that" in cli.ok("show", "a").out
    assert "wrong text" in cli.ok("show", "a").out
    assert cli.run("activate", "a", "--because", "x").code == 1


def test_a_superseded_memory_can_be_tombstoned(cli: Cli) -> None:
    for name in "ab":
        propose(cli, name, f"text {name}")
    cli.ok("supersede", "a", "--by", "b", "--because", "newer")
    cli.ok("tombstone", "a", "--because", "old enough")
    assert statuses(cli) == {"a": "tombstoned", "b": "active"}


def test_an_unexpected_revision_is_a_conflict(cli: Cli) -> None:
    propose(cli, "a", "text")
    for words in (
        ["corroborate", "a"],
        ["tombstone", "a"],
        ["revise", "a", "x", "--mode", "correction"],
        ["activate", "a"],
    ):
        answer = cli.run(*words, "--revision", "1", "--because", "x")
        assert answer.code == 1
        assert "RevisionConflict" in answer.err


def test_a_command_under_a_key_can_be_repeated(cli: Cli) -> None:
    propose(cli, "a", "text", active=False)
    words = ["activate", "a", "--because", "checked", "--revision", "1", "--key", "k1", "--at", "2099-01-01T00:00:00Z"]
    first = cli.ok(*words, "--json")
    assert cli.ok(*words, "--json") == first
    assert cli.node("a")["revision"] == 2
    assert cli.run(*words[:2], "--because", "otherwise", *words[4:]).code == 1


def test_a_refused_decision_leaves_no_reason_behind(cli: Cli) -> None:
    propose(cli, "a", "text")
    cli.run("activate", "a", "--because", "a canary that must go")
    reasons = cli.db.with_name("memory.db.evidence.db")
    assert b"a canary that must go" not in reasons.read_bytes()
    assert stat.S_IMODE(reasons.stat().st_mode) == 0o600


def test_reasons_never_enter_the_repository(cli: Cli) -> None:
    propose(cli, "a", "text", active=False)
    cli.ok("activate", "a", "--because", "a canary of a reason")
    assert all(b"a canary of a reason" not in file.read_bytes() for file in cli.db.parent.glob("memory.db*")
               if "evidence" not in file.name)  # fmt: skip
    assert "a canary of a reason" in cli.ok("show", "a").out


@pytest.mark.parametrize("because", ["", "  \n", "x" * 70_000])
def test_a_malformed_reason_is_bad_input(cli: Cli, because: str) -> None:
    propose(cli, "a", "text", active=False)
    assert cli.run("activate", "a", "--because", because).code == 2
    assert statuses(cli) == {"a": "candidate"}


# -- reading -----------------------------------------------------------------------------------------------------------


def test_ids_may_be_shortened_while_they_are_unique(cli: Cli) -> None:
    propose(cli, "note-1a", "one")
    propose(cli, "note-2b", "two")
    assert cli.node("note-1")["id"] == "note-1a"
    several = cli.run("show", "note-")
    assert several.code == 1
    assert "several" in several.err
    assert cli.run("show", "not").code == 1


def test_list_filters_and_pages(cli: Cli) -> None:
    for number in range(5):
        cli.ok(
            "propose", f"text {number}", "--id", f"n{number}", "--label", f"parity={number % 2}",
            "--evidence", f"file:notes.md#L{number}", "d", "artifact", "--at", f"2026-01-0{number + 1}T00:00:00Z",
        )  # fmt: skip
    cli.ok("activate", "n3", "--because", "x", "--at", "2026-02-01T00:00:00Z")

    def ids(*words: str) -> list[str]:
        return [node["id"] for node in cli.ok("list", "--json", *words).json["nodes"]]

    assert ids("--status", "active") == ["n3"]
    assert ids("--status", "active", "--status", "candidate") == ["n0", "n1", "n2", "n3", "n4"]
    assert ids("--label", "parity=0") == ["n0", "n2", "n4"]
    assert ids("--kind", "episodic") == []
    assert ids("--since", "2026-01-03T00:00:00Z") == ["n2", "n3", "n4"]
    assert ids("--until", "2026-01-03T00:00:00Z") == ["n0", "n1"]
    assert ids("--evidence-uri", "file:notes.md#L1") == ["n1"]
    page = cli.ok("list", "--json", "--limit", "2").json
    assert ([node["id"] for node in page["nodes"]], page["nextAfter"]) == (["n0", "n1"], "n1")
    assert ids("--after", "n1", "--limit", "9") == ["n2", "n3", "n4"]
    assert "--after n1" in cli.ok("list", "--limit", "2").out
    for words in (["--status", "gone"], ["--kind", "x"], ["--label", "x"], ["--since", "yesterday"]):
        assert cli.run("list", *words).code == 2


def test_recall_shows_score_channel_and_provenance(cli: Cli) -> None:
    propose(cli, "a", "deploy on tuesday")
    shown = cli.ok("recall", "deploy tuesday").out
    assert "1.000" in shown
    assert "lexical" in shown
    assert "chat://a" in shown
    assert "checked" in shown
    (hit,) = cli.ok("recall", "deploy tuesday", "--json").json["hits"]
    assert (hit["score"], hit["channel"], hit["relatedFrom"], hit["node"]["revision"]) == (1.0, "lexical", None, 2)
    assert cli.ok("recall", "?!", "--json").json == {"hits": []}
    assert cli.run("recall", "x", "--max-results", "0").code == 2
    assert cli.run("recall", "x", "--min-score", "1.5").code == 2
    assert cli.run("query", "?!").code == 2


def test_reading_changes_nothing_and_use_is_audited(cli: Cli) -> None:
    propose(cli, "a", "text")
    before = cli.ok("snapshot", "--json").json
    for words in (
        ["list"],
        ["show", "a"],
        ["history", "a"],
        ["recall", "text"],
        ["query", "text"],
        ["audit"],
        ["stats"],
    ):
        cli.ok(*words)
    assert cli.ok("snapshot", "--json").json == before
    assert cli.ok("audit", "--json").json == {"events": [], "nextAfter": None}
    cli.ok("use", "a", "--revision", "1", "--context", "ctx", "--event-id", "e1", "--at", "2099-01-01T00:00:00Z")
    cli.ok("use", "a", "--revision", "1", "--context", "ctx", "--event-id", "e1", "--at", "2099-01-01T00:00:00Z")
    (record,) = cli.ok("audit", "a", "--json").json["events"]
    assert (record["kind"], record["event"]["nodeRevision"], record["event"]["contextId"]) == ("use", 1, "ctx")
    assert cli.ok("snapshot", "--json").json == before
    assert cli.run("use", "a", "--revision", "9").code == 1
    assert cli.run("audit", "nope").code == 1


def test_stats_namespaces_and_verify_tell_of_the_whole_file(cli: Cli) -> None:
    propose(cli, "a", "text")
    cli.raw("--db", str(cli.db), "--tenant", "t", "--principal", "p", "--scope", "s", "propose", "x", "--because", "y")
    spaces = cli.raw("--db", str(cli.db), "namespaces", "--json").json["namespaces"]
    assert [space["tenantId"] for space in spaces] == ["acme", "t"]
    whole = cli.raw("--db", str(cli.db), "stats", "--json").json
    assert [each["nodes"]["active"] for each in whole["namespaces"]] == [1, 0]
    assert [each["namespace"]["tenantId"] for each in cli.ok("stats", "--json").json["namespaces"]] == ["acme"]
    assert cli.ok("verify", "--json").json == {"ok": True, "nodes": 2, "findings": []}
    for words in (["stats"], ["namespaces"], ["verify"]):
        assert cli.raw("--db", str(cli.db), *words).code == 0


def test_verify_reports_damage_and_refuses(cli: Cli) -> None:
    import apsw

    propose(cli, "a", "text")
    db = apsw.Connection(str(cli.db))
    db.execute("DELETE FROM rev")
    db.close()
    answer = cli.run("verify", "--json")
    assert answer.code == 1
    assert answer.json["ok"] is False
    assert answer.json["findings"]
    assert "damaged" in cli.run("verify").out


def test_output_for_people_shows_no_terminal_escapes(cli: Cli) -> None:
    propose(cli, "a", "red \x1b[31m bell \x07 override \u202e [bold]markup[/bold]")
    for words in (["list"], ["show", "a"], ["recall", "red"], ["history", "a"], ["query", "red"]):
        out = cli.ok(*words).out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", out)
        assert "[bold]" in out
    assert "\\u001b" in cli.ok("show", "a", "--json").out
    assert safe("a\tb\nc") == "a\tb\nc"


def test_errors_are_json_when_json_is_asked_for(cli: Cli) -> None:
    answer = cli.run("show", "nope", "--json")
    assert (answer.code, json.loads(answer.err)) == (1, {"error": "NodeNotFound", "nodeId": "nope"})
    answer = cli.run("list", "--status", "x", "--json")
    assert answer.code == 2
    assert json.loads(answer.err)["error"] == "BadInput"


# -- review ------------------------------------------------------------------------------------------------------------


def test_review_walks_candidates_with_their_near_duplicates_and_decides(cli: Cli) -> None:
    propose(cli, "known", "we deploy on tuesday morning")
    notes = cli.db.with_name("notes.md")
    notes.write_text("- we deploy on tuesday\n- delete this\n- edit this\n- leave this\n")
    cli.ok("import", str(notes))
    answers = ["a", "", "checked the calendar", "t", "noise", "e", "edited text", "typo", "a", "good", "what?", "s"]
    answer = cli.ok("review", stdin="\n".join(answers) + "\n")
    assert "similar 1.00" in answer.out
    assert "we deploy on tuesday morning" in answer.out
    assert "a decision needs a reason" in answer.out
    assert "2 activated, 1 edited, 1 tombstoned, 1 skipped" in answer.out
    found = {node["content"]: node["status"] for node in cli.ok("list", "--json").json["nodes"]}
    assert found == {
        "we deploy on tuesday morning": "active",
        "we deploy on tuesday": "active",
        "delete this": "tombstoned",
        "edited text": "active",
        "leave this": "candidate",
    }
    assert "checked the calendar" in cli.ok("recall", "we deploy tuesday").out


@pytest.mark.parametrize("stdin", ["q\n", "", "a\n"])
def test_a_review_can_be_left_at_any_prompt(cli: Cli, stdin: str) -> None:
    propose(cli, "a", "text", active=False)
    assert cli.ok("review", stdin=stdin).code == 0
    assert statuses(cli) == {"a": "candidate"}


def test_a_review_without_candidates_says_so(cli: Cli) -> None:
    assert "no candidates" in cli.ok("review").out


# -- raw access --------------------------------------------------------------------------------------------------------


def change_set(key: str, node_id: str, tenant: str = "anybody") -> str:
    node = {
        "id": node_id, "namespace": {"tenantId": tenant, "principalId": "p", "scopeId": "s"}, "kind": "semantic",
        "status": "active", "content": "raw text", "confidence": 0.5, "importance": 0.5,
        "evidence": [{"uri": "x://1", "digest": "d", "kind": "tool_result", "occurredAt": "2026-01-01T00:00:00Z"}],
        "relations": [], "labels": {}, "createdAt": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return json.dumps(
        {
            "idempotencyKey": key,
            "namespace": node["namespace"],
            "occurredAt": "2026-01-01T00:00:00Z",
            "operations": [{"operation": "create", "node": node}],
        }
    )


def test_apply_prints_one_canonical_result_a_line_and_stops_at_the_first_refusal(cli: Cli) -> None:
    lines = [change_set("k1", "a"), change_set("k1", "a"), change_set("k2", "a"), "", change_set("k3", "b")]
    stopped = cli.raw("--db", str(cli.db), "apply", "-", stdin="\n".join(lines))
    results = [json.loads(line) for line in stopped.out.splitlines()]
    assert stopped.code == 1
    assert results[0] == results[1]
    assert results[0]["nodes"][0]["id"] == "a"
    assert results[2:] == [{"error": "NodeAlreadyExists", "nodeId": "a"}]
    assert "line 3" in stopped.err
    file = cli.db.with_name("changes.jsonl")
    file.write_text("\n".join([*lines, "{}", change_set("k4", "c")]))
    went_on = cli.raw("--db", str(cli.db), "apply", str(file), "--keep-going")
    results = [json.loads(line) for line in went_on.out.splitlines()]
    assert went_on.code == 2
    assert [each.get("error") for each in results] == [None, None, "NodeAlreadyExists", None, "InvalidInput", None]


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"null", b'{"a":1,"a":1}', b"\xff", b"[" * 100_000, b'{"idempotencyKey":"\\ud800"}', b"9" * 5000],
)
def test_a_malformed_change_set_is_refused_with_a_typed_error(line: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_change_set(line)


def test_apply_of_a_missing_file_is_bad_input(cli: Cli) -> None:
    assert cli.run("apply", str(cli.db.with_name("none.jsonl"))).code == 2


# -- journals ----------------------------------------------------------------------------------------------------------


def test_an_exported_journal_gives_the_same_memories_in_another_file(cli: Cli, tmp_path: Path) -> None:
    for name in "ab":
        propose(cli, name, f"text {name}")
    cli.ok("supersede", "a", "--by", "b", "--because", "newer")
    cli.ok("use", "b")
    folder = tmp_path / "journal"
    assert cli.ok("journal", "export", str(folder), "--json").json["records"] == 6
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    other = Cli(tmp_path / "other")
    other.ok("init")
    assert other.ok("journal", "import", str(folder), "--json").json == {
        "changeSets": 5,
        "accessEvents": 1,
        "tornBytes": 0,
    }
    every = [word for status in ("active", "superseded") for word in ("--status", status)]
    assert other.ok("snapshot", "--json", *every).json == cli.ok("snapshot", "--json", *every).json
    other.ok("journal", "import", str(folder))
    assert other.ok("snapshot", "--json", *every).json == cli.ok("snapshot", "--json", *every).json
    assert cli.run("journal", "export", str(folder)).code == 2
    assert cli.run("journal", "export", str(tmp_path / "none" / "j")).code == 2
    assert cli.run("journal", "import", str(tmp_path / "none")).code == 1


# -- as a process ------------------------------------------------------------------------------------------------------


def process(*words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "a3s_actors", *words], capture_output=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.slow
def test_help_version_and_errors_as_a_process(tmp_path: Path) -> None:
    assert process("--version").stdout.strip()
    told = process("--help")
    assert (told.returncode, b"Commands" in told.stdout) == (0, True)
    refused = process("--db", str(tmp_path / "none.db"), "stats")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"Traceback" not in refused.stderr


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(cli: Cli) -> None:
    lines = "\n".join(change_set(f"k{number}", f"n{number}", "acme") for number in range(300))
    cli.raw("--db", str(cli.db), "apply", "-", stdin=lines)
    words = ["--db", str(cli.db), "--tenant", "acme", "--principal", "p", "--scope", "s", "list", "--limit", "300"]
    child = subprocess.Popen(
        [sys.executable, "-m", "a3s_actors", *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    assert child.wait(30) == 141
    assert child.stderr.read() == b""
    child.stderr.close()


@pytest.mark.slow
def test_an_interrupted_review_ends_with_130_and_no_traceback(cli: Cli) -> None:
    propose(cli, "a", "text", active=False)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "a3s_actors", "--db", str(cli.db), *TENANT, "review"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    assert child.stdout is not None
    seen = b""
    while b"[q]uit" not in seen:
        chunk = os.read(child.stdout.fileno(), 4096)
        assert chunk
        seen += chunk
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert (child.returncode, b"Traceback" in err) == (130, False)


@pytest.mark.slow
def test_a_missing_extra_is_one_clear_error(tmp_path: Path) -> None:
    code = "import sys; sys.modules['typer'] = None; from a3s_actors.cli import main; main()"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert answer.returncode == 2
    assert b"a3s-actors[cli]" in answer.stderr
    assert b"Traceback" not in answer.stderr


@pytest.mark.slow
def test_argument_bytes_that_are_no_text_are_bad_input(cli: Cli) -> None:
    words: list[str | bytes] = ["--db", str(cli.db), *TENANT, "propose", b"\xff\xfe", "--because", "x"]
    answer = subprocess.run([sys.executable, "-m", "a3s_actors", *words], capture_output=True, check=False)
    assert answer.returncode == 2
    assert b"Traceback" not in answer.stderr
