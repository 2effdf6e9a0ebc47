"""The JSON of a mark. Pure: marks to bytes and back."""

from __future__ import annotations

import msgspec

from a3s_actors.agent.errors import SessionStoreCorrupt
from a3s_actors.agent.store import RunMark, RunMarkKind

__all__ = ["mark_json", "read_mark"]


class _Mark(msgspec.Struct, forbid_unknown_fields=True):
    kind: RunMarkKind
    runId: str  # noqa: N815 - the JSON's name
    contextId: str | None  # noqa: N815
    admitted: list[tuple[str, int]]
    removed: int


def mark_json(mark: RunMark) -> bytes:
    """Return a mark's JSON, on one line, always the same bytes for the same mark."""
    return msgspec.json.encode(_Mark(mark.kind, mark.run_id, mark.context_id, list(mark.admitted), mark.removed))


def read_mark(data: bytes, session_id: str) -> RunMark:
    """Read a mark's JSON, strictly.

    Raises:
        SessionStoreCorrupt: it is not what `mark_json` makes.
    """
    try:
        stored = msgspec.json.decode(data, type=_Mark)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SessionStoreCorrupt(session_id, "a mark is malformed") from None
    return RunMark(
        kind=stored.kind,
        run_id=stored.runId,
        context_id=stored.contextId,
        admitted=tuple(stored.admitted),
        removed=stored.removed,
    )
