"""How far waiting messages have been delivered, in memory and on disk.

A level's progress is saved only as far as what was delivered is on disk, at intervals: a crash
leaves it some seconds old. What has been delivered since says so itself (`store.numbered`), so a
start reads the log from where it ended at the last save, and delivers nothing twice. That place is
`config/deliveryLog.json`; a store that RocketMQ had in the meantime has none of our records behind
it. A clean stop saves all progress, as RocketMQ expects it in `config/delayOffset.json`.
Row D04.
"""

from __future__ import annotations

from collections import defaultdict, deque
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_fields import as_long
from rocketpy_broker.services.config_files.saving import SavePlan
from rocketpy_broker.services.delay.offsets import DelayOffsetManager
from rocketpy_broker.store.message_store import MessageStore

LOG_OFFSET = "logOffset"
# A start reads no more of the log than this, and what was written between two saves.
MARK_BYTES = 64 << 20


class DeliveryProgress:
    """The progress of every level."""

    def __init__(self, folder: Path, offsets: DelayOffsetManager, store: MessageStore) -> None:
        self._file = ConfigFile(folder / "deliveryLog.json", (LOG_OFFSET,))
        self._offsets = offsets
        self._store = store
        self._next: dict[int, int] = {}
        # Of each level: where the log ended, and the next offset then.
        self._moved: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
        self._marked = 0
        self._delivered: NDArray[np.int64] = np.empty(0, np.int64)

    def load(self) -> None:
        """Find what was delivered since the last save. Raises ConfigFileError, OSError.

        Where nothing says how far the log reached then, none of our deliveries is in it.
        """
        self._offsets.load(self._store.range_of)
        positions = self._store.positions()
        begin = self._file.load(lambda content: as_long(content.get(LOG_OFFSET)))
        if begin is None:
            begin = positions.log_end
            self._file.save({LOG_OFFSET: begin})
        self._marked = min(max(begin, positions.log_begin), positions.log_end)
        found = [*self._store.numbered.origins_from(self._marked)]
        self._delivered = np.sort(np.concatenate([self._delivered, *found]))

    def is_delivered(self, physical_offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these waiting records have been delivered since the last save."""
        found: NDArray[np.bool_] = np.isin(physical_offsets, self._delivered)
        return found

    def next_offset(self, level: int) -> int:
        """Where delivering `level` goes on."""
        return self._next.get(level, self._offsets.next_offset(level))

    def move(self, level: int, offset: int) -> None:
        """Everything of `level` below `offset` is delivered, and in the log by now."""
        self._next[level] = offset
        self._moved[level].append((self._store.positions().log_end, offset))

    def plan_save(self) -> SavePlan | None:
        """Save what is delivered and on disk, and where the log ends there."""
        flushed = self._store.flushed_end
        for level, moved in self._moved.items():
            while moved and moved[0][0] <= flushed:
                self._offsets.update(level, moved.popleft()[1])
        plan = self._offsets.plan_save()
        if plan is None and flushed - self._marked < MARK_BYTES:
            return None

        def run() -> None:
            if plan is not None:
                plan.run()
            self._file.save({LOG_OFFSET: flushed})

        def saved() -> None:
            self._marked = flushed
            if plan is not None:
                plan.saved()

        return SavePlan(run, saved)
