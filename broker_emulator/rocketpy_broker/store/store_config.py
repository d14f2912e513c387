"""What can be set on a store, with RocketMQ's defaults. Holds no state."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from rocketpy_broker.store.cleaning import CleanPolicy
from rocketpy_broker.store.flush import FlushDiskType


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where and how to store; sizes in bytes (spec section 1).

    `memory_ratio` is the share of the machine's memory that data behind the log's end may take and
    still count as being in memory. `unflushed_bytes_max` bounds what waits for a slow disk.
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
    clean_policy: CleanPolicy = field(default_factory=CleanPolicy)
