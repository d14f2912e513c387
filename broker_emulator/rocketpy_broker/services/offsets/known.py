"""Maxima and epochs of topics that a client knows.

A query is held while its client knows the maximum of each queue of its topics. The maxima of a
topic are an array from queue 0 on, with 8 bytes a queue. A topic with gaps equals no existing
topic; its query is answered at once. State: in memory, for the time of a query.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable

from rocketpy_broker.store.values import QueueKey

# The memory of a topic without its queues: a name, an array, and table entries.
TOPIC_BYTES, QUEUE_BYTES = 500, 8


class KnownOffsets:
    """The known queues of a client, by topic."""

    def __init__(self, entries: Iterable[tuple[str, int, int, int]] = ()) -> None:
        """Takes entries of a topic, a queue id, a maximum, and the topic's epoch."""
        self.epochs: dict[str, int] = {}
        self._maxima: dict[str, array[int]] = {}
        # Maxima of queues that arrived before a lower queue of their topic.
        self._early: defaultdict[str, dict[int, int]] = defaultdict(dict)
        # Ids of queues that the client queries although readers do not see them, by topic.
        self.hidden: dict[str, array[int]] = {}
        self.add(entries)

    def add(self, entries: Iterable[tuple[str, int, int, int]]) -> None:
        """Adds queues; the last of several entries of a queue counts."""
        for topic, queue_id, max_offset, epoch in entries:
            self.epochs[topic] = epoch
            maxima = self._maxima.get(topic)
            if maxima is None:
                maxima = self._maxima[topic] = array("q")
            if queue_id == len(maxima):
                maxima.append(max_offset)
            elif 0 <= queue_id < len(maxima):
                maxima[queue_id] = max_offset
            else:
                self._early[topic][queue_id] = max_offset

    def add_hidden(self, queues: Iterable[tuple[str, int]]) -> None:
        """Adds queues that readers do not see. Each is a topic and a queue id."""
        for topic, queue_id in queues:
            self.hidden.setdefault(topic, array("i")).append(queue_id)

    def close_gaps(self) -> None:
        """Sorts in the queues that arrived out of order."""
        for topic, early in list(self._early.items()):
            maxima = self._maxima[topic]
            while len(maxima) in early:
                maxima.append(early.pop(len(maxima)))
            if set(early) <= set(range(len(maxima))):
                del self._early[topic]

    def keep(self, is_asked: Callable[[str], bool]) -> None:
        """Drops all topics that the query does not ask for."""
        self.epochs = {topic: epoch for topic, epoch in self.epochs.items() if is_asked(topic)}
        self._maxima = {topic: self._maxima[topic] for topic in self.epochs}
        self.hidden = {topic: ids for topic, ids in self.hidden.items() if is_asked(topic)}
        for topic in [topic for topic in self._early if topic not in self.epochs]:
            del self._early[topic]

    @property
    def has_gaps(self) -> bool:
        """True if a topic misses a queue below a known one."""
        return bool(self._early)

    @property
    def queue_count(self) -> int:
        """The number of queues of all topics."""
        return sum(map(len, self._maxima.values()))

    @property
    def kept_bytes(self) -> int:
        """The memory of the topics and queues."""
        early = sum(map(len, self._early.values()))
        hidden = sum(map(len, self.hidden.values()))
        topic_count = len(self.epochs) + len(self.hidden)
        return topic_count * TOPIC_BYTES + (self.queue_count + hidden + 20 * early) * QUEUE_BYTES

    def count(self, topic: str) -> int:
        """Returns the number of known queues of a topic."""
        return len(self._maxima.get(topic, ()))

    def maximum(self, queue: QueueKey) -> int | None:
        """Returns the known maximum of a queue, or None."""
        maxima = self._maxima.get(queue.topic)
        return None if maxima is None or queue.queue_id >= len(maxima) else maxima[queue.queue_id]
