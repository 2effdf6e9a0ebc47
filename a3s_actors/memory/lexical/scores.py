"""The lexical score, and the float32 arithmetic that every score and threshold is kept in."""

from __future__ import annotations

import math
import struct
from typing import Final

__all__ = ["coverage", "float32"]

_FLOAT32: Final = struct.Struct("<f")


def float32(value: float) -> float:
    """Round to the nearest float32 (ties to even) and return it as a Python float.

    Scores and thresholds are compared in this form: 9 / 10 and 0.9 are then the same number. Too large a value
    becomes an infinity of its sign; NaN stays NaN and -0.0 stays -0.0.
    """
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def coverage(query: frozenset[str], content: frozenset[str]) -> float:
    """Return the share of the query's tokens that the content has: 0 to 1, a float32 value.

    Args:
        query: the distinct tokens of the query; without any the coverage is 0.
        content: the distinct tokens of the content.
    """
    if not query:
        return 0.0
    # A quotient of two counts below 2**24, rounded to double and then to float32, is the float32 quotient.
    return float32(len(query & content) / len(query))
