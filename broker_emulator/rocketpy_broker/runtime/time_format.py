"""Readable times and durations, and the parsing of times."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from rocketpy_proto.counts import counted

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))
_UTC = re.compile(r"[zZ]$")


def time_text(time: datetime) -> str:
    """Returns a time in UTC, to the millisecond."""
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def time_of_ms(time_ms: int) -> str:
    """Returns a time in UTC for ms since 1970; a number of ms if `datetime` cannot hold it."""
    try:
        return time_text(EPOCH + timedelta(milliseconds=time_ms))
    except OverflowError:
        return f"{time_ms} ms since 1970"


def ms_of_time(time: datetime) -> int:
    """Returns ms since 1970, rounded up; 0 for times before 1970."""
    return max(-((EPOCH - time) // timedelta(milliseconds=1)), 0)


def duration_of_ms(duration_ms: int) -> str:
    """Returns a duration in the largest unit of which it is a whole number."""
    for name, unit_ms in _UNITS:
        count, rest_ms = divmod(duration_ms, unit_ms)
        if count and not rest_ms:
            return counted(count, name)
    return f"{duration_ms} ms"


def parsed_time(text: str) -> datetime:
    """Returns a time in ISO 8601 with a time zone. Raises ValueError with the fault."""
    try:
        # Python 3.10 does not parse the letter Z.
        time = datetime.fromisoformat(_UTC.sub("+00:00", text))
    except ValueError as error:
        raise ValueError(f"{text!r} is no time; write it like 2026-05-01T08:00:00Z") from error
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; end it with Z, or with +02:00")
    return time
