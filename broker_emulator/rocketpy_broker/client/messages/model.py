"""Messages of the client: outgoing, sent and read ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from rocketpy_broker.client.errors import UnreadableError
from rocketpy_broker.runtime.time_format import EPOCH, ms_of_time
from rocketpy_proto.record import (
    MalformedRecordError,
    Record,
    RecordBlock,
    decode_record,
    decode_sizes,
    encode_offset_message_id,
)
from rocketpy_proto.record.compression import inflated_or_stored
from rocketpy_proto.record.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    unsent_wait,
)

EARLIEST = datetime.min.replace(tzinfo=timezone.utc)
LATEST = datetime.max.replace(tzinfo=timezone.utc)
# Properties that a message has as fields of their own.
_SHOWN_APART = frozenset({TAGS, KEYS, UNIQ_KEY})


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


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a topic, as it was read.

    `text` and `body` are its content. `msg_id` is the sender's unique id, or else `offset_msg_id`.
    `properties` leaves out the properties of `tags`, `keys` and `msg_id`. Times have the time zone
    UTC; hosts are texts, host:port. The body is kept as it is stored, so messages take no more
    memory than their records.
    """

    topic: str
    queue_id: int
    queue_offset: int
    stored_body: bytes
    sys_flag: int
    tags: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    msg_id: str
    offset_msg_id: str
    born_timestamp: datetime
    born_host: str
    store_timestamp: datetime
    store_host: str
    commit_log_offset: int
    reconsume_times: int = 0

    @property
    def body(self) -> bytes:
        """The content as the producer sent it; if `body_error` is set, as it is stored.

        Each access inflates a compressed body again.
        """
        return inflated_or_stored(self.stored_body, self.sys_flag)[0]

    @property
    def body_error(self) -> str | None:
        """The reason why the body cannot be inflated; None without a fault."""
        return inflated_or_stored(self.stored_body, self.sys_flag)[1]

    @property
    def text(self) -> str:
        """The content as text. Raises UnicodeDecodeError if it is not UTF-8."""
        return self.body.decode()

    @classmethod
    def of(cls, record: Record) -> Message:
        """Returns the message of a record."""
        properties = record.properties
        offset_msg_id = encode_offset_message_id(record.store_host, record.physical_offset)
        return cls(
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            stored_body=record.body,
            sys_flag=record.sys_flag,
            tags=properties.get(TAGS),
            keys=tuple(key for key in properties.get(KEYS, "").split(KEY_SEPARATOR) if key),
            properties={
                name: value for name, value in properties.items() if name not in _SHOWN_APART
            },
            msg_id=properties.get(UNIQ_KEY, offset_msg_id),
            offset_msg_id=offset_msg_id,
            born_timestamp=_time(record.born_timestamp_ms),
            born_host=str(record.born_host),
            store_timestamp=_time(record.store_timestamp_ms),
            store_host=str(record.store_host),
            commit_log_offset=record.physical_offset,
            reconsume_times=record.reconsume_times,
        )


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


def decode_messages(records: bytes | memoryview, record_sizes: bytes) -> Iterator[Message]:
    """Yields the messages of a block. Raises UnreadableError."""
    try:
        block = RecordBlock.parse(records, decode_sizes(record_sizes))
    except MalformedRecordError as error:
        raise _damaged(error) from error
    yield from messages_of(block)


def messages_of(block: RecordBlock) -> Iterator[Message]:
    """Yields the messages of a block, decoded one by one. Raises UnreadableError."""
    for position in block.positions.tolist():
        try:
            yield Message.of(decode_record(block.data.data, position).record)
        except MalformedRecordError as error:
            raise _damaged(error) from error


def _damaged(error: MalformedRecordError) -> UnreadableError:
    return UnreadableError(f"the broker's answer is damaged: {error}")


def _time(timestamp_ms: int) -> datetime:
    """Returns the time of a record; a time outside `datetime` becomes EARLIEST or LATEST."""
    try:
        return EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return LATEST if timestamp_ms > 0 else EARLIEST
