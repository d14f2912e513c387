"""OFFSET_MOVED_EVENT: a message that tells whose offset was moved, from where to where.

Written before the answer, in the form of RocketMQ 4; RocketMQ 5 only logs it. A message that cannot
be stored is logged, and the pull is answered all the same.
An event is not repeated for ten minutes, and each minute has room for so many: a client that pulls
a wrong offset again and again, or one wrong offset after the other, does not fill the log. What is
left out is counted, and told in the broker's log. This memory is lost with the process.
This broker is a master; a slave would write no events.
Source: docs/design/broker_behaviour.md section 2.10.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from dataclasses import dataclass

from rocketpy_broker.errors import StoreError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.topics.system import OFFSET_MOVED_EVENT
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import Record, RecordBlock, encode_record
from rocketpy_proto.record.properties import KEYS, TAGS

logger = logging.getLogger(__name__)
EVENT_QUEUE = QueueKey(OFFSET_MOVED_EVENT, 0)
REPEAT_MS = 600_000
MINUTE_MS = 60_000
EVENTS_PER_MINUTE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class MovedOffset:
    """A group pulled a queue at `offset_request`, and is to go on at `offset_new`."""

    group: str
    queue: QueueKey
    offset_request: int
    offset_new: int

    def body(self, broker_name: str) -> bytes:
        """RocketMQ's OffsetMovedEvent."""
        topic, queue_id = self.queue
        event = {
            "consumerGroup": self.group,
            "messageQueue": {"brokerName": broker_name, "queueId": queue_id, "topic": topic},
            "offsetNew": self.offset_new,
            "offsetRequest": self.offset_request,
        }
        return json.dumps(event, separators=(",", ":")).encode()


class MovedOffsetEvents:
    """Writes events, and remembers those of the last minutes."""

    def __init__(
        self, store: MessageStore, group_commit: GroupCommit, clock: Clock, broker_name: str
    ) -> None:
        self._store = store
        self._group_commit = group_commit
        self._clock = clock
        self._broker_name = broker_name
        # Group, queue and requested offset, and when that was told; the oldest first.
        self._told_ms: OrderedDict[tuple[str, QueueKey, int], float] = OrderedDict()
        self._minute, self._count = -1, 0
        self.left_out_count = 0

    def __len__(self) -> int:
        return len(self._told_ms)

    async def write(self, moved: MovedOffset) -> None:
        """Tell of a moved offset, unless that was done lately, or too many were."""
        now_ms = self._clock.monotonic_ms()
        self._forget(now_ms)
        key = moved.group, moved.queue, moved.offset_request
        if key in self._told_ms:
            return
        if not self._has_room(now_ms):
            self.left_out_count += 1
            return
        self._told_ms[key] = now_ms
        await self._group_commit.large_writes.over()
        try:
            self._store.append(EVENT_QUEUE, self._block(moved))
            self._group_commit.flush_soon()
        except StoreError as error:
            logger.warning("the event of a moved offset was not stored: %s; %s", error, moved)

    def _forget(self, now_ms: float) -> None:
        while self._told_ms and next(iter(self._told_ms.values())) <= now_ms - REPEAT_MS:
            self._told_ms.popitem(last=False)

    def _has_room(self, now_ms: float) -> bool:
        minute = int(now_ms // MINUTE_MS)
        if minute != self._minute:
            if self.left_out_count:
                logger.warning("%d events of moved offsets were left out", self.left_out_count)
            self._minute, self._count, self.left_out_count = minute, 0, 0
        self._count += 1
        return self._count <= EVENTS_PER_MINUTE_MAX

    def _block(self, moved: MovedOffset) -> RecordBlock:
        host = self._store.store_host
        record = Record(
            EVENT_QUEUE.topic,
            EVENT_QUEUE.queue_id,
            moved.body(self._broker_name),
            {TAGS: moved.group, KEYS: moved.group},
            born_timestamp_ms=self._clock.now_ms(),
            born_host=host,
            store_host=host,
        )
        return RecordBlock.parse(bytearray(encode_record(record)))
