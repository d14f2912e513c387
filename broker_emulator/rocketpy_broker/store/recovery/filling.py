"""Filling what is damaged, with the place in its queue that the damaged record had.

What the record says of that counts only where it fits the queue: the unit there is its own, or it
is the next. Holds no state; for crashes see `filler`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rocketpy_broker.store.delay_levels import SCHEDULE_TOPIC
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.filler import fill
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.values import Damage, QueueKey
from rocketpy_proto.record import MalformedRecordError, Record, decode_record, has_queue_offset


def known_record(log: CommitLog, queues: ConsumeQueueTable, damage: Damage) -> Record | None:
    """The damaged record, if it is one and its place in its queue is certain."""
    try:
        decoded = decode_record(log.files.view(damage.offset, damage.length), check_crc=False)
    except MalformedRecordError:
        return None
    record = decoded.record
    queue = queues.get(QueueKey(record.topic, record.queue_id))
    # Records that wait for their time have codes of their own.
    is_plain = has_queue_offset(record.sys_flag) and record.topic != SCHEDULE_TOPIC
    if queue is None or not is_plain or decoded.size != damage.length:
        return None
    units = queue.units(record.queue_offset, record.queue_offset + 1)
    is_own = len(units) > 0 and units["physical_offset"][0] == damage.offset
    return record if is_own or record.queue_offset == queue.max_offset else None


def fill_met(
    log: CommitLog,
    queues: ConsumeQueueTable,
    damages: Iterable[Damage],
    store_timestamp_ms: int,
) -> None:
    """Fill what reads have met, if a record was written there that differs from its checksum now.

    Units that name no record's place are no damage of the log. Blocks: it flushes. Raises OSError.
    """
    for damage in damages:
        segment = log.files.find(damage.offset)
        checksums = log.checksums.find(segment) if segment is not None else None
        if segment is None or checksums is None:
            continue
        place, size = np.array([damage.offset - segment.base]), np.array([damage.length], np.int32)
        is_record = checksums.lookup(place)["size"][0] == damage.length
        if is_record and log.compare(segment, place, size).damaged[0]:
            fill(log, damage, store_timestamp_ms, known_record(log, queues, damage))
            segment.flush()
            checksums.flush()
