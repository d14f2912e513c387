"""Queue slices: the records of a block for each queue.

A block belongs to one queue. If its queue id is OWN_QUEUES, each of its records names its queue. In
a client's block the records of a queue are adjacent. In a block that the broker has joined from
several blocks, a queue may occur more than once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.call_limits import BLOCK_QUEUES_MAX, OWN_QUEUES
from rocketpy_proto.record import RecordBlock


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Records [begin, end) of a block, with offsets from `queue_offset` on in `queue`."""

    queue: QueueKey
    begin: int
    end: int
    queue_offset: int


def queue_slices(
    queue: QueueKey,
    block: RecordBlock,
    next_offset: Callable[[QueueKey], int],
    *,
    is_joined: bool = False,
) -> list[QueueSlice]:
    """Returns the queue slices of a block of `queue`.

    Raises RecordIllegalError as `slice_starts` does, unless the block is joined.
    """
    if queue.queue_id != OWN_QUEUES:
        return [QueueSlice(queue, 0, len(block), next_offset(queue))]
    starts = _changes(block) if is_joined else slice_starts(block)
    ends = [*starts[1:].tolist(), len(block)]
    numbers = block.header["queue_id"][starts].tolist()
    next_offsets: dict[int, int] = {}
    slices = []
    for number, begin, end in zip(numbers, starts.tolist(), ends, strict=True):
        one = QueueKey(queue.topic, number)
        queue_offset = next_offsets[number] if number in next_offsets else next_offset(one)
        next_offsets[number] = queue_offset + end - begin
        slices.append(QueueSlice(one, begin, end, queue_offset))
    return slices


def slice_starts(block: RecordBlock) -> NDArray[np.int64]:
    """Returns 0 and the positions at which the queue id changes.

    Raises RecordIllegalError if a queue occurs more than once, or for more than BLOCK_QUEUES_MAX.
    """
    starts = _changes(block)
    if len(starts) > BLOCK_QUEUES_MAX:
        raise RecordIllegalError(
            f"a block holds records of {len(starts)} queues, limit {BLOCK_QUEUES_MAX}. Send "
            "smaller blocks"
        )
    if len(np.unique(block.header["queue_id"][starts])) < len(starts):
        raise RecordIllegalError(
            "a block holds records of one queue at several places; sort its records by queue"
        )
    return starts


def _changes(block: RecordBlock) -> NDArray[np.int64]:
    ids = block.header["queue_id"]
    return np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1))


def offset_bases(slices: list[QueueSlice]) -> int | NDArray[np.int64]:
    """Returns each record's queue offset minus its place in the block; one number if constant.

    A block of several queues has no record without a queue offset.
    """
    if len(slices) == 1:
        return slices[0].queue_offset
    lengths = [one.end - one.begin for one in slices]
    return np.repeat([one.queue_offset - one.begin for one in slices], lengths)
