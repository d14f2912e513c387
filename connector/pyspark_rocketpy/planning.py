"""Planning: which messages a micro-batch takes, and which task reads which of them. No state.

Pure functions over positions and ranges.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_rocketpy.offsets import Positions, QueueRange

# Tasks cost tens of milliseconds each, so queues with little to read share one.
RECORDS_PER_TASK_MIN = 10_000


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What one task reads, in this order."""

    ranges: tuple[QueueRange, ...]


def limit_positions(begin: Positions, end: Positions, count_max: int) -> Positions:
    """Positions at most `count_max` messages from `begin` and not beyond `end`.

    Each queue advances in proportion to what it holds, as with Spark's Kafka source, and one with
    anything to read by at least one message while the limit lasts.
    """
    available = {
        (topic, queue_id): offset - begin[topic][queue_id]
        for topic, queues in end.items()
        for queue_id, offset in queues.items()
    }
    total = sum(available.values())
    if total <= count_max:
        return end
    left = count_max
    limited: Positions = {topic: dict(queues) for topic, queues in begin.items()}
    for topic, queue_id in sorted(available, key=lambda key: (available[key], key)):
        held = available[topic, queue_id]
        share = min(max(1, count_max * held // total), left) if held else 0
        limited[topic][queue_id] += share
        left -= share
    return limited


def ranges_between(begin: Positions, end: Positions) -> list[QueueRange]:
    """The ranges that are not empty, by topic and queue."""
    ranges = [
        QueueRange(topic, queue_id, begin.get(topic, {}).get(queue_id, 0), offset)
        for topic, queues in sorted(end.items())
        for queue_id, offset in sorted(queues.items())
    ]
    return [part for part in ranges if part.count > 0]


def plan_tasks(ranges: Sequence[QueueRange], min_partitions: int | None) -> list[TaskPlan]:
    """Tasks for the ranges.

    With `min_partitions` ranges are split until there are as many; without, a queue is never
    split, and queues with little to read are put together. A queue's order is kept within each
    task; where it is split, later tasks read later messages.
    """
    if min_partitions is not None and len(ranges) < min_partitions:
        return _split(ranges, min_partitions)
    if min_partitions is not None:
        return [TaskPlan((part,)) for part in ranges]
    return _merge(ranges)


def _split(ranges: Sequence[QueueRange], min_partitions: int) -> list[TaskPlan]:
    total = sum(part.count for part in ranges)
    if total == 0:
        return []
    tasks = []
    for part in ranges:
        pieces = min(max(1, -(-part.count * min_partitions // total)), part.count)
        bounds = [part.begin + part.count * piece // pieces for piece in range(pieces + 1)]
        tasks += [
            TaskPlan((QueueRange(part.topic, part.queue_id, low, high),))
            for low, high in itertools.pairwise(bounds)
        ]
    return tasks


def _merge(ranges: Sequence[QueueRange]) -> list[TaskPlan]:
    tasks: list[TaskPlan] = []
    gathered: list[QueueRange] = []
    for part in ranges:
        gathered.append(part)
        if sum(one.count for one in gathered) >= RECORDS_PER_TASK_MIN:
            tasks.append(TaskPlan(tuple(gathered)))
            gathered = []
    if gathered:
        tasks.append(TaskPlan(tuple(gathered)))
    return tasks
