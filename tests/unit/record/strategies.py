"""Hypothesis strategies for records, and the reference that the block form is compared with."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from rocketpy_proto.record import (
    COLUMN_TYPES,
    Host,
    Record,
    RecordBlock,
    encode_record,
    to_record_batch,
)

# Everything that UTF-8 can carry, but for the two separators of properties.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=12)
NAMES = st.one_of(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY", "TAG", "TAGSS"]),
    TEXTS.filter(bool),
)
PROPERTIES = st.dictionaries(NAMES, TEXTS, max_size=6)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
# Times within the range of the columns, and any times.
MILLISECONDS = st.one_of(st.integers(-(1 << 43), 1 << 43), INT64)
HOSTS = st.builds(
    Host,
    st.one_of(
        st.ip_addresses(v=4).map(lambda address: ipaddress.IPv4Address(int(address))),
        st.ip_addresses(v=6).map(lambda address: ipaddress.IPv6Address(int(address))),
    ),
    INT32,
)
TOPICS = st.one_of(
    st.just("TopicA"),
    st.text("abcdefg%_-", min_size=1, max_size=20),
    st.integers(126, 300).map(lambda length: "%RETRY%".ljust(length, "x")),
    TEXTS,
)
# Transaction bits and the other flags that do not change the body or the layout.
SYS_FLAGS = st.sampled_from([0, 0x2, 0x4, 0x8, 0xC, 0x40, 0x80])

RECORDS = st.builds(
    Record,
    topic=TOPICS,
    queue_id=INT32,
    body=st.binary(max_size=40),
    properties=PROPERTIES,
    flag=INT32,
    queue_offset=INT64,
    physical_offset=INT64,
    sys_flag=SYS_FLAGS,
    born_timestamp_ms=MILLISECONDS,
    born_host=HOSTS,
    store_timestamp_ms=MILLISECONDS,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)


def block_of(records: Sequence[Record]) -> RecordBlock:
    """Returns a parsed block in a writable buffer."""
    encoded = [encode_record(record) for record in records]
    sizes = np.array([len(one) for one in encoded], np.int32)
    return RecordBlock.parse(bytearray(b"".join(encoded)), sizes)


def properties_of(block: RecordBlock) -> list[list[tuple[str, str]]]:
    """Returns the properties of each record, in order."""
    schema = pa.schema({"properties": COLUMN_TYPES["properties"]})
    rows: list[list[tuple[str, str]]] = to_record_batch(block, schema).column(0).to_pylist()
    return rows
