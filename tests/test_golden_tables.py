"""Canonical spelling of floats, texts and times, against the crate's tables."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from a3s_actors.memory import Timestamp
from a3s_actors.memory.codec import float_json, string_json
from a3s_actors.memory.decoding import parse_json
from tests.golden import golden_lines, needs_golden


def from_bits(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


@needs_golden
def test_floats_are_spelled_as_the_crate_spells_them() -> None:
    table = [(from_bits(row["bits"]), row["text"]) for row in golden_lines("tables/floats.jsonl")]
    wrong = [(value, text, float_json(value)) for value, text in table if float_json(value) != text]
    assert wrong == []
    assert sum(0.0 <= value <= 1.0 for value, _ in table) > 1000


@needs_golden
def test_texts_are_escaped_as_the_crate_escapes_them() -> None:
    table = [(chr(row["cp"]), bytes.fromhex(row["jsonHex"])) for row in golden_lines("tables/strings.jsonl")]
    wrong = [(text, spelled) for text, spelled in table if string_json(text).encode() != spelled]
    assert wrong == []
    assert len(table) > 200


@needs_golden
def test_times_are_written_as_the_crate_writes_them_and_read_back_exactly() -> None:
    table = [(row["secs"] * 10**9 + row["nanos"], row["text"]) for row in golden_lines("tables/timestamp_format.jsonl")]
    assert [str(Timestamp(ns)) for ns, _ in table] == [text for _, text in table]
    assert [Timestamp.parse(text).ns for _, text in table] == [ns for ns, _ in table]
    assert len(table) > 100


@given(st.integers(0, 2**32 - 1).map(from_bits).filter(lambda value: value - value == 0))
def test_a_spelled_float_gives_the_same_float32_back(value: float) -> None:
    back = struct.unpack("<f", struct.pack("<f", parse_json(float_json(value))))[0]
    assert struct.pack("<f", back) == struct.pack("<f", value)


@given(st.text())
def test_a_spelled_text_gives_the_same_text_back(text: str) -> None:
    assert parse_json(string_json(text)) == text


@given(st.integers(-(10**21), 10**21))
def test_a_written_time_gives_the_same_time_back(ns: int) -> None:
    instant = Timestamp(ns)
    assert Timestamp.parse(str(instant)) == instant


def test_leap_seconds_and_far_years_keep_their_spelling_and_their_order() -> None:
    spelled = ["-0044-03-15T00:00:00Z", "2016-12-31T23:59:59.999999999Z", "2016-12-31T23:59:60Z",
               "2016-12-31T23:59:60.500Z", "2017-01-01T00:00:00Z", "+12345-06-07T08:09:10Z"]  # fmt: skip
    instants = [Timestamp.parse(text) for text in spelled]
    assert [str(instant) for instant in instants] == spelled
    assert sorted(instants, key=lambda instant: instant.order_key) == instants
    assert sorted(instants) == instants
