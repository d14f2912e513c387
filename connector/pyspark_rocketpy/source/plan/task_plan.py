"""Division of a batch's messages into tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark_rocketpy.offsets import Positions, QueueRange
from pyspark_rocketpy.options.choices import Allocation
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.plan.allocation import averagely, by_circle, by_config, by_machine_room

# Tasks cost tens of milliseconds each, so queues with few messages share one.
RECORDS_PER_TASK_MIN = 10_000


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The ranges that one task reads, in this order."""

    ranges: tuple[QueueRange, ...]

    @property
    def count(self) -> int:
        """The number of queue offsets in its ranges."""
        return sum(part.count for part in self.ranges)


def ranges_between(begin: Positions, end: Positions) -> list[QueueRange]:
    """Returns the non-empty ranges, by topic and queue."""
    ranges = [
        QueueRange.of(topic, queue, begin.get(topic, {}).get(queue, 0), offset)
        for topic, queues in sorted(end.items())
        for queue, offset in sorted(queues.items())
    ]
    return [part for part in ranges if part.count > 0]


@dataclass(frozen=True, slots=True)
class TaskRules:
    """Rules for tasks, as options set them."""

    min_partitions: int | None = None
    records_max: int | None = None
    allocation: Allocation | None = None
    allocation_config: str | None = None

    @classmethod
    def of(cls, options: SourceOptions) -> TaskRules:
        """Returns the rules that the options name."""
        return cls(
            options.min_partitions,
            options.max_records_per_partition,
            options.allocation,
            options.allocation_config,
        )


def plan_tasks(ranges: Sequence[QueueRange], rules: TaskRules) -> list[TaskPlan]:
    """Returns tasks for the ranges.

    Only `min_partitions` and `records_max` split a queue, and then later tasks read later messages.
    Without an allocation, queues with few messages share a task.
    """
    tasks = [task for task in _tasks(ranges, rules) if task.ranges]
    if rules.records_max is None:
        return tasks
    return [piece for task in tasks for piece in _cut(task, -(-task.count // rules.records_max))]


def _tasks(ranges: Sequence[QueueRange], rules: TaskRules) -> list[TaskPlan]:
    if rules.allocation is Allocation.CONFIG:
        config = rules.allocation_config or "[]"
        return [TaskPlan(tuple(group)) for group in by_config(ranges, config)]
    if rules.min_partitions is not None and len(ranges) < rules.min_partitions:
        return _split(ranges, rules.min_partitions)
    if rules.allocation is not None:
        task_count = rules.min_partitions or os.cpu_count() or 1
        if len(ranges) > task_count:
            groups = _STRATEGIES[rules.allocation](ranges, task_count)
            return [TaskPlan(tuple(group)) for group in groups]
    if rules.allocation is not None or rules.min_partitions is not None:
        return [TaskPlan((part,)) for part in ranges]
    return _merge(ranges)


def _split(ranges: Sequence[QueueRange], min_partitions: int) -> list[TaskPlan]:
    total = sum(part.count for part in ranges)
    return [
        piece
        for part in ranges
        for piece in _cut(TaskPlan((part,)), -(-part.count * min_partitions // total))
    ]


def _cut(task: TaskPlan, pieces: int) -> list[TaskPlan]:
    """Returns the messages of a task in `pieces` tasks of the same size, in their order."""
    count, left = task.count, list(reversed(task.ranges))
    pieces = min(pieces, count)
    done, cut = 0, list[TaskPlan]()
    for piece in range(1, pieces + 1):
        bound, ranges = count * piece // pieces, list[QueueRange]()
        while done < bound:
            part = left.pop()
            middle = min(part.end, part.begin + bound - done)
            if middle < part.end:
                left.append(replace(part, begin=middle))
                part = replace(part, end=middle)
            ranges.append(part)
            done += part.count
        cut.append(TaskPlan(tuple(ranges)))
    return cut


def _merge(ranges: Sequence[QueueRange]) -> list[TaskPlan]:
    tasks: list[TaskPlan] = []
    gathered: list[QueueRange] = []
    count = 0
    for part in ranges:
        gathered.append(part)
        count += part.count
        if count >= RECORDS_PER_TASK_MIN:
            tasks.append(TaskPlan(tuple(gathered)))
            gathered, count = [], 0
    if gathered:
        tasks.append(TaskPlan(tuple(gathered)))
    return tasks


_STRATEGIES: dict[Allocation, Callable[..., list[list[QueueRange]]]] = {
    Allocation.AVERAGELY: averagely,
    Allocation.CIRCLE: by_circle,
    Allocation.MACHINE_ROOM: by_machine_room,
}
