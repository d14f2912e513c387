"""Allocation of queues to tasks by RocketMQ's strategies.

Queues are in order of topic and number. Names and shares follow RocketMQ's
AllocateMessageQueueAveragely, ...AveragelyByCircle, ...ByConfig and ...ByMachineRoom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.json_values import parse_json, queue_id, shown
from pyspark_rocketpy.offsets import BrokerQueue, Positions, QueueRange
from pyspark_rocketpy.options.choices import Allocation
from pyspark_rocketpy.options.values import SourceOptions

CONFIG_OPTION = "allocationConfig"
_FORM = 'write it as [["topic:0","topic:1"],["topic:2"]], on a cluster as "topic:broker-a:0"'
_T = TypeVar("_T")
_TopicQueue: TypeAlias = tuple[str, BrokerQueue]


def averagely(queues: Sequence[_T], task_count: int) -> list[list[_T]]:
    """Returns adjacent queues for each task; the first tasks get one of the remaining queues."""
    share, more = divmod(len(queues), task_count)
    begins = [task * share + min(task, more) for task in range(task_count + 1)]
    return [list(queues[begins[task] : begins[task + 1]]) for task in range(task_count)]


def by_circle(queues: Sequence[_T], task_count: int) -> list[list[_T]]:
    """Returns the queues of each task, assigned one by one in a circle."""
    return [list(queues[task::task_count]) for task in range(task_count)]


def by_machine_room(queues: Sequence[_T], task_count: int) -> list[list[_T]]:
    """Returns equally many adjacent queues for each task; the first tasks get one more."""
    share = len(queues) // task_count
    rest = queues[share * task_count :]
    return [
        [*queues[task * share : (task + 1) * share], *rest[task : task + 1]]
        for task in range(task_count)
    ]


def by_config(ranges: Sequence[QueueRange], config: str) -> list[list[QueueRange]]:
    """Returns the ranges of the queues of each task."""
    by_queue: dict[_TopicQueue, list[QueueRange]] = {}
    for part in ranges:
        by_queue.setdefault((part.topic, part.queue), []).append(part)
    return [
        [part for queue in queues for part in by_queue.get(queue, [])]
        for queues in parse_config(config)
    ]


def parse_config(text: str) -> list[list[_TopicQueue]]:
    """Returns the queues of each task. Raises OptionError."""
    try:
        tasks = [[_queue(name) for name in _array(names)] for names in _array(parse_json(text))]
    except ValueError as error:
        raise OptionError(f"option {CONFIG_OPTION} is {shown(text)}; {_FORM}") from error
    for queue, times in Counter(queue for queues in tasks for queue in queues).items():
        if times > 1:
            raise OptionError(
                f"option {CONFIG_OPTION} names {_text(queue)} {times} times; name it once"
            )
    return tasks


def _array(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    raise ValueError(f"{shown(value)} is not a JSON array")


def _queue(name: object) -> _TopicQueue:
    """Returns the queue of `topic:0`, or of a cluster's `topic:broker-a:0`. Raises ValueError.

    A broker's name may have colons, too.
    """
    place, _, number = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    topic, _, broker_name = place.partition(":")
    if not topic:
        raise ValueError(f"{shown(name)} names no queue")
    return topic, BrokerQueue(broker_name, queue_id(number))


def _text(queue: _TopicQueue) -> str:
    return f"{queue[1]} of topic {queue[0]!r}"


def require_named(config: str, positions: Positions, known: Positions) -> None:
    """Raises OptionError for a queue that `config` gives to no task, or that does not exist.

    A queue that is `known`, and not listed now, may be named.
    """
    named = {queue for queues in parse_config(config) for queue in queues}
    wanted = {(topic, queue) for topic, queues in positions.items() for queue in queues}
    existing = wanted.union((topic, queue) for topic, its in known.items() for queue in its)
    if wanted - named:
        raise OptionError(
            f"option {CONFIG_OPTION} does not name {_text(min(wanted - named))}; name every queue"
        )
    if named - existing:
        raise OptionError(
            f"option {CONFIG_OPTION} names {_text(min(named - existing))}, which does not "
            "exist; remove it"
        )


def require_room(rooms: tuple[str, ...], broker_name: str) -> None:
    """Raises OptionError for a broker outside the rooms, since no task would read its queues."""
    room, at, _ = broker_name.partition("@")
    if not at or room not in rooms:
        where = f"is in room {room!r}" if at else "names no room before an @"
        raise OptionError(
            f"option machineRooms is {','.join(rooms)!r}, but broker {broker_name!r} {where}; "
            "name its room, or choose another allocation"
        )


def check(options: SourceOptions) -> None:
    """Checks the options of an allocation, without a broker. Raises OptionError."""
    for kind, option, value in (
        (Allocation.CONFIG, CONFIG_OPTION, options.allocation_config),
        (Allocation.MACHINE_ROOM, "machineRooms", options.machine_rooms),
    ):
        if (options.allocation is kind) != (value is not None):
            raise OptionError(
                f"options allocation {kind.value} and {option} go together; set both, or none"
            )
    if options.allocation_config is not None:
        parse_config(options.allocation_config)
        if options.min_partitions is not None:
            raise OptionError(
                f"options minPartitions and {CONFIG_OPTION} both set the number of tasks; set "
                "only one of them"
            )
