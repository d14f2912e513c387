"""The batches' own queue in the log: a record for each decision, and one when it is carried out.

Entry: a message whose body is JSON, with the tag `decision` or `completion`. A decision holds
the whole request, so that a start can carry it out; a completion names it. A decision that a crash
has torn is cut away with the log's tail and has never been. Read at the start, written by
`BatchService` alone; no client gets to see it. Holds no state.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from rocketpy_broker.clock import Clock
from rocketpy_broker.services.system_topics import BATCHES_TOPIC
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.prepared import PreparedRange
from rocketpy_broker.store.values import AppendResult, GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.record import Record, RecordBlock, decode_record, encode_record
from rocketpy_proto.record.properties import TAGS

logger = logging.getLogger(__name__)
BATCHES_QUEUE = QueueKey(BATCHES_TOPIC, 0)
DECISION, COMPLETION = "decision", "completion"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """What a writer wants to be visible, in this order: all of it, once, or nothing."""

    writer_id: str
    batch_id: int
    prepared_token: int
    ranges: tuple[PreparedRange, ...]

    def to_json(self) -> bytes:
        """The body of its records."""
        content = {
            "writerId": self.writer_id,
            "batchId": self.batch_id,
            "preparedToken": self.prepared_token,
            "ranges": [
                [*wanted.queue, wanted.offset, wanted.length, wanted.record_count]
                for wanted in self.ranges
            ],
        }
        return json.dumps(content, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Decision:
    """A batch that is decided, and where its record lies."""

    batch: Batch
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Completion:
    """A batch whose every message is stored."""

    writer_id: str
    batch_id: int
    store_timestamp_ms: int


class BatchLog:
    """Writes the records and reads them."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def append_decision(self, batch: Batch) -> Decision:
        """Decide. Raises what `MessageStore.append` does; then nothing is decided."""
        stored = self._append(DECISION, batch.to_json())
        return Decision(
            batch, stored.queue_offset, stored.physical_offset, stored.store_timestamp_ms
        )

    def append_completion(self, batch: Batch) -> None:
        """Spare the next start this batch. Raises what `MessageStore.append` does."""
        self._append(COMPLETION, Batch(batch.writer_id, batch.batch_id, 0, ()).to_json())

    def _append(self, tag: str, body: bytes) -> AppendResult:
        record = Record(
            BATCHES_TOPIC,
            0,
            body,
            {TAGS: tag},
            born_timestamp_ms=self._clock.now_ms(),
            born_host=self._store.store_host,
            store_host=self._store.store_host,
        )
        block = RecordBlock.parse(bytearray(encode_record(record)))
        return self._store.append(BATCHES_QUEUE, block)

    def read(self, offset: int) -> Iterator[Decision | Completion]:
        """Everything from `offset` of the queue on that is still there."""
        bounds = self._store.range_of(BATCHES_QUEUE)
        # Behind the end: the queue has been lost, and numbered anew.
        offset = bounds.min_offset if offset > bounds.max_offset else offset
        offset = max(offset, bounds.min_offset)
        while offset < bounds.max_offset:
            found = self._store.get_message(
                BATCHES_QUEUE, offset, bounds.max_offset, ReadLimits.of_bytes(_READ_BYTES)
            )
            if found.status is GetMessageStatus.FOUND:
                data = b"".join(bytes(part) for part in found.parts)
                position = 0
                for size in found.sizes.tolist():
                    yield _of_record(decode_record(data, position).record)
                    position += size
            else:
                logger.critical("a decision about a batch is lost: %s %d", BATCHES_TOPIC, offset)
            offset = found.next_offset


def _of_record(record: Record) -> Decision | Completion:
    content = json.loads(record.body)
    if record.properties.get(TAGS) == COMPLETION:
        return Completion(content["writerId"], content["batchId"], record.store_timestamp_ms)
    ranges = tuple(
        PreparedRange(QueueKey(topic, queue_id), offset, length, record_count)
        for topic, queue_id, offset, length, record_count in content["ranges"]
    )
    batch = Batch(content["writerId"], content["batchId"], content["preparedToken"], ranges)
    return Decision(batch, record.queue_offset, record.physical_offset, record.store_timestamp_ms)
