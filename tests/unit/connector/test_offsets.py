"""Offsets, positions and plans: pure functions, judged by properties."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy import positions
from pyspark_rocketpy.client import Bounds, QueueBounds
from pyspark_rocketpy.errors import DataLossError, OffsetError, OptionError
from pyspark_rocketpy.offsets import (
    Positions,
    QueueRange,
    begin_of,
    first_offset,
    next_offset,
    parse_offsets_json,
    positions_of,
)
from pyspark_rocketpy.planning import (
    RECORDS_PER_TASK_MIN,
    limit_positions,
    plan_tasks,
    ranges_between,
)

GROUP = "my-group"
COUNTS = st.dictionaries(
    st.sampled_from(["A", "B", "C"]),
    st.dictionaries(st.integers(0, 5), st.integers(0, 50_000), min_size=1),
)


def bounds(low: int, high: int, committed: int = -1) -> Bounds:
    return {"T": {0: QueueBounds(low, high, committed)}}


def shifted(counts: Positions, begin: int = 7) -> Positions:
    """Positions at which every queue begins."""
    return {topic: dict.fromkeys(queues, begin) for topic, queues in counts.items()}


def added(begin: Positions, counts: Positions) -> Positions:
    """`begin` plus what each queue holds."""
    return {
        topic: {queue_id: begin[topic][queue_id] + count for queue_id, count in queues.items()}
        for topic, queues in counts.items()
    }


def test_k01_the_offset_json_has_the_shape_of_consumer_offset_json() -> None:
    first = first_offset({"TopicTest": {1: 5, 0: 3}}, GROUP)
    assert json.dumps(first) == (
        '{"v": 1, "first": true, "offsetTable": {"TopicTest@my-group": {"0": 3, "1": 5}}}'
    )
    following = next_offset({"TopicTest": {0: 9, 1: 5}}, first, GROUP)
    assert json.dumps(following) == (
        '{"v": 1, "offsetTable": {"TopicTest@my-group": {"0": 9, "1": 5}}, '
        '"base": {"TopicTest@my-group": {"0": 3, "1": 5}}}'
    )
    assert positions_of(following) == {"TopicTest": {0: 9, 1: 5}}


def test_k01_the_first_batch_begins_where_its_log_says() -> None:
    logged = first_offset({"T": {0: 100}}, GROUP)
    end = next_offset({"T": {0: 115}}, logged, GROUP)
    answered_later = first_offset({"T": {0: 110}}, GROUP)
    assert begin_of(answered_later, end) == {"T": {0: 100}}


def test_k01_an_empty_first_batch_that_is_run_again_begins_at_its_end() -> None:
    end = first_offset({"T": {0: 100}}, GROUP)
    start = first_offset({"T": {0: 110}}, GROUP)
    assert begin_of(start, end) == positions_of(end)


def test_a_later_batch_begins_at_its_start() -> None:
    first = first_offset({"T": {0: 1}}, GROUP)
    second = next_offset({"T": {0: 5}}, first, GROUP)
    third = next_offset({"T": {0: 8}}, second, GROUP)
    assert begin_of(second, third) == {"T": {0: 5}}
    assert third["base"] == first["offsetTable"]


def test_a_topic_with_an_at_sign_in_the_group_is_told_apart() -> None:
    assert positions_of(first_offset({"T": {0: 1}}, "g")) == {"T": {0: 1}}


@pytest.mark.parametrize("offset", [{"v": 2, "offsetTable": {}}, {}, {"v": 1, "offsetTable": 3}])
def test_a_checkpoint_of_another_kind_is_named(offset: dict[str, object]) -> None:
    with pytest.raises(OffsetError, match="checkpoint"):
        positions_of(offset)


@pytest.mark.parametrize("text", ["[]", "3", '{"T":3}', '{"T":{"x":1}}', '{"T":{"0":1.5}}', "{"])
def test_malformed_offsets_are_named(text: str) -> None:
    with pytest.raises(OffsetError, match="startingOffsets"):
        parse_offsets_json("startingOffsets", text)


@given(COUNTS, st.integers(1, 100_000))
def test_k04_a_limited_batch_takes_no_more_than_allowed_and_always_something(
    counts: Positions, count_max: int
) -> None:
    begin = shifted(counts)
    end = added(begin, counts)
    limited = limit_positions(begin, end, count_max)
    taken = [
        limited[topic][queue_id] - begin[topic][queue_id]
        for topic, queues in end.items()
        for queue_id in queues
    ]
    total = sum(count for queues in counts.values() for count in queues.values())
    assert sum(taken) <= count_max
    assert all(count >= 0 for count in taken)
    assert all(
        limited[topic][queue_id] <= offset
        for topic, queues in end.items()
        for queue_id, offset in queues.items()
    )
    assert (sum(taken) > 0) == (total > 0)
    if total <= count_max:
        assert limited == end


@given(COUNTS, st.one_of(st.none(), st.integers(1, 40)))
def test_tasks_cover_every_message_once_and_in_order(
    counts: Positions, min_partitions: int | None
) -> None:
    begin = shifted(counts)
    ranges = ranges_between(begin, added(begin, counts))
    tasks = plan_tasks(ranges, min_partitions)
    planned = [part for task in tasks for part in task.ranges]
    assert all(part.count > 0 for part in planned)
    joined: list[QueueRange] = []
    for part in planned:
        last = joined[-1] if joined else None
        if last and (last.topic, last.queue_id, last.end) == (
            part.topic,
            part.queue_id,
            part.begin,
        ):
            joined[-1] = QueueRange(part.topic, part.queue_id, last.begin, part.end)
        else:
            joined.append(part)
    assert joined == ranges
    total = sum(part.count for part in ranges)
    if min_partitions is not None:
        assert len(tasks) >= min(min_partitions, total)
    else:
        assert len(tasks) <= len(ranges)
        assert all(sum(p.count for p in t.ranges) >= RECORDS_PER_TASK_MIN for t in tasks[:-1])


@pytest.mark.parametrize(
    ("name", "offset"), [("earliest", 10), ("latest", 20), ("committed", 15), ("EARLIEST", 10)]
)
def test_k05_names_stand_for_offsets(name: str, offset: int) -> None:
    assert positions.resolve("startingOffsets", name, bounds(10, 20, 15)) == {"T": {0: offset}}


def test_k05_a_group_without_progress_begins_at_the_begin() -> None:
    assert positions.resolve("startingOffsets", "committed", bounds(10, 20)) == {"T": {0: 10}}


def test_a_topic_that_is_not_there_is_named() -> None:
    with pytest.raises(OptionError, match="'U' does not exist"):
        positions.require_topics(["T", "U"], bounds(0, 1))


@pytest.mark.parametrize(("begin", "end"), [(5, 15), (5, 8)])
def test_s5_offsets_below_the_minimum_are_lost(begin: int, end: int) -> None:
    start, stop = {"T": {0: begin}}, {"T": {0: end}}
    with pytest.raises(DataLossError, match=f"offsets \\[{begin}, {min(10, end)}\\) of queue 0"):
        positions.checked_begin(start, stop, bounds(10, 20), fail_on_data_loss=True)
    checked = positions.checked_begin(start, stop, bounds(10, 20), fail_on_data_loss=False)
    assert checked == {"T": {0: min(10, end)}}


def test_new_queues_begin_at_their_minimum() -> None:
    checked = positions.checked_begin({}, {"T": {0: 15}}, bounds(10, 20), fail_on_data_loss=True)
    assert checked == {"T": {0: 10}}


def test_s5_a_queue_that_went_back_or_away_is_lost() -> None:
    start: Positions = {"T": {0: 30}}
    for found in (bounds(0, 20), {}):
        with pytest.raises(DataLossError, match="queue 0 of topic 'T'"):
            positions.latest_positions(start, found, fail_on_data_loss=True)
    assert positions.latest_positions(start, bounds(0, 20), fail_on_data_loss=False) == {
        "T": {0: 20}
    }
    assert positions.latest_positions(start, {}, fail_on_data_loss=False) == start


def test_available_now_ends_where_it_was_pinned() -> None:
    pin: Positions = {"T": {0: 20}}
    assert positions.pinned(pin, {"T": {0: 5}}, {"T": {0: 50}}) == pin
    assert positions.pinned(pin, {"T": {0: 25}}, {"T": {0: 50}}) == {"T": {0: 25}}
    assert positions.pinned(pin, {"T": {0: 25}}, {"T": {0: 3}}) == {"T": {0: 3}}
