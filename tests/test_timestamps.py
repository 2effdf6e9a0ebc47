"""Instants: exact to the nanosecond, one spelling, and no naive datetime."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3s_actors.memory import InvalidInput, Timestamp

SECOND = 1_000_000_000
WHOLE = st.integers(-8_334_601_228_800 * SECOND, 8_210_266_876_800 * SECOND - 1)


@given(WHOLE)
def test_every_instant_comes_back_from_its_text(ns: int) -> None:
    instant = Timestamp(ns)
    assert Timestamp.parse(str(instant)) == instant


@given(st.datetimes(timezones=st.timezones()))
def test_an_aware_datetime_is_exact(value: dt.datetime) -> None:
    try:
        utc = value.astimezone(dt.UTC)
    except OverflowError:
        return
    assert Timestamp.of(value).to_datetime() == utc


@given(WHOLE, WHOLE)
def test_instants_sort_as_their_numbers(a: int, b: int) -> None:
    one, two = Timestamp(a), Timestamp(b)
    assert (one < two, one <= two, one > two, one >= two, one == two) == (a < b, a <= b, a > b, a >= b, a == b)
    assert (one.order_key < two.order_key) is (a < b)


@pytest.mark.parametrize(
    ("text", "ns", "spelled"),
    [
        ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
        ("1970-01-01T00:00:00.5Z", SECOND // 2, "1970-01-01T00:00:00.500Z"),
        ("1970-01-01T00:00:00.000001Z", 1000, "1970-01-01T00:00:00.000001Z"),
        ("1970-01-01T00:00:00.000000001Z", 1, "1970-01-01T00:00:00.000000001Z"),
        ("1970-01-01t01:00:00+01:00", 0, "1970-01-01T00:00:00Z"),
        ("1970-01-01 00:00:00-00:30", 1800 * SECOND, "1970-01-01T00:30:00Z"),
        ("1969-12-31T23:59:59.999999999z", -1, "1969-12-31T23:59:59.999999999Z"),
        ("2000-02-29T00:00:00Z", 951_782_400 * SECOND, "2000-02-29T00:00:00Z"),
        ("0000-01-01T00:00:00Z", -62_167_219_200 * SECOND, "0000-01-01T00:00:00Z"),
        ("-0001-12-31T00:00:00Z", -62_167_305_600 * SECOND, "-0001-12-31T00:00:00Z"),
        ("+10000-01-01T00:00:00Z", 253_402_300_800 * SECOND, "+10000-01-01T00:00:00Z"),
    ],
)
def test_rfc_3339_is_read_and_written_with_the_fewest_exact_digits(text: str, ns: int, spelled: str) -> None:
    instant = Timestamp.of(text)
    assert instant.ns == ns
    assert str(instant) == spelled


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00Z", "2026-02-30T00:00:00Z",
     "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z",
     "2026-01-01T00:00:61Z", "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+01:60", "2026-01-01T00:00:00.Z",
     "2026-01-01T00:00:00.1234567890Z", "2026-01-01T00:00:00Z ", " 2026-01-01T00:00:00Z",
     "٢٠٢٦-01-01T00:00:00Z", "2100-02-29T00:00:00Z", "+999999-01-01T00:00:00Z", "1900-01-01T00:00:00Z\n"],
)  # fmt: skip
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="timestamp"):
        Timestamp.of(text)


@pytest.mark.parametrize("value", [0, 1.5, None, True, b"2026-01-01T00:00:00Z", dt.date(2026, 1, 1)])
def test_another_type_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        Timestamp.of(value)


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(InvalidInput, match="naive"):
        Timestamp.of(dt.datetime(2026, 1, 1))


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 8_210_266_876_800 * SECOND, -8_334_601_228_801 * SECOND])
def test_nanoseconds_are_a_whole_number_in_range(value: Any) -> None:
    with pytest.raises(InvalidInput):
        Timestamp(value)


def test_a_leap_second_lies_between_its_neighbours() -> None:
    before, leap, after = map(
        Timestamp.of, ["2016-12-31T23:59:59.9Z", "2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00Z"]
    )
    assert before < leap < after
    assert str(leap) == "2016-12-31T23:59:60.500Z"
    assert Timestamp.of(str(leap)) == leap
    with pytest.raises(InvalidInput):
        Timestamp(1, leap=True).__class__(SECOND, leap=True)


def test_now_is_the_hosts_clock() -> None:
    assert abs(Timestamp.now().ns - dt.datetime.now(dt.UTC).timestamp() * SECOND) < 60 * SECOND
