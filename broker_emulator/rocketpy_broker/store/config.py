"""What can be set on a store, with RocketMQ's defaults. Holds no state."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.delay_levels import DelayLevels


class FlushDiskType(str, Enum):
    """What an acknowledgement of a send means."""

    # The record is on disk.
    SYNC_FLUSH = "SYNC_FLUSH"
    # The record is in the page cache, and on disk within the flush interval.
    ASYNC_FLUSH = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True)
class FlushTimes:
    """How often is flushed, in ms; RocketMQ's defaults (spec 9) but for `least_bytes`.

    `flush_interval_ms` is of ASYNC_FLUSH: less than `least_bytes` of dirty data is left alone then,
    but not for longer than `thorough_interval_ms`. RocketMQ leaves four pages; here nothing waits
    unless told so. Derived files are queues, index, checksums and checkpoint.
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
    """Where and how to store; sizes in bytes (spec section 1).

    `memory_ratio` is the share of the machine's memory that data behind the log's end may take and
    still count as being in memory. `unflushed_bytes_max` bounds what waits for a slow disk, and
    `staging_bytes_max` what batches that are not committed take.
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
    delay_levels: DelayLevels = field(default_factory=DelayLevels.parse)
    clean_policy: CleanPolicy = field(default_factory=CleanPolicy)

    @property
    def hot_bytes(self) -> int:
        """How far behind the log's end data counts as being in memory."""
        return int(self.memory_bytes * self.memory_ratio)
