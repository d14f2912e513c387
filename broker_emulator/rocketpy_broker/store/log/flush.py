"""Flushing: making the log and its queues durable, off the event loop.

A `FlushPlan` is taken on the store's thread, run on another, and handed back. What a crash loses
is what was appended after the last plan that was handed back; with SYNC_FLUSH none of that has
been acknowledged.
Source: docs/design/storage.md section 9.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketpy_broker.store.log.segment import Segment


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """The segments to flush so that everything below `end` becomes durable.

    `store_timestamp_ms` is that of the last record below `end`. `check` raises OSError where the
    store's directory is not held any more.
    """

    segments: list[Segment]
    end: int
    store_timestamp_ms: int
    check: Callable[[], None]

    def run(self) -> None:
        """Block until the data is on disk. Raises OSError; then nothing counts as flushed."""
        self.check()
        for segment in self.segments:
            segment.flush()
        # Another broker may have come meanwhile, and written over what was flushed.
        self.check()
