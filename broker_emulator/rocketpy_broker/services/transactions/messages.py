"""Transaction messages in the log: half messages, op messages and final messages.

A half message is a record of RMQ_SYS_TRANS_HALF_TOPIC. An op message records what happened to half
messages. Its body lists their queue offsets; its property OPERATION names the operation. A final
message names its half message in preparedTransactionOffset. All of this is RocketMQ's own form,
except OPERATION, which RocketMQ ignores.
Source: docs/design/storage.md sections 14.1 to 14.5.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.delay.schedule import DelaySchedule
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.store.append.batch_marks import origin_fields
from rocketpy_broker.store.append.blocks import tags_and_keys
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import KEEP_NUMBERS, AppendHints
from rocketpy_broker.store.values import (
    AppendResult,
    GetMessageStatus,
    PutCause,
    QueueKey,
    ReadLimits,
)
from rocketpy_proto.model import CHECK_MAX_TIME_TOPIC, OP_TOPIC
from rocketpy_proto.record import (
    Record,
    RecordBlock,
    UnencodableRecordError,
    decode_record,
    encode_record,
    properties_strings,
    rewritten,
    with_property,
    without_properties,
)
from rocketpy_proto.record.properties import (
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    WAIT,
)
from rocketpy_proto.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK

OP_QUEUE = QueueKey(OP_TOPIC, 0)
CHECK_MAX_TIME_QUEUE = QueueKey(CHECK_MAX_TIME_TOPIC, 0)
# The tag of RocketMQ's op messages.
OP_TAG = "d"
OPERATION = "ROCKETPY_OP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
# Property of a newer half message: the queue offset of its transaction's first one.
FIRST_HALF = "ROCKETPY_FIRST_HALF"
SEPARATOR = ","
_NUMBER = re.compile("[0-9]{1,10}")
# Digits of a queue offset; longer numbers are beyond every queue.
_OFFSET = re.compile("[0-9]{1,18}")
# Hints for copies of half messages and for op messages.
_STEP = AppendHints(cause=PutCause.TRANSACTION)


class Operation(str, Enum):
    """The fate of a half message; FOREIGN: it has ended, and RocketMQ does not say how."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    COPIED = "copied"
    DISCARDED = "discarded"
    FOREIGN = ""


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message as it is stored; `data` are the bytes of `record`."""

    record: Record
    data: bytes

    @classmethod
    def of(cls, data: bytes) -> HalfMessage:
        """Returns the half message in these bytes."""
        return cls(decode_record(data).record, data)

    @property
    def block(self) -> RecordBlock:
        """The half message as a block, in a writable buffer."""
        return RecordBlock.parse(bytearray(self.data))

    def _text(self, name: str) -> str:
        return self.record.properties.get(name, "")

    def _number(self, name: str) -> int | None:
        """Returns the property as a number; None if it is no number of 1 to 10 digits."""
        text = self._text(name)
        return int(text) if _NUMBER.fullmatch(text) else None

    @property
    def transaction_id(self) -> str:
        """The unique key of its message."""
        return self._text(UNIQ_KEY)

    @property
    def producer_group(self) -> str:
        """The producer group of the transaction."""
        return self._text(PRODUCER_GROUP)

    @property
    def real_queue(self) -> QueueKey:
        """The destination of its message."""
        return QueueKey(self._text(REAL_TOPIC), self._number(REAL_QUEUE_ID) or 0)

    @property
    def first_offset(self) -> int:
        """Queue offset of the transaction's first half message; it identifies the transaction."""
        first = self._number(FIRST_HALF)
        return self.record.queue_offset if first is None else first

    @property
    def is_foreign(self) -> bool:
        """True if it names no first half message: it is the first, or RocketMQ has copied it."""
        return self._number(FIRST_HALF) is None

    @property
    def identity(self) -> Hashable:
        """Fields that a copy by RocketMQ shares with its original."""
        born = self.record.born_timestamp_ms, self.record.born_host
        return self.transaction_id, self.producer_group, self.real_queue, born

    @property
    def check_times(self) -> int:
        """The number of checks sent to its producer."""
        return self._number(CHECK_TIMES) or 0

    def immunity_ms(self, timeout_ms: int) -> int:
        """Returns the time after its born timestamp, in ms, during which it is not checked."""
        seconds = self._number(IMMUNITY_SECONDS)
        return timeout_ms if seconds is None else seconds * 1_000


