"""Where in ranges of queues messages with certain keys can be, as the index tells it.

Every message with one of the keys lies in what is answered, so a reader may leave out the rest of
its ranges. Where the index cannot tell, the answer is the range itself. Holds no state. Row K05.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.clock import give_way
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.services.pulling.range_limits import OffsetRange, check_range
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.messages import Place

# Messages that are looked up, of one key and in one topic: looking costs microseconds for each.
PLACES_OF_KEY_MAX = 1_000
PLACES_MAX = 10_000
# To begin another pull costs as much as to read on over so many messages.
GAP_MAX = 256
Offsets = NDArray[np.int64]
NOWHERE: Offsets = np.zeros(0, np.int64)


class KeyLookupService:
    """Asks one store's index."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager) -> None:
        self._store = store
        self._topics = topics

    async def find(self, ranges: Sequence[OffsetRange], keys: Sequence[str]) -> list[OffsetRange]:
        """Parts of the ranges, by range and offset.

        Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError,
        QueueIdIllegalError.
        """
        if not keys:
            raise ParameterIllegalError("keys", "", "one key or more")
        for part in ranges:
            check_range(self._topics, part)
        by_topic = {}
        for topic in dict.fromkeys(part.queue.topic for part in ranges):
            by_topic[topic] = await self._places(topic, keys)
        found: list[OffsetRange] = []
        for part in ranges:
            places = by_topic[part.queue.topic]
            found += [part] if places is None else _parts(part, places)
        return found

    async def _places(self, topic: str, keys: Iterable[str]) -> dict[int, Offsets] | None:
        """Queue offsets of all keys, ascending, by queue; None where not known, or too many."""
        places: list[Place] = []
        for key in keys:
            found = self._store.messages.all_by_key(topic, key, PLACES_OF_KEY_MAX)
            if found is None or len(places) + len(found) > PLACES_MAX:
                return None
            places += found
            await give_way()
        by_queue: dict[int, list[int]] = {}
        for place in places:
            by_queue.setdefault(place.queue_id, []).append(place.queue_offset)
        return {i: np.unique(np.array(offsets, np.int64)) for i, offsets in by_queue.items()}


def _parts(part: OffsetRange, places: Mapping[int, Offsets]) -> list[OffsetRange]:
    """What of a range has the places in it; those that are close together share one."""
    offsets = places.get(part.queue.queue_id, NOWHERE)
    begin, end = np.searchsorted(offsets, [part.begin, part.end])
    offsets = offsets[begin:end]
    return [
        OffsetRange(part.queue, int(run[0]), int(run[-1]) + 1)
        for run in np.split(offsets, np.flatnonzero(np.diff(offsets) > GAP_MAX) + 1)
        if len(run)
    ]
