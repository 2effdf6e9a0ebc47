"""The operator's commands: backup, restore, export and its import, purge, roll-up, doctor."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from a3s_backends.sqlite.connection import connect
from tests.command_line import Cli

CANARY = "quixotic-canary-4417"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    (tmp_path / "here").mkdir()
    made = Cli(tmp_path / "here")
    made.ok("init")
    return made


def propose(cli: Cli, node_id: str, text: str) -> None:
    cli.ok("propose", text, "--id", node_id, "--evidence", f"chat://{node_id}", "sha256:00", "user_statement")
    cli.ok("activate", node_id, "--because", f"checked {text}")


def fill(cli: Cli) -> None:
    propose(cli, "old", "deploy on tuesday")
    propose(cli, "new", "deploy on thursday 周四")
    cli.ok("revise", "new", "we deploy on thursday 周四", "--mode", "refinement", "--because", "clearer")
    cli.ok("supersede", "old", "--by", "new", "--because", "the calendar")
    propose(cli, "odd", "controls \x1b[31m, a break\nand # markup")
    cli.ok("use", "new", "--at", "2099-01-01T00:00:00Z")


def every(cli: Cli) -> object:
    words = [
        w for status in ("candidate", "active", "superseded", "conflicted", "tombstoned") for w in ("--status", status)
    ]
    answer = cli.ok("snapshot", "--json", *words).json
    return answer["digest"], answer["nodeCount"]


# -- backup and restore ------------------------------------------------------------------------------------------------


def test_a_backup_restores_with_its_reasons(cli: Cli, tmp_path: Path) -> None:
    fill(cli)
    before = every(cli)
    copy = tmp_path / "copy.db"
    told = cli.ok("backup", str(copy), "--json").json
    assert (told["path"], told["nodes"], told["namespaces"]) == (str(copy), 3, 1)
    assert stat.S_IMODE(Path(told["reasons"]).stat().st_mode) == 0o600
    assert cli.run("backup", str(copy)).code == 2
    cli.ok("tombstone", "odd", "--because", "after the backup")
    refused = cli.run("restore", str(copy))
    assert (refused.code, "may be replaced" in refused.err) == (2, True)
    answer = cli.ok("restore", str(copy), "--replace")
    assert "memory.db.replaced-1" in answer.out
    assert every(cli) == before
    assert "checked deploy on tuesday" in cli.ok("show", "old").out
    elsewhere = Cli(tmp_path)
    elsewhere.ok("restore", str(copy), "--json")
    assert every(elsewhere) == before
    assert "checked deploy on tuesday" in elsewhere.ok("show", "old").out
    assert cli.ok("verify", "--json").json["ok"] is True


def test_a_damaged_backup_is_refused(cli: Cli, tmp_path: Path) -> None:
    fill(cli)
    copy = tmp_path / "copy.db"
    cli.ok("backup", str(copy))
    data = bytearray(copy.read_bytes())
    data[len(data) // 2] ^= 255
    copy.write_bytes(data)
    before = every(cli)
    assert cli.run("restore", str(copy), "--replace").code == 1
    assert cli.run("restore", str(tmp_path / "none.db"), "--replace").code == 2
    assert every(cli) == before


# -- export ------------------------------------------------------------------------------------------------------------


def test_an_export_is_deterministic_and_imports_with_the_same_digest(cli: Cli, tmp_path: Path) -> None:
    fill(cli)
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    cli.ok("export", "-o", str(first))
    cli.ok("recall", "deploy")
    cli.ok("export", "--output", str(second))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().decode() == cli.ok("export").out
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert cli.run("export", "-o", str(first)).code == 2
    header = json.loads(first.read_text().splitlines()[0])
    assert (header["schema"], header["nodeCount"]) == ("a3s.memory.export.v1", 3)
    other = Cli(tmp_path)
    other.ok("init")
    assert other.ok("import", str(first), "--json").json == {"loaded": 3, "digest": header["digest"]}
    assert every(other) == every(cli)
    assert other.ok("history", "new", "--json").out == cli.ok("history", "new", "--json").out
    assert other.ok("verify", "--json").json["ok"] is True
    other.ok("revise", "new", "still alive", "--mode", "correction", "--because", "x")
    again = other.run("import", str(first))
    assert (again.code, "already" in again.err) == (2, True)


@pytest.mark.parametrize("damage", ["cut", "edited", "reordered", "header", "another namespace"])
def test_an_export_that_is_not_what_was_exported_is_refused(cli: Cli, tmp_path: Path, damage: str) -> None:
    fill(cli)
    lines = cli.ok("export").out.splitlines()
    if damage == "cut":
        lines.pop()
    elif damage == "edited":
        lines[1] = lines[1].replace("thursday", "thirsty")
    elif damage == "reordered":
        lines[1], lines[2] = lines[2], lines[1]
    elif damage == "header":
        lines[0] = lines[0].replace('"nodeCount"', '"count"')
    else:
        lines[0] = lines[0].replace('"acme"', '"acme2"')
    file = tmp_path / "damaged.jsonl"
    file.write_text("\n".join(lines) + "\n")
    other = Cli(tmp_path)
    other.ok("init")
    assert other.run("import", str(file)).code == 2
    assert other.ok("namespaces", "--json").json == {"namespaces": []}


def test_an_export_to_read_tells_texts_evidence_reasons_and_history(cli: Cli) -> None:
    fill(cli)
    told = cli.ok("export", "--format", "markdown").out
    assert told == cli.ok("export", "--format", "markdown").out
    for wanted in (
        "# Memories of acme / alice / project",
        "## superseded (1)",
        "> we deploy on thursday 周四",
        "chat://old",
        "checked deploy on tuesday",
        "revision 1 said: deploy on thursday 周四",
        "- superseded_by new",
        "> and # markup",
    ):
        assert wanted in told
    assert "\x1b" not in told
    only = cli.ok("export", "--format", "markdown", "--status", "active").out
    assert "superseded (1)" not in only
    assert cli.run("export", "--format", "xml").code == 2


def test_an_empty_namespace_exports_and_imports(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    cli.ok("export", "-o", str(file))
    other = Cli(tmp_path)
    other.ok("init")
    assert other.ok("import", str(file), "--json").json["loaded"] == 0


# -- purge -------------------------------------------------------------------------------------------------------------


def test_a_purge_leaves_no_byte_in_the_repository_or_the_reasons(cli: Cli) -> None:
    propose(cli, "doomed", f"text {CANARY}")
    propose(cli, "kept", "plain")
    assert any(CANARY.encode() in file.read_bytes() for file in cli.db.parent.iterdir())
    told = cli.ok("purge", "doomed", "--yes", "--because", "a request for erasure", "--json").json
    assert (told["receipt"]["nodes"], told["bytesPending"]) == (1, False)
    assert not [file.name for file in cli.db.parent.iterdir() if CANARY.encode() in file.read_bytes()]
    assert cli.run("show", "doomed").code == 1
    assert "checked plain" in cli.ok("show", "kept").out
    assert cli.ok("doctor", "--json").json["ok"] is True


def test_a_shared_reason_stays_for_the_memory_that_is_left(cli: Cli) -> None:
    for name in "ab":
        propose(cli, name, f"text {name}")
    cli.ok("relate", "a", "b", "--because", "one matter")
    cli.ok("purge", "a", "--yes", "--because", "erasure")
    assert "one matter" in cli.ok("show", "b").out


def test_everything_in_the_namespace_can_be_purged(cli: Cli) -> None:
    fill(cli)
    assert (
        cli.ok("purge", "--everything", "--yes", "--because", "end of contract", "--json").json["receipt"]["nodes"] == 3
    )
    assert cli.ok("list", "--json").json["nodes"] == []
    assert cli.ok("verify", "--json").json["ok"] is True


def test_a_purge_asks_first_and_says_what_is_missing(cli: Cli) -> None:
    fill(cli)
    for words in (
        ["purge", "new", "--because", "x"],
        ["purge", "--yes", "--because", "x"],
        ["purge", "new", "--everything", "--yes", "--because", "x"],
        ["purge", "new", "--yes"],
    ):
        assert cli.run(*words).code == 2
    assert cli.run("purge", "new", "nobody", "--yes", "--because", "x").code == 1
    assert len(cli.ok("list", "--json").json["nodes"]) == 3


def test_an_imported_text_that_was_purged_does_not_come_back(cli: Cli) -> None:
    notes = cli.db.with_name("notes.txt")
    notes.write_text(f"{CANARY}\n\nplain")
    cli.ok("import", str(notes))
    (found,) = [node["id"] for node in cli.ok("list", "--json").json["nodes"] if CANARY in node["content"]]
    cli.ok("purge", found, "--yes", "--because", "erasure")
    (row,) = cli.ok("import", str(notes), "--json").json["files"]
    assert (row["added"], row["known"], row["purged"]) == (0, 1, 1)


# -- roll-up and doctor ------------------------------------------------------------------------------------------------


def test_a_roll_up_keeps_counts(cli: Cli) -> None:
    fill(cli)
    assert cli.ok("roll-up", "--before", "2100-01-01T00:00:00Z", "--json").json == {"rolledUp": 1}
    assert cli.ok("audit", "--json").json["events"] == []
    assert "0 admissions, 1 uses" in cli.ok("show", "new").out
    assert cli.ok("doctor", "--json").json["ok"] is True
    assert cli.run("roll-up", "--before", "yesterday").code == 2


def test_a_healthy_file_has_no_complaints(cli: Cli) -> None:
    fill(cli)
    assert cli.ok("doctor", "--json").json == {"ok": True, "complaints": [], "fixed": []}
    assert "nothing is wrong" in cli.ok("doctor").out


def test_doctor_says_what_it_would_do_and_does_it_only_when_told(cli: Cli) -> None:
    fill(cli)
    cli.db.chmod(0o644)
    db = connect(cli.db)
    db.execute("UPDATE lex_tail SET tokens = x''")
    db.close()
    before = every(cli)
    dry = cli.run("doctor", "--json")
    assert dry.code == 1
    assert [each["fixable"] for each in dry.json["complaints"]] == [True, True]
    assert stat.S_IMODE(cli.db.stat().st_mode) == 0o644
    assert "nothing was changed" in cli.run("doctor").err
    done = cli.ok("doctor", "--fix", "--json").json
    assert (done["ok"], len(done["fixed"])) == (True, 2)
    assert stat.S_IMODE(cli.db.stat().st_mode) == 0o600
    assert cli.ok("recall", "thursday", "--json").json["hits"]
    assert every(cli) == before


def test_what_a_killed_command_left_goes_and_doctor_names_what_cannot(cli: Cli) -> None:
    fill(cli)
    left = cli.db.with_name(".a3s-building-0123456789abcdef")
    left.mkdir()
    (left / "new.db").write_bytes(b"half a backup")
    assert cli.ok("doctor", "--json").json["ok"] is True
    assert not left.exists()
    (left / "not made by a command").mkdir(parents=True)
    answer = cli.run("doctor", "--fix", "--json")
    assert answer.code == 1
    assert [each["fixable"] for each in answer.json["complaints"]] == [False]
    assert left.name in answer.json["complaints"][0]["what"]


def test_doctor_does_not_touch_what_only_a_backup_can_heal(cli: Cli) -> None:
    fill(cli)
    db = connect(cli.db)
    db.execute("DELETE FROM rev")
    db.close()
    answer = cli.run("doctor", "--fix", "--json")
    assert answer.code == 1
    assert answer.json["fixed"] == []
    assert all("backup" in each["cure"] for each in answer.json["complaints"])


def test_doctor_frees_space_when_much_is_free(cli: Cli) -> None:
    db = connect(cli.db)
    db.execute("CREATE TABLE big(x)")
    for _ in range(100):
        db.execute("INSERT INTO big VALUES (zeroblob(30000))")
    db.execute("DROP TABLE big")
    db.close()
    assert "free space" in cli.run("doctor").out
    assert cli.ok("doctor", "--fix", "--json").json["ok"] is True
    assert cli.ok("stats", "--json").json["freeBytes"] == 0
