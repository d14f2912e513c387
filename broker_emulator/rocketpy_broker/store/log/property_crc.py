"""RocketMQ's optional CRC of a record, at its properties' end.

The last 20 bytes of such a record are `__CRC32#`, 0x01, ten digits and 0x02. The digits, least
significant first, are the CRC-32, without its top bit, of all bytes before these 20.
Source: MessageDecoder#createCrc32, docs/design/storage.md section 2.4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rocketpy_proto.record import RecordBlock
from rocketpy_proto.record.crc import body_crcs

TAIL_BYTES = 20
_NAME = np.frombuffer(b"__CRC32#\x01", np.uint8)
_POWERS = 10 ** np.arange(10, dtype=np.int64)


def wrong_property_crcs(block: RecordBlock) -> NDArray[np.bool_]:
    """Returns a mask of the records with a wrong CRC property."""
    wrong = np.zeros(len(block), np.bool_)
    ends = block.positions + block.sizes
    rows = np.flatnonzero(block.properties_length >= TAIL_BYTES)
    rows = rows[block.data[ends[rows] - TAIL_BYTES] == _NAME[0]]
    if len(rows) == 0:
        return wrong
    tails = block.data[(ends[rows] - TAIL_BYTES)[:, None] + np.arange(TAIL_BYTES)]
    named = (tails[:, : len(_NAME)] == _NAME).all(axis=1)
    rows, digits = rows[named], tails[named][:, len(_NAME) : -1].astype(np.int64) - ord("0")
    found = body_crcs(block.data, block.positions[rows], ends[rows] - TAIL_BYTES)
    is_number = ((digits >= 0) & (digits <= 9)).all(axis=1)
    wrong[rows] = ~is_number | (digits @ _POWERS != found)
    return wrong
