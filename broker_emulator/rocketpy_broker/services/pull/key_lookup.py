"""Lookup of offset ranges that may hold messages with certain keys.

The answer covers every message with one of the keys, so a reader may skip the rest of its ranges.
Where the index cannot answer, the answer is the whole range. The service looks up all keys topic by
topic. When the work time is over, it returns the results of the topics so far. If that happens in
the first topic, it returns the whole ranges of this topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.pull.range_limits import OffsetRange, check_ranges
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.work_time import WorkTime
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.readers.messages import MessagePosition
from rocketpy_proto.call_limits import KEYS_MAX

# The most messages that are looked up: of one key, in one topic, and per scheduler slot.
PLACES_OF_KEY_MAX = 1_000
PLACES_MAX = 10_000
PLACES_A_SLOT = 32
# To start another pull costs as much as to read over this number of messages.
GAP_MAX = 256
# Queue ids and queue offsets as two rows; both ascend.
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """Parts of the first `range_count` ranges of a request, by range and offset."""

    parts: list[OffsetRange]
    range_count: int


class KeyLookupService:
    """The service that looks up keys in one store's index."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager, clock: Clock) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock

    async def find(self, ranges: Sequence[OffsetRange], keys: Sequence[str]) -> FoundKeys:
        """Returns parts of the first ranges, for as many topics as the work time allows.

        Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError,
        QueueIdIllegalError.
        """
        if not keys:
            raise ParameterIllegalError("keys", "", "one key or more")
        check_ranges(self._topics, ranges)
        if len(keys) > KEYS_MAX:
            return FoundKeys(list(ranges), len(ranges))
        time = WorkTime(self._clock)
        by_topic: dict[str, Places | None] = {}
        found: list[OffsetRange] = []
        for count, part in enumerate(ranges):
            topic = part.queue.topic
            if topic not in by_topic:
                by_topic[topic] = await self._places(topic, keys, time)
                if count and time.is_over:
                    # This topic is the first of the next call and then has all the work time.
                    return FoundKeys(found, count)
            places = by_topic[topic]
            found += [part] if places is None else _parts(part, places)
            await take_slot()
        return FoundKeys(found, len(ranges))

    async def _places(self, topic: str, keys: Iterable[str], time: WorkTime) -> Places | None:
        """Returns the places of messages with the keys.

        Returns None if the index does not know them, they are too many, or the work time is over.
        """
        offsets: list[int] = []
        for key in keys:
            of_key = self._store.messages.offsets_by_key(topic, key, PLACES_OF_KEY_MAX)
            await take_slot()
            if of_key is None or len(offsets) + len(of_key) > PLACES_MAX or time.is_over:
                return None
            offsets += of_key
        places: list[MessagePosition] = []
        for first in range(0, len(offsets), PLACES_A_SLOT):
            found = self._store.messages.places(topic, offsets[first : first + PLACES_A_SLOT])
            await take_slot()
            if found is None or time.is_over:
                return None
            places += found
        rows = np.array([(each.queue_id, each.queue_offset) for each in places], np.int64)
        return np.ascontiguousarray(np.unique(rows.reshape(-1, 2), axis=0).T)


def _parts(part: OffsetRange, places: Places) -> list[OffsetRange]:
    """Returns the parts of a range that hold the places; places within GAP_MAX share a part."""
    queue_ids, offsets = places
    first, last = np.searchsorted(queue_ids, [part.queue.queue_id, part.queue.queue_id + 1])
    offsets = offsets[first:last]
    first, last = np.searchsorted(offsets, [part.begin, part.end])
    offsets = offsets[first:last]
    if len(offsets) == 0:
        return []
    gaps = np.flatnonzero(np.diff(offsets) > GAP_MAX)
    begins = offsets[np.append(0, gaps + 1)]
    ends = offsets[np.append(gaps, -1)] + 1
    return [
        OffsetRange(part.queue, begin, end)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