@dataclass(frozen=True, slots=True)
class OpMessage:
    """An op message: the queue offsets of half messages, and the operation."""

    queue_offset: int
    offsets: tuple[int, ...]
    operation: Operation

    @classmethod
    def of(cls, record: Record) -> OpMessage:
        """Returns the op message of a record; without offsets if it is of another kind."""
        offsets: tuple[int, ...] = ()
        if record.properties.get(TAGS) == OP_TAG:
            texts = record.body.decode(errors="replace").split(SEPARATOR)
            offsets = tuple(int(text) for text in texts if _OFFSET.fullmatch(text))
        name = record.properties.get(OPERATION, "")
        known = name in {operation.value for operation in Operation}
        return cls(record.queue_offset, offsets, Operation(name) if known else Operation.FOREIGN)


class TransactionMessages:
    """Reader and writer of transaction messages.

    Appends raise StoreClosedError, StoreBusyError, RecordIllegalError.
    """

    def __init__(self, store: MessageStore, schedule: DelaySchedule, clock: Clock) -> None:
        self._store = store
        self._schedule = schedule
        self._clock = clock

    def half_at(self, physical_offset: int) -> HalfMessage | None:
        """Returns the half message at an offset of the log; None if there is none."""
        found = self._store.messages.at(physical_offset) if physical_offset >= 0 else None
        if found is None:
            return None
        half = HalfMessage.of(bytes(found))
        return half if half.record.topic == HALF_QUEUE.topic else None

    def half(self, queue_offset: int) -> HalfMessage | None:
        """Returns the half message at a queue offset; None if it cannot be read."""
        found = self._store.get_message(
            HALF_QUEUE, queue_offset, queue_offset + 1, ReadLimits.of_bytes(1)
        )
        if found.status is not GetMessageStatus.FOUND:
            return None
        return HalfMessage.of(found.data)

    def is_deleted(self, half: HalfMessage) -> bool:
        """True if its topic was deleted since, even if a recreated topic has its name."""
        return half.record.physical_offset < self._store.deleted_below(half.real_queue.topic)

    def append_final(self, half: HalfMessage) -> AppendResult:
        """Appends the final message to its real queue; one with a delay waits in another first."""
        record, queue = half.record, half.real_queue
        fields = {
            "sys_flag": record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
            "prepared_transaction_offset": record.physical_offset,
        }
        strings = without_properties(properties_strings(half.block), [FIRST_HALF])
        final = rewritten(half.block, queue.topic, strings, fields)
        return self._store.append(*self._schedule.redirect(queue, final, is_accepted=True))

    def append_copy(self, half: HalfMessage, *, is_counted: bool = True) -> AppendResult:
        """Appends a newer half message of the same transaction; `is_counted` adds one check.

        Raises RecordIllegalError also if its properties would be too long.
        """
        times = half.check_times + is_counted
        strings = with_property(properties_strings(half.block), CHECK_TIMES, str(times))
        strings = with_property(strings, FIRST_HALF, str(half.first_offset))
        try:
            copy = rewritten(half.block, HALF_QUEUE.topic, strings)
        except UnencodableRecordError as error:
            raise RecordIllegalError(f"its check cannot be counted: {error}") from error
        return self._store.append(HALF_QUEUE, copy, _STEP)

    def append_discarded(self, half: HalfMessage) -> AppendResult:
        """Appends a message that was given up, for an operator.

        Its preparedTransactionOffset names the half message.
        """
        origins = np.array([half.record.physical_offset])
        record = rewritten(
            half.block,
            CHECK_MAX_TIME_TOPIC,
            properties_strings(half.block),
            {"prepared_transaction_offset": origin_fields(origins)},
        )
        found = tags_and_keys(CHECK_MAX_TIME_QUEUE, record, self._store.config)
        return self._store.append(
            CHECK_MAX_TIME_QUEUE, record, AppendHints(found, KEEP_NUMBERS, PutCause.OWN)
        )

    def append_op(self, queue_offset: int, operation: Operation) -> AppendResult:
        """Appends an op message: the half message at `queue_offset` has ended."""
        properties = {TAGS: OP_TAG, WAIT: "true", OPERATION: operation.value}
        host = self._store.store_host
        record = Record(
            OP_TOPIC,
            0,
            # RocketMQ 5 accepts a separator after the offset, RocketMQ 4 does not.
            str(queue_offset).encode(),
            {name: value for name, value in properties.items() if value},
            born_timestamp_ms=self._clock.now_ms(),
            born_host=host,
            store_host=host,
        )
        return self._store.append(OP_QUEUE, _block(record), _STEP)


def _block(record: Record) -> RecordBlock:
    return RecordBlock.parse(bytearray(encode_record(record)))
