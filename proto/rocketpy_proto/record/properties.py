r"""Properties string of one record, and the brokers' property names.

    name \x01 value \x02 name \x01 value \x02 ...

Source: docs/design/storage.md sections 3.1 and 3.2, docs/design/grpc_v2_semantics.md section 7.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_proto.record.errors import UnencodableRecordError
from rocketpy_proto.record.layout import (
    NAME_VALUE_SEPARATOR,
    PROPERTIES_BYTES_MAX,
    PROPERTY_SEPARATOR,
)

TAGS = "TAGS"
KEYS = "KEYS"
UNIQ_KEY = "UNIQ_KEY"
SHARDING_KEY, PRIORITY = "__SHARDINGKEY", "_SYS_MSG_PRIORITY_"
KEY_SEPARATOR = " "
# Properties that delay a message's delivery to readers.
DELAY = "DELAY"
TIMER_DELIVER_MS, TIMER_DELAY_MS = "TIMER_DELIVER_MS", "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
# Delivery time of a message that waits in the timer topic.
TIMER_OUT_MS = "TIMER_OUT_MS"
TRAN_MSG = "TRAN_MSG"
PRODUCER_GROUP, TRANSACTION_ID = "PGROUP", "__transactionId__"
WAITING_NAMES = frozenset({DELAY, TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TRAN_MSG})
# False if the sender does not wait for the flush.
WAIT = "WAIT"
# Final topic and queue of a waiting message.
REAL_TOPIC, REAL_QUEUE_ID = "REAL_TOPIC", "REAL_QID"
# First topic of a message that was sent back, and its offset id there.
RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
# Properties of one stored message or one delivery. A copy of a message leaves them out: brokers
# would take them for facts about the new message.
NOT_COPIED_NAMES = WAITING_NAMES | {
    # Of the wait: the real topic and queue, and the timer's data.
    *(REAL_TOPIC, REAL_QUEUE_ID, TIMER_OUT_MS, "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
    *("TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL"),
    # Of the transaction.
    *(PRODUCER_GROUP, TRANSACTION_ID, "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),
    "TRANS_OFFSET",
    # Of failed deliveries.
    *(RETRY_TOPIC, ORIGIN_MESSAGE_ID, "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "ORIGIN_GROUP"),
    *("DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME"),
    # Of the storing broker, and of the send call.
    *("CLUSTER", "MSG_REGION", "TRACE_ON", WAIT, "__CRC32#", "__BORNHOST", "BORN_TIMESTAMP"),
    *("INNER_NUM", "INNER_BASE", "INNER_MULTI_QUEUE_OFFSET", "ARRIVE_TIME", "PUSH_REPLY_TIME"),
    # Of the reading client.
    *("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"),
}
_NAME_END = bytes([NAME_VALUE_SEPARATOR])
_VALUE_END = bytes([PROPERTY_SEPARATOR])


def unsent_wait(properties: Mapping[str, str], now_ms: int) -> str | None:
    """Returns the property that makes a broker delay a message; None if there is none.

    A message that has waited has a REAL_TOPIC. Zero levels and past times cause no wait.
    """
    if REAL_TOPIC in properties:
        return None
    waiting = sorted(WAITING_NAMES.intersection(properties))
    return next((name for name in waiting if _asks_for_wait(name, properties[name], now_ms)), None)


def _asks_for_wait(name: str, value: str, now_ms: int) -> bool:
    if name == TRAN_MSG:
        return value.lower() == "true"
    try:
        return int(value) > (now_ms if name == TIMER_DELIVER_MS else 0)
    except ValueError:
        return True


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Returns the string in the mapping's order. Raises UnencodableRecordError.

    It keeps the trailing separator, as 5.2 and later do. It leaves out entries without a value,
    since no reader would see them.
    """
    entries = []
    for name, value in properties.items():
        if value:
            encoded_value = _checked(f"property {name}", value)
            entries.append(encode_property_name(name) + _NAME_END + encoded_value + _VALUE_END)
    encoded = b"".join(entries)
    if len(encoded) > PROPERTIES_BYTES_MAX:
        reason = f"has more than {PROPERTIES_BYTES_MAX} bytes"
        raise UnencodableRecordError("properties", len(encoded), reason)
    return encoded


def encode_property_name(name: str) -> bytes:
    """Returns the name's bytes. Raises UnencodableRecordError."""
    if not name:
        raise UnencodableRecordError("property name", name, "is empty")
    return _checked("property name", name)


def _checked(field: str, text: str) -> bytes:
    if "\x01" in text or "\x02" in text:
        raise UnencodableRecordError(field, text, "contains a separator (\\x01 or \\x02)")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UnencodableRecordError(field, text, "is not valid Unicode") from error


def decode_properties(encoded: bytes) -> dict[str, str]:
    """Returns the properties; the last duplicate wins, incomplete entries are dropped.

    An incomplete entry has no name or no value. Bytes that are not UTF-8 become U+FFFD, so that one
    bad message cannot stop a reader.
    """
    properties: dict[str, str] = {}
    for entry in encoded.split(_VALUE_END):
        name, _, value = entry.partition(_NAME_END)
        if name and value:
            key = name.decode(errors="replace")
            properties.pop(key, None)
            properties[key] = value.decode(errors="replace")
    return properties
