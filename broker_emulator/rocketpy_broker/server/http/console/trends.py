"""Trends of the last hour, as lines over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rocketpy_proto.rocketpy.v1 import admin_pb2

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
# A longer time between the ends of two minutes is a gap.
GAP_MS = 1.5 * MINUTE_MS
# Width and height of the drawing.
WIDTH, HEIGHT = 120, 24


class Point(NamedTuple):
    """A value at the end of a minute; below 0 it is not known."""

    end_ms: int
    value: int


def lag_points(
    minutes: Iterable[admin_pb2.HistoryMinute], lags: Iterable[int]
) -> tuple[Point, ...]:
    """Returns the lags of a group in the minutes of an answer."""
    return tuple(
        Point(minute.end_timestamp_ms, lag) for minute, lag in zip(minutes, lags, strict=True)
    )


def lines(points: Iterable[Point], now_ms: int) -> list[str]:
    """Returns the polylines of a trend: one for each time without a gap."""
    parts: list[list[Point]] = []
    before_ms = -GAP_MS
    for each in points:
        if not 0 < each.end_ms - before_ms <= GAP_MS:
            parts.append([])
        before_ms = each.end_ms
        if each.value >= 0:
            parts[-1].append(each)
    highest = max([each.value for part in parts for each in part] + [1])
    return [_line(part, now_ms, highest) for part in parts if part]


def _line(part: list[Point], now_ms: int, highest: int) -> str:
    if len(part) == 1:
        # A single point becomes a line that is one minute long.
        part = [Point(part[0].end_ms - MINUTE_MS, part[0].value), *part]
    places = []
    for each in part:
        x = min(max(WIDTH * (1 - (now_ms - each.end_ms) / HOUR_MS), 0), WIDTH)
        y = HEIGHT - 1 - each.value * (HEIGHT - 2) / highest
        places.append(f"{x:.1f},{y:.1f}")
    return " ".join(places)
