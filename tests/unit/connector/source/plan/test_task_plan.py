"""Plans of tasks: pure functions with property-based tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.offsets import Positions, QueueRange
from pyspark_rocketpy.options.choices import Allocation
from pyspark_rocketpy.source.plan import allocation
from pyspark_rocketpy.source.plan.task_plan import (
    RECORDS_PER_TASK_MIN,
    TaskPlan,
    TaskRules,
    plan_tasks,
    ranges_between,
)
from tests.support.queues import Q0, Q1, Q2, numbered

COUNTS = st.dictionaries(
    st.sampled_from(["A", "B", "C"]),
    st.dictionaries(st.builds(numbered, st.integers(0, 5)), st.integers(0, 50_000), min_size=1),
)
CONFIG = '[["A:0","C:0","B:1"],[],["A:1"]]'
RULES = st.builds(
    TaskRules,
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1_000, 60_000)),
    st.sampled_from([None, Allocation.AVERAGELY, Allocation.CIRCLE, Allocation.MACHINE_ROOM]),
)

Strategy = Callable[[Sequence[int], int], list[list[int]]]


def ranges_of(counts: Positions, begin: int = 7) -> list[QueueRange]:
    """Returns a range for each queue with messages."""
    start = {topic: dict.fromkeys(queues, begin) for topic, queues in counts.items()}
    end = {
        topic: {queue_id: begin + count for queue_id, count in queues.items()}
        for topic, queues in counts.items()
    }
    return ranges_between(start, end)


def joined(tasks: Sequence[TaskPlan]) -> list[QueueRange]:
    """Joins the ranges of all tasks where one was cut; fails on a wrong order."""
    by_queue: dict[tuple[str, int], QueueRange] = {}
    for part in (part for task in tasks for part in task.ranges):
        key = (part.topic, part.queue_id)
        begin = part.begin
        if key in by_queue:
            assert by_queue[key].end == part.begin
            begin = by_queue[key].begin
        by_queue[key] = QueueRange(part.topic, part.queue_id, begin, part.end)
    return [by_queue[key] for key in sorted(by_queue)]


@given(COUNTS, RULES)
def test_k02_tasks_cover_every_message_once_and_in_order(
    counts: Positions, rules: TaskRules
) -> None:
    ranges = ranges_of(counts)
    tasks = plan_tasks(ranges, rules)
    assert joined(tasks) == ranges
    assert all(part.count > 0 for task in tasks for part in task.ranges)
    total = sum(part.count for part in ranges)
    if rules.min_partitions is not None:
        assert len(tasks) >= min(rules.min_partitions, total)
    if rules.records_max is not None:
        assert all(task.count <= rules.records_max for task in tasks)


@given(COUNTS, RULES)
def test_k02_a_queue_is_split_only_where_it_was_asked_for(
    counts: Positions, rules: TaskRules
) -> None:
    ranges = ranges_of(counts)
    whole = TaskRules(allocation=rules.allocation)
    pieces = [part for task in plan_tasks(ranges, whole) for part in task.ranges]
    assert len(pieces) == len(ranges)


@given(COUNTS)
def test_queues_with_little_to_read_share_a_task(counts: Positions) -> None:
    ranges = ranges_of(counts)
    tasks = plan_tasks(ranges, TaskRules())
    assert [part for task in tasks for part in task.ranges] == ranges
    assert all(task.count >= RECORDS_PER_TASK_MIN for task in tasks[:-1])


def test_a_task_of_very_many_queues_is_cut_in_one_pass() -> None:
    # A scan of all queues for each piece would take hours and so reach the test's time-out.
    ranges = [QueueRange("T", queue_id, 7, 8) for queue_id in range(262_144)]
    rules = TaskRules(1, 1, Allocation.AVERAGELY)
    tasks = plan_tasks(ranges, rules)
    assert [task.ranges for task in tasks] == [(part,) for part in ranges]


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        (allocation.averagely, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (allocation.by_circle, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (allocation.by_machine_room, [[0, 1, 6], [2, 3, 7], [4, 5]]),
    ],
)
def test_k02_shares_are_those_of_rocketmq(strategy: Strategy, shares: list[list[int]]) -> None:
    assert strategy(range(8), 3) == shares


@pytest.mark.parametrize(
    "strategy", [allocation.averagely, allocation.by_circle, allocation.by_machine_room]
)
@given(queue_count=st.integers(0, 40), task_count=st.integers(1, 12))
def test_k02_every_queue_goes_to_one_task_and_shares_are_even(
    strategy: Strategy, queue_count: int, task_count: int
) -> None:
    shares = strategy(range(queue_count), task_count)
    assert len(shares) == task_count
    assert sorted(queue for share in shares for queue in share) == list(range(queue_count))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_k02_queues_are_allocated_to_as_many_tasks_as_asked_for_or_as_there_are_cores() -> None:
    ranges = [QueueRange("T", queue_id, 0, 10) for queue_id in range(200)]
    assert len(plan_tasks(ranges, TaskRules(3, None, Allocation.CIRCLE))) == 3
    cores = os.cpu_count() or 1
    assert len(plan_tasks(ranges, TaskRules(None, None, Allocation.AVERAGELY))) == cores
    assert len(plan_tasks(ranges[:1], TaskRules(None, None, Allocation.AVERAGELY))) == 1


def test_k02_config_gives_each_task_its_queues() -> None:
    ranges = ranges_of({"A": {Q0: 5, Q1: 6}, "B": {Q1: 7}})
    tasks = plan_tasks(ranges, TaskRules(None, None, Allocation.CONFIG, CONFIG))
    found = [[(part.topic, part.queue_id) for part in task.ranges] for task in tasks]
    assert found == [[("A", 0), ("B", 1)], [("A", 1)]]


@pytest.mark.parametrize(
    ("queues", "word"),
    [
        ({"A": {Q0: 1, Q1: 1}, "B": {Q1: 1}}, "names queue 0 of topic 'C'"),
        (
            {"A": {Q0: 1, Q1: 1, Q2: 1}, "B": {Q1: 1}, "C": {Q0: 1}},
            "does not name queue 2 of topic 'A'",
        ),
    ],
)
def test_k02_config_must_name_every_queue_and_no_other(queues: Positions, word: str) -> None:
    everything = {"A": {Q0: 1, Q1: 1}, "B": {Q1: 1}, "C": {Q0: 1}}
    allocation.require_named(CONFIG, everything, {})
    with pytest.raises(OptionError, match=word):
        allocation.require_named(CONFIG, queues, queues)


def test_k02_config_may_name_a_queue_that_is_not_listed_now() -> None:
    listed: Positions = {"A": {Q0: 1}, "B": {Q1: 1}, "C": {Q0: 1}}
    allocation.require_named(CONFIG, listed, {"A": {Q0: 1, Q1: 1}})
    with pytest.raises(OptionError, match="names queue 1 of topic 'A', which does not exist"):
        allocation.require_named(CONFIG, listed, listed)


@pytest.mark.parametrize(
    "text",
    [
        *(
            '[{"A:0":1}]',
            '{"A:0":1}',
            '["A:0"]',
            '[["A"]]',
            '[["A:-1"]]',
            '[["A:01"]]',
            '[["A:x"]]',
        ),
        *('[["A:2147483648"]]', "[[null]]", "[[[]]]", "[" * 100_000, "NaN", '[["A:0"],["A:0"]]'),
    ],
    ids=lambda text: text[:20],
)
def test_k02_a_config_that_names_no_queues_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(OptionError, match="option allocationConfig") as caught:
        allocation.parse_config(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("broker_name", ["broker-a", "r3@broker-a", "r1"])
def test_k02_a_broker_outside_the_machine_rooms_is_named(broker_name: str) -> None:
    allocation.require_room(("r1", "r2"), "r2@broker-a")
    with pytest.raises(OptionError, match=f"option machineRooms is 'r1,r2', .*'{broker_name}'"):
        allocation.require_room(("r1", "r2"), broker_name)
