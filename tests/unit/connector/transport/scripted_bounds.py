"""Queue bounds of the broker in memory, and the cuts of its recoveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pyspark_rocketpy.offsets import Bounds, Positions, QueueBounds
from pyspark_rocketpy.transport.values import Subscription
from tests.support.queues import numbered

# topic -> queue -> its messages
Topics = Mapping[str, Sequence[Sequence[object]]]


@dataclass
class Recoveries:
    """The end of each queue at each recovery, the oldest first; a recovery's id is its index."""

    ends: list[dict[tuple[str, int], int]] = field(default_factory=lambda: [{}])

    @property
    def newest_id(self) -> str:
        """Id of the last recovery."""
        return str(len(self.ends) - 1)

    def add(self, topics: Topics) -> None:
        """Adds a start after a crash, which has left these messages."""
        queues = [(topic, i, queue) for topic in topics for i, queue in enumerate(topics[topic])]
        self.ends.append({(topic, i): len(queue) for topic, i, queue in queues})

    def cut_of(self, topic: str, queue_id: int, recovery_id: str) -> int | None:
        """Returns the offset at which recoveries after `recovery_id` cut a queue, or None."""
        ids = [str(number) for number in range(len(self.ends))]
        later = self.ends[ids.index(recovery_id) + 1 :] if recovery_id in ids else []
        return min((ends.get((topic, queue_id), 0) for ends in later), default=None)


def bounds_of(
    topics: Topics,
    committed: Mapping[tuple[str, str, int], int],
    recoveries: Recoveries,
    subscription: Subscription,
    recovery_id: str,
    readable: Mapping[str, int] = MappingProxyType({}),
) -> Bounds:
    """Returns the bounds of every queue of the subscribed topics that exist.

    `readable` limits the readable queues of some topics.
    """
    group, read = subscription.consumer_group, subscription.reads(topics)
    return {
        topic: {
            numbered(i): QueueBounds(
                0,
                len(queue),
                committed.get((group, topic, i), -1),
                cut_offset=recoveries.cut_of(topic, i, recovery_id),
            )
            for i, queue in enumerate(queues[: readable.get(topic)])
        }
        for topic, queues in topics.items()
        if topic in read
    }


def hidden_of(
    topics: Topics,
    recoveries: Recoveries,
    queues: Positions,
    recovery_id: str,
    readable: Mapping[str, int],
) -> Bounds:
    """Returns the bounds of these queues, readable or not."""
    there = bounds_of(topics, {}, recoveries, Subscription(tuple(queues), None, ""), recovery_id)
    return {
        topic: {
            queue: replace(each, is_hidden=queue.queue_id >= readable.get(topic, len(its)))
            for queue, each in its.items()
            if queue in queues[topic]
        }
        for topic, its in there.items()
    }
