"""Times and durations as people read them."""

from __future__ import annotations

import pytest

from rocketpy_broker.runtime.time_format import duration_of_ms, time_of_ms


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (259_200_000, "3 days"),
        (86_400_000, "1 day"),
        (90_000_000, "25 hours"),
        (5_400_000, "90 minutes"),
        (1_000, "1 second"),
        (1_001, "1001 ms"),
        (0, "0 ms"),
    ],
)
def test_a_duration_is_told_in_the_largest_unit_that_it_is_whole_in(
    duration_ms: int, text: str
) -> None:
    assert duration_of_ms(duration_ms) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_777_622_400_250, "2026-05-01T08:00:00.250Z"),
        (999_999_999_999_999, "999999999999999 ms since 1970"),
    ],
)
def test_a_time_is_told_in_utc_as_far_as_the_calendar_goes(time_ms: int, text: str) -> None:
    assert time_of_ms(time_ms) == text
