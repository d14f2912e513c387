"""Real queues of messages that wait in topics of the broker.

They wait for a delay, for a time, or for the end of their transaction. Each message names its real
topic and queue. Until the message is released, that queue may not exist.
"""

from __future__ import annotations

import numpy as np

from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.delay.release import by_real_queue
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.record import RecordBlock

# Bytes of messages that are read in one scheduler slot.
SLOT_BYTES = 256 << 10


async def real_queues(store: MessageStore, waiting: QueueKey, log_begin: int) -> set[QueueKey]:
    """Returns the real queues of the messages in a queue of WAITING_TOPICS.

    Counts messages from log offset `log_begin` on, unless their topic was deleted after them. Takes
    scheduler slots.
    """
    found: set[QueueKey] = set()
    bounds = store.range_of(waiting)
    offset = bounds.min_offset
    while offset < bounds.max_offset:
        await take_slot()
        units = store.queue_lookup.unit_range(waiting, offset, bounds.max_offset)
        if units is None:
            break
        recent = units.physical_offsets >= log_begin
        if not recent.any():
            offset = units.end
            continue
        begin = units.begin + int(np.argmax(recent))
        result = store.get_message(waiting, begin, units.end, ReadLimits.of_bytes(SLOT_BYTES))
        if result.status is GetMessageStatus.FOUND:
            for queue, part in by_real_queue(RecordBlock.parse(result.data, result.sizes)):
                if int(part.header["physical_offset"].max()) >= store.deleted_below(queue.topic):
                    found.add(queue)
        offset = max(result.next_offset, begin + 1)
    return found
