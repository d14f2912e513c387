"""Readable times and durations for errors and terminals."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from rocketpy_proto.counts import counted

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))


def time_text(time: datetime) -> str:
    """Returns a time in UTC, to the millisecond."""
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def time_of_ms(time_ms: int) -> str:
    """Returns a time in UTC for ms since 1970; a number where no calendar holds it."""
    try:
        return time_text(EPOCH + timedelta(milliseconds=time_ms))
    except OverflowError:
        return f"{time_ms} ms since 1970"


def ms_of_time(time: datetime) -> int:
    """Returns ms since 1970, rounded up; 0 for earlier times."""
    return max(-((EPOCH - time) // timedelta(milliseconds=1)), 0)


def duration_of_ms(duration_ms: int) -> str:
    """Returns a duration in the largest unit of which it is a whole number."""
    for name, unit_ms in _UNITS:
        count, rest_ms = divmod(duration_ms, unit_ms)
        if count and not rest_ms:
            return counted(count, name)
    return f"{duration_ms} ms"
