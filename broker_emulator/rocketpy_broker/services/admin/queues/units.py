"""Units of consume queues, checked with a group's filter.

Source: AdminBrokerProcessor#queryConsumeQueue.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.errors import ParameterIllegalError, QueueIdIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.filters.service import FilterService, FilterText, MessageFilter
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.record import RecordBlock

COUNT_MAX = 1_000
# Units in one scheduler slot; each may read a record.
UNITS_A_SLOT = 50


@dataclass(frozen=True, slots=True)
class QueueUnit:
    """A unit: the place of its record, and whether the filter accepts the message."""

    physical_offset: int
    size: int
    tags_code: int
    is_matched: bool


class QueueUnitService:
    """A reader of one store's queues."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        filters: FilterService,
    ) -> None:
        self._store = store
        self._topics = topics
        self._filters = filters

    def bounds(self, queue: QueueKey) -> QueueBounds:
        """Returns the queue's bounds. Raises TopicNotExistError, QueueIdIllegalError."""
        readable = self._topics.get(queue.topic).readable_queues
        found = self._store.range_of(queue)
        # Hidden queues may have units.
        if not 0 <= queue.queue_id < readable and not found.max_offset:
            raise QueueIdIllegalError(*queue, readable)
        return found

    async def units(
        self, queue: QueueKey, index: int, count: int, subscription: Subscription | None
    ) -> list[QueueUnit]:
        """Returns up to `count` units from `index` on, or from the first one after it.

        Raises ParameterIllegalError, SubscriptionParseError.
        """
        if not 0 <= count <= COUNT_MAX:
            raise ParameterIllegalError("count", count, f"0 to {COUNT_MAX}")
        wanted = self._filter(subscription)
        units = self._store.queue_lookup.unit_range(queue, index, max(index, 0) + count)
        if units is None:
            return []
        found = []
        columns = units.physical_offsets.tolist(), units.sizes.tolist(), units.tags_codes.tolist()
        for number, (physical_offset, size, code) in enumerate(zip(*columns, strict=True)):
            if number % UNITS_A_SLOT == 0:
                await take_slot()
            is_matched = wanted is not None and self._matches(wanted, physical_offset, code)
            found.append(QueueUnit(physical_offset, size, code, is_matched))
        return found

    def _filter(self, subscription: Subscription | None) -> MessageFilter | None:
        if subscription is None:
            return None
        text = FilterText(subscription.expression_type, subscription.expression)
        return self._filters.filter_of(text)

    def _matches(self, wanted: MessageFilter, physical_offset: int, tags_code: int) -> bool:
        if wanted.sql92 is not None:
            record = self._store.messages.at(physical_offset)
            return record is not None and bool(
                wanted.sql92.matches(RecordBlock.parse(bytes(record)))[0]
            )
        return wanted.tags_codes is None or tags_code in wanted.tags_codes
