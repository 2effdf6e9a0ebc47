"""Decoding stored nodes quickly. The same values as `decoding.decode` gives, or its errors.

Parsing and types are msgspec's; what the values' validators check is checked here in one pass, on the narrow path of
what a repository writes. Whatever leaves that path, malformed or only unusual, is decoded again by `decode`, which
decides. So nothing is accepted here that is not accepted there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs
import msgspec

from a3s_actors.memory import limits
from a3s_actors.memory.decoding import decode
from a3s_actors.memory.errors import MemoryRepositoryError
from a3s_actors.memory.lexical import float32
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import (
    EvidenceKind,
    EvidenceRef,
    Labels,
    MemoryKind,
    MemoryNamespace,
    MemoryNode,
    MemoryRelation,
    MemoryStatus,
    NodeHead,
    NodeRevision,
    RelationKind,
    RevisionKind,
)

__all__ = ["decode_head", "decode_node", "decode_revision"]

T = TypeVar("T")


class _Unusual(Exception):
    """Left the narrow path."""


class _Namespace(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    tenant_id: str
    principal_id: str
    scope_id: str


class _Evidence(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    uri: str
    digest: str
    kind: EvidenceKind
    occurred_at: str


class _Relation(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    kind: RelationKind
    target_id: str


class _Revision(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    revision: int
    kind: MemoryKind
    status: MemoryStatus
    content: str
    confidence: float
    importance: float
    evidence: list[_Evidence]
    relations: list[_Relation]
    labels: dict[str, str]
    updated_at: str
    revision_kind: RevisionKind


class _Head(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    id: str
    namespace: _Namespace
    revision: int
    kind: MemoryKind
    status: MemoryStatus
    content: str
    confidence: float
    importance: float
    evidence: list[_Evidence]
    relations: list[_Relation]
    labels: dict[str, str]
    created_at: str
    updated_at: str
    revision_kind: RevisionKind


class _Node(_Head, rename="camel", forbid_unknown_fields=True, gc=False):
    history: list[_Revision]


_NO_LABELS: Final = Labels()
_new: Final = object.__new__


def _setters(cls: type[Any]) -> tuple[Callable[[Any, Any], None], ...]:
    # The slots' own setters: frozen classes refuse assignment, and their constructors check what was checked here.
    return tuple(getattr(cls, field.name).__set__ for field in attrs.fields(cls))


_EVIDENCE: Final = _setters(EvidenceRef)
_RELATION: Final = _setters(MemoryRelation)
_REVISION: Final = _setters(NodeRevision)
_HEAD: Final = _setters(NodeHead)
_NODE: Final = _setters(MemoryNode)


def _make(cls: type[T], setters: tuple[Callable[[Any, Any], None], ...], values: tuple[Any, ...]) -> T:
    made = _new(cls)
    for setter, value in zip(setters, values, strict=True):
        setter(made, value)
    return made


def _text(value: str, limit: int) -> str:
    size = len(value)
    if not value.isascii():
        size = len(value.encode())
    # Narrower than the kernel's notion of blank: Python counts four separators more.
    if not 0 < size <= limit or value.isspace():
        raise _Unusual
    return value


@functools.lru_cache(maxsize=1024)
def _namespace(tenant: str, principal: str, scope: str) -> MemoryNamespace:
    return MemoryNamespace(tenant, principal, scope)


_instant = functools.lru_cache(maxsize=8192)(Timestamp.parse)


@functools.lru_cache(maxsize=8192)
def _rounded(value: float) -> float:
    if not 0.0 < value <= 1.0:
        raise _Unusual  # zero too: the cache would mix up its signs
    return float32(value)


def _evidence(items: list[_Evidence]) -> tuple[EvidenceRef, ...]:
    if len(items) > limits.MAX_EVIDENCE:
        raise _Unusual
    return tuple(
        [
            _make(
                EvidenceRef,
                _EVIDENCE,
                (
                    _text(item.uri, limits.MAX_EVIDENCE_URI_BYTES),
                    _text(item.digest, limits.MAX_EVIDENCE_DIGEST_BYTES),
                    item.kind,
                    _instant(item.occurred_at),
                ),
            )
            for item in items
        ]
    )


def _relations(items: list[_Relation]) -> tuple[MemoryRelation, ...]:
    if len(items) > limits.MAX_RELATIONS:
        raise _Unusual
    return tuple(
        [
            _make(MemoryRelation, _RELATION, (item.kind, _text(item.target_id, limits.MAX_IDENTIFIER_BYTES)))
            for item in items
        ]
    )


def _body(data: _Head | _Revision) -> tuple[Any, ...]:
    if not 1 <= data.revision < 1 << 64:
        raise _Unusual
    return (
        data.revision,
        data.kind,
        data.status,
        _text(data.content, limits.MAX_CONTENT_BYTES),
        _rounded(data.confidence),
        _rounded(data.importance),
        _evidence(data.evidence) if data.evidence else (),
        _relations(data.relations) if data.relations else (),
        Labels(data.labels) if data.labels else _NO_LABELS,
    )


def _revision(data: _Revision) -> NodeRevision:
    return _make(NodeRevision, _REVISION, (*_body(data), _instant(data.updated_at), data.revision_kind))


def _head_values(data: _Head) -> tuple[Any, ...]:
    space = data.namespace
    return (
        _text(data.id, limits.MAX_IDENTIFIER_BYTES),
        _namespace(space.tenant_id, space.principal_id, space.scope_id),
        *_body(data),
        _instant(data.created_at),
        _instant(data.updated_at),
        data.revision_kind,
    )


def _head(data: _Head) -> NodeHead:
    return _make(NodeHead, _HEAD, _head_values(data))


def _node(data: _Node) -> MemoryNode:
    history = tuple([_revision(each) for each in data.history]) if data.history else ()
    return _make(MemoryNode, _NODE, (*_head_values(data), history))


def _keys(data: _Head | _Revision) -> int:
    count = len(data.__struct_fields__) + 4 * len(data.evidence) + 2 * len(data.relations) + len(data.labels)
    if isinstance(data, _Head):
        count += 3
    return count + sum(map(_keys, data.history)) if isinstance(data, _Node) else count


def _decoder(shape: type[_Head | _Revision], build: Callable[[Any], T], cls: type[T]) -> Callable[[bytes], T]:
    parse = msgspec.json.Decoder(shape).decode

    def decode_quickly(data: bytes) -> T:
        try:
            parsed = parse(data)
            # Otherwise a field is there twice, or there is white space, or a text that looks like a field.
            if data.count(b'":') == _keys(parsed):
                return build(parsed)
        except (_Unusual, msgspec.MsgspecError, MemoryRepositoryError, UnicodeError, RecursionError):
            pass
        return decode(data, cls)

    return decode_quickly


decode_head: Final = _decoder(_Head, _head, NodeHead)
"""Return the head of its JSON. Raises as `decode`."""
decode_node: Final = _decoder(_Node, _node, MemoryNode)
"""Return the whole node of its JSON. Raises as `decode`."""
decode_revision: Final = _decoder(_Revision, _revision, NodeRevision)
"""Return the revision of its JSON. Raises as `decode`."""
