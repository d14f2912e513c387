"""Trends of the last hour: each value at its time, and gaps."""

from __future__ import annotations

from rocketpy_broker.server.http.console.trends import MINUTE_MS, WIDTH, Point, lines
from tests.broker.http.console.topic_browser import Browser
from tests.broker.statistics.test_history import sampled
from tests.support.broker.running_broker import RunningBroker

NOW_MS = 1_700_000_000_000


def minutes(*ages: int, value: int = 1) -> list[Point]:
    """Returns points of minutes by their ages in minutes."""
    return [Point(NOW_MS - age * MINUTE_MS, value) for age in ages]


def places(line: str) -> list[float]:
    """Returns the places of a line from the left."""
    return [float(each.partition(",")[0]) for each in line.split()]


def test_a_value_stands_at_its_time() -> None:
    [line] = lines(minutes(3, 2, 1, 0), NOW_MS)
    assert places(line) == [WIDTH - 6, WIDTH - 4, WIDTH - 2, WIDTH]
    [line] = lines(minutes(60, 59), NOW_MS)
    assert places(line) == [0, 2]
    assert lines([], NOW_MS) == []


def test_minutes_without_the_broker_are_a_gap() -> None:
    first, second = lines(minutes(50, 49, 48, 5, 4), NOW_MS)
    assert places(first) == [20, 22, 24]
    assert places(second) == [110, 112]
    # A minute alone is seen, too.
    [alone] = lines(minutes(30), NOW_MS)
    assert places(alone) == [58, 60]
    # A clock that was set back.
    assert len(lines(minutes(5, 4, 20, 19), NOW_MS)) == 2


def test_a_value_that_is_not_known_is_no_gap() -> None:
    first, unknown, last = minutes(3, 2, 1)
    [line] = lines([first, unknown._replace(value=-1), last], NOW_MS)
    assert places(line) == [WIDTH - 6, WIDTH - 2]
    assert lines([unknown._replace(value=-1)], NOW_MS) == []


def test_the_largest_value_is_at_the_top() -> None:
    [line] = lines([Point(NOW_MS - MINUTE_MS, 0), Point(NOW_MS, 500)], NOW_MS)
    assert line == "118.0,23.0 120.0,1.0"


async def test_a_trend_parts_where_the_broker_stood_still(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await sampled(running_http)
    await sampled(running_http)
    browser = Browser(running_http)
    whole = (await browser.get("/")).body.count("<polyline")
    running_http.clock.advance(30 * MINUTE_MS)
    while len((await sampled(running_http)).minutes) < 4:
        pass
    assert (await browser.get("/")).body.count("<polyline") == 2 * whole
