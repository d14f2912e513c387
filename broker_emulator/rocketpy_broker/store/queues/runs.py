"""Runs: which records of a block go to which queue. Holds no state.

A block is of one queue, or, where its queue id is OWN_QUEUES, of as many as its records say; those
of a queue then follow each other.
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
class Run:
    """Records [begin, end) of a block, which come from `queue_offset` on in `queue`."""

    queue: QueueKey
    begin: int
    end: int
    queue_offset: int


def runs_of(
    queue: QueueKey, block: RecordBlock, next_offset: Callable[[QueueKey], int]
) -> list[Run]:
    """The runs of a block that was sent to `queue`. Raises RecordIllegalError."""
    if queue.queue_id != OWN_QUEUES:
        return [Run(queue, 0, len(block), next_offset(queue))]
    starts = run_starts(block)
    ends = [*starts[1:].tolist(), len(block)]
    queues = [QueueKey(queue.topic, number) for number in block.header["queue_id"][starts].tolist()]
    return [
        Run(one, begin, end, next_offset(one))
        for one, begin, end in zip(queues, starts.tolist(), ends, strict=True)
    ]


def run_starts(block: RecordBlock) -> NDArray[np.int64]:
    """Where the queue id changes, and 0.

    Raises RecordIllegalError if a queue comes again, or for more than BLOCK_QUEUES_MAX.
    """
    ids = block.header["queue_id"]
    starts = np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1))
    if len(starts) > BLOCK_QUEUES_MAX:
        raise RecordIllegalError(
            f"a block holds records of {len(starts)} queues; send {BLOCK_QUEUES_MAX} at most"
        )
    if len(np.unique(ids[starts])) < len(starts):
        raise RecordIllegalError(
            "a block holds records of one queue before and behind those of others; "
            "sort its records by queue"
        )
    return starts


def offset_bases(runs: list[Run]) -> int | NDArray[np.int64]:
    """Each record's queue offset less its place in the block: one number if it is always the same.

    Records of several queues all take a place in theirs.
    """
    if len(runs) == 1:
        return runs[0].queue_offset
    lengths = [run.end - run.begin for run in runs]
    return np.repeat([run.queue_offset - run.begin for run in runs], lengths)
