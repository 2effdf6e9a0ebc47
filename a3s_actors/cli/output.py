"""What commands print: tables for people, canonical JSON for programs.

Memory texts are foreign: they may hold terminal escapes or rich markup. Whatever is shown to a person goes through
`safe` and is never read as markup.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from a3s_actors.memory.codec import head_json
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import MemoryNamespace, MemoryStatus, NodeHead

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = [
    "brief_id",
    "console",
    "emit",
    "heads_json",
    "json_text",
    "namespace_text",
    "nodes_table",
    "one_line",
    "safe",
    "say",
    "status_text",
    "table",
    "when",
]

_STYLES = {
    MemoryStatus.ACTIVE: "green",
    MemoryStatus.CANDIDATE: "yellow",
    MemoryStatus.SUPERSEDED: "dim",
    MemoryStatus.CONFLICTED: "red",
    MemoryStatus.TOMBSTONED: "dim strike",
}
# Controls except tab and newline, and the characters that reorder text on the screen.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DIGEST_ID = re.compile("((?:a3s-code-candidate-)?[0-9a-f]{12})[0-9a-f]{52}")
_WIDTH_WITHOUT_TERMINAL = 120


def safe(text: str) -> str:
    """Return `text` with every character made visible that could drive a terminal."""

    def visible(match: re.Match[str]) -> str:
        code = ord(match.group())
        return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"

    return _UNSAFE.sub(visible, text)


def one_line(text: str) -> str:
    """Return `text` safe and on one line."""
    return " ".join(safe(text).split())


def brief_id(node_id: str) -> str:
    """Return an id for tables: ids that are digests by their first twelve digits, others whole."""
    digest = _DIGEST_ID.fullmatch(node_id)
    return digest[1] if digest else safe(node_id)


def when(moment: Timestamp) -> str:
    """Return a time to the second, in UTC."""
    text = str(moment)
    return f"{text[:19]}Z".replace("T", " ") if len(text) > 19 and text[19] in ".Z" else text


def namespace_text(namespace: MemoryNamespace) -> str:
    """Return a namespace for people."""
    return " / ".join(safe(part) for part in (namespace.tenant_id, namespace.principal_id, namespace.scope_id))


def json_text(value: Any) -> str:
    """Return JSON without spaces; text is left as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def emit(line: str) -> None:
    """Write one line to stdout, as it is."""
    sys.stdout.write(line + "\n")


def console(*, stderr: bool = False) -> Console:
    """Return the console of stdout or stderr: colours and the terminal's width where there is one."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    fixed = None if stream.isatty() or os.environ.get("COLUMNS") else _WIDTH_WITHOUT_TERMINAL
    return Console(file=stream, width=fixed, highlight=False, markup=False, emoji=False, soft_wrap=False)


def say(*parts: str | Text, style: str | None = None) -> None:
    """Print a line for people; it wraps at the terminal's width only on the screen."""
    from rich.text import Text

    line = Text()
    for part in parts:
        line.append(safe(part)) if isinstance(part, str) else line.append_text(part)
    console().print(line, style=style, soft_wrap=True)


def status_text(status: MemoryStatus) -> Text:
    """Return a status in its colour."""
    from rich.text import Text

    return Text(status.value, style=_STYLES[status])


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, wide: str | None = None) -> None:
    """Print a table.

    Args:
        columns: the headings.
        rows: their cells; a text is made safe and put on one line.
        wide: the heading of the column that gives way when space is short; its cells wrap.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        grid.add_column(name, overflow="fold", no_wrap=name != wide, ratio=1 if name == wide else None)
    for row in rows:
        grid.add_row(*(Text(one_line(cell)) if isinstance(cell, str) else cell for cell in row))
    console().print(grid)


def nodes_table(heads: Iterable[NodeHead]) -> None:
    """Print memories, one a row."""
    table(
        ["id", "status", "kind", "rev", "updated", "evidence", "content"],
        (
            [
                brief_id(head.id),
                status_text(head.status),
                head.kind.value,
                str(head.revision),
                when(head.updated_at),
                str(len(head.evidence)),
                head.content,
            ]
            for head in heads
        ),
        wide="content",
    )


def heads_json(heads: Iterable[NodeHead]) -> str:
    """Return heads as a JSON list of canonical nodes without histories."""
    return f"[{','.join(map(head_json, heads))}]"
