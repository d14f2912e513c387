"""Delivery progress of waiting messages, in memory and on disk.

Progress is saved at intervals, up to the deliveries that are on disk. After a crash it is some
seconds old. Delivered records name the record that waited (`store.batch_marks`). So a start reads
the log from the first offset that the saved progress, or its backup, may not cover. It delivers
nothing twice.

`config/deliveryLog.json` holds that log offset and the timer messages' progress. If RocketMQ used
the store in the meantime, none of our records follow that offset. A clean stop saves the progress
of all levels as RocketMQ expects it, in `config/delayOffset.json`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.services.config_files.data_version import FileVersion
from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_fields import as_long, as_object
from rocketpy_broker.services.config_files.saver import SavePlan, save_now
from rocketpy_broker.services.delay.flushed_progress import FlushedProgress
from rocketpy_broker.services.delay.offsets import DelayOffsetManager
from rocketpy_broker.services.delay.timer.position import SavedTimer, TimerPosition, at_start
from rocketpy_broker.store.delay_levels import LEVELS_MAX
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE, TimerCheckpoint
from rocketpy_broker.store.message_store import NOTHING_NEEDED, MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC

LOG_OFFSET = "logOffset"
TIMER = "timer"
# Most bytes of the log that a start reads, besides the bytes written between two saves.
MARK_BYTES = 64 << 20


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
        # The file of offsets covers all deliveries before this offset, except where marks say
        # otherwise.
        self._saved_mark = 0
        # The offset from which on messages were pending or unread when the timer last looked.
        self._timer_kept: int | None = None
        self._delivered: NDArray[np.int64] = np.empty(0, np.int64)
        store.waiting_from = self._waiting_from

    def load(self, checkpoint: TimerCheckpoint | None, *, is_timed: bool) -> TimerPosition:
        """Finds the deliveries since the last save and returns the timer's position.

        `checkpoint` is the content of timercheck. Without `deliveryLog.json` the log has none of
        our deliveries. Raises ConfigFileError, OSError.
        """
        self._offsets.load(self._store.range_of)
        # Offsets that were moved back are saved: at the next start their queue may be long enough
        # for the old ones.
        save_now(self._offsets)
        positions = self._store.positions()
        given, saved = self._file.load(_decode) or (positions.log_end, None)
        begin = min(given, positions.log_end)
        timer_bounds = self._store.range_of(TIMER_QUEUE)
        timer = at_start(saved, checkpoint, timer_bounds)
        is_of_checkpoint = saved is not None and checkpoint in saved.checkpoints
        if saved is not None and not is_of_checkpoint and not timer.covers(saved.position):
            # The clock of timercheck was set back since the save, or the file is older. A delivered
            # record follows the message that waited.
            waiting = self._store.queue_lookup.first_record(TIMER_QUEUE, timer.pending_offset)
            begin = begin if waiting is None else min(begin, waiting)
        self._timer_saved = SavedTimer(timer, (checkpoint,))
        if (
            saved is None
            or checkpoint not in saved.checkpoints
            or (begin, timer) != (given, saved.position)
        ):
            # Saved now: a log that was cut below the old offsets may have grown at the next start.
            self._save(begin, self._timer_saved)
        self._marked = max(begin, positions.log_begin)
        self._saved_mark = self._marked
        if is_timed or timer.pending_offset < timer_bounds.max_offset:
            # Until the timer has read further, only the log shows its deliveries. Without a timer
            # now, this serves a later start that has one again.
            self._timer.begin(self._marked)
        for level in range(1, LEVELS_MAX + 1):
            self._levels[level].begin(self._marked)
        found = [*self._store.batch_marks.origins_from(self._marked)]
        self._delivered = np.sort(np.concatenate([self._delivered, *found]))
        return timer

    def is_delivered(self, physical_offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns True for each of these records that was delivered since the last save."""
        found: NDArray[np.bool_] = np.isin(physical_offsets, self._delivered)
        return found

    def next_offset(self, level: int) -> int:
        """Returns the offset at which delivery of `level` continues."""
        return self._next.get(level, self._offsets.next_offset(level))

    def offsets(self) -> tuple[FileVersion, dict[int, int]]:
        """Returns the next offset of each level with deliveries, and the table's version."""
        offsets = {level: self.next_offset(level) for level in range(1, LEVELS_MAX + 1)}
        return self._offsets.version, {level: at for level, at in offsets.items() if at}

    def begin(self, level: int) -> None:
        """Notes that records appended from now on may be deliveries of `level`, until `move`."""
        self._levels[level].begin(self._store.positions().log_end)

    def move(self, level: int, offset: int) -> None:
        """Notes that all messages of `level` below `offset` are delivered and in the log."""
        self._next[level] = offset
        self._levels[level].mark(self._store.positions().log_end, offset)

    def mark_undelivered(self, level: int, offset: int) -> None:
        """Notes that no message of `level` at or after `offset` is delivered."""
        if self._levels[level].is_begun:
            self.move(level, offset)

    def keep_timer(self, offset: int) -> None:
        """Protects the log from cleaning, from the first timer message at or after `offset` on."""
        self._timer_kept = offset

    def _waiting_from(self) -> int:
        """Returns the log offset of the first message that waits; cleaning stops there."""
        waiting = {
            QueueKey(SCHEDULE_TOPIC, level - 1): self.next_offset(level)
            for level in range(1, LEVELS_MAX + 1)
        }
        if self._timer_kept is not None:
            waiting[TIMER_QUEUE] = self._timer_kept
        found = [self._store.queue_lookup.first_record(*place) for place in waiting.items()]
        return min((each for each in found if each is not None), default=NOTHING_NEEDED)

    def begin_timer(self) -> None:
        """Notes that records appended from now on may be timer deliveries, until `move_timer`."""
        self._timer.begin(self._store.positions().log_end)

    def move_timer(self, position: TimerPosition) -> None:
        """Notes that `position` covers all deliveries, which are in the log."""
        self._timer.mark(self._store.positions().log_end, position)

    def accept(self, *checkpoints: TimerCheckpoint | None) -> None:
        """Binds the timer's position to each of these contents of timercheck."""
        self._timer_saved = SavedTimer(self._timer_saved.position, checkpoints)
        self._is_timer_dirty = True

    def plan_save(self) -> SavePlan | None:
        """Returns a save of the deliveries on disk, and of where the next start's scan begins."""
        flushed = self._store.flushed_end
        begin = self._take_marks(flushed)
        plan = self._offsets.plan_save()
        timer = self._timer_saved if self._is_timer_dirty else None
        if plan is None and timer is None and begin - self._marked < MARK_BYTES:
            return None
        saving = self._timer_saved
        # The file's present content becomes its backup: the mark must be right for both.
        mark = begin if plan is None else min(begin, self._saved_mark)

        def run() -> None:
            if plan is not None:
                plan.run()
            self._save(mark, saving)

        def saved() -> None:
            self._marked, self._saved_mark = mark, begin
            if plan is not None:
                plan.saved()
            if self._timer_saved is saving:
                self._is_timer_dirty = False

        return SavePlan(run, saved)

    def _take_marks(self, flushed: int) -> int:
        """Takes in progress that is on disk; returns the first log offset that it may not cover."""
        begin = flushed
        for level, progress in self._levels.items():
            offset = progress.flushed(flushed)
            if offset is not None and offset != self._offsets.next_offset(level):
                self._offsets.update(level, offset)
            begin = min(begin, progress.scan_begin(flushed))
        position = self._timer.flushed(flushed)
        if position is not None and position != self._timer_saved.position:
            self._timer_saved = SavedTimer(position, self._timer_saved.checkpoints)
            self._is_timer_dirty = True
        return min(begin, self._timer.scan_begin(flushed))

    def _save(self, log_offset: int, timer: SavedTimer) -> None:
        self._file.save({LOG_OFFSET: log_offset, TIMER: timer.to_json()})


def decode_log_offset(content: Mapping[str, Any]) -> int:
    """Returns the log offset of a file's content. Raises ValueError."""
    return _decode(content)[0]


def _decode(content: Mapping[str, Any]) -> tuple[int, SavedTimer | None]:
    timer = content.get(TIMER)
    saved = None if timer is None else SavedTimer.from_json(as_object(timer))
    return as_long(content.get(LOG_OFFSET)), saved
