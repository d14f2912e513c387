"""The ledger of batches: `config/batchLedger.json`.

Maps: a writer's id to its last decided batch. Kept in memory, saved every few seconds and at a
clean stop; a crash loses the last seconds, and the start reads them from the decisions in the log.
The file is needed for what cleaning has removed from the log. What is saved has been flushed in
the log before, so the file never knows of a batch that a power cut has taken back.

A writer is forgotten when it has been idle for `idle_ms_max`, at two readings of the clock that lie
an hour of monotonic time apart: a clock that jumps forgets nobody at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketpy_broker.clock import Clock
from rocketpy_broker.services.config_file import ConfigFile
from rocketpy_broker.services.json_fields import as_long, as_object

NO_BATCH = -1
CONFIRM_MS = 3_600_000
WRITERS = "writers"
NEXT_OFFSET = "nextOffset"
BATCH_ID, TIMESTAMP = "batchId", "timestamp"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A writer's last decided batch, and when that was decided: wall time in ms."""

    batch_id: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the file holds."""

    writers: dict[str, LedgerEntry]
    next_offset: int

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> _Loaded:
        writers = {
            writer_id: LedgerEntry(as_long(entry[BATCH_ID]), as_long(entry[TIMESTAMP]))
            for writer_id, entry in (
                (writer_id, as_object(entry))
                for writer_id, entry in as_object(content.get(WRITERS)).items()
            )
            if BATCH_ID in entry and TIMESTAMP in entry
        }
        return cls(writers, as_long(content.get(NEXT_OFFSET, 0)))


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A content that may be saved when the log is flushed up to `log_end`."""

    log_end: int
    content: dict[str, object]


class BatchLedger:
    """The table. `flushed_end` says up to where the log is on disk."""

    def __init__(
        self, folder: Path, clock: Clock, flushed_end: Callable[[], int], idle_ms_max: int
    ) -> None:
        self._file = ConfigFile(folder / "batchLedger.json", (WRITERS, NEXT_OFFSET))
        self._clock = clock
        self._flushed_end = flushed_end
        self._idle_ms_max = idle_ms_max
        self._writers: dict[str, LedgerEntry] = {}
        # Monotonic time of the first reading that found a writer idle for too long.
        self._idle_since_ms: dict[str, float] = {}
        # Decisions before this offset of their queue have been carried out.
        self.next_offset = 0
        self._log_end = 0
        self._changed = False
        self._waiting: _Snapshot | None = None

    def load(self) -> None:
        """Read the file, if there is one. Raises ConfigFileError."""
        loaded = self._file.load(_Loaded.from_json)
        if loaded is not None:
            self._writers, self.next_offset = loaded.writers, loaded.next_offset

    def last_batch(self, writer_id: str) -> int:
        """The writer's last decided batch, or NO_BATCH."""
        entry = self._writers.get(writer_id)
        return NO_BATCH if entry is None else entry.batch_id

    def decided(self, writer_id: str, batch_id: int, timestamp_ms: int) -> None:
        """A batch has been decided; one below the last changes nothing."""
        if batch_id > self.last_batch(writer_id):
            self._writers[writer_id] = LedgerEntry(batch_id, timestamp_ms)
            self._idle_since_ms.pop(writer_id, None)

    def done(self, next_offset: int, log_end: int) -> None:
        """Decisions before `next_offset` are carried out, by records below `log_end` of the log.

        To be called after every change.
        """
        self.next_offset = next_offset
        self._log_end = log_end
        self._changed = True

    def persist(self) -> None:
        """Save what has changed and is flushed. Raises OSError; it is then tried again later."""
        self._forget_idle()
        if not self._changed and self._waiting is None:
            return
        flushed = self._flushed_end()
        newest = _Snapshot(self._log_end, self._content())
        if newest.log_end <= flushed:
            self._file.save(newest.content)
            self._waiting, self._changed = None, False
            return
        if self._waiting is not None and self._waiting.log_end <= flushed:
            self._file.save(self._waiting.content)
            self._waiting = None
        # Under constant load the newest is never flushed; this one will be by the next call.
        self._waiting = self._waiting or newest

    def _content(self) -> dict[str, object]:
        writers = {
            writer_id: {BATCH_ID: entry.batch_id, TIMESTAMP: entry.timestamp_ms}
            for writer_id, entry in self._writers.items()
        }
        return {WRITERS: writers, NEXT_OFFSET: self.next_offset}

    def _forget_idle(self) -> None:
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        idle = [
            writer_id
            for writer_id, entry in self._writers.items()
            if now_ms - entry.timestamp_ms > self._idle_ms_max
        ]
        self._idle_since_ms = {
            writer_id: self._idle_since_ms.get(writer_id, monotonic_ms) for writer_id in idle
        }
        for writer_id, since_ms in list(self._idle_since_ms.items()):
            if monotonic_ms - since_ms >= CONFIRM_MS:
                del self._writers[writer_id], self._idle_since_ms[writer_id]
                self._changed = True
