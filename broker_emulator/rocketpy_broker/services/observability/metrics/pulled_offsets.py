"""Pulled offsets of groups, which may be after the committed offsets.

Lives in memory. A group that has not pulled since the start has only its committed offset. New
entries replace the oldest ones at the limit.
Source: docs/design/broker_behaviour.md section 9.6, inflight.
"""

from __future__ import annotations

from collections import OrderedDict

from rocketpy_broker.services.pull.outcome import Pulled
from rocketpy_broker.store.values import QueueKey

# About 200 bytes of memory each.
ENTRIES_MAX = 100_000


class PulledOffsets:
    """The offset after the last pulled message, by group and queue."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._offsets: OrderedDict[tuple[str, QueueKey], int] = OrderedDict()

    def pulled(self, pulled: Pulled) -> None:
        """Notes the next offset of an answered pull."""
        if not pulled.group:
            return
        key = pulled.group, pulled.queue
        self._offsets[key] = pulled.next_offset
        self._offsets.move_to_end(key)
        if len(self._offsets) > self._entries_max:
            self._offsets.popitem(last=False)

    def forget_topic(self, topic: str) -> None:
        """Removes the offsets of a deleted topic; takes at most about 10 ms."""
        self._forget([key for key in self._offsets if key[1].topic == topic])

    def forget_group(self, group: str) -> None:
        """Removes the offsets of a deleted consumer group."""
        self._forget([key for key in self._offsets if key[0] == group])

    def _forget(self, keys: list[tuple[str, QueueKey]]) -> None:
        for key in keys:
            del self._offsets[key]

    def of(self, group: str, queue: QueueKey) -> int:
        """Returns the pulled offset; 0 if unknown."""
        return self._offsets.get((group, queue), 0)
