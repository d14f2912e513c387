"""Resets that members of a group do not know of yet: where their next pull is to go on.

A member that was online when its group was set to another place knows its old place, and would
commit it over the new one. So its commits of that queue do not count until it has pulled, and that
pull is told the new place. RocketMQ honours the commit that this very pull carries; here it does
not count either. A group without members asks for its place when it comes back, so what waits for
it is forgotten.
They are kept in the file of offsets, since members outlive their broker. After a start nobody is a
member yet, so what waits for a group stays until its members had the time to say that they are
there. A crash may bring back a reset that was told in the seconds before it: it is told once more.
Source: ConsumerOffsetManager#resetOffsetTable, spec/broker_behaviour.md section 5.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketpy_broker.clock import Clock
from rocketpy_broker.services.config_files.json_fields import as_int, as_long, as_object
from rocketpy_broker.services.groups.members import EXPIRY_MS
from rocketpy_broker.store.values import QueueKey, QueueRange


class PendingResets:
    """group -> queue -> offset."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[QueueKey, int]] = {}
        # Groups from before the start, and until when their members may come back.
        self._loaded: set[str] = set()
        self._loaded_until_ms = 0.0
        self.change_count = 0

    def __bool__(self) -> bool:
        return bool(self._groups)

    # --- In the file ---

    def telling(self) -> Callable[[], Mapping[str, object] | None]:
        """Makes of them as they are now what lies in the file of offsets; None for nothing.

        Any thread may call it: of the 80,000 queues of a group, it takes a tenth of a second.
        """
        groups = {group: dict(queues) for group, queues in self._groups.items()}

        def tell() -> Mapping[str, object] | None:
            table: dict[str, dict[str, dict[str, int]]] = {}
            for group, queues in groups.items():
                topics = table[group] = {}
                for queue, offset in queues.items():
                    topics.setdefault(queue.topic, {})[str(queue.queue_id)] = offset
            return table or None

        return tell

    @staticmethod
    def from_json(content: object) -> dict[str, dict[QueueKey, int]]:
        """What the file says. Raises ValueError."""
        return {
            group: {
                QueueKey(topic, as_int(queue_id)): as_long(offset)
                for topic, queues in as_object(topics).items()
                for queue_id, offset in as_object(queues).items()
            }
            for group, topics in as_object(content).items()
        }

    def load(self, groups: Mapping[str, Mapping[QueueKey, int]]) -> None:
        """Take in what was told to nobody before the start."""
        self._groups = {group: dict(queues) for group, queues in groups.items() if queues}
        self._loaded = set(self._groups)
        self._loaded_until_ms = self._clock.monotonic_ms() + EXPIRY_MS

    def set_back(self, range_of: Callable[[QueueKey], QueueRange]) -> None:
        """Let none be beyond the end of a queue."""
        for queues in self._groups.values():
            for queue, offset in queues.items():
                queues[queue] = min(offset, range_of(queue).max_offset)

    # --- While members are online ---

    def set(self, group: str, offsets: Mapping[QueueKey, int]) -> None:
        """Let the group's next pulls of these queues be told so."""
        self._groups.setdefault(group, {}).update(offsets)
        self.change_count += 1

    def has(self, group: str, queue: QueueKey) -> bool:
        """Whether the group has not pulled the queue since it was reset."""
        return queue in self._groups.get(group, ())

    def take(self, group: str, queue: QueueKey) -> int | None:
        """Where the group's pull of the queue is to go on; told once, None where it may go on."""
        queues = self._groups.get(group)
        if queues is None:
            return None
        offset = queues.pop(queue, None)
        if not queues:
            del self._groups[group]
        self.change_count += offset is not None
        return offset

    def nobody_is_there(self, group: str) -> None:
        """The group has no members; after a start they may come back yet."""
        is_early = self._clock.monotonic_ms() < self._loaded_until_ms
        if not (is_early and group in self._loaded):
            self.forget_group(group)

    def forget_group(self, group: str) -> None:
        """Nobody of the group is there any more, or the group is not."""
        self.change_count += self._groups.pop(group, None) is not None

    def forget_topic(self, topic: str) -> None:
        """The topic is no more; one of its name is another."""
        for group, queues in list(self._groups.items()):
            left = {queue: offset for queue, offset in queues.items() if queue.topic != topic}
            self.change_count += len(queues) - len(left)
            if left:
                self._groups[group] = left
            else:
                del self._groups[group]
