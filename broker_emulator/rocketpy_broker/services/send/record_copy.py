"""Copies of unconsumed records for the retry and dead-letter topics.

Body, flag, born time, born host and the other properties stay. Works on whole blocks.
Source: docs/design/storage.md section 16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_proto.record import (
    COLUMN_TYPES,
    RecordBlock,
    properties_strings,
    property_columns,
    rewritten,
    to_record_batch,
    with_property,
)
from rocketpy_proto.record.properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, UNIQ_KEY, WAIT
from rocketpy_proto.record.sys_flag import TRANSACTION_MASK

# A client sends this property: the maximum of redeliveries, in place of the group's maximum.
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
# RocketMQ's mark of a message for a retry topic that became a dead letter.
DEAD_LETTER_DELAY = "-1"
_OWN = pa.schema([(name, COLUMN_TYPES[name]) for name in ("topic", "offsetMsgId")])
_RECONSUME_TIMES_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Origins:
    """The topic and the ids of each record: its own and the ones of its first send.

    `first_topics` and `first_ids` are the record's own if it was never sent back.
    """

    topics: pa.StringArray
    first_topics: pa.StringArray
    offset_ids: pa.StringArray
    first_ids: pa.StringArray
    unique_keys: pa.StringArray

    @classmethod
    def of(cls, block: RecordBlock) -> Origins:
        """Returns the origins of a block of any topics."""
        own = to_record_batch(block, _OWN)
        named = property_columns(block, (RETRY_TOPIC, ORIGIN_MESSAGE_ID, UNIQ_KEY))
        topics, ids = own.column("topic"), own.column("offsetMsgId")
        return cls(
            topics,
            pc.coalesce(named[RETRY_TOPIC], topics),
            ids,
            pc.coalesce(named[ORIGIN_MESSAGE_ID], ids),
            named[UNIQ_KEY],
        )


def sent_back(block: RecordBlock, topic: str, delay_level: int) -> RecordBlock:
    """Returns copies of the records for `topic`; their reconsumeTimes is higher by one.

    The copies contain their origin. Raises UnencodableRecordError.
    """
    origins = Origins.of(block)
    strings = properties_strings(block)
    for name, values in (
        (RETRY_TOPIC, origins.first_topics),
        (ORIGIN_MESSAGE_ID, origins.first_ids),
        (WAIT, "false"),
        (DELAY, str(delay_level)),
    ):
        strings = with_property(strings, name, values)
    header = block.header
    times = header["reconsume_times"].astype(np.int64) + 1
    fields: dict[str, NDArray[np.integer] | int] = {
        "reconsume_times": np.minimum(times, _RECONSUME_TIMES_MAX),
        # The copy belongs to no transaction, and is not the copy of a delayed message.
        "sys_flag": header["sys_flag"] & ~TRANSACTION_MASK,
        "prepared_transaction_offset": 0,
    }
    return rewritten(block, topic, strings, fields)


def diverted(block: RecordBlock, topic: str) -> RecordBlock:
    """Returns records that a client sent to a retry topic, as dead letters in `topic`.

    Raises UnencodableRecordError.
    """
    strings = with_property(properties_strings(block), DELAY, DEAD_LETTER_DELAY)
    return rewritten(block, topic, strings)
