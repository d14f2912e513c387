"""Removal of unused progress of consumer groups.

An entry topic@group is removed under three conditions: no client subscribes, no recent commit
exists, and no message is left to read. Every offset is then below the minimum of its queue, or at
the minimum of an empty queue. At least one offset is below. A group that returns later starts at
the minimum. The broker would have moved its offsets there anyway.
An entry stays if one offset is above its queue's minimum, or at the minimum of a queue with
messages. The time of the group's absence does not matter.
A removal is saved with the other offsets; a crash before the save restores the entry.
Source: ConsumerOffsetManager#scanUnsubscribedTopic, docs/design/broker_behaviour.md sections 5.4
and 5.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.table import SEPARATOR
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.counts import counted
from rocketpy_proto.model import SYSTEM_GROUP_PREFIX

logger = logging.getLogger(__name__)
# Clients reconnect within minutes of a start.
DELAY_MS = 5 * 60_000
INTERVAL_MS = 60_000
QUEUES_A_SLOT = 1_000


class OffsetScan:
    """The periodic scan of all progress; `is_subscribed` takes group and topic."""

    def __init__(
        self,
        committed: ConsumerOffsetManager,
        is_subscribed: Callable[[str, str], bool],
        range_of: Callable[[QueueKey], QueueBounds],
        clock: Clock,
    ) -> None:
        self._committed = committed
        self._is_subscribed = is_subscribed
        self._range_of = range_of
        self._clock = clock
        self._left = QUEUES_A_SLOT

    async def run(self) -> None:
        """Scans at intervals until cancelled; first gives clients time to reconnect."""
        await sleep(self._clock, DELAY_MS)
        while True:
            await self.scan()
            await sleep(self._clock, INTERVAL_MS)

    async def scan(self) -> list[str]:
        """Deletes unused entries; returns them as topic@group."""
        removed: list[str] = []
        async for topic, group in self._committed.entries():
            await self._step()
            if self._is_in_use(group, topic):
                continue
            offsets = self._committed.offsets_of(group, topic)
            # Other tasks ran during the await: the group may be in use again.
            if (
                await self._is_over(topic, offsets)
                and not self._is_in_use(group, topic)
                and self._committed.delete_if(group, topic, offsets)
            ):
                removed.append(topic + SEPARATOR + group)
        if removed:
            logger.info(
                "removed %s of consumer offsets (topic@group), which no client uses and which are "
                "below the minimum of their queues; the first: %s",
                counted(len(removed), "entry", "entries"),
                removed[0],
            )
        return removed

    def _is_in_use(self, group: str, topic: str) -> bool:
        if group.startswith(SYSTEM_GROUP_PREFIX):
            return True
        return self._is_subscribed(group, topic) or self._committed.is_committing(group, topic)

    async def _is_over(self, topic: str, offsets: Mapping[int, int]) -> bool:
        """True if no offset has messages to read, and one or more is below its queue's minimum."""
        is_below = False
        for queue_id, offset in offsets.items():
            await self._step()
            bounds = self._range_of(QueueKey(topic, queue_id))
            if offset > bounds.min_offset:
                return False
            if offset < bounds.min_offset:
                is_below = True
            elif bounds.max_offset > bounds.min_offset:
                return False
        return is_below

    async def _step(self) -> None:
        self._left -= 1
        if not self._left:
            self._left = QUEUES_A_SLOT
            await take_slot()
