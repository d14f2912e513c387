"""Reading what an expression matches: a step is many small reads, with a turn for others between.

One read evaluates the expression for so many records, and so many bytes, that it takes a few
milliseconds whatever they are. A step ends when it has looked at as many units as a step by tags,
when its response is nearly full, and at the end of the queue or of the range. What is no record
ends it as well, and is told by the next step. Holds no state. Row C04.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rocketpy_broker.clock import give_way
from rocketpy_broker.services.filters.service import Sql92Filter
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues import candidates
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, QueueKey, ReadLimits

# Bytes of records that one read looks at, and as much as no response is filled up further.
READ_BYTES = 256 << 10
_LOOKED_AT = (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE)


class MatchingReader:
    """Reads one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def get_message(
        self, queue: QueueKey, offset: int, offset_end: int, bytes_max: int, sql92: Sql92Filter
    ) -> GetMessageResult:
        """Records [offset, offset_end) that match, within `bytes_max` but at least one.

        As of the last read; there is no turn for others behind that.
        """
        read_bytes = min(READ_BYTES, bytes_max, sql92.bytes_max)
        limits = ReadLimits(
            *(sql92.records_max, read_bytes),
            *(sql92.records_max, read_bytes),
            matches=sql92.matches,
        )
        step_end = min(offset_end, offset + candidates.SCAN_UNITS_MAX)
        result = self._store.get_message(queue, offset, step_end, limits)
        while result.status in _LOOKED_AT:
            is_full = sum(map(len, result.parts)) + read_bytes > bytes_max
            if is_full or result.next_offset >= min(step_end, result.max_offset):
                break
            await give_way()
            behind = self._store.get_message(queue, result.next_offset, step_end, limits)
            if behind.status not in _LOOKED_AT:
                break
            result = _joined(result, behind)
        return result


def _joined(result: GetMessageResult, behind: GetMessageResult) -> GetMessageResult:
    """Both as one."""
    if len(behind.sizes) == 0:
        return replace(
            result,
            next_offset=behind.next_offset,
            min_offset=behind.min_offset,
            max_offset=behind.max_offset,
        )
    return replace(
        behind,
        parts=[*result.parts, *behind.parts],
        sizes=np.concatenate((result.sizes, behind.sizes)),
        is_cold=result.is_cold or behind.is_cold,
    )
