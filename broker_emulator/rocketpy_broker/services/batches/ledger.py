"""The ledger of batches: the last decided batch of every writer.

It is kept in memory, and saved every few seconds and at a clean stop. A crash loses the last
seconds; the start reads them again from the decisions in the log. The file is needed for decisions
that cleaning removed from the log. An entry is saved only after its decision is flushed. So the
file never has a batch that a power cut removed from the log.

A writer is forgotten after it was idle for `idle_ms_max`. Two readings of the wall clock, an hour
of monotonic time apart, must agree on that. So a clock that jumps forgets no writer at once.

A single writer writes one batch and never returns. It is forgotten after `single_idle_ms_max` of
monotonic time since its decision or the start. The file is not written for that alone. So a crash
brings some of them back, and they are forgotten again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.batches.ledger_file import LedgerEntry, LedgerFile
from rocketpy_broker.services.config_files.saver import SavePlan

__all__ = ["CONFIRM_MS", "NO_BATCH", "BatchLedger", "LedgerEntry"]
NO_BATCH = -1
CONFIRM_MS = 3_600_000
# Writers forgotten in one step; the event loop waits meanwhile.
FORGOTTEN_AT_A_TIME = 5_000


@dataclass(frozen=True, slots=True)
class _Single:
    """A single writer, and the monotonic time in ms of its decision or load."""

    entry: LedgerEntry
    since_ms: float


@dataclass(frozen=True, slots=True)
class _Step:
    """Entries that may be saved with `next_offset` once the log is flushed up to `log_end`."""

    log_end: int
    next_offset: int
    entries: dict[str, LedgerEntry]


@dataclass(slots=True)
class _Reading:
    """A reading of the clock.

    Writers decided before `before_ms` have been idle since monotonic time `since_ms`.
    """

    since_ms: float
    before_ms: int


class BatchLedger:
    """The last decided batch of each writer.

    `flushed_end` returns the offset up to which the log is on disk.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        flushed_end: Callable[[], int],
        idle_ms_max: int,
        single_idle_ms_max: int,
    ) -> None:
        self._file = LedgerFile(folder)
        self._clock = clock
        self._flushed_end = flushed_end
        self._idle_ms_max = idle_ms_max
        self._single_idle_ms_max = single_idle_ms_max
        # Both are ordered by time: idle writers come first.
        self._writers: dict[str, LedgerEntry] = {}
        self._singles: dict[str, _Single] = {}
        # Decisions before this offset of the batches queue have been carried out.
        self.next_offset = 0
        self._changed: dict[str, LedgerEntry] = {}
        self._steps: deque[_Step] = deque()
        self._reading: _Reading | None = None
        self._idle_before_ms = 0
        self._forgotten: list[str] = []
        self._has_forgotten_all = False

    def load(self) -> None:
        """Reads the file, if it exists. Blocks. Raises ConfigFileError, OSError."""
        self._file.load()
        self.next_offset = self._file.next_offset
        now_ms = self._clock.monotonic_ms()
        in_order = sorted(self._file.entries.items(), key=lambda item: item[1].timestamp_ms)
        for writer_id, entry in in_order:
            self._put(writer_id, entry, now_ms)

    def _put(self, writer_id: str, entry: LedgerEntry, since_ms: float) -> None:
        self._writers.pop(writer_id, None)
        self._singles.pop(writer_id, None)
        if entry.is_single:
            self._singles[writer_id] = _Single(entry, since_ms)
        else:
            self._writers[writer_id] = entry

    def last(self, writer_id: str) -> LedgerEntry | None:
        """Returns the writer's last decided batch; None if none is known."""
        found = self._writers.get(writer_id)
        if found is None and writer_id in self._singles:
            return self._singles[writer_id].entry
        return found

    def last_batch(self, writer_id: str) -> int:
        """Returns the number of the writer's last decided batch, or NO_BATCH."""
        entry = self.last(writer_id)
        return NO_BATCH if entry is None else entry.batch_id

    def decided(self, writer_id: str, entry: LedgerEntry) -> None:
        """Takes in a decided batch, or an update of one; ignores one older than the last."""
        if entry.batch_id >= self.last_batch(writer_id):
            self._put(writer_id, entry, self._clock.monotonic_ms())
            self._changed[writer_id] = entry

    def done(self, next_offset: int, log_end: int) -> None:
        """Notes that records below `log_end` of the log carry out decisions before `next_offset`.

        Must be called after every change.
        """
        self.next_offset = next_offset
        self._steps.append(_Step(log_end, next_offset, self._changed))
        self._changed = {}

    def forget_all(self, kept: Collection[str]) -> None:
        """Forgets all writers except `kept`; the next save makes that permanent."""
        gone = [each for each in (*self._writers, *self._singles) if each not in kept]
        left: dict[str, LedgerEntry] = {}
        for step in self._steps:
            left |= step.entries
        tables: list[dict[str, Any]] = [self._writers, self._singles, self._changed, left]
        for table in tables:
            for writer_id in gone:
                table.pop(writer_id, None)
        self._forgotten += gone
        self._steps = deque([_Step(0, self.next_offset, left)])
        self._has_forgotten_all = True

    def plan_save(self) -> SavePlan | None:
        """Returns a save of the changed entries that are flushed; None if none is needed."""
        self._forget_idle()
        flushed = self._flushed_end()
        count = 0
        next_offset = self._file.next_offset
        entries: dict[str, LedgerEntry] = {}
        for step in self._steps:
            if step.log_end > flushed:
                break
            count += 1
            entries.update(step.entries)
            next_offset = step.next_offset
        is_long = self._has_forgotten_all or self._file.is_too_long(len(self._forgotten))
        if not count and not is_long:
            return None
        self._file.must_replace |= self._has_forgotten_all
        forgotten, steps = self._forgotten.copy(), self._steps

        def saved() -> None:
            if self._steps is not steps:
                return  # All were forgotten meanwhile: the next save replaces the file.
            for _ in range(count):
                steps.popleft()
            del self._forgotten[: len(forgotten)]
            self._has_forgotten_all = False

        return SavePlan(lambda: self._file.save(entries, next_offset, forgotten), saved)

    def _forget_idle(self) -> None:
        """Forgets idle writers, at most FORGOTTEN_AT_A_TIME of each kind."""
        monotonic_ms = self._clock.monotonic_ms()
        before_ms = monotonic_ms - self._single_idle_ms_max
        gone = []
        for writer_id, single in islice(self._singles.items(), FORGOTTEN_AT_A_TIME):
            if single.since_ms > before_ms:
                break
            gone.append(writer_id)
        self._read_clock(monotonic_ms)
        for writer_id, entry in islice(self._writers.items(), FORGOTTEN_AT_A_TIME):
            if entry.timestamp_ms >= self._idle_before_ms:
                break
            gone.append(writer_id)
        for writer_id in gone:
            self._singles.pop(writer_id, None)
            self._writers.pop(writer_id, None)
        self._forgotten += gone

    def _read_clock(self, monotonic_ms: float) -> None:
        """Sets the time before which writers count as idle: the lowest reading of an hour."""
        before_ms = self._clock.now_ms() - self._idle_ms_max
        reading = self._reading
        if reading is None:
            self._reading = _Reading(monotonic_ms, before_ms)
            return
        reading.before_ms = min(reading.before_ms, before_ms)
        if monotonic_ms - reading.since_ms >= CONFIRM_MS:
            self._idle_before_ms = reading.before_ms
            self._reading = _Reading(monotonic_ms, before_ms)
