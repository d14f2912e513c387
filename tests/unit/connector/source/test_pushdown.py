"""Spark's filters on a batch's ranges: fewer rows, and never one too few."""

from __future__ import annotations

import datetime as dt
import operator
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_rocketpy.offsets import Bounds, Positions, QueueBounds
from pyspark_rocketpy.source.pushdown import FALL_MS_MAX, PushedFilters
from pyspark_rocketpy.transport.values import QueueTime
from tests.support.queues import Q0, Q1

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
# Two and a half units are the fall of store times for which filters allow.
UNIT = FALL_MS_MAX * 2 // 5
# Store times in ms of the messages of each queue; queue 1 has lost its first three.
TIMES = {
    Q0: [unit * UNIT for unit in (10, 10, 20, 30, 30)],
    Q1: [unit * UNIT for unit in (10, 15, 20, 25, 30, 35, 40)],
}
MINIMUM = {Q0: 0, Q1: 3}
BOUNDS = {"T": {i: QueueBounds(MINIMUM[i], len(times), -1) for i, times in TIMES.items()}}
BEGIN: Positions = {"T": MINIMUM}
END: Positions = {"T": {Q0: 5, Q1: 6}}
COMPARISONS: dict[type[Any], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
}


def search(times: Sequence[QueueTime]) -> list[int | None]:
    """Answers as a broker does."""
    found = []
    for one in times:
        assert one.timestamp_ms >= 0
        stored, low = TIMES[one.queue], MINIMUM[one.queue]
        offset = bisect_left(stored, one.timestamp_ms, low)
        found.append(offset if offset < len(stored) else None)
    return found


def rows(begin: Positions, end: Positions) -> list[dict[str, Any]]:
    """Returns the messages of ranges, with the columns that filters use."""
    return [
        {
            "queueId": i.queue_id,
            "queueOffset": offset,
            "storeTimestamp": EPOCH + dt.timedelta(milliseconds=TIMES[i][offset]),
        }
        for i in TIMES
        for offset in range(begin["T"][i], end["T"][i])
    ]


def passes(row: dict[str, Any], one: Any) -> bool:
    """True if a row passes a comparison in Spark."""
    return COMPARISONS[type(one)](row[one.attribute[0]], one.value)


def passing(found: list[dict[str, Any]], filters: list[Filter]) -> list[dict[str, Any]]:
    """Returns the rows that pass all filters."""
    return [row for row in found if all(passes(row, one) for one in filters)]


def narrowed(*filters: Filter) -> tuple[Positions, Positions]:
    """Returns the remaining ranges."""
    return PushedFilters.of(filters).applied(BEGIN, END, BOUNDS, search)


moments = st.integers(-2_000, 45_000).map(lambda us: EPOCH + dt.timedelta(microseconds=us * UNIT))
values = {
    "queueId": st.integers(0, 2),
    "queueOffset": st.integers(-1, 8),
    "storeTimestamp": moments,
}


@st.composite
def comparisons(draw: st.DrawFn) -> Filter:
    """Draws a filter on a column that ranges depend on."""
    column = draw(st.sampled_from(sorted(values)))
    kind = draw(st.sampled_from(list(COMPARISONS)))
    one = values[column]
    value = draw(st.lists(one, max_size=3).map(tuple) if kind is In else one)
    return kind((column,), value)  # type: ignore[no-any-return]


@given(st.lists(comparisons(), max_size=4))
def test_no_row_that_passes_is_left_out(filters: list[Filter]) -> None:
    wanted = passing(rows(BEGIN, END), filters)
    begin, end = narrowed(*filters)
    assert passing(rows(begin, end), filters) == wanted
    for i in TIMES:
        assert BEGIN["T"][i] <= begin["T"][i] <= end["T"][i] <= END["T"][i]


