"""Requests for pops, and their results.

Source: PopMessageProcessor, docs/design/storage.md section 15.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.services.filters.service import FilterText
from rocketpy_broker.services.receipts.check_points import CheckPoint
from rocketpy_broker.services.receipts.handle import ORDERED, Receipt, kind_of
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import RecordBlock

ANY_QUEUE = -1
COUNT_MAX = 32


class PollingFullError(BrokerError):
    """Too many calls wait for messages, of this group or of all groups."""

    code = ResponseCode.POLLING_FULL


@dataclass(frozen=True, slots=True)
class PopRequest:
    """A pop of a topic, or of one queue; a call without messages is held for `wait_ms`.

    An ordered pop takes only queues without unacknowledged messages, except repeated attempts.
    """

    group: str
    topic: str
    queue_id: int = ANY_QUEUE
    count_max: int = COUNT_MAX
    invisible_ms: int = 60_000
    wait_ms: int = 0
    filter_text: FilterText = field(default_factory=FilterText)
    from_min: bool = True
    is_ordered: bool = False
    attempt_id: str = ""

    @property
    def line(self) -> Hashable:
        """The key of the waiting pops that take messages from each other.

        None for an ordered pop, since ordered pops may wait for different queues.
        """
        return None if self.is_ordered else (self.group, self.topic, self.queue_id)


@dataclass(frozen=True, slots=True)
class PoppedQueue:
    """Popped messages of one queue: their offsets, and their records as stored.

    `start_offset` is that of their check point. `counts` are the earlier deliveries of messages of
    an ordered pop.
    """

    queue: QueueKey
    start_offset: int
    offsets: list[int]
    block: RecordBlock
    counts: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Popped:
    """The messages of a pop; `rest_count` is the number of later messages in the queues."""

    pop_ms: int
    invisible_ms: int
    revive_queue: QueueKey
    broker_name: str
    queues: list[PoppedQueue] = field(default_factory=list)
    rest_count: int = 0
    end: int = 0

    @property
    def is_ordered(self) -> bool:
        """True for an ordered pop."""
        return self.revive_queue.queue_id == ORDERED

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(len(each.offsets) for each in self.queues)

    @property
    def byte_count(self) -> int:
        """The size of the records in bytes."""
        return sum(len(each.block.data) for each in self.queues)

    def check_point(
        self, group: str, queue: QueueKey, start_offset: int, offsets: Sequence[int]
    ) -> CheckPoint:
        """Returns the check point of messages of one queue, read from `start_offset` on."""
        return CheckPoint(
            broker_name=self.broker_name,
            group=group,
            differences=tuple(each - start_offset for each in offsets),
            invisible_ms=self.invisible_ms,
            count=len(offsets),
            pop_ms=self.pop_ms,
            queue_id=queue.queue_id,
            revive_ms=self.pop_ms + self.invisible_ms,
            start_offset=start_offset,
            topic=queue.topic,
        )

    def receipts(self, part: PoppedQueue) -> list[Receipt]:
        """Returns the receipts of the messages of one queue."""
        return [
            Receipt(
                *(part.start_offset, self.pop_ms, self.invisible_ms, self.revive_queue.queue_id),
                *(kind_of(part.queue.topic), self.broker_name, part.queue.queue_id, offset),
            )
            for offset in part.offsets
        ]
