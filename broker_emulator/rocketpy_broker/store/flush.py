"""Flushing: making the log and its queues durable, off the event loop.

A `FlushPlan` is taken on the store's thread, run on another, and handed back. What a crash loses
is what was appended after the last plan that was handed back; with SYNC_FLUSH none of that has
been acknowledged.
Source: spec/storage.md section 9.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rocketpy_broker.store.segment import Segment


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


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """The segments to flush so that everything below `end` becomes durable.

    `store_timestamp_ms` is that of the last record below `end`.
    """

    segments: list[Segment]
    end: int
    store_timestamp_ms: int

    def run(self) -> None:
        """Block until the data is on disk. Raises OSError; then nothing counts as flushed."""
        for segment in self.segments:
            segment.flush()
