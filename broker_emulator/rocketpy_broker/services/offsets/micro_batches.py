"""Micro-batches of Spark queries: the newest report of each group, for operators.

State: in memory only, since the offsets themselves are saved; a query reports again with its next
micro-batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.store.values import QueueKey

# Groups whose reports are kept; the group that has not reported for longest is forgotten.
GROUPS_MAX = 10_000
# Parts of a report that are counted; each has up to a thousand queues.
PARTS_MAX = 100


@dataclass(slots=True)
class MicroBatch:
    """A report of a Spark query; requests with one `token` are parts of it.

    `message_count` is None while no queue of the report had a committed offset before.
    """

    token: int
    driver_host: str
    commit_timestamp_ms: int = 0
    message_count: int | None = None
    # The number of queues of each part, by its first queue.
    parts: dict[QueueKey, int] = field(default_factory=dict)

    @property
    def queue_count(self) -> int:
        """The number of queues of all parts."""
        return sum(self.parts.values())


class MicroBatches:
    """Table group -> its newest micro-batch."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest: OrderedDict[str, MicroBatch] = OrderedDict()

    def add(
        self,
        group: str,
        token: int,
        driver_host: str,
        queues: Sequence[QueueKey],
        message_count: int | None,
    ) -> None:
        """Adds a part of a report; a part may arrive twice.

        `message_count` counts only queues of the part that had a committed offset before.
        """
        found = self._newest.get(group)
        if found is None or found.token != token:
            found = self._newest[group] = MicroBatch(token, driver_host)
        self._newest.move_to_end(group)
        if len(self._newest) > GROUPS_MAX:
            self._newest.popitem(last=False)
        found.commit_timestamp_ms = self._clock.now_ms()
        if queues and len(found.parts) < PARTS_MAX:
            found.parts[queues[0]] = len(queues)
        if message_count is not None:
            found.message_count = (found.message_count or 0) + message_count

    def get(self, group: str) -> MicroBatch | None:
        """Returns the newest micro-batch of a group; None without a report."""
        return self._newest.get(group)

    def forget(self, group: str) -> None:
        """Drops the report of a deleted group."""
        self._newest.pop(group, None)
