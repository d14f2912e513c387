"""Settings of a store, with RocketMQ's defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.delay_levels import DelayLevels

STAGING_FRAME_BYTES = 2 << 20


class FlushDiskType(str, Enum):
    """The durability of a record when its send is acknowledged."""

    # The record is on disk.
    SYNC_FLUSH = "SYNC_FLUSH"
    # The record is in the page cache, and on disk within the flush interval.
    ASYNC_FLUSH = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True)
class FlushTimes:
    """Intervals of flushes, in ms: RocketMQ's defaults but for `least_bytes`.

    `flush_interval_ms` applies to ASYNC_FLUSH: dirty data of less than `least_bytes` is not flushed
    then. `thorough_interval_ms` limits this delay. RocketMQ leaves four pages unflushed; the
    default here leaves none. `derived_interval_ms` is that of queues, index, checksums and
    checkpoint.
    Source: docs/design/storage.md section 9.
    """

    flush_interval_ms: int = 500
    least_bytes: int = 1
    thorough_interval_ms: int = 10_000
    sync_flush_timeout_ms: int = 5_000
    derived_interval_ms: int = 1_000


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Location, format and limits of a store; sizes in bytes.

    The newest data of the log counts as in memory, up to `memory_ratio` of the machine's memory.
    `unflushed_bytes_max` limits the data that waits for a slow disk. `staging_bytes_max` limits the
    space of uncommitted batches, which are stored in parts of `staging_frame_bytes`.
    Source: docs/design/storage.md section 1.
    """

    folder: Path
    commit_log_segment_bytes: int = 1 << 30
    consume_queue_file_bytes: int = 6_000_000
    flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH
    index_enable: bool = True
    index_slot_count: int = 5_000_000
    index_entry_count_max: int = 20_000_000
    memory_ratio: float = 0.40
    memory_bytes: int = field(default_factory=_memory_bytes)
    unflushed_bytes_max: int = 256 << 20
    staging_bytes_max: int = 32 << 30
    staging_frame_bytes: int = STAGING_FRAME_BYTES
    delay_levels: DelayLevels = field(default_factory=DelayLevels.parse)
    clean_policy: CleanPolicy = field(default_factory=CleanPolicy)

    @property
    def hot_bytes(self) -> int:
        """The distance from the log's end, in bytes, within which data counts as in memory."""
        return int(self.memory_bytes * self.memory_ratio)
