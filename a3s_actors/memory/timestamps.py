"""`Timestamp`: one instant, exact to the nanosecond, and its RFC 3339 text."""

from __future__ import annotations

import datetime as dt
import functools
import re
import time
from typing import Any

import attrs

from a3s_actors.memory.errors import InvalidInput

__all__ = ["TimeLike", "Timestamp", "to_timestamp"]

_NANOS = 1_000_000_000
_DAY = 86_400
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# Years that the text form can name: a sign and up to six digits.
_MIN_NS = -8_334_601_228_800 * _NANOS  # -262143-01-01T00:00:00Z
_MAX_NS = 8_210_266_876_800 * _NANOS - 1  # the last nanosecond of 262142
_RFC3339 = re.compile(
    r"([+-]\d{4,6}|\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))",
    re.ASCII,
)


def _days_from_civil(year: int, month: int, day: int) -> int:
    # Howard Hinnant's "days_from_civil": the proleptic Gregorian calendar without datetime's year limits.
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _civil_from_days(days: int) -> tuple[int, int, int]:
    days += 719_468
    era = days // 146_097
    doe = days - era * 146_097
    yoe = (doe - doe // 1460 + doe // 36_524 - doe // 146_096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = mp + (3 if mp < 10 else -9)
    return yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) // 5 + 1


def _month_days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in {4, 6, 9, 11} else 31


