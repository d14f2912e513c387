"""Reads of a queue, and of messages that match an expression.

A step with an expression is many small reads, each in a scheduler slot. The filter's `records_max`
and `bytes_max` limit one read to a few milliseconds. The first read takes a slot, too, since one
message may wake thousands of pulls. A step ends after as many units as a step by tags, or when its
response is nearly full. It also ends at the end of the queue or range. A corrupt record ends it as
well; the next step reports it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.filters.service import Sql92Filter
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.readers.candidates import SCAN_UNITS_MAX
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, QueueKey, ReadLimits

# The most bytes of records in one read. A response with less room left is full.
READ_BYTES = 256 << 10
_SCANNED = (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE)


class MatchingReader:
    """The reader of one store's queues."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def get_message(
        self,
        queue: QueueKey,
        offset: int,
        offset_end: int,
        limits: ReadLimits,
        sql92: Sql92Filter | None,
    ) -> GetMessageResult:
        """Returns matching records in [offset, offset_end), within `limits` but at least one.

        No other task runs after the last read, so a caller that then waits misses no message.
        """
        if sql92 is None:
            return self._store.get_message(queue, offset, offset_end, limits)
        step_end = min(offset_end, offset + SCAN_UNITS_MAX)
        reading = _reading(limits, sql92)
        await take_slot()
        result = self._store.get_message(queue, offset, step_end, reading)
        while result.status in _SCANNED and not _is_full(result, limits, reading):
            if result.next_offset >= min(step_end, result.max_offset):
                break
            await take_slot()
            count = len(result.sizes)
            rest = replace(
                reading,
                matches_max=reading.matches_max - count,
                cold_matches_max=reading.cold_matches_max - count,
            )
            behind = self._store.get_message(queue, result.next_offset, step_end, rest)
            if behind.status not in _SCANNED:
                break
            result = _joined(result, behind)
        return result


def _reading(limits: ReadLimits, sql92: Sql92Filter) -> ReadLimits:
    """Returns the limits of one read: a few milliseconds, and at most the wanted bytes."""
    bytes_max = min(READ_BYTES, limits.bytes_max, sql92.bytes_max)
    cold_bytes_max = min(READ_BYTES, limits.cold_bytes_max, sql92.bytes_max)
    return ReadLimits(
        *(sql92.records_max, bytes_max),
        *(sql92.records_max, cold_bytes_max),
        matches=sql92.matches,
        matches_max=limits.count_max,
        cold_matches_max=limits.cold_count_max,
    )


def _is_full(result: GetMessageResult, limits: ReadLimits, reading: ReadLimits) -> bool:
    """True if another read may exceed `limits`."""
    taken, count = result.byte_count, len(result.sizes)
    if result.is_cold:
        is_count_full = count >= limits.cold_count_max
        return is_count_full or taken + reading.cold_bytes_max > limits.cold_bytes_max
    return count >= limits.count_max or taken + reading.bytes_max > limits.bytes_max


def _joined(result: GetMessageResult, behind: GetMessageResult) -> GetMessageResult:
    """Returns two successive results as one."""
    if len(behind.sizes) == 0:
        return replace(
            result,
            next_offset=behind.next_offset,
            min_offset=behind.min_offset,
            max_offset=behind.max_offset,
            is_cold=behind.is_cold,
            behind_bytes=behind.behind_bytes,
        )
    return replace(
        behind,
        parts=[*result.parts, *behind.parts],
        sizes=np.concatenate((result.sizes, behind.sizes)),
    )
