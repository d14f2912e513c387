"""Resets that members of a group do not know of yet: where their next pull is to go on.

A member that was online when its group was set to another place knows its old place, and would
commit it over the new one. So its commits of that queue do not count until it has pulled, and that
pull is told the new place. RocketMQ honours the commit that this very pull carries; here it does
not count either. A group without members asks for its place when it comes back, so what waits for
it is forgotten.
They are kept in the file of offsets, since members outlive their broker. After a start nobody is a
member yet, so what waits for a group stays until its members had the time to say that they are
there. A crash may bring back a reset that was told in the seconds before it: it is told once more.
Source: ConsumerOffsetManager#resetOffsetTable, docs/design/broker_behaviour.md section 5.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.config_files.table_text import TableText, TextKeeper
from rocketpy_broker.services.groups.clients.members import EXPIRY_MS
from rocketpy_broker.services.offsets.table import (
    SEPARATOR,
    decode_table,
    encode_queues,
    passed_ends,
)
from rocketpy_broker.store.values import QueueKey, QueueRange


class PendingResets:
    """topic@group -> queue id -> offset; of plain numbers, which no garbage collection visits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: dict[str, dict[int, int]] = {}
        # What the table has, by group.
        self._topics: dict[str, set[str]] = {}
        # Entries that no save has taken are among its changed ones: these may change in place.
        self._keeper: TextKeeper[Mapping[int, int]] = TextKeeper(encode_queues)
        # Groups from before the start, and until when their members may come back.
        self._loaded: set[str] = set()
        self._loaded_until_ms = 0.0
        self.change_count = 0

    def __bool__(self) -> bool:
        return bool(self._table)

    # --- In the file ---

    def telling(self) -> Callable[[], TableText[Mapping[int, int]] | None]:
        """Makes of them as they are now what lies in the file of offsets; None for nothing.

        Any thread may call it. It copies and encodes no entry that the save before has taken.
        """
        is_any, tell = bool(self._table), self._keeper.telling(self._table)

        def tell_any() -> TableText[Mapping[int, int]] | None:
            text = tell()
            return text if is_any else None

        return tell_any

    @staticmethod
    def from_json(content: object) -> dict[str, dict[int, int]]:
        """What the file says. Raises ValueError."""
        return decode_table(content)

    def load(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Takes in what was told to nobody before the start."""
        for key, queues in table.items():
            if queues:
                topic, _, group = key.rpartition(SEPARATOR)
                self._own(topic, group).update(queues)
        self._loaded = set(self._topics)
        self._loaded_until_ms = self._clock.monotonic_ms() + EXPIRY_MS

    def set_back(self, range_of: Callable[[QueueKey], QueueRange]) -> None:
        """Let none be beyond the end of a queue."""
        for key in list(self._table):
            topic, _, group = key.rpartition(SEPARATOR)
            beyond = passed_ends(topic, self._table[key], range_of)
            if beyond:
                self._own(topic, group).update(beyond)
                self.change_count += 1

    # --- While members are online ---

    def set(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Let the group's next pulls of these queues be told so."""
        self._own(topic, group).update(offsets)
        self.change_count += 1

    def has(self, group: str, queue: QueueKey) -> bool:
        """True if the group has not pulled the queue since it was reset."""
        return queue.queue_id in self._table.get(queue.topic + SEPARATOR + group, ())

    def take(self, group: str, queue: QueueKey) -> int | None:
        """Where the group's pull of the queue is to go on; told once, None where it may go on."""
        if not self.has(group, queue):
            return None
        queues = self._own(queue.topic, group)
        offset = queues.pop(queue.queue_id)
        if not queues:
            self._forget(queue.topic, group)
        self.change_count += 1
        return offset

    def nobody_is_there(self, group: str) -> None:
        """The group has no members; after a start they may come back yet."""
        is_early = self._clock.monotonic_ms() < self._loaded_until_ms
        if not (is_early and group in self._loaded):
            self.forget_group(group)

    def forget_group(self, group: str) -> None:
        """Nobody of the group is there any more, or the group is not."""
        for topic in list(self._topics.get(group, ())):
            self._forget(topic, group)

    def forget_topic(self, topic: str) -> None:
        """The topic is no more; one of its name is another."""
        for group in [group for group, topics in self._topics.items() if topic in topics]:
            self._forget(topic, group)

    def _own(self, topic: str, group: str) -> dict[int, int]:
        """Returns the queues of an entry, to be changed; no save reads them meanwhile."""
        key = topic + SEPARATOR + group
        if key not in self._keeper:
            self._keeper.changed([key])
            self._table[key] = dict(self._table.get(key, ()))
        self._topics.setdefault(group, set()).add(topic)
        return self._table.setdefault(key, {})

    def _forget(self, topic: str, group: str) -> None:
        key = topic + SEPARATOR + group
        del self._table[key]
        self._keeper.changed([key])
        topics = self._topics[group]
        topics.remove(topic)
        if not topics:
            del self._topics[group]
        self.change_count += 1
