"""Times in options: milliseconds, and ISO 8601 with and without a zone."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import pytest

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.times import TIME_MS_MAX, time_ms, zone_of

NEW_YEAR_MS = 1_767_225_600_000
HOUR_MS = 3_600_000
UTC = dt.timezone.utc
LEAST = {"endpoints": "h:1", "topic": "T"}
FORMS = "milliseconds since 1970, such as .* ISO time"


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sets the machine's zone."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "after_ms"),
    [
        ("2026-01-01", 0),
        (" 2026-01-01 ", 0),
        ("2026-01-01 00:00", 0),
        ("2026-01-01 00:00:00", 0),
        ("2026-01-01T00:00:00", 0),
        ("2026-01-01t00:00:01.5", 1_500),
        ("2026-01-01T00:00:00.123456", 124),
        ("2026-01-01T00:00:00.123000000", 123),
        ("2026-01-01T00:00:00.000000001", 1),
        ("2026-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00 z", 0),
        ("2026-01-01T01:30:00+01:30", 0),
        ("2026-01-01 00:00-05", 5 * HOUR_MS),
        ("2026-01-01 00:00:00 +0100", -HOUR_MS),
        (str(NEW_YEAR_MS), 0),
        (NEW_YEAR_MS, 0),
    ],
)
def test_times_are_milliseconds_or_iso(text: object, after_ms: int) -> None:
    assert time_ms(text, UTC) == NEW_YEAR_MS + after_ms


def test_a_time_without_a_zone_is_of_the_one_that_is_given_or_the_machine_s(new_york: None) -> None:
    assert time_ms("2026-01-01", zone_of("Asia/Tokyo")) == NEW_YEAR_MS - 9 * HOUR_MS
    assert time_ms("2026-07-01", zone_of("Europe/Berlin")) % (24 * HOUR_MS) == 22 * HOUR_MS
    assert time_ms("2026-01-01", None) == NEW_YEAR_MS + 5 * HOUR_MS
    assert time_ms("2026-01-01T00:00Z", None) == NEW_YEAR_MS


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-03-08 01:59:59", "2026-03-08T01:59:59-05:00"),
        ("2026-03-08 02:00", "2026-03-08T02:00-05:00"),
        ("2026-03-08 02:30:00.5", "2026-03-08T03:30:00.5-04:00"),
        ("2026-03-08 03:00", "2026-03-08T03:00-04:00"),
        ("2026-11-01 01:30", "2026-11-01T01:30-04:00"),
        ("2026-11-01 02:00", "2026-11-01T02:00-05:00"),
    ],
)
def test_times_that_the_clock_skips_or_has_twice_are_as_spark_s(
    new_york: None, text: str, same: str
) -> None:
    for zone in (None, zone_of("America/New_York")):
        assert time_ms(text, zone) == time_ms(same, UTC)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "yesterday",
            "2026-1-1",
            "2026-13-01",
            "2026-02-30",
            "2026-01-01T24:00",
            "20260101T00",
        ),
        *("2026-01-01T00:00:60", "2026-01-01T00:00+24:00", "2026-01-01T00:00+01:60", "1.5", "-1"),
        *("1969-12-31", "0001-01-01", "0000-01-01", "2026-01-01T", "2026-01-01 00", "now"),
        *(str(TIME_MS_MAX + 1), "9" * 5_000, -1, TIME_MS_MAX + 1, 1.5, True, None, [], {}),
    ],
)
def test_what_is_no_time_is_refused(value: object) -> None:
    for zone in (UTC, None, zone_of("-12:00")):
        with pytest.raises(ValueError):
            time_ms(value, zone)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-12:00", "9999-12-31", "1970-01-01", "0"])
def test_the_first_and_the_last_times_are_times(text: str) -> None:
    assert 0 <= time_ms(text, UTC) <= TIME_MS_MAX
    assert 0 <= time_ms(text, zone_of("-12:00")) <= TIME_MS_MAX


@pytest.mark.parametrize("name", ["startingTimestamp", "endingTimestamp"])
def test_an_option_s_time_is_refused_with_both_forms(name: str) -> None:
    for wrong in ("yesterday", "-1", "1969-12-31", "2026-11-25 25:00", "0001-01-01"):
        with pytest.raises(OptionError, match=f"option {name} is '{wrong}'; accepted: {FORMS}"):
            SourceOptions.parse({**LEAST, name: wrong})


def test_options_take_iso_times_in_the_zone_of_an_option() -> None:
    given = {"startingTimestamp": "2026-01-01 00:00:00", "endingTimestamp": "2026-01-01T00:00Z"}
    options = SourceOptions.parse({**LEAST, **given, "timeZone": "+02:00"})
    assert options.starting_timestamp == NEW_YEAR_MS - 2 * HOUR_MS
    assert options.ending_timestamp == NEW_YEAR_MS
    for zone in ("Mars/Phobos", "../UTC", "", "+25:00", "9"):
        with pytest.raises(OptionError, match="option timeZone is"):
            SourceOptions.parse({**LEAST, "timeZone": zone})
