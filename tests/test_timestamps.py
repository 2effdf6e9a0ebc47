"""Instants: exact to the nanosecond, one spelling, and no naive datetime."""

from __future__ import annotations

import calendar
import copy
import datetime as dt
import pickle
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


@given(st.datetimes(min_value=dt.datetime(1, 1, 1), timezones=st.just(dt.UTC)))
def test_the_calendar_is_that_of_the_standard_library(value: dt.datetime) -> None:
    text = value.isoformat().replace("+00:00", "Z")
    assert Timestamp.parse(text) == Timestamp.of(value)
    assert str(Timestamp.of(value)).startswith(text[:19])


@pytest.mark.parametrize("year", [1600, 1700, 1900, 1970, 2000, 2004, 2023, 2100, 2400])
@pytest.mark.parametrize("form", ["{}T00:00:00Z", "{} 00:00:00+00:00"])  # read on two ways
def test_every_month_has_its_days_and_no_more(year: int, form: str) -> None:
    for month in range(1, 13):
        days = calendar.monthrange(year, month)[1]
        last = dt.datetime(year, month, days, tzinfo=dt.UTC)
        assert Timestamp.parse(form.format(f"{year}-{month:02}-{days:02}")) == Timestamp.of(last)
        for day in (0, days + 1):
            with pytest.raises(InvalidInput):
                Timestamp.parse(form.format(f"{year}-{month:02}-{day:02}"))


@pytest.mark.parametrize("year", ["-4713", "-0400", "-0001", "+10000", "+12000", "+100000"])
def test_leap_years_go_on_beyond_the_standard_librarys_years(year: str) -> None:
    number = int(year)
    leap = number % 4 == 0 and (number % 100 != 0 or number % 400 == 0)
    if leap:
        assert str(Timestamp.parse(f"{year}-02-29T12:00:00Z")) == f"{year}-02-29T12:00:00Z"
    else:
        with pytest.raises(InvalidInput, match="calendar"):
            Timestamp.parse(f"{year}-02-29T12:00:00Z")
    day = Timestamp.parse(f"{year}-03-01T00:00:00Z").ns - Timestamp.parse(f"{year}-02-28T00:00:00Z").ns
    assert day == (2 if leap else 1) * 86_400 * SECOND


def test_the_days_at_the_ends_of_months_and_years_are_those_of_the_standard_library() -> None:
    for year in range(1600, 2001):  # a whole cycle of the calendar
        for month, day in ((1, 1), (2, 28), (3, 1), (12, 31)):
            days = dt.date(year, month, day).toordinal() - dt.date(1970, 1, 1).toordinal()
            assert str(Timestamp(days * 86_400 * SECOND)) == f"{year}-{month:02}-{day:02}T00:00:00Z"


@given(
    st.integers(-62_000_000_000, 250_000_000_000), st.sampled_from(["", ".5", ".123456789", ".000000001"]), st.data()
)
def test_the_stored_form_is_read_the_quick_way_as_any_other_is(
    seconds: int, fraction: str, data: st.DataObject
) -> None:
    stored = f"{str(Timestamp(seconds * SECOND))[:-1]}{fraction}Z"
    place = data.draw(st.integers(0, len(stored) - 1))
    character = data.draw(st.sampled_from("0123456789:-.TZ+ x٣"))
    one = stored if place == 10 else stored[:place] + character + stored[place + 1 :]
    other = f"{one[:10]}t{one[11:]}"  # RFC 3339 allows a small t, the stored form has none
    outcomes: list[Any] = []
    for text in (one, other):
        try:
            outcomes.append(Timestamp.parse(text))
        except InvalidInput as error:
            outcomes.append(error.fields())
    assert outcomes[0] == outcomes[1]


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
     "2026-01-01T00:00:00.1234567890Z",
     "2026-01-01T00:00:00,5Z", "2026-01-01T00:00:00x5Z", "2026-01-01_00:00:00Z",
     "2026-01-01T00:00:00Z ", " 2026-01-01T00:00:00Z",
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
    class Undecided(dt.tzinfo):
        def utcoffset(self, _moment: dt.datetime | None) -> None:
            return None

        dst = utcoffset

        def tzname(self, _moment: dt.datetime | None) -> str:
            return "somewhere"

    for naive in (dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=Undecided())):
        with pytest.raises(InvalidInput, match="naive"):
            Timestamp.of(naive)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 8_210_266_876_800 * SECOND, -8_334_601_228_801 * SECOND])
