"""Delivery offset of each delay level: `config/delayOffset.json`.

Offsets are kept in memory, and saved on schedule and at a clean stop. A crash loses the last
seconds of progress. DeliveryProgress then finds the later deliveries in the log, so no message is
delivered twice.
Source: ScheduleMessageService, docs/design/storage.md sections 11.5 and 13.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.config_files.data_version import DATA_VERSION, FileVersion
from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_fields import as_int, as_long, as_object
from rocketpy_broker.services.config_files.saver import SavePlan
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC

logger = logging.getLogger(__name__)
TABLE = "offsetTable"
# delayOffsetUpdateVersionStep: updates for one change of the data version.
UPDATES_PER_VERSION = 200


class DelayOffsetManager:
    """The next offset of each delay level; level n has queue n - 1 of SCHEDULE_TOPIC_XXXX."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = ConfigFile(folder / "delayOffset.json", (DATA_VERSION, TABLE))
        self._clock = clock
        self._table: dict[int, int] = {}
        self._version = FileVersion()
        self._updates = 0
        self._saved_updates = 0
        self._is_backup_older = False

    def load(self, range_of: Callable[[QueueKey], QueueBounds]) -> None:
        """Reads the file, if it exists, and moves offsets outside their queue into it.

        Raises ConfigFileError.
        """
        loaded = self._file.load(decode_offsets)
        if loaded is None:
            return
        self._version, self._table = loaded
        for level, offset in [*self._table.items()]:
            bounds = range_of(QueueKey(SCHEDULE_TOPIC, level - 1))
            inside = min(max(offset, bounds.min_offset), bounds.max_offset)
            if inside != offset:
                logger.warning(
                    "delay level %d: offset %d is outside its queue; delivery continues at %d",
                    level,
                    offset,
                    inside,
                )
                self.update(level, inside)

    @property
    def version(self) -> FileVersion:
        """The version of the table."""
        return self._version

    def next_offset(self, level: int) -> int:
        """Returns the offset at which delivery continues; 0 for a new level."""
        return self._table.get(level, 0)

    def update(self, level: int, offset: int) -> None:
        """Notes that all messages of `level` below `offset` have been delivered."""
        self._table[level] = offset
        self._updates += 1
        if self._updates % UPDATES_PER_VERSION == 0:
            self._version = self._version.next(self._clock.now_ms())

    def plan_save(self) -> SavePlan | None:
        """Returns a save of the changes, or None; the next save repeats them for the backup."""
        updates = self._updates
        is_changed = updates != self._saved_updates
        if not is_changed and not self._is_backup_older:
            return None
        table = {str(level): offset for level, offset in self._table.items()}
        content = {DATA_VERSION: self._version.to_json(), TABLE: table}

        def saved() -> None:
            self._saved_updates = updates
            self._is_backup_older = is_changed

        return SavePlan(lambda: self._file.save(content), saved)


def decode_offsets(content: Mapping[str, Any]) -> tuple[FileVersion, dict[int, int]]:
    """Returns version and offsets of a file's content. Raises ValueError."""
    table = as_object(content.get(TABLE))
    return (
        FileVersion.from_json(content.get(DATA_VERSION)),
        {as_int(level): as_long(offset) for level, offset in table.items()},
    )
