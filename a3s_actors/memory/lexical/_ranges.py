"""From the text form of a Unicode table to sets, maps and regular expressions.

`re` tests membership in a class of the basic multilingual plane by one bitmap look-up, but walks through the
ranges beyond it one by one, for every character that is in none of them. So texts without a character beyond
U+FFFF get a pattern without those ranges, and in the pattern for the others they stand behind a look-ahead that
characters of the basic plane and of other wide gaps (emoji) fail at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Final, TypeAlias

__all__ = ["Ranges", "beyond_bmp", "code_points", "lowercase_map", "parse", "ranges_of", "runs", "subtract"]

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted, disjoint (first, last) pairs of code points, both inclusive."""

_BMP_END: Final = 0xFFFF
_UNICODE: Final = ((0, 0x10FFFF),)
_WIDE_GAP: Final = 0x400
_BEYOND_BMP: Final = re.compile("[\U00010000-\U0010ffff]")


def parse(table: str) -> Ranges:
    """Read "30-39 aa" (hexadecimal) as ((0x30, 0x39), (0xAA, 0xAA))."""
    pairs = (entry.partition("-") for entry in table.split())
    return tuple((int(first, 16), int(last or first, 16)) for first, _, last in pairs)


def subtract(ranges: Ranges, holes: Ranges) -> Ranges:
    """Return what of the ranges is in none of the holes."""
    rest: list[tuple[int, int]] = []
    for first, last in ranges:
        start = first
        for hole_first, hole_last in holes:
            if hole_last < start or hole_first > last:
                continue
            if start < hole_first:
                rest.append((start, hole_first - 1))
            start = hole_last + 1
        if start <= last:
            rest.append((start, last))
    return tuple(rest)


def code_points(ranges: Ranges) -> frozenset[int]:
    """Return every code point of the ranges."""
    return frozenset(chain.from_iterable(range(first, last + 1) for first, last in ranges))


def ranges_of(codes: Iterable[int]) -> Ranges:
    """Return sorted, disjoint, non-adjacent ranges of the code points (in any order)."""
    ranges: list[tuple[int, int]] = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return tuple(ranges)


def lowercase_map(table: str) -> dict[int, str]:
    """Read "41-5a>61 100-12e/2>101 130>69+307" as a map for `str.translate`."""
    mapping: dict[int, str] = {}
    for entry in table.split():
        source, _, lower = entry.partition(">")
        source, _, step = source.partition("/")
        first, _, last = source.partition("-")
        if "+" in lower:
            mapping[int(first, 16)] = "".join(chr(int(one, 16)) for one in lower.split("+"))
            continue
        offset = int(lower, 16) - int(first, 16)
        for code in range(int(first, 16), int(last or first, 16) + 1, int(step or 1)):
            mapping[code] = chr(code + offset)
    return mapping


def beyond_bmp(text: str) -> bool:
    """Tell whether a character of the text lies beyond U+FFFF."""
    return _BEYOND_BMP.search(text) is not None


def runs(ranges: Ranges, *, beyond: bool) -> re.Pattern[str]:
    """Compile a pattern for maximal runs of characters in the ranges.

    Args:
        ranges: the characters; some lie in the basic multilingual plane.
        beyond: whether the pattern must know those beyond U+FFFF (slower). Without, it is for texts that have none.
    """
    basic = _character_class(tuple((first, min(last, _BMP_END)) for first, last in ranges if first <= _BMP_END))
    if not beyond:
        # "[..][..]*" rather than "[..]+": `re` then skips to the first member in its fast search loop.
        return re.compile(f"{basic}{basic}*")
    rest = tuple((max(first, _BMP_END + 1), last) for first, last in ranges if last > _BMP_END)
    if not rest:
        return re.compile(f"{basic}{basic}*")
    gaps = tuple((first, last) for first, last in subtract(_UNICODE, rest) if last - first >= _WIDE_GAP)
    # Possessive, so that a run which alternates between the two classes keeps no backtracking state.
    return re.compile(f"(?:{basic}++|(?!{_character_class(gaps)}){_character_class(rest)}++)++")


def _character_class(ranges: Ranges) -> str:
    # Plain characters parse several times faster than escapes; only ASCII has any that mean something in a class.
    def show(code: int) -> str:
        return chr(code) if code > 0x7F else f"\\x{code:02x}"

    return "[" + "".join(show(a) if a == b else f"{show(a)}-{show(b)}" for a, b in ranges) + "]"
