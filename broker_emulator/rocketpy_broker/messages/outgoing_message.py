"""Messages to send: their checks, and their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.time_format import ms_of_time
from rocketpy_proto.call_limits import ANY_QUEUE
from rocketpy_proto.model.unique_keys import born_host, unique_keys
from rocketpy_proto.record import (
    BLANK_BYTES,
    BlockColumns,
    UnencodableRecordError,
    encode_block,
)
from rocketpy_proto.record.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    NOT_COPIED_NAMES,
    PRODUCER_GROUP,
    TAGS,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    UNIQ_KEY,
    encode_properties,
    unsent_wait,
)
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

# An estimate of a record's header, topic and unique id.
RECORD_OVERHEAD_BYTES = 512


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send. Without a queue id the sender or the broker chooses the queue.

    The broker delivers it after `delay_level`, or at `deliver_at`, which has a time zone.
    Properties of NOT_COPIED_NAMES, which a message that was read may have, are left out.
    """

    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    queue_id: int | None = None
    delay_level: int = 0
    deliver_at: datetime | None = None

    @property
    def deliver_ms(self) -> int | None:
        """The delivery time in ms since 1970."""
        return delivery_ms(self.deliver_at)


@dataclass(frozen=True, slots=True)
class SentMessage:
    """The place of a message that the broker has acknowledged.

    `queue_offset` is None for a delayed message, which gets its offset at its delivery.
    """

    msg_id: str
    queue_id: int
    queue_offset: int | None


def delivery_ms(time: datetime | None) -> int | None:
    """Returns a delivery time in ms since 1970, rounded up so that no message is early."""
    if time is None:
        return None
    return ms_of_time(time)


@dataclass(frozen=True, slots=True)
class WaitArguments:
    """Names of the caller's arguments for a delay level, a delivery time and a transaction."""

    level: str
    time: str
    transaction: str = "`rocketpy transaction send`"


def fault_of_wait(
    properties: Mapping[str, str], now_ms: int, arguments: WaitArguments
) -> str | None:
    """Returns the reason to refuse properties that delay a message; None without such properties.

    A send leaves these properties out, so the broker would deliver the message at once.
    """
    name = unsent_wait(properties, now_ms)
    if name is None:
        return None
    instead = {DELAY: arguments.level, TRAN_MSG: arguments.transaction}.get(name, arguments.time)
    return f"{name!r} is not sent as a property; use {instead}"


def joined_keys(keys: Sequence[str]) -> str:
    """Returns the property KEYS; empty keys are left out."""
    return KEY_SEPARATOR.join(filter(None, keys))


@dataclass(frozen=True, slots=True)
class MessageRules:
    """The rules for messages of a topic; `limits` are the broker's."""

    topic: str
    write_queue_nums: int
    limits: admin_pb2.GetBrokerInfoResponse

    def fault(self, message: OutgoingMessage) -> str | None:
        """Returns the fault of a message as a sentence; None without a fault."""
        limit = self.limits.body_bytes_max
        if len(message.body) > limit:
            return f"the body has {len(message.body)} bytes, limit {limit}"
        nums = self.write_queue_nums
        if message.queue_id is not None and not 0 <= message.queue_id < nums:
            return (
                f"queue id {message.queue_id} of topic {self.topic!r} is not in 0..{nums - 1}; "
                "name an existing queue, or none"
            )
        if message.properties.get(UNIQ_KEY) == "":
            return f"property {UNIQ_KEY} is empty; leave it out, and the client sets one"
        parted = next((key for key in message.keys if KEY_SEPARATOR in key), None)
        if parted is not None:
            return f"key {parted!r} has a blank, which separates keys; send several keys"
        # A value may be empty, a name may not.
        named = {
            name: value or "-"
            for name, value in message.properties.items()
            if name not in NOT_COPIED_NAMES
        }
        apart = {TAGS: message.tags or "", KEYS: joined_keys(message.keys), UNIQ_KEY: "0" * 32}
        try:
            encode_properties(named | {name: apart[name] or named.get(name, "") for name in apart})
        except UnencodableRecordError as error:
            return str(error)
        return _fault_of_waiting(message) or self._fault_of_size(message)

    def _fault_of_size(self, message: OutgoingMessage) -> str | None:
        """Returns the fault of a record that fits in no segment.

        The broker checks the bytes that a delay adds.
        """
        limit = room_bytes(self.limits)
        if limit is None or size_about(message) <= limit:
            return None
        columns, _ = block_columns(self.topic, [message], SystemClock().now_ms())
        size = int(encode_block(columns).sizes[0])
        if size <= limit:
            return None
        return (
            f"its record has {size} bytes, limit {limit} (a segment of the log). Send less in a "
            "message"
        )


