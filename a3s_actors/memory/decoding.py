"""From JSON to values: strict, typed, and never trusting its input.

One cattrs converter holds the schema. Unknown fields are refused, missing ones named, and every value passes
the same validators as a value made by hand. Errors name the field, never what it held.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
import cattrs
import msgspec
from cattrs.gen import make_dict_structure_fn, override

from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.operations import (
    OPERATION_TYPES,
    ChangeSetResult,
    MemoryChangeSet,
    MemoryOperation,
    RevisionMode,
)
from a3s_actors.memory.purge import MemoryPurge, PurgedChangeSet, PurgeReceipt
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.memory.values import (
    AccessEvent,
    EvidenceKind,
    EvidenceRef,
    Labels,
    MemoryKind,
    MemoryNamespace,
    MemoryNode,
    MemoryNodeDraft,
    MemoryRelation,
    MemoryStatus,
    NodeHead,
    NodeRevision,
    RelationKind,
    RevisionKind,
)

__all__ = ["decode", "parse_json", "structure"]

T = TypeVar("T")


def parse_json(data: bytes | str) -> Any:
    """Parse one JSON document.

    Raises:
        InvalidInput: it is not valid JSON or not valid UTF-8, nests too deeply, or names a field twice in one object.
    """
    try:
        # Of two fields of one name msgspec keeps the last; another reader may keep the first.
        text = data if isinstance(data, str) else data.decode()
        value = msgspec.json.decode(data)
        json.loads(text, object_pairs_hook=_check_distinct, parse_int=_unread, parse_float=_unread)
    except msgspec.DecodeError as error:
        raise InvalidInput("json", str(error)) from None
    except (ValueError, RecursionError):
        raise InvalidInput("json", "is not valid UTF-8, or nests too deeply") from None
    return value


def _check_distinct(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise InvalidInput("json", "a field is there twice in one object")


def _unread(_number: str) -> None:
    """Leave a number alone: it was read already."""


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _untouched(value: Any, _type: Any) -> Any:
    # Primitive types are checked by the values' own validators, which know the field's name.
    return value


def _enum_hook(field: str, kind: type[enum.Enum]) -> Callable[[Any, Any], Any]:
    members = {member.value: member for member in kind}

    def hook(value: Any, _type: Any) -> Any:
        if not isinstance(value, str) or value not in members:
            raise InvalidInput(field, f"must be one of {', '.join(members)}")
        return members[value]

    return hook


def _class_hook(
    converter: cattrs.Converter, cls: type[Any], prefix: str, *, rename: bool = True, tag: bool = False
) -> Callable[[Any, Any], Any]:
    fields = attrs.fields(cls)
    names = {field.name: _camel(field.name) if rename else field.name for field in fields}
    required = {names[field.name] for field in fields if field.default is attrs.NOTHING}
    lists = {names[field.name]: "| None" in str(field.type) for field in fields if str(field.type).startswith("tuple")}
    allowed = set(names.values()) | ({"operation"} if tag else set())
    overrides: dict[str, Any] = {name: override(rename=out) for name, out in names.items()}
    build = make_dict_structure_fn(cls, converter, _cattrs_detailed_validation=False, **overrides)

    def hook(value: Any, _type: Any) -> Any:
        if not isinstance(value, Mapping):
            raise InvalidInput(prefix, "must be an object")
        if not value.keys() <= allowed:
            # The name may be anything, a memory's text even: it is not repeated.
            raise InvalidInput(prefix, "has a field that is not in the schema; remove it")
        if not required <= value.keys():
            raise InvalidInput(f"{prefix}.{min(required - value.keys())}", "is missing")
        for name, optional in lists.items():
            if name in value and not isinstance(value[name], list) and not (optional and value[name] is None):
                raise InvalidInput(f"{prefix}.{name}", "must be a list")
        return build(value, cls)

    return hook


def _build_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=False)
    for primitive in (str, int, float, bool):
        converter.register_structure_hook(primitive, _untouched)
    for field, kind in (
        ("evidence.kind", EvidenceKind),
        ("node.kind", MemoryKind),
        ("node.status", MemoryStatus),
        ("relation.kind", RelationKind),
        ("node.revisionKind", RevisionKind),
        ("operation.mode", RevisionMode),
    ):
        converter.register_structure_hook(kind, _enum_hook(field, kind))
    converter.register_structure_hook(Timestamp, lambda value, _type: Timestamp.of(value))
    converter.register_structure_hook(Labels, lambda value, _type: Labels.of(value))
    # Inner classes first: a hook captures the hooks of its fields when it is made.
    for cls, prefix in (
        (MemoryNamespace, "namespace"),
        (EvidenceRef, "evidence"),
        (MemoryRelation, "relation"),
        (MemoryNodeDraft, "node"),
        (NodeRevision, "revision"),
        (NodeHead, "node"),
        (MemoryNode, "node"),
        (AccessEvent, "accessEvent"),
    ):
        converter.register_structure_hook(cls, _class_hook(converter, cls, prefix))
    by_tag: dict[str, Callable[[Any, Any], Any]] = {}
    for operation in OPERATION_TYPES:
        by_tag[operation.tag] = _class_hook(converter, operation, "operation", rename=False, tag=True)

    def operation_hook(value: Any, _type: Any) -> Any:
        tag = value.get("operation") if isinstance(value, Mapping) else None
        if not isinstance(tag, str) or tag not in by_tag:
            raise InvalidInput("operation.operation", f"must be one of {', '.join(by_tag)}")
        return by_tag[tag](value, None)

    converter.register_structure_hook(MemoryOperation, operation_hook)
    for outer, outer_prefix in (
        (MemoryChangeSet, "changeSet"),
        (ChangeSetResult, "result"),
        (MemoryPurge, "purge"),
        (PurgedChangeSet, "purgedChangeSet"),
        (PurgeReceipt, "purgeReceipt"),
    ):
        converter.register_structure_hook(outer, _class_hook(converter, outer, outer_prefix))
    return converter


_converter = _build_converter()


def structure(value: object, cls: type[T]) -> T:
    """Build a kernel value from parsed JSON.

    Args:
        value: what `parse_json` returned.
        cls: MemoryChangeSet, MemoryNode, NodeHead, NodeRevision, MemoryNodeDraft, AccessEvent, EvidenceRef,
            MemoryRelation, MemoryNamespace or ChangeSetResult.

    Raises:
        InvalidInput: a field is unknown, missing or malformed.
        LimitExceeded: a field is too large.
    """
    return _converter.structure(value, cls)


def decode(data: bytes | str, cls: type[T]) -> T:
    """Parse one JSON document and build a kernel value of it. Raises as `parse_json` and `structure`."""
    return structure(parse_json(data), cls)
