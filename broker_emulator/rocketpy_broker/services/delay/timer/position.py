"""Saved position of timer delivery.

All messages are delivered that are due up to a time and lie below `read_offset` of the timer queue.
All at or after `read_offset` are pending, and none below `pending_offset` is. A start skips
messages delivered since, which the log shows (`progress`).

The position belongs to one content of `config/timercheck`. A different content means that RocketMQ
used the store since, or that the position is older than the file. That file then defines the
pending messages: all after its offset, and earlier ones that are due after its last read time.
Of these, the log shows the ones that this broker has delivered (`progress`).
Source: docs/design/storage.md sections 13.5 and 13.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from rocketpy_broker.services.config_files.json_fields import as_long
from rocketpy_broker.store.files.timer_checkpoint import TimerCheckpoint
from rocketpy_broker.store.values import QueueBounds

DELIVERED_MS = "deliveredMs"
PENDING_OFFSET = "pendingOffset"
READ_OFFSET = "readOffset"
CHECKPOINTS = "checkpoints"
_CHECKPOINT_FIELDS = len(astuple(TimerCheckpoint()))


@dataclass(frozen=True, slots=True)
class TimerPosition:
    """The delivered time and queue offsets; see the module."""

    delivered_ms: int
    pending_offset: int
    read_offset: int

    def covers(self, other: TimerPosition) -> bool:
        """True if all that `other` has delivered since its pending offset is delivered here."""
        return self.delivered_ms >= other.delivered_ms and self.read_offset >= other.read_offset


@dataclass(frozen=True, slots=True)
class SavedTimer:
    """A position, and the contents of timercheck that it belongs to; None means no file."""

    position: TimerPosition
    checkpoints: tuple[TimerCheckpoint | None, ...]

    def to_json(self) -> dict[str, object]:
        """Returns the object in the file."""
        return {
            DELIVERED_MS: self.position.delivered_ms,
            PENDING_OFFSET: self.position.pending_offset,
            READ_OFFSET: self.position.read_offset,
            CHECKPOINTS: [[] if one is None else list(astuple(one)) for one in self.checkpoints],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SavedTimer:
        """Returns the saved position. Raises ValueError."""
        names = (DELIVERED_MS, PENDING_OFFSET, READ_OFFSET)
        rows = content.get(CHECKPOINTS)
        if not isinstance(rows, list):
            raise ValueError(f"{rows!r} is no array of checkpoints")  # noqa: TRY004 (a broken file)
        return cls(
            TimerPosition(*(as_long(content.get(name)) for name in names)),
            tuple(_checkpoint(row) for row in rows),
        )


def _checkpoint(row: object) -> TimerCheckpoint | None:
    if row == []:
        return None
    if not isinstance(row, list) or len(row) != _CHECKPOINT_FIELDS:
        raise ValueError(f"{row!r} is no timer checkpoint")
    return TimerCheckpoint(*(as_long(value) for value in row))


def at_start(
    saved: SavedTimer | None, found: TimerCheckpoint | None, bounds: QueueBounds
) -> TimerPosition:
    """Returns the position from which a timer queue of `bounds` continues.

    `found` is the present content of timercheck.
    """
    if saved is not None and found in saved.checkpoints:
        position = saved.position
    elif found is not None:
        # RocketMQ continues from the smaller one, too.
        offset = min(found.last_timer_queue_offset, found.master_timer_queue_offset)
        position = TimerPosition(found.last_read_time_ms, bounds.min_offset, offset)
    else:
        position = TimerPosition(0, bounds.min_offset, bounds.min_offset)
    read = min(max(position.read_offset, bounds.min_offset), bounds.max_offset)
    pending = min(max(position.pending_offset, bounds.min_offset), read)
    return TimerPosition(position.delivered_ms, pending, read)
