"""Where in ranges of queues messages with certain keys can be, as the index tells it.

Every message with one of the keys lies in what is answered, so a reader may leave out the rest of
its ranges. Where the index cannot tell, the answer is the range itself. All keys are looked up for
one topic after the other. When the work time is over, the ranges before that topic are answered,
and of the first topic whole ranges. Holds no state.
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
from rocketpy_broker.store.queues.readers.messages import Place
from rocketpy_proto.call_limits import KEYS_MAX

# Messages that are looked up: of one key, in one topic, and before others have a turn.
PLACES_OF_KEY_MAX = 1_000
PLACES_MAX = 10_000
PLACES_A_TURN = 32
# To begin another pull costs as much as to read on over so many messages.
GAP_MAX = 256
# Queue ids, and the queue offsets beside them; both ascend.
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """Parts of the first `range_count` ranges of a request, by range and offset."""

    parts: list[OffsetRange]
    range_count: int


class KeyLookupService:
    """Asks one store's index."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager, clock: Clock) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock

    async def find(self, ranges: Sequence[OffsetRange], keys: Sequence[str]) -> FoundKeys:
        """Parts of the first ranges; of all those whose topics the work time allows to look up.

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
                    # In the next call this topic comes first, and has the time for itself.
                    return FoundKeys(found, count)
            places = by_topic[topic]
            found += [part] if places is None else _parts(part, places)
            await take_slot()
        return FoundKeys(found, len(ranges))

    async def _places(self, topic: str, keys: Iterable[str], time: WorkTime) -> Places | None:
        """Where messages with the keys are; None where not known, too many, or too slow to tell."""
        places: list[Place] = []
        for key in keys:
            offsets = self._store.messages.offsets_by_key(topic, key, PLACES_OF_KEY_MAX)
            await take_slot()
            if offsets is None or len(places) + len(offsets) > PLACES_MAX or time.is_over:
                return None
            for first in range(0, len(offsets), PLACES_A_TURN):
                found = self._store.messages.places(topic, offsets[first : first + PLACES_A_TURN])
                await take_slot()
                if found is None or time.is_over:
                    return None
                places += found
        rows = np.array([(each.queue_id, each.queue_offset) for each in places], np.int64)
        return np.ascontiguousarray(np.unique(rows.reshape(-1, 2), axis=0).T)


def _parts(part: OffsetRange, places: Places) -> list[OffsetRange]:
    """What of a range has the places in it; those that are close together share one."""
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
