"""Coverage and float32 arithmetic."""

from __future__ import annotations

import ctypes
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3s_actors.memory.lexical import coverage, float32, tokens

TOKEN_SETS = st.frozensets(st.sampled_from("abcdefghij"))


@given(st.floats())
def test_rounding_equals_the_processors(value: float) -> None:
    expected = ctypes.c_float(value).value
    assert float32(value) == expected or (math.isnan(value) and math.isnan(float32(value)))
    assert math.isnan(value) or math.copysign(1, float32(value)) == math.copysign(1, value)


@given(st.floats(width=32, allow_nan=False))
def test_a_float32_value_stays(value: float) -> None:
    assert struct.pack("<d", float32(value)) == struct.pack("<d", value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.9, 0.8999999761581421),
        (1 + 2**-24, 1.0),  # a tie goes to the even neighbour
        (1 + 3 * 2**-24, 1 + 2**-22),
        (2**-150, 0.0),
        (2**-149, 2**-149),
        (3.4028235e38, 3.4028234663852886e38),
        (1e39, math.inf),
        (-1e300, -math.inf),
    ],
)
def test_a_value_rounds_to_the_nearest_float32(value: float, expected: float) -> None:
    assert float32(value) == expected


@pytest.mark.parametrize(("part", "whole", "threshold"), [(9, 10, 0.9), (7, 10, 0.7), (2, 5, 0.4), (1, 3, 1 / 3)])
def test_a_score_that_equals_its_threshold_reaches_it(part: int, whole: int, threshold: float) -> None:
    query = frozenset(map(str, range(whole)))
    score = coverage(query, frozenset(map(str, range(part))))
    assert score >= float32(threshold)
    assert score == float32(threshold)


def test_without_rounding_the_threshold_the_same_score_would_miss_it() -> None:
    assert coverage(frozenset("abcdefghij"), frozenset("abcdefghi")) < 0.9


@given(TOKEN_SETS, TOKEN_SETS)
def test_coverage_is_a_float32_share(query: frozenset[str], content: frozenset[str]) -> None:
    score = coverage(query, content)
    assert 0.0 <= score <= 1.0
    assert score == float32(score)
    assert (score == 1.0) == (bool(query) and query <= content)
    assert (score == 0.0) == (not query & content)
    assert score <= coverage(query, content | frozenset("a"))


@given(st.integers(1, 5_000), st.data())
def test_coverage_is_the_float32_quotient_of_the_counts(total: int, data: st.DataObject) -> None:
    found = data.draw(st.integers(0, total))
    score = coverage(frozenset(map(str, range(total))), frozenset(map(str, range(found))))
    assert score == ctypes.c_float(found / total).value


def test_a_query_without_tokens_covers_nothing() -> None:
    assert coverage(frozenset(), frozenset("abc")) == 0.0


def test_a_query_is_covered_by_content_that_contains_it() -> None:
    assert coverage(tokens("数据库 Rust"), tokens("用 rust 写的数据库迁移")) == float32(3 / 4)
