"""From files to memories: what is one memory in Markdown, text and JSONL, and what an import makes of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from a3s_actors.cli.running import BadInput
from a3s_actors.cli.sources import Source, read_source, text_id
from a3s_actors.memory import EvidenceKind, MemoryKind, MemoryNamespace, Timestamp
from tests.command_line import Cli

NS = MemoryNamespace("t", "p", "s")


def read(folder: Path, name: str, data: str | bytes) -> Source:
    file = folder / name
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_source(file, MemoryKind.SEMANTIC, {})


def texts(source: Source) -> list[str]:
    return [item.text for item in source.items]


MARKDOWN = """---
title: front matter is no memory
---
# Deploys

We deploy
on Tuesdays.

- first item
- second item
  wrapped
  - nested item

1. numbered

## 中文

我们在
周二部署。

> quoted words

```sh
rm -rf / # code is no memory
```

| a | b |
| - | - |
| table | cell |

<div>html block</div>

Last paragraph with *emphasis* and `code`.
"""


def test_markdown_gives_one_memory_a_paragraph_or_list_item(tmp_path: Path) -> None:
    source = read(tmp_path, "notes.md", MARKDOWN)
    assert texts(source) == [
        "We deploy on Tuesdays.",
        "first item",
        "second item wrapped",
        "nested item",
        "numbered",
        "我们在周二部署。",
        "quoted words",
        "Last paragraph with *emphasis* and `code`.",
    ]
    assert source.skipped == 3
    assert [item.labels.get("section") for item in source.items][4:6] == ["Deploys", "中文"]
    lines = MARKDOWN.splitlines()
    for item in source.items:
        assert item.text[:4] in "".join(lines[item.first_line - 1 : item.last_line])
    assert [(item.first_line, item.last_line) for item in source.items][:3] == [(6, 7), (9, 9), (10, 11)]


def test_plain_text_gives_one_memory_a_paragraph(tmp_path: Path) -> None:
    source = read(tmp_path, "notes.txt", "one\ntwo\r\n\r\n \t\n# three\n\n- four\n- five")
    assert texts(source) == ["one two", "# three", "- four - five"]
    assert [(item.first_line, item.last_line) for item in source.items] == [(1, 2), (5, 5), (7, 8)]


def test_a_repeated_text_counts_once(tmp_path: Path) -> None:
    source = read(tmp_path, "notes.txt", "same\n\nother\n\nsame")
    assert (texts(source), source.repeated) == (["same", "other"], 1)


@pytest.mark.parametrize("data", [b"", b"\n\n \n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.jsonl"])
def test_an_empty_file_has_no_memories(tmp_path: Path, name: str, data: bytes) -> None:
    assert read(tmp_path, name, data).items == ()


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    assert texts(read(tmp_path, "a.txt", "\ufeffone")) == ["one"]


def test_a_file_that_is_no_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="byte 2"):
        read(tmp_path, "a.md", b"ab\xff")
    with pytest.raises(BadInput, match=r"none\.md"):
        read_source(tmp_path / "none.md", MemoryKind.SEMANTIC, {})
    with pytest.raises(BadInput):
        read_source(tmp_path, MemoryKind.SEMANTIC, {})


def test_jsonl_gives_one_memory_a_line_with_its_fields(tmp_path: Path) -> None:
    records = [
        {"content": "one\n\ntwo", "kind": "episodic", "labels": {"a": "b"}, "confidence": 0.9, "importance": 1},
        {"content": "plain"},
    ]
    source = read(tmp_path, "a.jsonl", "\n\n".join(map(json.dumps, records)))
    first, second = source.items
    assert (first.text, first.kind, dict(first.labels), first.confidence, first.importance) == (
        "one\n\ntwo",
        MemoryKind.EPISODIC,
        {"a": "b"},
        0.9,
        1,
    )
    assert (second.kind, second.confidence, second.first_line) == (MemoryKind.SEMANTIC, 0.5, 3)


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "{}", '{"content":""}', '{"content":1}', '{"content":"x","kind":"working"}', '{"content":"x","more":1}',
     '{"content":"x","content":"y"}', '{"content":"\\ud800"}', '{"content":"x","labels":[]}',
     '{"content":"x","labels":{"":"y"}}', "[" * 100_000],
)  # fmt: skip
def test_a_malformed_line_of_jsonl_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadInput, match="line 2") as caught:
        read(tmp_path, "a.jsonl", f'{{"content":"fine"}}\n{line}')
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("line", ['{"content":"x","confidence":2}', '{"content":"x","importance":"high"}'])
def test_a_line_beyond_a_limit_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    source = read(tmp_path, "a.jsonl", f"\n{line}")
    with pytest.raises(BadInput, match=r"line 2: node\.(confidence|importance)"):
        source.change_set(source.items[0], NS, Timestamp.now())


def test_a_memory_has_artifact_evidence_that_names_file_and_lines(tmp_path: Path) -> None:
    file = tmp_path / "odd name #1.md"
    file.write_text("first\nline\n\nsecond")
    source = read_source(file, MemoryKind.SEMANTIC, {"team": "core"}, "notes/odd name #1.md")
    now = Timestamp.now()
    (operation,) = source.change_set(source.items[0], NS, now).operations
    draft = operation.node  # type: ignore[union-attr]
    (evidence,) = draft.evidence
    assert evidence.uri == "file:notes/odd%20name%20%231.md#L1-L2"
    assert evidence.digest == f"sha256:{hashlib.sha256(b'first line').hexdigest()}"
    assert evidence.kind is EvidenceKind.ARTIFACT
    assert evidence.occurred_at <= now
    assert draft.id == text_id("first line")
    assert dict(draft.labels) == {"team": "core"}


def test_importing_again_or_an_edited_file_adds_only_what_is_new(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.ok("init")
    notes = tmp_path / "notes.md"
    notes.write_text("- one\n- two\n")

    def added() -> tuple[int, int]:
        (row,) = cli.ok("import", str(notes), "--json").json["files"]
        return row["added"], row["known"]

    assert added() == (2, 0)
    assert added() == (0, 2)
    notes.write_text("Moved: below\n\n- two\n- three\n- one\n")
    assert added() == (2, 2)
    found = cli.ok("list", "--json").json["nodes"]
    assert {node["status"] for node in found} == {"candidate"}
    assert len(found) == 4


def test_a_bad_file_among_good_ones_imports_nothing(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.ok("init")
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("fine")
    bad.write_text("x" * (64 * 1024 + 1))
    answer = cli.run("import", str(good), str(bad))
    assert answer.code == 2
    assert "bad.txt, line 1" in answer.err
    assert cli.ok("list", "--json").json["nodes"] == []


def test_a_large_import_is_complete(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.ok("init")
    notes = tmp_path / "notes.txt"
    notes.write_text("\n\n".join(f"note number {number} 笔记{number}" for number in range(500)))
    assert cli.ok("import", str(notes), "--json").json["files"][0]["added"] == 500
    assert len(cli.ok("list", "--json", "--limit", "1000").json["nodes"]) == 500
    assert cli.ok("verify", "--json").json["ok"] is True
