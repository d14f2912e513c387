"""Copies of unacknowledged messages for a pop retry topic.

Source: PopReviveService#reviveRetry, docs/design/storage.md section 15.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.services.delay.timer.records import fitting
from rocketpy_broker.services.receipts.check_points import CheckPoint
from rocketpy_broker.services.send.record_copy import Origins
from rocketpy_broker.store.append.batch_marks import origin_fields
from rocketpy_proto.record import (
    RecordBlock,
    properties_strings,
    property_column,
    rewritten,
    with_property,
)
from rocketpy_proto.record.properties import RETRY_TOPIC
from rocketpy_proto.record.sys_flag import TRANSACTION_MASK

FIRST_POP_TIME, ORIGIN_GROUP = "1ST_POP_TIME", "ORIGIN_GROUP"
_RECONSUME_TIMES_MAX = (1 << 31) - 1


def numbers_of(physical_offset: int, found: Sequence[tuple[int, bytes]]) -> NDArray[np.int64]:
    """Returns the origins of copies: log offsets within the check point's own record.

    The record has more bytes than the check point has messages, so each copy has its own offset.
    """
    return np.array([physical_offset + number for number, _ in found], np.int64)


def copies_of(
    block: RecordBlock, topic: str, point: CheckPoint, origins: NDArray[np.int64]
) -> RecordBlock:
    """Returns copies of the records for `topic`, with one more delivery.

    Raises UnencodableRecordError.
    """
    strings = properties_strings(block)
    changed = with_property(strings, RETRY_TOPIC, Origins.of(block).first_topics)
    first_pops = property_column(block, FIRST_POP_TIME).fill_null(str(point.pop_ms))
    changed = with_property(changed, FIRST_POP_TIME, first_pops)
    changed = with_property(changed, ORIGIN_GROUP, point.group)
    header = block.header
    times = header["reconsume_times"].astype(np.int64) + 1
    fields: dict[str, NDArray[np.integer] | int] = {
        "reconsume_times": np.minimum(times, _RECONSUME_TIMES_MAX),
        "prepared_transaction_offset": origin_fields(origins),
        # With these bits a reader would take the origin for the half message's offset.
        "sys_flag": header["sys_flag"] & ~TRANSACTION_MASK,
        "queue_id": 0,
    }
    return rewritten(block, topic, fitting(changed, strings), fields)
