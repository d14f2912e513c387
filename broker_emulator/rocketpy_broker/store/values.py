"""Value types of the store's interface."""

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
    """The outcome of a read; the numbers are PullStatus's in rocketpy/v1/broker.proto.

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
    # Nothing was read: the group's offset was reset.
    OFFSET_RESET = 10


@dataclass(frozen=True, slots=True)
class GetMessageResult:
    """Records of one queue, and the offset of the next read.

    `parts` are the records' bytes in order, as views of the log or as copies; `sizes` has one entry
    per record. `behind_bytes` is the distance of the last examined record from the log's end, None
    if none was examined. `is_cold` is set if the distance is so large that the record may have to
    be read from disk.
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
        """The size of the records in bytes."""
        return sum(map(len, self.parts))

    @property
    def data(self) -> bytes:
        """The records' bytes as one copy."""
        return b"".join(self.parts)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of one read in records and bytes, for recent data and for cold data.

    The defaults are RocketMQ's (docs/design/storage.md section 6.6). The first record is returned
    whatever its size. With `tags_codes`, only records with one of these codes are returned. With
    `matches`, only records for which it is true are returned, at most `matches_max`. The other
    limits then apply to the examined records.
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
        """Returns limits of bulk reads: `bytes_max`, any number of records, recent or cold."""
        return cls(ANY_COUNT, bytes_max, ANY_COUNT, bytes_max, tags_codes)


class PutCause(Enum):
    """The cause of a put, for statistics.

    SENT: messages for consumers, also delayed ones. SENT_BACK: redeliveries and dead letters.
    TRANSACTION: a step of a transaction. OWN: messages that only the broker reads.
    """

    SENT = 0
    SENT_BACK = 1
    TRANSACTION = 2
    OWN = 3


class AppendResult(NamedTuple):
    """The position of a block: its first queue offset, and its byte range in the log."""

    queue: QueueKey
    queue_offset: int
    physical_offset: int
    end_offset: int
    record_count: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the log that are not a whole record: their physical offset, and the reason."""

    path: Path
    offset: int
    length: int
    reason: str


class FilePrefix(NamedTuple):
    """The first `length` bytes of a file, identified by their CRC-32."""

    length: int
    crc: int


class QueueBounds(NamedTuple):
    """The minimum and maximum offset of a queue; the maximum is the next record's offset."""

    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class LogPositions:
    """Physical offsets: the log's start and end, and the ends of its flushed and visible parts."""

    log_begin: int
    log_end: int
    flushed_end: int
    dispatched_end: int