@given(comparisons())
def test_ranges_and_times_are_as_narrow_as_one_filter_lets_them(one: Filter) -> None:
    begin, end = narrowed(one)
    [column], value = one.attribute, one.value  # type: ignore[attr-defined]
    if column == "queueId" or isinstance(one, In):
        return
    left = [row for row in rows(begin, end) if not passes(row, one)]
    if column == "storeTimestamp":
        near = dt.timedelta(milliseconds=FALL_MS_MAX + 1)
        left = [row for row in left if abs(row[column] - value) > near]
    assert left == []


def test_k05_a_row_has_every_key_of_an_array_that_it_equals() -> None:
    two = PushedFilters.of(
        [EqualTo(("keys",), ["b", "", "a", None]), EqualNullSafe(("keys",), ["c"])]
    )
    assert two.keys == {"a", "b", "c"}
    assert PushedFilters.of([EqualTo(("keys",), [])]).keys == set()
    assert PushedFilters.of([In(("keys",), (["a"], ["b"]))]).keys == set()


def test_queues_are_left_out() -> None:
    assert narrowed(EqualTo(("queueId",), 1)) == ({"T": {Q0: 0, Q1: 3}}, {"T": {Q0: 0, Q1: 6}})
    assert narrowed(In(("queueId",), (0, None)))[1] == {"T": {Q0: 5, Q1: 3}}


@pytest.mark.parametrize(
    "one",
    [
        IsNotNull(("queueOffset",)),
        Not(EqualTo(("queueId",), 1)),
        EqualNullSafe(("tags",), None),
        EqualTo(("properties", "queueId"), 7),
        EqualTo(("body",), b"x"),
    ],
)
def test_other_filters_are_left_to_spark(one: Filter) -> None:
    assert PushedFilters.of([one]) == PushedFilters()


def test_s5_what_is_gone_is_still_missed_where_it_may_have_passed() -> None:
    lost: Positions = {"T": {Q0: 0, Q1: 1}}
    young = GreaterThanOrEqual(("storeTimestamp",), EPOCH + dt.timedelta(milliseconds=15 * UNIT))
    begin, _ = PushedFilters.of([young]).applied(lost, END, BOUNDS, search)
    assert begin == {"T": {Q0: 2, Q1: 1}}
    behind = GreaterThan(("queueOffset",), 3)
    begin, _ = PushedFilters.of([behind]).applied(lost, END, BOUNDS, search)
    assert begin == {"T": {Q0: 4, Q1: 4}}


def test_c03_messages_before_a_fall_of_store_times_pass_a_filter() -> None:
    stored = [100, 300, 150, 160]
    bounds: Bounds = {"T": {Q0: QueueBounds(0, len(stored), -1)}}

    def after_the_last_earlier(times: Sequence[QueueTime]) -> list[int | None]:
        """Answers as the broker does after its clock was corrected."""
        found = [
            1 + max((i for i, ms in enumerate(stored) if ms < one.timestamp_ms), default=-1)
            for one in times
        ]
        return [offset if offset < len(stored) else None for offset in found]

    def kept(one: Filter) -> set[int]:
        pushed = PushedFilters.of([one])
        begin, end = pushed.applied({"T": {Q0: 0}}, {"T": {Q0: 4}}, bounds, after_the_last_earlier)
        return {stored[i] for i in range(begin["T"][Q0], end["T"][Q0])}

    moment = EPOCH + dt.timedelta(milliseconds=200)
    assert kept(LessThan(("storeTimestamp",), moment)) >= {100, 150, 160}
    assert kept(GreaterThanOrEqual(("storeTimestamp",), moment)) >= {300}


def test_c03_tags_of_filters_and_of_the_option_are_both_asked_for() -> None:
    two = PushedFilters.of([In(("tags",), ("a", "b", None)), In(("tags",), ("b", "c"))])
    assert two.tags_of(None) == ("b",)
    assert PushedFilters.of([In(("tags",), ("a", "b"))]).tags_of(("b", "c")) == ("b",)
    assert PushedFilters.of([EqualTo(("tags",), "a")]).tags_of(("b",)) == ()
    assert PushedFilters().tags_of(("b",)) == ("b",)
