"""Files of notes, and the memories in them. Pure, apart from reading the file.

Markdown gives one memory for each paragraph or list item, plain text one for each paragraph, JSONL one for each line.
A memory's identity is its text: importing a file again, or an edited one, adds only what is new.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import attrs

from a3s_actors.cli.running import BadInput
from a3s_actors.memory import limits
from a3s_actors.memory.errors import InvalidInput, MemoryRepositoryError
from a3s_actors.memory.lexical import is_blank
from a3s_actors.memory.operations import Create, MemoryChangeSet
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import EvidenceKind, EvidenceRef, Labels, MemoryKind, MemoryNamespace, MemoryNodeDraft

__all__ = ["Item", "Source", "read_source", "text_id"]

_MARKDOWN: Final = {".md", ".markdown"}
_JSONL: Final = {".jsonl", ".ndjson"}
_FIELDS: Final = {"content", "kind", "labels", "confidence", "importance"}
# Scripts that are written without spaces: a line break inside a paragraph stands for nothing there.
_UNSPACED = re.compile("[\u2e80-\u303f\u3040-\u30ff\u3100-\u312f\u31a0-\u9fff\uf900-\ufaff\uff00-\uffef]")


def text_id(text: str) -> str:
    """Return the id of a memory whose identity is its text: the hex SHA-256 of its UTF-8 bytes.

    Raises:
        InvalidInput: it is no Unicode text.
    """
    try:
        return hashlib.sha256(text.encode()).hexdigest()
    except UnicodeEncodeError:
        raise InvalidInput("node.content", "holds bytes that are not UTF-8; convert them first") from None


@attrs.frozen(kw_only=True)
class Item:
    """One memory found in a file, with the lines it stands on (counted from 1)."""

    text: str = attrs.field(repr=False)
    first_line: int
    last_line: int
    kind: MemoryKind = MemoryKind.SEMANTIC
    labels: Mapping[str, str] = attrs.field(factory=dict)
    confidence: float = 0.5
    importance: float = 0.5


@attrs.frozen(kw_only=True)
class Source:
    """A file that was read: its memories in order, without repetitions, and how much was left out.

    Attributes:
        name: the file as it was named.
        modified: when it was last changed.
        items: the memories.
        repeated: how many had a text that came before in the file.
        skipped: how many blocks hold no memory (code, tables, HTML).
    """

    name: str
    modified: Timestamp
    items: tuple[Item, ...]
    repeated: int
    skipped: int

    def change_set(self, item: Item, namespace: MemoryNamespace, at: Timestamp) -> MemoryChangeSet:
        """Return the change set that proposes one of the memories.

        Raises:
            BadInput: the memory breaks a limit; file and line are named.
        """
        lines = f"L{item.first_line}" if item.first_line == item.last_line else f"L{item.first_line}-L{item.last_line}"
        identity = text_id(item.text)
        try:
            evidence = EvidenceRef(
                uri=f"file:{quote(self.name)}#{lines}",
                digest=f"sha256:{identity}",
                kind=EvidenceKind.ARTIFACT,
                occurred_at=min(self.modified, at),
            )
            draft = MemoryNodeDraft(
                id=identity,
                namespace=namespace,
                kind=item.kind,
                content=item.text,
                confidence=item.confidence,
                importance=item.importance,
                evidence=(evidence,),
                labels=item.labels,
                created_at=at,
            )
            return MemoryChangeSet(
                idempotency_key=f"import-{identity}", namespace=namespace, occurred_at=at, operations=(Create(draft),)
            )
        except MemoryRepositoryError as error:
            raise BadInput(f"{self.name}, line {item.first_line}: {error}") from error


def read_source(path: Path, kind: MemoryKind, labels: Mapping[str, str], name: str | None = None) -> Source:
    """Read a file.

    Args:
        path: `.md` and `.markdown` are Markdown, `.jsonl` and `.ndjson` JSONL, all else plain text.
        kind: of memories that do not name one.
        labels: given to every memory; a label of its own goes first.
        name: what evidence calls the file; by default its path as it was given.

    Raises:
        BadInput: the file cannot be read, is no UTF-8, or a line of JSONL is malformed.
    """
    try:
        data = path.read_bytes()
        modified = Timestamp(path.stat().st_mtime_ns)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: byte {error.start} is not UTF-8; convert the file first") from error
    skipped = 0
    if path.suffix.lower() in _JSONL:
        items = list(_json_lines(path, text, kind))
    elif path.suffix.lower() in _MARKDOWN:
        items, skipped = _markdown(text, kind)
    else:
        items = list(_paragraphs(text, kind))
    unique: dict[str, Item] = {}
    for item in items:
        own = attrs.evolve(item, labels={**labels, **item.labels})
        unique.setdefault(item.text, own)
    return Source(
        name=str(path) if name is None else name,
        modified=modified,
        items=tuple(unique.values()),
        repeated=len(items) - len(unique),
        skipped=skipped,
    )


def unwrap(text: str) -> str:
    """Join a paragraph's lines: with a space, except between characters of scripts that have none."""
    joined = ""
    for line in (part.strip() for part in text.splitlines()):
        if joined and line and not (_UNSPACED.match(joined[-1]) and _UNSPACED.match(line[0])):
            joined += " "
        joined += line
    return joined