def test_nanoseconds_are_a_whole_number_in_range(value: Any) -> None:
    with pytest.raises(InvalidInput):
        Timestamp(value)


def test_a_leap_second_lies_between_its_neighbours() -> None:
    before, leap, after = map(
        Timestamp.of, ["2016-12-31T23:59:59.9Z", "2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00Z"]
    )
    assert before < leap < after
    assert not leap < leap
    assert leap <= leap
    assert str(leap) == "2016-12-31T23:59:60.500Z"
    assert Timestamp.of(str(leap)) == leap
    for ns in (SECOND, 59 * SECOND, 61 * SECOND, -SECOND):
        with pytest.raises(InvalidInput, match="minute"):
            Timestamp(ns, leap=True)
    for wrong in (1, "yes", None):
        with pytest.raises(InvalidInput):
            Timestamp(60 * SECOND, leap=wrong)  # type: ignore[arg-type]


def test_a_leap_second_may_be_told_with_any_offset_of_whole_minutes() -> None:
    for text in ("2017-01-01T05:29:60+05:30", "2016-12-31T15:59:60-08:00", "2016-12-31t23:59:60.000z"):
        assert str(Timestamp.of(text)) == "2016-12-31T23:59:60Z"


@given(st.integers(-138_910_020_480, 136_837_781_279), st.integers(0, SECOND - 1))
def test_every_leap_second_comes_back_from_its_text_and_keeps_its_place(minute: int, nanos: int) -> None:
    leap = Timestamp(minute * 60 * SECOND + nanos, leap=True)
    assert Timestamp.parse(str(leap)) == leap
    assert ":60" in str(leap)
    following = Timestamp(minute * 60 * SECOND)
    assert leap < following
    assert not following <= leap
    assert leap != Timestamp(leap.ns)
    if minute > -138_910_020_480:
        assert Timestamp(following.ns - 1) < leap


@given(WHOLE, st.integers(-(23 * 60 + 59), 23 * 60 + 59))
def test_an_offset_names_the_same_instant(ns: int, minutes: int) -> None:
    try:
        local = str(Timestamp(ns + minutes * 60 * SECOND))
    except InvalidInput:
        return
    sign = "-" if minutes < 0 else "+"
    assert Timestamp.parse(f"{local[:-1]}{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}") == Timestamp(ns)


@given(WHOLE)
def test_a_text_has_0_3_6_or_9_digits_and_no_fewer_would_do(ns: int) -> None:
    _, _, fraction = str(Timestamp(ns)).rstrip("Z").partition(".")
    assert len(fraction) in {0, 3, 6, 9}
    assert not fraction.endswith("000")
    assert int(fraction.ljust(9, "0") or 0) == ns % SECOND


def test_the_range_is_that_of_six_digit_years() -> None:
    first, last = "-262143-01-01T00:00:00Z", "+262142-12-31T23:59:59.999999999Z"
    assert str(Timestamp.of(first)) == first
    assert str(Timestamp.of(last)) == last
    for text in ("-262144-12-31T23:59:59.999999999Z", "+262143-01-01T00:00:00Z"):
        with pytest.raises(InvalidInput):
            Timestamp.of(text)
    for instant in (Timestamp.of(first), Timestamp.of(last)):
        with pytest.raises(OverflowError):
            instant.to_datetime()


def test_a_datetime_is_cut_down_to_microseconds_never_rounded_up() -> None:
    assert Timestamp(1999).to_datetime() == dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.UTC)
    assert Timestamp(-1).to_datetime() == dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)


def test_an_instant_is_a_value() -> None:
    instant = Timestamp.of("2016-12-31T23:59:60.5Z")
    assert pickle.loads(pickle.dumps(instant)) == copy.deepcopy(instant) == instant
    assert hash(Timestamp.of("2026-01-01T01:00:00+01:00")) == hash(Timestamp.of("2026-01-01T00:00:00Z"))
    assert repr(Timestamp(0)) == "Timestamp(1970-01-01T00:00:00Z)"
    assert Timestamp.of(instant) is instant


def test_now_is_the_hosts_clock() -> None:
    assert abs(Timestamp.now().ns - dt.datetime.now(dt.UTC).timestamp() * SECOND) < 60 * SECOND


@pytest.mark.parametrize("value", [5, None, b"2026-01-01T00:00:00Z", ["2026-01-01T00:00:00Z"], 1.5])
def test_only_a_text_can_be_parsed(value: Any) -> None:
    with pytest.raises(InvalidInput, match="must be text"):
        Timestamp.parse(value)
