"""Pending resets: new offsets not yet received by members of a group.

A member that was online during a reset knows its old offset, and would commit it over the new one.
Its commits of that queue are ignored until its next pull, which gets the new offset. RocketMQ
accepts the commit within this very pull; this broker ignores it too. A group without members
queries its offset when it returns, so its pending resets are dropped.

Members outlive their broker, so pending resets are saved in the file of offsets. No group has
members right after a start. A group's pending resets then stay until its members had the time to
send a heartbeat. A crash may restore a reset that a member received seconds before: the next pull
gets it again.
Source: ConsumerOffsetManager#resetOffsetTable, docs/design/broker_behaviour.md section 5.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.groups.clients.members import EXPIRY_MS
from rocketpy_broker.services.offsets.table import SEPARATOR, OffsetTable, passed_ends
from rocketpy_broker.store.values import QueueBounds, QueueKey


class PendingResets:
    """Table topic@group -> queue id -> offset."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table = OffsetTable()
        # The topics of the table, by group.
        self._topics: dict[str, set[str]] = {}
        # Groups loaded at the start, and the end of the time for the return of their members.
        self._loaded: set[str] = set()
        self._loaded_until_ms = 0.0
        self.change_count = 0

    def __bool__(self) -> bool:
        return bool(self._table)

    # --- In the file ---

    def snapshot(self) -> Iterator[bytes] | None:
        """Returns the file's table of the resets as of now; None if it is empty."""
        return self._table.snapshot() if self._table else None

    def load(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Adds the resets that were pending before the start."""
        for key, queues in table.items():
            if queues:
                topic, _, group = key.rpartition(SEPARATOR)
                self._own(topic, group).update(queues)
        self._loaded = set(self._topics)
        self._loaded_until_ms = self._clock.monotonic_ms() + EXPIRY_MS

    def set_back(self, range_of: Callable[[QueueKey], QueueBounds]) -> None:
        """Sets resets beyond the end of a queue back to its end."""
        for key in list(self._table):
            topic, _, group = key.rpartition(SEPARATOR)
            beyond = passed_ends(topic, self._table[key], range_of)
            if beyond:
                self._own(topic, group).update(beyond)
                self.change_count += 1

    # --- While members are online ---

    def set(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Sets the offsets of the group's next pulls of these queues."""
        self._own(topic, group).update(offsets)
        self.change_count += 1

    def has(self, group: str, queue: QueueKey) -> bool:
        """True if the group has not pulled the queue since its reset."""
        return queue.queue_id in self._table.get(queue.topic + SEPARATOR + group, ())

    def take(self, group: str, queue: QueueKey) -> int | None:
        """Returns and removes the reset of the group's queue; None if there is none."""
        if not self.has(group, queue):
            return None
        queues = self._own(queue.topic, group)
        offset = queues.pop(queue.queue_id)
        if not queues:
            self._forget(queue.topic, group)
        self.change_count += 1
        return offset

    def has_no_members(self, group: str) -> None:
        """Drops the resets of a group without members, unless they may return after a start."""
        is_early = self._clock.monotonic_ms() < self._loaded_until_ms
        if not (is_early and group in self._loaded):
            self.forget_group(group)

    def forget_group(self, group: str) -> None:
        """Drops the resets of a group that has no members or was deleted."""
        for topic in list(self._topics.get(group, ())):
            self._forget(topic, group)

    def forget_topic(self, topic: str) -> None:
        """Drops the resets of a deleted topic."""
        for group in [group for group, topics in self._topics.items() if topic in topics]:
            self._forget(topic, group)

    def _own(self, topic: str, group: str) -> dict[int, int]:
        """Returns the queues of an entry for a change; no save reads them meanwhile."""
        self._topics.setdefault(group, set()).add(topic)
        return self._table.own(topic + SEPARATOR + group)

    def _forget(self, topic: str, group: str) -> None:
        del self._table[topic + SEPARATOR + group]
        topics = self._topics[group]
        topics.remove(topic)
        if not topics:
            del self._topics[group]
        self.change_count += 1
