"""Where a block of a client is stored: in its queue, or where its messages wait until they are due.

Nearly all blocks stay as they are, which a look into their properties tells that is needed anyway.
Holds no state. Rows D02, T01.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.services.delay.scheduling import Scheduling
from rocketpy_broker.store.blocks import tags_and_keys
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import RecordBlock
from rocketpy_proto.record.index_keys import TagsAndKeys


@dataclass(frozen=True, slots=True)
class Placed:
    """A block as it is stored, the queue that it is stored in, and what its properties say."""

    queue: QueueKey
    block: RecordBlock
    found: TagsAndKeys


class Placing:
    """Places blocks."""

    def __init__(self, scheduling: Scheduling, config: StoreConfig) -> None:
        self._scheduling = scheduling
        self._config = config

    def placed(self, queue: QueueKey, block: RecordBlock) -> Placed:
        """The block, which was sent to `queue`. Any thread may call it.

        Raises RecordIllegalError.
        """
        found = tags_and_keys(queue, block, self._config)
        if not found.may_wait:
            return Placed(queue, block, found)
        place, waiting = self._scheduling.placed(queue, block)
        if place == queue:
            return Placed(queue, block, found)
        return Placed(place, waiting, tags_and_keys(place, waiting, self._config))
