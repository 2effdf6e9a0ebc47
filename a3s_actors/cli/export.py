"""Exports: a namespace as lines, always the same lines for the same memories, and the way back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from a3s_actors.cli.output import safe
from a3s_actors.cli.running import BadInput
from a3s_actors.memory.codec import namespace_json, statuses_json
from a3s_actors.memory.decoding import structure
from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.snapshot import NamespaceSnapshot, SnapshotRequest
from a3s_actors.memory.values import MemoryNamespace, MemoryNode, MemoryStatus

if TYPE_CHECKING:
    from a3s_actors.cli.reasons import ReasonStore

__all__ = ["EXPORT_SCHEMA", "export_header", "is_export", "markdown_lines", "read_export"]

EXPORT_SCHEMA: Final = "a3s.memory.export.v1"
_START: Final = f'{{"schema":"{EXPORT_SCHEMA}"'.encode()


def export_header(view: NamespaceSnapshot) -> str:
    """Return the first line of an export: what follows, and the digest that it has to have."""
    return (
        f'{{"schema":"{EXPORT_SCHEMA}","namespace":{namespace_json(view.namespace)}'
        f',"statuses":{statuses_json(view.statuses)},"nodeCount":{view.node_count},"digest":"{view.digest}"}}'
    )


def is_export(path: Path) -> bool:
    """Tell whether a file begins as an export does. An unreadable file does not."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(_START)) == _START
    except OSError:
        return False


def read_export(path: Path, namespace: MemoryNamespace) -> tuple[NamespaceSnapshot, Sequence[MemoryNode]]:
    """Read an export and check it wholly.

    Raises:
        BadInput: it is of another namespace, cut off, or not what was exported.
    """
    try:
        first, *lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    try:
        header = json.loads(first)
        owner = structure(header["namespace"], MemoryNamespace)
        statuses = frozenset(MemoryStatus(value) for value in header["statuses"])
        count, digest = int(header["nodeCount"]), str(header["digest"])
    except (ValueError, LookupError, TypeError, MemoryRepositoryError) as error:
        raise BadInput(f"{path}, line 1: is no header of an export ({type(error).__name__})") from None
    if owner != namespace:
        raise BadInput(f"{path}: is of another namespace; name that one with --tenant, --principal and --scope")
    if len(lines) != count:
        raise BadInput(f"{path}: has {len(lines)} memories, its header says {count}; it was cut off or edited")
    request = SnapshotRequest(namespace=namespace, statuses=statuses)
    try:
        view = NamespaceSnapshot.build(request, lines, None)
        nodes = view.verify_deep(request)
    except MemoryRepositoryError as error:
        raise BadInput(f"{path}: {error}") from None
    if view.digest != digest:
        raise BadInput(f"{path}: its digest is not the one in its header; it was edited")
    return view, nodes


def markdown_lines(view: NamespaceSnapshot, reasons: ReasonStore) -> Iterator[str]:
    """Yield an export to read: by status, then by id, each with evidence, relations, labels and earlier texts."""
    space = view.namespace
    yield f"# Memories of {' / '.join(map(_inline, (space.tenant_id, space.principal_id, space.scope_id)))}"
    nodes = view.nodes()
    for status in MemoryStatus:
        chosen = [node for node in nodes if node.status is status]
        if chosen:
            yield ""
            yield f"## {status.value} ({len(chosen)})"
        for node in chosen:
            yield from _node_lines(node, reasons)


def _inline(text: str) -> str:
    return " ".join(safe(text).split())


def _node_lines(node: MemoryNode, reasons: ReasonStore) -> Iterator[str]:
    yield ""
    yield f"### {_inline(node.id)}"
    yield ""
    yield from (f"> {line}".rstrip() for line in safe(node.content).splitlines())
    yield ""
    yield f"- {node.kind.value}, revision {node.revision} ({node.revision_kind.value}), updated {node.updated_at}"
    yield f"- confidence {node.confidence:g}, importance {node.importance:g}"
    yield from (f"- label {_inline(key)}: {_inline(value)}" for key, value in node.labels.items())
    texts = reasons.texts(node.evidence)
    for item in node.evidence:
        said = f": {_inline(texts[item.uri])}" if item.uri in texts else ""
        yield f"- evidence {item.kind.value}, {item.occurred_at}: {_inline(item.uri)} {_inline(item.digest)}{said}"
    yield from (f"- {relation.kind.value} {_inline(relation.target_id)}" for relation in node.relations)
    before = None
    for revision in node.history:
        if revision.content not in {before, node.content}:
            yield f"- revision {revision.revision} said: {_inline(revision.content)}"
        before = revision.content