def _valid_ns(_instance: Any, _attribute: Any, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput("timestamp", "give whole nanoseconds since 1970-01-01T00:00:00Z")
    if not _MIN_NS <= value <= _MAX_NS:
        raise InvalidInput("timestamp", "outside the years -262143 to 262142")


@attrs.frozen(order=False)
class Timestamp:
    """An instant in UTC.

    Args:
        ns: whole nanoseconds since 1970-01-01T00:00:00Z; may be negative.
        leap: the instant lies in a leap second, as 23:59:60.5. `ns` then counts as POSIX does, on into the
            following second, and the instant sorts before that second. Only the text form makes one.

    Raises:
        InvalidInput: not an integer, or outside the years -262143 to 262142; or a leap second that does not
            end a minute.
    """

    ns: int = attrs.field(validator=_valid_ns)
    leap: bool = attrs.field(default=False, kw_only=True)

    @leap.validator
    def _ends_a_minute(self, _attribute: object, value: object) -> None:
        if not isinstance(value, bool):
            raise InvalidInput("timestamp", "leap is True or False")
        if value and self.ns // _NANOS % 60 != 0:
            raise InvalidInput("timestamp", "a leap second ends a minute")

    @property
    def order_key(self) -> int:
        """A whole number that sorts as instants do, leap seconds included. Not a count of nanoseconds."""
        seconds, nanos = divmod(self.ns, _NANOS)
        return (seconds - 1) * 2 * _NANOS + _NANOS + nanos if self.leap else seconds * 2 * _NANOS + nanos

    def __lt__(self, other: Timestamp) -> bool:
        return self.order_key < other.order_key if self.leap or other.leap else self.ns < other.ns

    def __le__(self, other: Timestamp) -> bool:
        return not other < self

    def __gt__(self, other: Timestamp) -> bool:
        return other < self

    def __ge__(self, other: Timestamp) -> bool:
        return not self < other

    @classmethod
    def now(cls) -> Timestamp:
        """Return the host's wall clock. For hosts; the kernel never calls it."""
        return cls(time.time_ns())

    @classmethod
    def from_datetime(cls, value: dt.datetime) -> Timestamp:
        """Return the instant of an aware datetime, exactly (microseconds).

        Raises:
            InvalidInput: the datetime is naive.
        """
        if value.tzinfo is None or value.utcoffset() is None:
            raise InvalidInput("timestamp", "a naive datetime names no instant; attach a time zone")
        delta = value - _EPOCH
        return cls((delta.days * _DAY + delta.seconds) * _NANOS + delta.microseconds * 1000)

    @classmethod
    def parse(cls, text: str) -> Timestamp:
        """Return the instant that an RFC 3339 text names; up to nine fractional digits, any offset.

        Raises:
            InvalidInput: it is no text, not RFC 3339 with an offset, or names no real instant.
        """
        if not isinstance(text, str):
            raise InvalidInput("timestamp", f"must be text, not {type(text).__name__}")
        ns, leap = _parse(text)
        return cls(ns, leap=leap)

    @classmethod
    def of(cls, value: Timestamp | dt.datetime | str) -> Timestamp:
        """Return `value` as a Timestamp, whichever of the three accepted forms it has.

        Raises:
            InvalidInput: another type, a naive datetime, or a text that is not RFC 3339.
        """
        if isinstance(value, Timestamp):
            return value
        if isinstance(value, dt.datetime):
            return cls.from_datetime(value)
        if isinstance(value, str):
            return cls.parse(value)
        raise InvalidInput("timestamp", "give a Timestamp, an aware datetime or an RFC 3339 text")

    def to_datetime(self) -> dt.datetime:
        """Return an aware UTC datetime, cut down to microseconds.

        Raises:
            OverflowError: the year is outside datetime's 1 to 9999.
        """
        return _EPOCH + dt.timedelta(microseconds=self.ns // 1000)

    def __str__(self) -> str:
        """Return RFC 3339 with Z and the fewest of 0, 3, 6 or 9 fractional digits that are exact."""
        return _format(self.ns, self.leap)

    def __repr__(self) -> str:
        return f"Timestamp({self})"


TimeLike = Timestamp | dt.datetime | str
"""What may stand where an instant is wanted."""


def to_timestamp(value: TimeLike) -> Timestamp:
    """Return `value` as a Timestamp; the converter of every time field. Raises as `Timestamp.of`."""
    return Timestamp.of(value)


@functools.lru_cache(maxsize=4096)
def _day_seconds(text: str) -> int | None:
    """Seconds from the epoch to a day of the form 2026-01-31; None for what is none, the slow way says why."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is None:
        return None
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:])
    if not 1 <= month <= 12 or not 1 <= day <= _month_days(year, month):
        return None
    return _days_from_civil(year, month, day) * _DAY


@functools.lru_cache(maxsize=4096)
def _clock_seconds(text: str) -> int | None:
    """Seconds from midnight to a time of the form 23:59:59; None for what is none, and for leap seconds."""
    if re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d", text, re.ASCII) is None:
        return None
    return int(text[:2]) * 3600 + int(text[3:5]) * 60 + int(text[6:])


def _parse_canonical(text: str) -> int | None:
    """Read the form that is stored, several times as fast; None for any other."""
    if len(text) < 20 or text[10] != "T" or text[-1] != "Z" or not text.isascii():
        return None
    day, clock = _day_seconds(text[:10]), _clock_seconds(text[11:19])
    if day is None or clock is None:
        return None
    digits = text[20:-1]
    if len(text) == 20:
        return (day + clock) * _NANOS
    if text[19] != "." or not digits.isdigit() or len(digits) > 9:
        return None
    return (day + clock) * _NANOS + int(digits.ljust(9, "0"))


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[int, bool]:
    canonical = _parse_canonical(text)
    if canonical is not None:
        return canonical, False
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise InvalidInput("timestamp", "write RFC 3339 with an offset, as 2026-01-31T08:00:00.5Z")
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    if not 1 <= month <= 12 or not 1 <= day <= _month_days(year, month):
        raise InvalidInput("timestamp", "no such day in the calendar")
    if hour > 23 or minute > 59 or second > 60:
        raise InvalidInput("timestamp", "no such time of day")
    seconds = _days_from_civil(year, month, day) * _DAY + hour * 3600 + minute * 60 + second
    if match[8] is None:
        off_hour, off_minute = int(match[10]), int(match[11])
        if off_hour > 23 or off_minute > 59:
            raise InvalidInput("timestamp", "no such offset from UTC")
        offset = off_hour * 3600 + off_minute * 60
        seconds += offset if match[9] == "-" else -offset
    return seconds * _NANOS + int((match[7] or "").ljust(9, "0")), second == 60


@functools.lru_cache(maxsize=4096)
def _format(ns: int, leap: bool) -> str:
    seconds, nanos = divmod(ns, _NANOS)
    seconds -= leap
    days, rest = divmod(seconds, _DAY)
    year, month, day = _civil_from_days(days)
    if nanos == 0:
        fraction = ""
    elif nanos % 1_000_000 == 0:
        fraction = f".{nanos // 1_000_000:03d}"
    elif nanos % 1000 == 0:
        fraction = f".{nanos // 1000:06d}"
    else:
        fraction = f".{nanos:09d}"
    years = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{years}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60 + leap:02d}{fraction}Z"
