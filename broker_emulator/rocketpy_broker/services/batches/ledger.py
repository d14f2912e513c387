"""The ledger of batches: the last decided batch of every writer.

Kept in memory, saved every few seconds and at a clean stop; a crash loses the last seconds, and the
start reads them from the decisions in the log. The file is needed for what cleaning has removed
from the log. What is saved has been flushed in the log before, so the file never knows of a batch
that a power cut has taken back.

A writer is forgotten when it has been idle for `idle_ms_max`, at two readings of the clock that lie
an hour of monotonic time apart: a clock that jumps forgets nobody at once. A writer that wrote one
batch only and never comes back is forgotten after `single_idle_ms_max` of monotonic time, counted
from its decision or from the start. No file is written for that: a crash brings some of them back,
to be forgotten again.
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
# Writers forgotten at a time, while everybody waits.
FORGOTTEN_AT_A_TIME = 5_000


@dataclass(frozen=True, slots=True)
class _Single:
    """A writer of one batch, and when it was decided or loaded: monotonic time in ms."""

    entry: LedgerEntry
    since_ms: float


@dataclass(frozen=True, slots=True)
class _Step:
    """Entries that may be saved with `next_offset` when the log is flushed up to `log_end`."""

    log_end: int
    next_offset: int
    entries: dict[str, LedgerEntry]


@dataclass(slots=True)
class _Reading:
    """Writers decided before `before_ms` have been idle ever since monotonic time `since_ms`."""

    since_ms: float
    before_ms: int


class BatchLedger:
    """The table. `flushed_end` says up to where the log is on disk."""

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
        # Both in the order of time, so that who is idle stands in front.
        self._writers: dict[str, LedgerEntry] = {}
        self._singles: dict[str, _Single] = {}
        # Decisions before this offset of their queue have been carried out.
        self.next_offset = 0
        self._changed: dict[str, LedgerEntry] = {}
        self._steps: deque[_Step] = deque()
        self._reading: _Reading | None = None
        self._idle_before_ms = 0
        self._forgotten: list[str] = []
        self._has_forgotten_all = False

    def load(self) -> None:
        """Reads the file, if there is one. Blocks. Raises ConfigFileError, OSError."""
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
        """Returns the writer's last decided batch; None where none is known."""
        found = self._writers.get(writer_id)
        if found is None and writer_id in self._singles:
            return self._singles[writer_id].entry
        return found

    def last_batch(self, writer_id: str) -> int:
        """Returns the number of the writer's last decided batch, or NO_BATCH."""
        entry = self.last(writer_id)
        return NO_BATCH if entry is None else entry.batch_id

    def decided(self, writer_id: str, entry: LedgerEntry) -> None:
        """A batch has been decided, or more is known of it; one below the last changes nothing."""
        if entry.batch_id >= self.last_batch(writer_id):
            self._put(writer_id, entry, self._clock.monotonic_ms())
            self._changed[writer_id] = entry

    def done(self, next_offset: int, log_end: int) -> None:
        """Decisions before `next_offset` are carried out, by records below `log_end` of the log.

        To be called after every change.
        """
        self.next_offset = next_offset
        self._steps.append(_Step(log_end, next_offset, self._changed))
        self._changed = {}

    def forget_all(self, kept: Collection[str]) -> None:
        """Forgets all writers but these, and at the next save for good."""
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
        """Saves what has changed and is flushed."""
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
        """Forgets who stands in front and is idle; not all at once, should there be many."""
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
        """Finds from when on back writers are idle, as all readings of an hour say."""
        before_ms = self._clock.now_ms() - self._idle_ms_max
        reading = self._reading
        if reading is None:
            self._reading = _Reading(monotonic_ms, before_ms)
            return
        reading.before_ms = min(reading.before_ms, before_ms)
        if monotonic_ms - reading.since_ms >= CONFIRM_MS:
            self._idle_before_ms = reading.before_ms
            self._reading = _Reading(monotonic_ms, before_ms)