def _paragraphs(text: str, kind: MemoryKind) -> Iterator[Item]:
    block: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        if not is_blank(line):
            block.append(line)
        elif block:
            yield Item(text=unwrap("\n".join(block)), first_line=number - len(block), last_line=number - 1, kind=kind)
            block = []


def _markdown(text: str, kind: MemoryKind) -> tuple[list[Item], int]:
    from markdown_it import MarkdownIt

    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _without_front_matter(text)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    items: list[Item] = []
    section = ""
    skipped = 0
    in_table = in_heading = False
    for token in tokens:
        if token.type in {"table_open", "table_close"}:
            in_table = token.type == "table_open"
            skipped += in_table
        elif token.type in {"heading_open", "heading_close"}:
            in_heading = token.type == "heading_open"
        elif token.type in {"fence", "code_block", "html_block"}:
            skipped += 1
        elif token.type == "inline" and in_heading:
            section = unwrap(token.content)
        elif token.type == "inline" and not in_table and token.map is not None and not is_blank(token.content):
            labels = {"section": section} if _fits_label(section) else {}
            first, after = token.map
            items.append(
                Item(text=unwrap(token.content), first_line=first + 1, last_line=after, kind=kind, labels=labels)
            )
    return items, skipped


def _without_front_matter(text: str) -> str:
    # Blanked, not cut: the numbers of the lines after it stay right.
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return text
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() in {"---", "..."}:
            return "\n".join([""] * (number + 1) + lines[number + 1 :])
    return text


def _fits_label(text: str) -> bool:
    return not is_blank(text) and len(text.encode()) <= limits.MAX_LABEL_VALUE_BYTES


def _json_lines(path: Path, text: str, kind: MemoryKind) -> Iterator[Item]:
    import json

    for number, line in enumerate(text.split("\n"), start=1):
        if is_blank(line):
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line, object_pairs_hook=_distinct)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{where}: is not JSON ({error})") from None
        if not isinstance(record, dict):
            raise BadInput(f"{where}: must be an object with the field content")
        unknown = sorted(record.keys() - _FIELDS)
        if unknown:
            raise BadInput(f"{where}: {unknown[0][:64]} is no field; known are {', '.join(sorted(_FIELDS))}")
        yield _json_item(record, where, number, kind)


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a field is there twice")
    return record


def _json_item(record: dict[str, Any], where: str, number: int, kind: MemoryKind) -> Item:
    kinds = {member.value: member for member in MemoryKind}
    content = record.get("content")
    if not isinstance(content, str) or is_blank(content):
        raise BadInput(f"{where}: content must be a text that is not blank")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{where}: content holds a lone surrogate, which is no Unicode text") from None
    named = record.get("kind", kind.value)
    if named not in kinds:
        raise BadInput(f"{where}: kind must be one of {', '.join(kinds)}")
    try:
        labels = Labels.of(record.get("labels"))
    except MemoryRepositoryError as error:
        raise BadInput(f"{where}: {error}") from error
    return Item(
        text=content,
        first_line=number,
        last_line=number,
        kind=kinds[named],
        labels=labels,
        confidence=record.get("confidence", 0.5),
        importance=record.get("importance", 0.5),
    )
