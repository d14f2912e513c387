"""OFFSET_MOVED_EVENT messages, which report moved offsets of consumer groups.

The event is stored before the answer, in RocketMQ 4's format; RocketMQ 5 only logs it. If it cannot
be stored, the broker logs that and answers the pull.
An event is not repeated for REPEAT_MS, and a minute has at most EVENTS_PER_MINUTE_MAX events. So a
client that pulls wrong offsets does not fill the commit log. The broker's log reports the number of
omitted events. A crash loses the memory of written events: the broker may write them again.
A slave writes no events.
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
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.counts import counted
from rocketpy_proto.model import OFFSET_MOVED_EVENT
from rocketpy_proto.record import Record, RecordBlock, encode_record
from rocketpy_proto.record.properties import KEYS, TAGS

logger = logging.getLogger(__name__)
EVENT_QUEUE = QueueKey(OFFSET_MOVED_EVENT, 0)
REPEAT_MS = 600_000
MINUTE_MS = 60_000
EVENTS_PER_MINUTE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class MovedOffset:
    """A moved offset: a group pulled at `offset_request` and is to continue at `offset_new`."""

    group: str
    queue: QueueKey
    offset_request: int
    offset_new: int

    def body(self, broker_name: str) -> bytes:
        """Returns RocketMQ's OffsetMovedEvent as JSON."""
        topic, queue_id = self.queue
        event = {
            "consumerGroup": self.group,
            "messageQueue": {"brokerName": broker_name, "queueId": queue_id, "topic": topic},
            "offsetNew": self.offset_new,
            "offsetRequest": self.offset_request,
        }
        return json.dumps(event, separators=(",", ":")).encode()


class MovedOffsetEvents:
    """A writer of events that remembers the events of the last REPEAT_MS."""

    def __init__(
        self, store: MessageStore, group_commit: GroupCommit, clock: Clock, broker_name: str
    ) -> None:
        self._store = store
        self._group_commit = group_commit
        self._clock = clock
        self._broker_name = broker_name
        # Time of the event by group, queue and requested offset; the oldest first.
        self._logged_ms: OrderedDict[tuple[str, QueueKey, int], float] = OrderedDict()
        self._minute, self._count = -1, 0
        self.left_out_count = 0

    def __len__(self) -> int:
        return len(self._logged_ms)

    async def write(self, moved: MovedOffset) -> None:
        """Stores an event, unless it is a repetition or beyond the limit of the minute."""
        now_ms = self._clock.monotonic_ms()
        self._forget(now_ms)
        key = moved.group, moved.queue, moved.offset_request
        if key in self._logged_ms:
            return
        if not self._has_space(now_ms):
            self.left_out_count += 1
            return
        self._logged_ms[key] = now_ms
        await self._group_commit.admission.write_over()
        try:
            self._store.append(EVENT_QUEUE, self._block(moved))
            self._group_commit.flush_soon()
        except StoreError as error:
            logger.warning("the event of a moved offset was not stored: %s; %s", error, moved)

    def _forget(self, now_ms: float) -> None:
        while self._logged_ms and next(iter(self._logged_ms.values())) <= now_ms - REPEAT_MS:
            self._logged_ms.popitem(last=False)

    def _has_space(self, now_ms: float) -> bool:
        minute = int(now_ms // MINUTE_MS)
        if minute != self._minute:
            if self.left_out_count:
                left_out = counted(self.left_out_count, "event")
                logger.warning(
                    "left out %s of moved offsets, limit %d a minute",
                    *(left_out, EVENTS_PER_MINUTE_MAX),
                )
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
