"""Checks at the door, shared by the value classes. Each raises before any state changes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from a3s_actors.memory.errors import InvalidInput, LimitExceeded
from a3s_actors.memory.lexical import float32, is_blank

E = TypeVar("E")
_MAX_WHOLE = (1 << 64) - 1  # what the stored format can hold; longer figures cannot even be printed
Validator = Callable[[Any, Any, Any], None]


def check_text(field: str, value: object, limit: int | None, *, empty_ok: bool = False) -> None:
    """Refuse what is not valid, non-blank Unicode text of at most `limit` UTF-8 bytes.

    With `empty_ok` the empty text passes; a text of white space alone never does.
    """
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be text, not {type(value).__name__}")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(field, "holds a lone surrogate, which is no Unicode text; decode it correctly") from None
    if not (empty_ok and value == "") and is_blank(value):
        raise InvalidInput(field, "must not be empty or blank")
    if limit is not None and size > limit:
        raise LimitExceeded(field, limit, size)


def checked_path(field: str, value: str | os.PathLike[str]) -> Path:
    """Return a path that the file system can have.

    Raises:
        InvalidInput: it is no path, is empty, holds U+0000, or is no text that the file system can spell.
    """
    try:
        name = os.fspath(value)
    except TypeError:
        raise InvalidInput(field, f"must be a path, not {type(value).__name__}") from None
    if not isinstance(name, str):
        raise InvalidInput(field, "must be a text or a path of texts")
    if not name or "\0" in name:
        raise InvalidInput(field, "must be a path; it is empty or holds U+0000")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInput(field, "holds bytes that are not UTF-8; rename the file first") from None
    return Path(name)


def text(field: str, limit: int, *, empty_ok: bool = False) -> Validator:
    """Return an attrs validator for `check_text`."""

    def validate(_instance: object, _attribute: object, value: object) -> None:
        check_text(field, value, limit, empty_ok=empty_ok)

    return validate


def unit_interval(field: str) -> Callable[[Any], float]:
    """Return an attrs converter: a finite number in 0..1, kept at float32 precision."""

    def convert(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(field, f"must be a number, not {type(value).__name__}")
        # Rounded first: what is kept is what counts.
        kept = float32(float(value)) if -1.0 <= value <= 2.0 else math.nan
        if not 0.0 <= kept <= 1.0:
            raise InvalidInput(field, "must be a finite number from 0 to 1")
        return kept

    return convert


def whole(field: str, minimum: int, maximum: int | None = None, *, resource: str | None = None) -> Validator:
    """Return an attrs validator: a whole number in a range, of 64 bits. Above it is LimitExceeded(`resource`)."""

    def validate(_instance: object, _attribute: object, value: Any) -> None:
        check_whole(field, value, minimum, maximum, resource=resource)
        if value > _MAX_WHOLE:
            raise InvalidInput(field, "must fit into 64 bits")

    return validate


def check_whole(
    field: str, value: object, minimum: int, maximum: int | None = None, *, resource: str | None = None
) -> None:
    """Refuse what is not a whole number in a range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(field, f"must be a whole number, not {type(value).__name__}")
    if value < minimum:
        raise InvalidInput(field, f"must be at least {minimum}")
    if maximum is not None and value > maximum:
        raise LimitExceeded(resource or field, maximum, min(value, _MAX_WHOLE))


def instance_of(field: str, *kinds: type) -> Validator:
    """Return an attrs validator that names the field and the wanted types."""

    def validate(_instance: object, _attribute: object, value: object) -> None:
        if not isinstance(value, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise InvalidInput(field, f"must be {wanted}, not {type(value).__name__}")

    return validate


def as_tuple(field: str, kind: type[E]) -> Callable[[Any], tuple[E, ...]]:
    """Return an attrs converter: any iterable of `kind` becomes a tuple; text and mappings are refused."""

    def convert(value: Any) -> tuple[E, ...]:
        if isinstance(value, str | bytes | dict):
            raise InvalidInput(field, f"must be a sequence of {kind.__name__}")
        try:
            items: tuple[E, ...] = tuple(value)
        except TypeError:
            raise InvalidInput(field, f"must be a sequence of {kind.__name__}") from None
        for item in items:
            if not isinstance(item, kind):
                raise InvalidInput(field, f"holds a {type(item).__name__}, wants {kind.__name__}")
        return items

    return convert


def as_frozenset(field: str, kind: type[E]) -> Callable[[Any], frozenset[E]]:
    """Return an attrs converter: any iterable of `kind` becomes a frozenset."""
    to_tuple = as_tuple(field, kind)

    def convert(value: object) -> frozenset[E]:
        return frozenset(to_tuple(value))

    return convert
