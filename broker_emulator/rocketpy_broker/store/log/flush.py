"""Flushes of the log and its queues, off the event loop.

A `FlushPlan` is created on the store's thread, run on another thread, and handed back. A power cut
may remove records appended after the last plan that was handed back. With SYNC_FLUSH, no sender
that waits for the flush has an acknowledgement of them.
Source: docs/design/storage.md section 9.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketpy_broker.store.log.segment import Segment


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """The segments to flush so that everything below `end` becomes durable.

    `store_timestamp_ms` is that of the last record below `end`. `check` raises OSError if the
    broker no longer holds the store's directory.
    """

    segments: list[Segment]
    end: int
    store_timestamp_ms: int
    check: Callable[[], None]

    def run(self) -> None:
        """Waits until the data is on disk. Raises OSError; then nothing counts as flushed."""
        self.check()
        for segment in self.segments:
            segment.flush()
        # Meanwhile another broker may have overwritten the flushed bytes.
        self.check()
