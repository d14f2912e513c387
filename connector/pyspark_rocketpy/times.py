"""Times in options: milliseconds since 1970, or ISO 8601.

Spark does not give Python sources the session time zone. A time without a zone is in option
`timeZone`, or in the machine's own zone. The latter is Spark's default for the session.
"""

from __future__ import annotations

import datetime as dt
import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark_rocketpy.json_values import whole

TIME_MS_MAX = 1 << 62
TIME_FORMS = (
    "milliseconds since 1970, such as 1767225600000, or an ISO time not before 1970, such as "
    "2026-01-01, 2026-01-01 00:00:00.5 or 2026-01-01T00:00:00+01:00"
)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)? ?([Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?", re.ASCII)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_NANOSECONDS_PER_MS = 1_000_000


def time_ms(value: object, zone: dt.tzinfo | None) -> int:
    """Returns ms since 1970, a fraction of a millisecond rounded up. Raises ValueError.

    A time without a zone is in `zone`; None is the machine's own. Spark's rules apply to clock
    changes: a skipped time uses the offset before, a repeated time means the first one.
    """
    if isinstance(value, str):
        text = value.strip()
        found = _iso_ms(text, zone) if _ISO.fullmatch(text) else int(text)
    else:
        found = whole(value)
    return whole(found, 0, TIME_MS_MAX)


def _iso_ms(text: str, zone: dt.tzinfo | None) -> int:
    match = _ISO.fullmatch(text)
    assert match is not None
    *numbers, fraction, offset = match.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    # The zone is applied below.
    local = dt.datetime(year, month, day, hour, minute, second)  # noqa: DTZ001
    zone = zone_of(offset) if offset else zone
    try:
        if zone is None:
            milliseconds = round(local.timestamp()) * 1_000
        else:
            milliseconds = (local.replace(tzinfo=zone) - _EPOCH) // dt.timedelta(milliseconds=1)
    except (OverflowError, OSError) as error:
        raise ValueError(text) from error
    return milliseconds - -int((fraction or "0").ljust(9, "0")) // _NANOSECONDS_PER_MS


def zone_of(text: str) -> dt.tzinfo:
    """Returns the zone with this name or offset. Raises ValueError."""
    text = text.strip()
    if text.upper() in ("Z", "UTC", "GMT"):
        return dt.timezone.utc
    offset = _OFFSET.fullmatch(text)
    if offset is not None:
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if minutes > 59:
            raise ValueError(text)
        distance = dt.timedelta(hours=hours, minutes=minutes)
        return dt.timezone(-distance if offset[1] == "-" else distance)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(text) from error
