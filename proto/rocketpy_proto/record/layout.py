"""Constants of a commit log record's layout.

    +------------------ fixed part, 88 bytes with IPv4 hosts -------------------+
    | totalSize magic bodyCRC queueId flag queueOffset physicalOffset sysFlag   |
    | bornTimestamp bornHost storeTimestamp storeHost reconsumeTimes            |
    | preparedTransactionOffset bodyLength                                      |
    +----------------+----------------------------+-----------------------------+
    | body           | topicLength (1 or 2) topic | propertiesLength properties |
    +----------------+----------------------------+-----------------------------+

All integers are big-endian and signed. An IPv6 host takes 12 bytes more than an IPv4 one, which
moves the fields after it. sysFlag has the kind of each host. Source: docs/design/storage.md section
2.
"""

from __future__ import annotations

import numpy as np

MAGIC_V1 = 0xDAA320A7  # topic length in one byte
MAGIC_V2 = 0xDAA320AB  # topic length in two bytes
END_OF_SEGMENT_MAGIC = 0xCBD43194
RECORD_MAGICS = frozenset({MAGIC_V1, MAGIC_V2})
BLANK_BYTES = 8

HOST_V4_BYTES = 8
HOST_V6_BYTES = 20
TOPIC_UNITS_MAX_V1 = 127
TOPIC_BYTES_MAX = 32767
PROPERTIES_BYTES_MAX = 32767
CRC_MASK = 0x7FFFFFFF
# Arrow's offsets into a block have 32 bits.
BLOCK_BYTES_MAX = (1 << 31) - 1
NAME_VALUE_SEPARATOR = 1
PROPERTY_SEPARATOR = 2


def header_dtype(born_host_bytes: int, store_host_bytes: int) -> np.dtype[np.void]:
    """Returns the fixed part for hosts of the given sizes."""
    return np.dtype(
        [
            ("total_size", ">i4"),  # the whole record, this field included
            ("magic", ">u4"),  # MAGIC_V1 or MAGIC_V2
            ("body_crc", ">i4"),  # CRC-32 of the body, masked; 0 for an empty one
            ("queue_id", ">i4"),
            ("flag", ">i4"),  # the application's, opaque
            ("queue_offset", ">i8"),  # index in the consume queue
            ("physical_offset", ">i8"),  # of this record in the log
            ("sys_flag", ">i4"),  # see sys_flag.py
            ("born_timestamp", ">i8"),  # ms, the client's clock
            ("born_host", f"V{born_host_bytes}"),  # address, then port as int32
            ("store_timestamp", ">i8"),  # ms, the broker's clock
            ("store_host", f"V{store_host_bytes}"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


# Indexed by (born host is IPv6, store host is IPv6).
HEADER_BY_SHAPE = {
    (born, store): header_dtype(
        HOST_V6_BYTES if born else HOST_V4_BYTES, HOST_V6_BYTES if store else HOST_V4_BYTES
    )
    for born in (False, True)
    for store in (False, True)
}
HEADER_V4 = HEADER_BY_SHAPE[False, False]
HEADER_V6 = HEADER_BY_SHAPE[True, True]
HEADER_BYTES = HEADER_V4.itemsize
TOPIC_LENGTH_BYTES = {MAGIC_V1: 1, MAGIC_V2: 2}
PROPERTIES_LENGTH_BYTES = 2
# Bytes of a record without body, topic and properties: V1, IPv4.
FIXED_BYTES = HEADER_BYTES + TOPIC_LENGTH_BYTES[MAGIC_V1] + PROPERTIES_LENGTH_BYTES
assert HEADER_BYTES == 88
assert FIXED_BYTES == 91
