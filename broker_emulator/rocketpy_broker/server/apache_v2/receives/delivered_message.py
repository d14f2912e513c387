"""Messages as consumers and the checkers of producers get them.

Source: GrpcConverter#buildMessage, docs/design/grpc_v2_semantics.md section 8.5.
"""

from __future__ import annotations

import hashlib

from rocketpy_broker.server.apache_v2.property_names import (
    BORN_HOST,
    DEAD_LETTER_MESSAGE_ID,
    DEAD_LETTER_TOPIC,
    RESERVED_NAMES,
    TRACE_CONTEXT,
)
from rocketpy_broker.store.delay_levels import level_of
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.record import Record, encode_offset_message_id
from rocketpy_proto.record.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    PRIORITY,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    UNIQ_KEY,
    WAITING_NAMES,
)
from rocketpy_proto.record.sys_flag import COMPRESSED

_TIMES = WAITING_NAMES - {TRAN_MSG, DELAY}
_INT_MAX = (1 << 31) - 1
# The end of the year 9999, the last time of a Timestamp.
_TIME_MS_MAX = 253_402_300_799_999


def delivered(record: Record, topic: v2.Resource) -> v2.Message:
    """Returns the message of a stored record; `topic` is the client's name of its topic.

    It has no receipt handle. `delivery_attempt` counts this delivery. A number that the protocol
    has no room for becomes the nearest one that it has.
    """
    properties = record.properties
    own = {name: value for name, value in properties.items() if name not in RESERVED_NAMES}
    return v2.Message(
        topic=topic,
        user_properties=own,
        system_properties=_system_properties(record),
        body=record.body,
    )


def _system_properties(record: Record) -> v2.SystemProperties:
    properties = record.properties
    system = v2.SystemProperties(
        keys=filter(None, properties.get(KEYS, "").split(KEY_SEPARATOR)),
        message_id=message_id(record),
        body_digest=v2.Digest(type=v2.MD5, checksum=_md5(record.body)),
        body_encoding=v2.GZIP if record.sys_flag & COMPRESSED else v2.IDENTITY,
        message_type=message_type(record),
        born_host=properties.get(BORN_HOST) or str(record.born_host.address),
        store_host=str(record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=min(max(record.reconsume_times + 1, 1), _INT_MAX),
    )
    system.born_timestamp.FromMilliseconds(_time_ms(record.born_timestamp_ms))
    system.store_timestamp.FromMilliseconds(_time_ms(record.store_timestamp_ms))
    if TAGS in properties:
        system.tag = properties[TAGS]
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    if _is_number(properties.get(PRIORITY, "")):
        system.priority = min(int(properties[PRIORITY]), _INT_MAX)
    if _is_number(properties.get(TIMER_DELIVER_MS, "")):
        system.delivery_timestamp.FromMilliseconds(_time_ms(int(properties[TIMER_DELIVER_MS])))
    if DEAD_LETTER_TOPIC in properties and DEAD_LETTER_MESSAGE_ID in properties:
        system.dead_letter_queue.topic = properties[DEAD_LETTER_TOPIC]
        system.dead_letter_queue.message_id = properties[DEAD_LETTER_MESSAGE_ID]
    return system


def message_id(record: Record) -> str:
    """Returns the sender's unique id of a message, or else its offset message id."""
    given = record.properties.get(UNIQ_KEY)
    return given or encode_offset_message_id(record.store_host, record.physical_offset)


def message_type(record: Record) -> v2.MessageType:
    """Returns the type that the properties of a record give it."""
    properties = record.properties
    if properties.get(TRAN_MSG, "").lower() == "true":
        return v2.TRANSACTION
    if any(name in properties for name in _TIMES) or level_of(properties.get(DELAY, "")):
        return v2.DELAY
    if SHARDING_KEY in properties:
        return v2.FIFO
    return v2.PRIORITY if PRIORITY in properties else v2.NORMAL


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15


def _time_ms(time_ms: int) -> int:
    """Returns a time that a Timestamp has room for."""
    return min(max(time_ms, 0), _TIME_MS_MAX)


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
