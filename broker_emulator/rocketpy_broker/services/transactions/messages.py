"""Messages about transactions, in the log: half messages, op messages, and what becomes of them.

Each half message is a record of RMQ_SYS_TRANS_HALF_TOPIC; what has happened to it is told by op
messages, whose bodies list its queue offsets there, and whose property OPERATION tells what it was.
A final message names its half message in preparedTransactionOffset. All of it in RocketMQ's own
form, but for that property, which RocketMQ passes over. Holds no state but the log's.
Source: spec/storage.md sections 14.1 to 14.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from rocketpy_broker.clock import Clock
from rocketpy_broker.services.delay.scheduling import Scheduling
from rocketpy_broker.services.sending.half import HALF_QUEUE
from rocketpy_broker.services.topics.system import CHECK_MAX_TIME_TOPIC, OP_TOPIC
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import AppendResult, GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.record import Record, RecordBlock, decode_record, encode_record
from rocketpy_proto.record.properties import (
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
)
from rocketpy_proto.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK

OP_QUEUE = QueueKey(OP_TOPIC, 0)
CHECK_MAX_TIME_QUEUE = QueueKey(CHECK_MAX_TIME_TOPIC, 0)
# What RocketMQ's op messages are known by.
OP_TAG = "d"
OPERATION = "ROCKETPY_OP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
SEPARATOR = ","


class Operation(str, Enum):
    """What has become of a half message; FOREIGN: it has ended, RocketMQ does not say how."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    COPIED = "copied"
    DISCARDED = "discarded"
    FOREIGN = ""


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message as it is stored."""

    record: Record

    def _text(self, name: str) -> str:
        return self.record.properties.get(name, "")

    @property
    def transaction_id(self) -> str:
        """The unique key of its message."""
        return self._text(UNIQ_KEY)

    @property
    def producer_group(self) -> str:
        """Whose transaction it is."""
        return self._text(PRODUCER_GROUP)

    @property
    def real_queue(self) -> QueueKey:
        """Where its message goes."""
        queue_id = self._text(REAL_QUEUE_ID)
        return QueueKey(self._text(REAL_TOPIC), int(queue_id) if queue_id.isdigit() else 0)

    @property
    def check_times(self) -> int:
        """How often its producer was asked after it."""
        times = self._text(CHECK_TIMES)
        return int(times) if times.isdigit() else 0

    def immunity_ms(self, timeout_ms: int) -> int:
        """How long after its birth it is not asked after."""
        seconds = self._text(IMMUNITY_SECONDS)
        return int(seconds) * 1_000 if seconds.isdigit() else timeout_ms


@dataclass(frozen=True, slots=True)
class OpMessage:
    """What an op message tells of half messages, by their queue offsets."""

    queue_offset: int
    offsets: tuple[int, ...]
    operation: Operation

    @classmethod
    def of(cls, record: Record) -> OpMessage:
        """What a record of the op topic tells; nothing, if it is of another kind."""
        offsets: tuple[int, ...] = ()
        if record.properties.get(TAGS) == OP_TAG:
            texts = record.body.decode(errors="replace").split(SEPARATOR)
            offsets = tuple(int(text) for text in texts if text.isdigit() and text.isascii())
        name = record.properties.get(OPERATION, "")
        known = name in {operation.value for operation in Operation}
        return cls(record.queue_offset, offsets, Operation(name) if known else Operation.FOREIGN)


class TransactionMessages:
    """Reads and appends them.

    Appends raise StoreClosedError, StoreBusyError, RecordIllegalError.
    """

    def __init__(self, store: MessageStore, scheduling: Scheduling, clock: Clock) -> None:
        self._store = store
        self._scheduling = scheduling
        self._clock = clock

    def half_at(self, physical_offset: int) -> HalfMessage | None:
        """The half message at a place in the log; None where none is."""
        found = self._store.messages.at(physical_offset) if physical_offset >= 0 else None
        if found is None:
            return None
        record = decode_record(found).record
        return HalfMessage(record) if record.topic == HALF_QUEUE.topic else None

    def half(self, queue_offset: int) -> HalfMessage | None:
        """The half message at a queue offset; None where it cannot be read."""
        found = self._store.get_message(
            HALF_QUEUE, queue_offset, queue_offset + 1, ReadLimits.of_bytes(1)
        )
        if found.status is not GetMessageStatus.FOUND:
            return None
        return HalfMessage(decode_record(b"".join(bytes(part) for part in found.parts)).record)

    def append_final(self, half: HalfMessage) -> AppendResult:
        """The message itself, for its readers, or to wait first if it has a delay."""
        record = half.record
        final = replace(
            record,
            topic=half.real_queue.topic,
            sys_flag=record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
            prepared_transaction_offset=record.physical_offset,
        )
        queue, block = self._scheduling.placed(half.real_queue, _block(final))
        return self._store.append(queue, block)

    def append_copy(self, half: HalfMessage, properties: Mapping[str, str]) -> AppendResult:
        """A newer half message of the same transaction."""
        changed = {**half.record.properties, **properties}
        return self._store.append(HALF_QUEUE, _block(replace(half.record, properties=changed)))

    def append_discarded(self, half: HalfMessage) -> AppendResult:
        """What was asked after too often, for an operator to find."""
        record = replace(half.record, topic=CHECK_MAX_TIME_TOPIC)
        return self._store.append(CHECK_MAX_TIME_QUEUE, _block(record))

    def append_op(self, queue_offset: int, operation: Operation) -> AppendResult:
        """That the half message at `queue_offset` needs nothing any more."""
        properties = {TAGS: OP_TAG, "WAIT": "true", OPERATION: operation.value}
        host = self._store.store_host
        record = Record(
            OP_TOPIC,
            0,
            f"{queue_offset}{SEPARATOR}".encode(),
            {name: value for name, value in properties.items() if value},
            born_timestamp_ms=self._clock.now_ms(),
            born_host=host,
            store_host=host,
        )
        return self._store.append(OP_QUEUE, _block(record))


def _block(record: Record) -> RecordBlock:
    return RecordBlock.parse(bytearray(encode_record(record)))
