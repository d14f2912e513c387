"""Maxima and epochs that a client knows of its topics, in 8 bytes a queue.

A query is held while its client knows each queue of its topics. So the queues of a topic are an
array from queue 0 on. A topic with gaps is unlike any topic, and its query is answered at once.
Lives in memory, for the time of a query.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable

from rocketpy_broker.store.values import QueueKey

# Of a topic beside its queues: a name, an array, and places in tables.
TOPIC_BYTES, QUEUE_BYTES = 500, 8


class KnownOffsets:
    """The queues that a client knows, topic by topic."""

    def __init__(self, entries: Iterable[tuple[str, int, int, int]] = ()) -> None:
        """Each entry is a topic, a queue id, a maximum, and the topic's epoch."""
        self.epochs: dict[str, int] = {}
        self._maxima: dict[str, array[int]] = {}
        # Queues that came before a lower one of their topic.
        self._early: defaultdict[str, dict[int, int]] = defaultdict(dict)
        # Queues that readers do not see, and that the client asks about all the same.
        self.hidden: dict[str, array[int]] = {}
        self.add(entries)

    def add(self, entries: Iterable[tuple[str, int, int, int]]) -> None:
        """Adds queues; the last one of several with one id counts."""
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
        """Puts queues in order that came out of order."""
        for topic, early in list(self._early.items()):
            maxima = self._maxima[topic]
            while len(maxima) in early:
                maxima.append(early.pop(len(maxima)))
            if set(early) <= set(range(len(maxima))):
                del self._early[topic]

    def keep(self, is_asked: Callable[[str], bool]) -> None:
        """Forgets all topics but those that the query asks for."""
        self.epochs = {topic: epoch for topic, epoch in self.epochs.items() if is_asked(topic)}
        self._maxima = {topic: self._maxima[topic] for topic in self.epochs}
        self.hidden = {topic: ids for topic, ids in self.hidden.items() if is_asked(topic)}
        for topic in [topic for topic in self._early if topic not in self.epochs]:
            del self._early[topic]

    @property
    def has_gaps(self) -> bool:
        """True if queues between those of a topic are missing."""
        return bool(self._early)

    @property
    def queue_count(self) -> int:
        """Returns the number of queues of all topics."""
        return sum(map(len, self._maxima.values()))

    @property
    def kept_bytes(self) -> int:
        """Returns the memory of the queues."""
        early = sum(map(len, self._early.values()))
        hidden = sum(map(len, self.hidden.values()))
        topic_count = len(self.epochs) + len(self.hidden)
        return topic_count * TOPIC_BYTES + (self.queue_count + hidden + 20 * early) * QUEUE_BYTES

    def count(self, topic: str) -> int:
        """Returns the number of queues that are known of a topic."""
        return len(self._maxima.get(topic, ()))

    def maximum(self, queue: QueueKey) -> int | None:
        """Returns the maximum that is known of a queue."""
        maxima = self._maxima.get(queue.topic)
        return None if maxima is None or queue.queue_id >= len(maxima) else maxima[queue.queue_id]
