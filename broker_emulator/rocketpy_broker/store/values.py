"""Small values that the store takes and gives. Holds no state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_proto.record import RecordBlock

ANY_COUNT = 1 << 31


class QueueKey(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int


class GetMessageStatus(IntEnum):
    """What a read found; the numbers are those of PullStatus in rocketpy/v1/broker.proto.

    Source: docs/design/storage.md section 6.6.
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
    # No read: the group was set to another place.
    OFFSET_RESET = 10


@dataclass(frozen=True, slots=True)
class GetMessageResult:
    """Records of one queue, and where to go on.

    `parts` are the records' bytes in order, as views of the log or gathered copies; `sizes` has
    one entry per record. `behind_bytes`: how far what was looked at last lies behind the log's end,
    None where nothing was; `is_cold`: so far that it may have to come from disk.
    """

    status: GetMessageStatus
    next_offset: int
    min_offset: int
    max_offset: int
    parts: list[memoryview | pa.Buffer] = field(default_factory=list)
    sizes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    is_cold: bool = False
    behind_bytes: int | None = None

    @property
    def byte_count(self) -> int:
        """How many bytes the records have."""
        return sum(map(len, self.parts))

    @property
    def data(self) -> bytes:
        """The records' bytes as one copy."""
        return b"".join(self.parts)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What one read may give, by records and by bytes: of recent data, and of cold data.

    The defaults are RocketMQ's (docs/design/storage.md section 6.6). The first record is given whatever its size.
    With `tags_codes` only records with one of them are given. With `matches` only those of which it
    says so, `matches_max` at most; the other limits then bound what is looked at.
    """

    count_max: int = 32
    bytes_max: int = 256 << 10
    cold_count_max: int = 8
    cold_bytes_max: int = 64 << 10
    tags_codes: NDArray[np.int64] | None = None
    matches: Callable[[RecordBlock], NDArray[np.bool_]] | None = None
    matches_max: int = ANY_COUNT
    cold_matches_max: int = ANY_COUNT

    @classmethod
    def of_bytes(cls, bytes_max: int, tags_codes: NDArray[np.int64] | None = None) -> ReadLimits:
        """For reads in bulk: up to `bytes_max`, in any number, from wherever they lie."""
        return cls(ANY_COUNT, bytes_max, ANY_COUNT, bytes_max, tags_codes)


class PutCause(Enum):
    """Why a block is stored, for those who count.

    SENT: for its readers, or to wait for them. SENT_BACK: to be consumed again, or never more.
    TRANSACTION: a step of one. OWN: what only the broker reads.
    """

    SENT = 0
    SENT_BACK = 1
    TRANSACTION = 2
    OWN = 3


class AppendResult(NamedTuple):
    """Where a block lies in the log and in its queue. Positions in bytes, times in ms."""

    queue: QueueKey
    queue_offset: int
    physical_offset: int
    end_offset: int
    record_count: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the log that are no whole record: where, by physical offset, and why."""

    path: Path
    offset: int
    length: int
    reason: str


class FilePrefix(NamedTuple):
    """The first `length` bytes of a file, known by their CRC-32."""

    length: int
    crc: int


class QueueRange(NamedTuple):
    """Minimum and maximum offset of a queue; the maximum is the next offset to be given."""

    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class LogPositions:
    """Physical offsets: of the log's begin and end, and up to where it is on disk and visible."""

    log_begin: int
    log_end: int
    flushed_end: int
    dispatched_end: int
