"""Half messages: messages of transactions that have not ended.

A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC, with its real topic and queue in REAL_TOPIC
and REAL_QID. The format is RocketMQ's, so RocketMQ's broker can continue the transaction.
Source: docs/design/storage.md section 14.1.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.services.delay.schedule import with_real_queue
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import HALF_TOPIC
from rocketpy_proto.record import (
    RecordBlock,
    UnencodableRecordError,
    properties_strings,
    property_column,
    rewritten,
    with_property,
)
from rocketpy_proto.record.properties import (
    PRODUCER_GROUP,
    TRAN_MSG,
    TRANSACTION_ID,
    UNIQ_KEY,
)

HALF_QUEUE = QueueKey(HALF_TOPIC, 0)


def is_half(block: RecordBlock, levels: DelayLevels) -> bool:
    """True if the block is a half message.

    Raises RecordIllegalError if a block of several messages holds one.
    """
    found = pc.equal(pc.utf8_lower(property_column(block, TRAN_MSG)), "true").fill_null(False)
    if not pc.any(found).as_py():
        return False
    if len(block) > 1:
        raise RecordIllegalError(
            f"a block of {len(block)} messages holds a half message; send each in its own block"
        )
    # Old clients resend a message that was not consumed, with all its properties; it is no half
    # message.
    is_retry = block.header["reconsume_times"][0] > 0 and levels.of(block)[0] > 0
    return not is_retry


def half_message(queue: QueueKey, block: RecordBlock) -> RecordBlock:
    """Returns the half message as it is stored; `queue` is its real queue.

    Raises RecordIllegalError.
    """
    unique_key = _value(block, UNIQ_KEY)
    _value(block, PRODUCER_GROUP)
    strings = with_property(properties_strings(block), TRANSACTION_ID, unique_key)
    try:
        return rewritten(block, HALF_TOPIC, with_real_queue(strings, queue, block))
    except UnencodableRecordError as error:
        raise RecordIllegalError(f"with its real topic and queue, {error}") from error


def _value(block: RecordBlock, name: str) -> str:
    value: pa.StringScalar = property_column(block, name)[0]
    if not value.as_py():
        raise RecordIllegalError(f"a half message lacks the property {name}; send it with one")
    return str(value.as_py())
