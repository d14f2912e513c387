"""Admission: limits, fairness and waiting, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy.offsets import Positions, QueueRange
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.plan.admission import (
    HOLD_MS_MAX,
    TOO_FEW_PAUSE_MS,
    AdmissionControl,
    limit_positions,
)
from tests.support.queues import Q0, Q1, Q2, numbered
from tests.unit.connector.source.plan.test_task_plan import COUNTS


class Clock:
    """A clock that only pauses advance."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self.paused: list[int] = []

    def now(self) -> int:
        return self.ms

    def pause(self, duration_ms: int) -> None:
        self.paused.append(duration_ms)
        self.ms += duration_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def admission(clock: Clock, **given: object) -> AdmissionControl:
    texts = {name: str(value) for name, value in given.items()}
    options = SourceOptions.parse({"endpoints": "h:1", "topic": "T", **texts})
    return AdmissionControl(options, now=clock.now, pause=clock.pause)


def holding(count: int) -> Positions:
    return {"T": {Q0: count}}


def begin_and_end(counts: Positions, begin: int = 7) -> tuple[Positions, Positions]:
    start = {topic: dict.fromkeys(queues, begin) for topic, queues in counts.items()}
    end = {
        topic: {queue_id: begin + count for queue_id, count in queues.items()}
        for topic, queues in counts.items()
    }
    return start, end


@given(COUNTS, st.integers(1, 100_000))
def test_k04_a_limited_batch_takes_no_more_than_allowed_and_something_of_every_queue(
    counts: Positions, count_max: int
) -> None:
    begin, end = begin_and_end(counts)
    limited = limit_positions(begin, end, count_max)
    held = [count for queues in counts.values() for count in queues.values()]
    taken = [
        limited[topic][queue_id] - begin[topic][queue_id]
        for topic, queues in counts.items()
        for queue_id in queues
    ]
    assert all(0 <= took <= has for took, has in zip(taken, held, strict=True))
    assert sum(taken) <= count_max
    waiting = sum(has > 0 for has in held)
    assert sum(took > 0 for took in taken) == min(waiting, count_max)
    if sum(held) <= count_max:
        assert limited == end


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.integers(1, 5))
def test_k04_no_queue_starves_while_others_grow(growth: list[int], count_max: int) -> None:
    """Asserts that each queue advances within as many batches as there are queues."""
    queues = [numbered(queue_id) for queue_id in range(len(growth))]
    begin: Positions = {"T": dict.fromkeys(queues, 0)}
    end: Positions = {"T": dict.fromkeys(queues, 1_000)}
    begins = dict(begin["T"])
    for _ in growth:
        begin = limit_positions(begin, end, count_max)
        end = {"T": {i: offset + growth[i.queue_id] for i, offset in end["T"].items()}}
    assert all(begin["T"][i] > begins[i] for i in begins)


def test_k04_bytes_are_asked_for_what_the_row_limit_has_left(clock: Clock) -> None:
    asked: list[QueueRange] = []

    def limit_bytes(ranges: Sequence[QueueRange], bytes_max: int) -> list[int]:
        assert bytes_max == 500
        asked.extend(ranges)
        return [part.begin + 1 for part in ranges]

    begin, end = begin_and_end({"T": {Q0: 100, Q1: 100, Q2: 0}}, begin=0)
    limits = admission(clock, maxOffsetsPerTrigger=10, maxBytesPerTrigger=500)
    assert limits.limited(begin, end, limit_bytes) == {"T": {Q0: 1, Q1: 1, Q2: 0}}
    assert sorted((part.queue_id, part.count) for part in asked) == [(0, 5), (1, 5)]
    asked.clear()
    assert limits.limited(begin, begin, limit_bytes) == begin
    assert not asked
    assert admission(clock).limited(begin, end, limit_bytes) == end


def test_k04_a_batch_waits_for_enough_messages_or_for_the_delay(clock: Clock) -> None:
    limits = admission(clock, minOffsetsPerTrigger=10, maxTriggerDelay="20s", pollTimeout="5s")
    begin: Positions = {"T": {Q0: 0}}
    assert not limits.put_off(begin, holding(1)), "the first batch does not wait"
    limits.admitted()
    assert limits.put_off(begin, holding(9))
    assert not limits.put_off(begin, holding(10))
    clock.ms += 20_000 - TOO_FEW_PAUSE_MS
    assert not limits.put_off(begin, holding(9))


def test_k04_waiting_for_enough_messages_neither_spins_nor_oversleeps(clock: Clock) -> None:
    limits = admission(clock, minOffsetsPerTrigger=10, maxTriggerDelay="20s", pollTimeout="5s")
    begin: Positions = {"T": {Q0: 0}}
    limits.admitted()
    assert limits.put_off(begin, holding(1))
    assert clock.paused == [TOO_FEW_PAUSE_MS]
    assert limits.hold_ms() == 5_000
    clock.ms += 19_000 - TOO_FEW_PAUSE_MS
    assert limits.hold_ms() == 1_000
    clock.ms += 60_000
    assert not limits.put_off(begin, holding(0)), "nothing there is no reason to wait"
    assert limits.hold_ms() == 5_000


def test_k04_without_poll_timeout_nothing_is_held(clock: Clock) -> None:
    assert admission(clock, pollTimeout="0s").hold_ms() == 0
    assert admission(clock, pollTimeout="250ms").hold_ms() == 250
    assert admission(clock, pollTimeout="1h").hold_ms() == HOLD_MS_MAX