def block_columns(
    topic: str, messages: Sequence[OutgoingMessage], now_ms: int, queue_id: int = 0
) -> tuple[BlockColumns, list[str]]:
    """Returns the columns of a block, and the messages' unique ids."""
    # A unique id of the caller is kept.
    given = pa.array([message.properties.get(UNIQ_KEY) for message in messages], pa.string())
    msg_ids = pc.coalesce(given, unique_keys().take(len(messages), now_ms))
    properties = [list(message.properties.items()) for message in messages]
    columns = BlockColumns(
        body=pa.array([message.body for message in messages], pa.binary()),
        topic=topic,
        queue_id=queue_id,
        tags=pa.array([message.tags for message in messages], pa.string()),
        keys=pa.array([joined_keys(message.keys) for message in messages], pa.string()),
        properties=pa.array(properties, pa.map_(pa.string(), pa.string())),
        extra={UNIQ_KEY: msg_ids, **_waiting_properties(messages)},
        left_out=NOT_COPIED_NAMES,
        born_timestamp_ms=now_ms,
        born_host=born_host(),
    )
    return columns, msg_ids.to_pylist()


def append_request(
    topic: str, message: OutgoingMessage, now_ms: int, producer_group: str = ""
) -> tuple[broker_pb2.AppendRequest, str]:
    """Returns the request that sends one message, and the message's unique id.

    With a producer group it sends a half message.
    """
    columns, (msg_id,) = block_columns(topic, [message], now_ms)
    if producer_group:
        marks: Mapping[str, str] = {TRAN_MSG: "true", PRODUCER_GROUP: producer_group}
        columns = replace(columns, extra={**columns.extra, **marks})
    block = encode_block(columns)
    request = broker_pb2.AppendRequest(
        topic=topic,
        queue_id=ANY_QUEUE if message.queue_id is None else message.queue_id,
        record_sizes=block.sizes.astype(np.dtype(">i4")).tobytes(),
        records=block.data.to_pybytes(),
    )
    return request, msg_id


def _fault_of_waiting(message: OutgoingMessage) -> str | None:
    if message.delay_level < 0:
        return f"delay level {message.delay_level} is negative; 1 is the first, 0 means no delay"
    if message.deliver_at is None:
        return None
    if message.delay_level:
        return "it has a delay level and a delivery time; give one of them"
    if message.deliver_at.tzinfo is None:
        return f"delivery time {message.deliver_at.isoformat()} has no time zone; give one"
    return None


def _waiting_properties(messages: Sequence[OutgoingMessage]) -> dict[str, pa.StringArray]:
    """Returns the properties by which the broker delays messages."""
    levels = [str(message.delay_level or "") for message in messages]
    times = [message.deliver_ms for message in messages]
    return {
        DELAY: pa.array(levels),
        TIMER_DELIVER_MS: pa.array(times, pa.int64()).cast(pa.string()),
    }


def room_bytes(limits: admin_pb2.GetBrokerInfoResponse) -> int | None:
    """Returns the bytes of records that fit in a log segment; None if unknown."""
    segment_bytes = limits.commit_log_segment_bytes
    return segment_bytes - BLANK_BYTES if segment_bytes else None


def size_about(message: OutgoingMessage) -> int:
    """Returns an upper estimate of a record's bytes, also of a delayed message."""
    texts = [message.tags or "", *message.keys, *message.properties, *message.properties.values()]
    return len(message.body) + 4 * sum(map(len, texts)) + RECORD_OVERHEAD_BYTES
