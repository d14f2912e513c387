r"""The properties string of one record. Source: spec/storage.md section 3.1. Holds no state.

name \x01 value \x02 name \x01 value \x02 ...
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
SHARDING_KEY = "__SHARDINGKEY"
KEY_SEPARATOR = " "
# What lets a message wait before it is one for its readers.
DELAY = "DELAY"
TIMER_DELIVER_MS, TIMER_DELAY_MS = "TIMER_DELIVER_MS", "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TRAN_MSG = "TRAN_MSG"
PRODUCER_GROUP, TRANSACTION_ID = "PGROUP", "__transactionId__"
WAITING_NAMES = frozenset({DELAY, TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TRAN_MSG})
# Where a waiting message goes in the end.
REAL_TOPIC, REAL_QUEUE_ID = "REAL_TOPIC", "REAL_QID"
# Of a message that was sent back: the topic that it was first sent to, and its offset id there.
RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
_NAME_END = bytes([NAME_VALUE_SEPARATOR])
_VALUE_END = bytes([PROPERTY_SEPARATOR])


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The string, in the mapping's order, with the trailing separator that 5.2 and later keep.

    Entries without a value are left out, for no reader would see them. Raises
    UnencodableRecordError.
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
    """The name's bytes. Raises UnencodableRecordError."""
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
    """The properties; later duplicates win, entries without name or value are dropped.

    Bytes that are no UTF-8 become U+FFFD, so that one bad message cannot stop a reader.
    """
    properties: dict[str, str] = {}
    for entry in encoded.split(_VALUE_END):
        name, _, value = entry.partition(_NAME_END)
        if name and value:
            key = name.decode(errors="replace")
            properties.pop(key, None)
            properties[key] = value.decode(errors="replace")
    return properties
