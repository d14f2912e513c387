"""How far waiting messages have been delivered, in memory and on disk.

Progress is saved only as far as what was delivered is on disk, at intervals: a crash leaves it some
seconds old. What has been delivered since says so itself (`store.numbered`), so a start reads the
log from where no saved progress tells of it, not even a backup, and delivers nothing twice. That
place, and the timer messages' progress, are `config/deliveryLog.json`; a store that RocketMQ had in
the meantime has none of our records behind it. A clean stop saves all progress of levels as
RocketMQ expects it in `config/delayOffset.json`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_fields import as_long, as_object
from rocketpy_broker.services.config_files.saver import SavePlan, save_now
from rocketpy_broker.services.delay.flushed_progress import FlushedProgress
from rocketpy_broker.services.delay.offsets import DelayOffsetManager
from rocketpy_broker.services.delay.timer.position import SavedTimer, TimerPosition, at_start
from rocketpy_broker.store.delay_levels import LEVELS_MAX
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE, TimerCheckpoint
from rocketpy_broker.store.message_store import NOTHING_NEEDED, MessageStore

LOG_OFFSET = "logOffset"
TIMER = "timer"
# A start reads no more of the log than this, and what was written between two saves.
MARK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What deliveryLog.json holds."""

    log_offset: int
    timer: SavedTimer | None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> _Loaded:
        timer = content.get(TIMER)
        return cls(
            as_long(content.get(LOG_OFFSET)),
            None if timer is None else SavedTimer.from_json(as_object(timer)),
        )


class DeliveryProgress:
    """The progress of every level, and of the timer."""

    def __init__(self, folder: Path, offsets: DelayOffsetManager, store: MessageStore) -> None:
        self._file = ConfigFile(folder / "deliveryLog.json", (LOG_OFFSET, TIMER))
        self._offsets = offsets
        self._store = store
        self._next: dict[int, int] = {}
        self._levels: defaultdict[int, FlushedProgress[int]] = defaultdict(FlushedProgress)
        self._timer: FlushedProgress[TimerPosition] = FlushedProgress()
        self._timer_saved = SavedTimer(TimerPosition(0, 0, 0), (None,))
        self._is_timer_dirty = False
        self._marked = 0
        # The file of offsets tells of all deliveries before this, but for what tracks say.
        self._told = 0
        self._kept: dict[int, int] = {}
        self._delivered: NDArray[np.int64] = np.empty(0, np.int64)

    def load(self, checkpoint: TimerCheckpoint | None, *, is_timed: bool) -> TimerPosition:
        """Finds what was delivered since the last save; `checkpoint` is what timercheck holds.

        Where nothing says how far the log reached then, none of our deliveries is in it. Returns
        where timer messages go on. Raises ConfigFileError, OSError.
        """
        self._offsets.load(self._store.range_of)
        # What was moved back has to stay there: by the next start its queue may be as long again.
        save_now(self._offsets)
        positions = self._store.positions()
        loaded = self._file.load(_Loaded.from_json)
        saved = None if loaded is None else loaded.timer
        given = positions.log_end if loaded is None else loaded.log_offset
        begin = min(given, positions.log_end)
        timer_bounds = self._store.range_of(TIMER_QUEUE)
        timer = at_start(saved, checkpoint, timer_bounds)
        self._timer_saved = SavedTimer(timer, (checkpoint,))
        if (
            saved is None
            or checkpoint not in saved.checkpoints
            or (begin, timer) != (given, saved.position)
        ):
            # A log that was cut below the places may be longer than that by the next start.
            self._save(begin, self._timer_saved)
        self._marked = max(begin, positions.log_begin)
        self._told = self._marked
        if is_timed or timer.pending_offset < timer_bounds.max_offset:
            # Until the timer has read on, only the log tells what it has delivered. Where there is
            # no timer now, that is for a start that has one again.
            self._timer.begin(self._marked)
        for level in range(1, LEVELS_MAX + 1):
            self._levels[level].begin(self._marked)
        found = [*self._store.numbered.origins_from(self._marked)]
        self._delivered = np.sort(np.concatenate([self._delivered, *found]))
        return timer

    def is_delivered(self, physical_offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these waiting records have been delivered since the last save."""
        found: NDArray[np.bool_] = np.isin(physical_offsets, self._delivered)
        return found

    def next_offset(self, level: int) -> int:
        """Where delivering `level` goes on."""
        return self._next.get(level, self._offsets.next_offset(level))

    def begin(self, level: int) -> None:
        """What is appended from now on may be messages of `level`, until it has moved."""
        self._levels[level].begin(self._store.positions().log_end)

    def move(self, level: int, offset: int) -> None:
        """Everything of `level` below `offset` is delivered, and in the log by now."""
        self._next[level] = offset
        self._levels[level].mark(self._store.positions().log_end, offset)

    def stand(self, level: int, offset: int) -> None:
        """No message of `level` at or behind `offset` is delivered."""
        if self._levels[level].is_begun:
            self.move(level, offset)

    def keep(self, track: int, physical_offset: int | None) -> None:
        """Let cleaning leave the log alone from the first message that waits on a track."""
        self._kept[track] = NOTHING_NEEDED if physical_offset is None else physical_offset
        self._store.waiting_from = min(self._kept.values())

    def begin_timer(self) -> None:
        """What is appended from now on may be timer messages, until they have moved."""
        self._timer.begin(self._store.positions().log_end)

    def move_timer(self, position: TimerPosition) -> None:
        """`position` tells of all that has been delivered, which is in the log by now."""
        self._timer.mark(self._store.positions().log_end, position)

    def accept(self, *checkpoints: TimerCheckpoint | None) -> None:
        """The timer's position belongs to each of these contents of timercheck."""
        self._timer_saved = SavedTimer(self._timer_saved.position, checkpoints)
        self._is_timer_dirty = True

    def plan_save(self) -> SavePlan | None:
        """Saves what is delivered and on disk, and from where on the log has to tell of more."""
        flushed = self._store.flushed_end
        begin = self._take_marks(flushed)
        plan = self._offsets.plan_save()
        timer = self._timer_saved if self._is_timer_dirty else None
        if plan is None and timer is None and begin - self._marked < MARK_BYTES:
            return None
        saving = self._timer_saved
        # What the file says now is what its backup will say.
        mark = begin if plan is None else min(begin, self._told)

        def run() -> None:
            if plan is not None:
                plan.run()
            self._save(mark, saving)

        def saved() -> None:
            self._marked, self._told = mark, begin
            if plan is not None:
                plan.saved()
            if self._timer_saved is saving:
                self._is_timer_dirty = False

        return SavePlan(run, saved)

    def _take_marks(self, flushed: int) -> int:
        """Takes over what is on disk; return where the log may have deliveries beyond that."""
        begin = flushed
        for level, track in self._levels.items():
            offset = track.flushed(flushed)
            if offset is not None and offset != self._offsets.next_offset(level):
                self._offsets.update(level, offset)
            begin = min(begin, track.scan_begin(flushed))
        position = self._timer.flushed(flushed)
        if position is not None and position != self._timer_saved.position:
            self._timer_saved = SavedTimer(position, self._timer_saved.checkpoints)
            self._is_timer_dirty = True
        return min(begin, self._timer.scan_begin(flushed))

    def _save(self, log_offset: int, timer: SavedTimer) -> None:
        self._file.save({LOG_OFFSET: log_offset, TIMER: timer.to_json()})
