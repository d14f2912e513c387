"""Writer and reader of check points and acknowledgements in the store.

A message that is due later goes to the timer queue first. The timer appends it to its revive queue
when it is due; that copy has the property TIMER_OUT_MS. Source: docs/design/storage.md section 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import ParameterIllegalError, RecordIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.delay.schedule import DelaySchedule
from rocketpy_broker.services.receipts.check_points import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    Ack,
    CheckPoint,
)
from rocketpy_broker.services.topics.system import revive_topic
from rocketpy_broker.store.append.batch_marks import origins_of
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import AppendHints
from rocketpy_broker.store.values import (
    AppendResult,
    GetMessageStatus,
    PutCause,
    QueueKey,
    ReadLimits,
)
from rocketpy_proto.record import Record, RecordBlock, UnencodableRecordError, java_hash
from rocketpy_proto.record.block.properties_block import parse_properties
from rocketpy_proto.record.properties import (
    REAL_TOPIC,
    TAGS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from rocketpy_proto.struct_types import prepared

READ_BYTES = 256 << 10
_OWN = AppendHints(cause=PutCause.OWN)
_CHECK_POINTS = np.array([java_hash(CHECK_POINT_TAG)], np.int64)


@dataclass(frozen=True, slots=True)
class Entry:
    """A check point or an acknowledgement in a queue.

    `written_at` is the physical offset of its first copy, the one that a client's request wrote.
    `deliver_ms` is the time at which the timer appended this copy, or 0 if no timer did.
    """

    queue_offset: int
    physical_offset: int
    written_at: int
    deliver_ms: int
    content: CheckPoint | Ack


class ReviveLog:
    """The revive topic of one broker."""

    def __init__(
        self, store: MessageStore, schedule: DelaySchedule, clock: Clock, config: BrokerConfig
    ) -> None:
        self._store = store
        self._schedule = schedule
        self._clock = clock
        topic, count = revive_topic(config.cluster_name), config.system_topics.revive_queue_nums
        self.queues = [QueueKey(topic, queue_id) for queue_id in range(count)]
        self._turn = 0

    def next_queue(self) -> QueueKey:
        """Returns the next queue, in turn."""
        self._turn = (self._turn + 1) % len(self.queues)
        return self.queues[self._turn]

    def queue(self, queue_id: int) -> QueueKey:
        """Returns the queue with this id. Raises ParameterIllegalError."""
        if not 0 <= queue_id < len(self.queues):
            accepted = f"0 to {len(self.queues) - 1}"
            raise ParameterIllegalError("the receipt's revive queue", queue_id, accepted)
        return self.queues[queue_id]

    def append(self, queue: QueueKey, *entries: tuple[CheckPoint | Ack, int]) -> AppendResult:
        """Appends entries in one write, each due at its time in ms.

        Raises StoreClosedError, StoreBusyError, TimerRefusedError, RecordIllegalError.
        """
        records = [self._record(queue, *each) for each in entries]
        is_ack = any(isinstance(content, Ack) for content, _ in entries)
        try:
            destination = self._schedule.redirect_records(queue, records, is_ack=is_ack)
        except UnencodableRecordError as error:
            raise RecordIllegalError(
                f"the receipt has a text that no record can hold: {error}"
            ) from error
        return self._store.append(*destination, _OWN)

    def _record(self, queue: QueueKey, content: CheckPoint | Ack, deliver_ms: int) -> Record:
        host = self._store.store_host
        return Record(
            *queue,
            msgspec.json.encode(content),
            {
                TAGS: content.tag,
                UNIQ_KEY: content.unique_key,
                TIMER_DELIVER_MS: str(max(deliver_ms, 0)),
            },
            born_timestamp_ms=self._clock.now_ms(),
            born_host=host,
            store_host=host,
        )

    def read(self, queue: QueueKey, offset: int) -> tuple[list[Entry], int]:
        """Returns some entries of a revive queue from `offset` on, and the next offset.

        The next offset is `offset` at the end of the queue. Takes a few milliseconds.
        """
        end = self._store.range_of(queue).max_offset
        if offset >= end:
            return [], offset
        found = self._store.get_message(queue, offset, end, ReadLimits.of_bytes(READ_BYTES))
        following = max(found.next_offset, offset + 1)
        if found.status is not GetMessageStatus.FOUND:
            return [], following
        return list(self._entries(RecordBlock.parse(found.data, found.sizes))), following

    def written_from(self, log_offset: int) -> Iterator[Entry]:
        """Yields the check points that requests have written to the log from `log_offset` on."""
        for queue in (TIMER_QUEUE, *self.queues):
            offset = self._store.queue_lookup.first_after(queue, log_offset)
            end = self._store.range_of(queue).max_offset
            while offset < end:
                limits = ReadLimits.of_bytes(READ_BYTES, _CHECK_POINTS)
                found = self._store.get_message(queue, offset, end, limits)
                offset = max(found.next_offset, offset + 1)
                if found.status is GetMessageStatus.FOUND:
                    block = RecordBlock.parse(found.data, found.sizes)
                    entries = self._entries(block, is_timer=queue == TIMER_QUEUE)
                    yield from (each for each in entries if each.deliver_ms == 0)

    def _entries(self, block: RecordBlock, *, is_timer: bool = False) -> Iterator[Entry]:
        """Yields the sound entries of a block. A broken one of another broker is skipped."""
        properties = parse_properties(block.data, block.properties_start, block.properties_length)
        names = (TAGS, TIMER_OUT_MS, TIMER_DELIVER_MS, REAL_TOPIC)
        columns = [properties.column(name).to_pylist() for name in names]
        offsets = block.header["queue_offset"].tolist()
        places = block.header["physical_offset"].tolist()
        origins = origins_of(block).tolist()
        ends = block.body_start + block.body_length
        bodies = zip(block.body_start.tolist(), ends.tolist(), strict=True)
        rows = zip(offsets, places, origins, bodies, *columns, strict=True)
        for offset, place, origin, (begin, end), tag, out_ms, deliver_ms, topic in rows:
            if is_timer and topic != self.queues[0].topic:
                continue
            content = decoded(tag, bytes(block.data[begin:end]))
            if content is not None:
                has_waited = out_ms is not None and not is_timer
                due_ms = int(deliver_ms) if has_waited and str(deliver_ms).isdecimal() else 0
                written_at = origin if origin >= 0 else place
                yield Entry(offset, place, written_at, due_ms, content)


def decoded(tag: str | None, body: bytes) -> CheckPoint | Ack | None:
    """Returns the content of a message; None if it is no sound check point or acknowledgement."""
    kinds: dict[str | None, type[CheckPoint | Ack]] = {
        CHECK_POINT_TAG: CheckPoint,
        ACK_TAG: Ack,
        BATCH_ACK_TAG: Ack,
    }
    kind = kinds.get(tag)
    if kind is None:
        return None
    try:
        return msgspec.json.decode(body, type=prepared(kind), strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
