"""Lower case, blankness and alphanumeric characters, pinned to Unicode 17.

`str.lower`, `str.isspace` and `str.isalnum` follow the Unicode version of the running Python. These functions
give the same answer under every Python, which is what a stored index and the golden files need.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from a3s_actors.memory.lexical import _ranges, _unicode17

__all__ = ["alphanumeric_runs", "has_alphanumeric", "is_blank", "lowercase"]

_CAPITAL_SIGMA: Final = "\u03a3"
_FINAL_SIGMA: Final = "\u03c2"


def lowercase(text: str) -> str:
    """Return the text in lower case, as Rust's `str::to_lowercase` does under Unicode 17.

    Full mappings (U+0130 becomes two characters); a capital sigma that ends a word becomes a final sigma; no
    locale. Characters without a lower case, lone surrogates included, stay.
    """
    if text.isascii():
        return text.lower()
    if _CAPITAL_SIGMA in text:
        text = _with_final_sigmas(text)
    return _upper_runs(_ranges.beyond_bmp(text)).sub(_lower_match, text)


def has_alphanumeric(text: str) -> bool:
    """Tell whether the text has a character that is Alphabetic or a Number (Rust's `char::is_alphanumeric`)."""
    return alphanumeric_runs(not text.isascii() and _ranges.beyond_bmp(text)).search(text) is not None


def is_blank(text: str) -> bool:
    """Tell whether the text has nothing but White_Space; the empty text is blank.

    U+001C to U+001F are not White_Space, although `str.isspace` counts them, and neither is U+200B.
    """
    return not text.strip(_white_space())


@cache
def alphanumeric_runs(beyond: bool) -> re.Pattern[str]:
    """Compile the pattern for runs of alphanumeric characters, once.

    Args:
        beyond: whether the text may have characters beyond U+FFFF.
    """
    return _ranges.runs(_ranges.parse(_unicode17.ALPHANUMERIC), beyond=beyond)


@cache
def _white_space() -> str:
    return "".join(map(chr, sorted(_ranges.code_points(_ranges.parse(_unicode17.WHITE_SPACE)))))


@cache
def _lower_map() -> dict[int, str]:
    return _ranges.lowercase_map(_unicode17.LOWERCASE)


@cache
def _upper_runs(beyond: bool) -> re.Pattern[str]:
    return _ranges.runs(_ranges.ranges_of(_lower_map()), beyond=beyond)


def _lower_match(match: re.Match[str]) -> str:
    return match[0].translate(_lower_map())


@cache
def _final_sigma_sets() -> tuple[frozenset[int], frozenset[int]]:
    cased, ignorable = _unicode17.CASED, _unicode17.CASE_IGNORABLE
    return _ranges.code_points(_ranges.parse(cased)), _ranges.code_points(_ranges.parse(ignorable))


def _with_final_sigmas(text: str) -> str:
    """Replace each capital sigma that ends a word (the Final_Sigma condition of the Unicode standard, 3.13).

    That is: before it stands a cased character, after it none, case-ignorable characters skipped on both sides.
    A capital sigma is itself cased and not ignorable, so no stretch is walked more than twice.
    """
    cased, ignorable = _final_sigma_sets()
    codes = [*map(ord, text)]
    end = len(codes)
    characters = [*text]
    at = text.find(_CAPITAL_SIGMA)
    while at >= 0:
        before, after = at - 1, at + 1
        while before >= 0 and codes[before] in ignorable:
            before -= 1
        while after < end and codes[after] in ignorable:
            after += 1
        if before >= 0 and codes[before] in cased and not (after < end and codes[after] in cased):
            characters[at] = _FINAL_SIGMA
        at = text.find(_CAPITAL_SIGMA, at + 1)
    return "".join(characters)
