"""Progress that nobody needs any more is looked for and forgotten.

That is an entry topic@group to which nobody subscribes, which nobody has committed lately, and from
which nothing can be read on: every offset lies below the minimum of its queue, or at the minimum of
one that holds nothing. Whoever comes back without it begins at the minimum, where its offsets would
have been moved to anyway. An entry with one offset behind its queue's minimum, or at the minimum of
messages to read, stays for ever, however long its group is away.
Holds no state; what is removed is saved with the other offsets, and a crash before brings it back.
Source: ConsumerOffsetManager#scanUnsubscribedTopic, docs/design/broker_behaviour.md 5.4 and 5.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.table import SEPARATOR
from rocketpy_broker.store.values import QueueKey, QueueRange

logger = logging.getLogger(__name__)
# Clients come back within minutes of a start.
DELAY_MS = 5 * 60_000
INTERVAL_MS = 60_000
QUEUES_A_TURN = 1_000
# Groups of the broker's own work, without clients.
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"


class OffsetScan:
    """Looks through all progress. `is_subscribed` is asked with group and topic."""

    def __init__(
        self,
        committed: ConsumerOffsetManager,
        is_subscribed: Callable[[str, str], bool],
        range_of: Callable[[QueueKey], QueueRange],
        clock: Clock,
    ) -> None:
        self._committed = committed
        self._is_subscribed = is_subscribed
        self._range_of = range_of
        self._clock = clock
        self._left = QUEUES_A_TURN

    async def run(self) -> None:
        """Scans at intervals, for ever; not while clients are still coming back from a restart."""
        await sleep(self._clock, DELAY_MS)
        while True:
            await self.scan()
            await sleep(self._clock, INTERVAL_MS)

    async def scan(self) -> list[str]:
        """Forgets what nobody needs; return it as topic@group."""
        removed: list[str] = []
        async for topic, group in self._committed.entries():
            await self._step()
            if self._is_in_use(group, topic):
                continue
            offsets = self._committed.offsets_of(group, topic)
            # Others had their turns meanwhile: a group may be back.
            if (
                await self._is_over(topic, offsets)
                and not self._is_in_use(group, topic)
                and self._committed.delete_if(group, topic, offsets)
            ):
                removed.append(topic + SEPARATOR + group)
        if removed:
            logger.info(
                "the progress of %d groups in topics lies below its queues, and is forgotten; "
                "the first: %s",
                len(removed),
                removed[0],
            )
        return removed

    def _is_in_use(self, group: str, topic: str) -> bool:
        if group.startswith(SYSTEM_GROUP_PREFIX):
            return True
        return self._is_subscribed(group, topic) or self._committed.is_committing(group, topic)

    async def _is_over(self, topic: str, offsets: Mapping[int, int]) -> bool:
        """True if no offset is one to read on from, and some is not in its queue any more."""
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
            self._left = QUEUES_A_TURN
            await take_slot()
