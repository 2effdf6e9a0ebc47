"""The two lexical profiles: which tokens a text has.

Current profile: lower case; runs of alphanumeric characters are words; a run of CJK characters breaks words and
gives the whole run and its overlapping pairs. Whether a character is CJK is decided by the list of code points
alone: U+2FF0, U+3099 and U+30FB are in it and belong to runs, although they are not alphanumeric. Legacy
profile: words only, and CJK letters are letters like any other.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from operator import add
from typing import Final

from a3s_actors.memory.lexical import _ranges, _unicode17
from a3s_actors.memory.lexical.characters import alphanumeric_runs, lowercase

__all__ = ["LEGACY_LEXICAL_PROFILE", "LEXICAL_PROFILE", "fingerprint", "legacy_tokens", "tokens"]

LEXICAL_PROFILE: Final = "a3s.memory.lexical.word-cjk-bigram.v1"
LEGACY_LEXICAL_PROFILE: Final = "a3s.memory.lexical.word.v1"

_ALGORITHM_VERSION: Final = 1
"""Raised with every change of this code that gives some text other tokens; part of the fingerprint."""

_CJK: Final = (
    "1100-11ff 2e80-2fff 3005-3007 3031-3035 3040-30ff 3100-312f 3130-318f 3190-319f 31a0-31bf 31f0-31ff 3400-4dbf"
    " 4e00-9fff a960-a97f ac00-d7af d7b0-d7ff f900-faff ff66-ff9f 20000-2fa1f 30000-323af"
)

# For bytes of an ASCII text: lower case, and a space for all that is not alphanumeric.
_ASCII_WORDS: Final = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 0x20 for code in range(128)).ljust(256)


def tokens(text: str) -> frozenset[str]:
    """Return the distinct tokens of a text under the current profile.

    Pure, linear in the text, safe in any thread. The first text with non-ASCII characters in a process compiles
    the character classes (a few milliseconds).

    Args:
        text: any string. A lone surrogate is a separator.
    """
    if text.isascii():
        return _ascii_words(text)
    lowered = lowercase(text)
    beyond = _ranges.beyond_bmp(lowered)
    found: list[str] = _word_runs(beyond).findall(lowered)
    cjk_runs: list[str] = _cjk_runs(beyond).findall(lowered)
    found += cjk_runs
    for run in cjk_runs:
        if len(run) > 2:  # the one pair of a run of two is the run itself
            found += map(add, run, run[1:])
    return frozenset(found)


def legacy_tokens(text: str) -> frozenset[str]:
    """Return the distinct words of a text under the legacy profile, in which a CJK run is a word.

    Pure, linear in the text, safe in any thread.

    Args:
        text: any string. A lone surrogate is a separator.
    """
    if text.isascii():
        return _ascii_words(text)
    lowered = lowercase(text)
    return frozenset(alphanumeric_runs(_ranges.beyond_bmp(lowered)).findall(lowered))


@cache
def fingerprint() -> str:
    """Return "sha256:" and the digest of all that decides the tokens of a text.

    It changes with the tables and the version of the algorithm, not with the Python version. An index stores it
    and is rebuilt when it differs.
    """
    digest = hashlib.sha256()
    for part in (
        LEXICAL_PROFILE,
        str(_ALGORITHM_VERSION),
        _CJK,
        _unicode17.ALPHANUMERIC,
        _unicode17.LOWERCASE,
        _unicode17.CASED,
        _unicode17.CASE_IGNORABLE,
    ):
        digest.update(part.encode("ascii") + b"\0")
    return "sha256:" + digest.hexdigest()


def _ascii_words(text: str) -> frozenset[str]:
    return frozenset(text.encode("ascii").translate(_ASCII_WORDS).decode("ascii").split())


@cache
def _cjk_runs(beyond: bool) -> re.Pattern[str]:
    return _ranges.runs(_ranges.parse(_CJK), beyond=beyond)


@cache
def _word_runs(beyond: bool) -> re.Pattern[str]:
    alphanumeric = _ranges.parse(_unicode17.ALPHANUMERIC)
    return _ranges.runs(_ranges.subtract(alphanumeric, _ranges.parse(_CJK)), beyond=beyond)
