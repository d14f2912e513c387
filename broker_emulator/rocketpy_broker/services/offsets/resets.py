"""Resets that members of a group do not know of yet: where their next pull is to go on.

A member that was online when its group was set to another place knows its old place, and would
commit it over the new one. So its commits of that queue do not count until it has pulled, and that
pull is told the new place. RocketMQ honours the commit that this very pull carries; here it does
not count either. A group without members asks for its place when it comes back, so what waits for
it is forgotten. Lives in memory; a restart loses it, and members come back with what the table of
offsets says. Source: ConsumerOffsetManager#resetOffsetTable, spec/broker_behaviour.md section 5.6.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.store.values import QueueKey


class PendingResets:
    """group -> queue -> offset."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[QueueKey, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def set(self, group: str, offsets: Mapping[QueueKey, int]) -> None:
        """Let the group's next pulls of these queues be told so."""
        self._groups.setdefault(group, {}).update(offsets)

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
        return offset

    def forget_group(self, group: str) -> None:
        """Nobody of the group is there any more, or the group is not."""
        self._groups.pop(group, None)

    def forget_topic(self, topic: str) -> None:
        """The topic is no more; one of its name is another."""
        for group, queues in list(self._groups.items()):
            left = {queue: offset for queue, offset in queues.items() if queue.topic != topic}
            if left:
                self._groups[group] = left
            else:
                del self._groups[group]
