"""Messages that were read from a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from rocketpy_broker.runtime.time_format import EPOCH
from rocketpy_proto.record import Record, encode_offset_message_id
from rocketpy_proto.record.compression import inflated_or_stored
from rocketpy_proto.record.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY

EARLIEST = datetime.min.replace(tzinfo=timezone.utc)
LATEST = datetime.max.replace(tzinfo=timezone.utc)
# Properties that a message has as fields of their own.
_SHOWN_APART = frozenset({TAGS, KEYS, UNIQ_KEY})


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


def _time(timestamp_ms: int) -> datetime:
    """Returns the time of a record; a time outside `datetime` becomes EARLIEST or LATEST."""
    try:
        return EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return LATEST if timestamp_ms > 0 else EARLIEST
