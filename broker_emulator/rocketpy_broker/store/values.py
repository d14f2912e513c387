"""Small values that the store takes and gives. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class QueueKey(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int


class GetMessageStatus(IntEnum):
    """What a read found; the numbers are those of PullStatus in rocketpy/v1/broker.proto.

    Source: spec/storage.md section 6.6.
    """

    FOUND = 1
    NO_MATCHED_MESSAGE = 2
    MESSAGE_WAS_REMOVING = 3
    OFFSET_FOUND_NULL = 4
    OFFSET_OVERFLOW_BADLY = 5
    OFFSET_OVERFLOW_ONE = 6
    OFFSET_TOO_SMALL = 7
    NO_MATCHED_LOGIC_QUEUE = 8
    NO_MESSAGE_IN_QUEUE = 9


@dataclass(frozen=True, slots=True)
class GetMessageResult:
    """Records of one queue, and where to go on.

    `parts` are the records' bytes in order, as views of the log or gathered copies; `sizes` has
    one entry per record.
    """

    status: GetMessageStatus
    next_offset: int
    min_offset: int
    max_offset: int
    parts: list[memoryview | pa.Buffer] = field(default_factory=list)
    sizes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a block lies in the log and in its queue. Positions in bytes, times in ms."""

    queue: QueueKey
    queue_offset: int
    physical_offset: int
    end_offset: int
    record_count: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Minimum and maximum offset of a queue; the maximum is the next offset to be given."""

    min_offset: int
    max_offset: int
