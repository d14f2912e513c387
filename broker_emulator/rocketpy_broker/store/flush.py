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
class FlushPlan:
    """The segments to flush so that everything below `end` becomes durable."""

    segments: list[Segment]
    end: int

    def run(self) -> None:
        """Block until the data is on disk. Raises OSError; then nothing counts as flushed."""
        for segment in self.segments:
            segment.flush()
