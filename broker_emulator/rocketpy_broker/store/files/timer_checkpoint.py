"""`config/timercheck`: up to where arbitrary-time messages have been delivered.

Maps: nothing; seven int64 in a file of 4,096 bytes, the rest zeros. Not checksummed. Replaced as a
whole: a crash leaves the old or the new values. Called by the broker at its start and at a clean
stop; after a crash it is as old as the last clean stop, so nothing pending is left out.

A broker that finds timer messages but no such file delivers all of them that are due, again.
Source: TimerCheckpoint, spec/storage.md sections 13.5 and 13.7.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.values import QueueKey, QueueRange

TIMER_QUEUE = QueueKey("rmq_sys_wheel_timer", 0)
FILE_BYTES = 4096
# One int64 for each field of TimerCheckpoint, in its order.
_FORMAT = struct.Struct(">7q")


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """RocketMQ's TimerCheckpoint; times in ms since 1970.

    The two queue offsets are where reading the timer topic goes on: what lies below is delivered
    or, in RocketMQ's own stores, in its timer log and due after `last_read_time_ms`.
    """

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """The file's content."""
        return _FORMAT.pack(*astuple(self)).ljust(FILE_BYTES, b"\0")

    @classmethod
    def decode(cls, content: bytes) -> TimerCheckpoint:
        """Of a file's content, which has at least the fields' bytes."""
        return cls(*_FORMAT.unpack_from(content))


def at_clean_stop(
    found: TimerCheckpoint | None, bounds: QueueRange, now_ms: int
) -> TimerCheckpoint:
    """What a broker that delivers no timer messages leaves behind.

    What was found stays, since RocketMQ's timer log goes with it: only offsets outside the
    timer topic's queue are moved into it. Without any, all that the queue holds is pending.
    """
    if found is None:
        return TimerCheckpoint(
            last_read_time_ms=now_ms,
            last_timer_queue_offset=bounds.min_offset,
            master_timer_queue_offset=bounds.min_offset,
        )
    return replace(
        found,
        last_timer_queue_offset=_clamp(found.last_timer_queue_offset, bounds),
        master_timer_queue_offset=_clamp(found.master_timer_queue_offset, bounds),
    )


def _clamp(offset: int, bounds: QueueRange) -> int:
    return min(max(offset, bounds.min_offset), bounds.max_offset)


class TimerCheckpointFile:
    """The file: read at the start, written at a clean stop."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> TimerCheckpoint | None:
        """What the file holds; None where there is none. Raises StoreDirectoryError, OSError."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if len(content) != FILE_BYTES:
            raise StoreDirectoryError(
                self.path,
                f"it has {len(content)} bytes instead of {FILE_BYTES}",
                "put back a whole one; without the file, timer messages are delivered again",
            )
        return TimerCheckpoint.decode(content)

    def save(self, checkpoint: TimerCheckpoint) -> None:
        """Write the file, which is made if it is not there. Raises OSError."""
        durable.replace_bytes(self.path, checkpoint.encode())

    def close(self, bounds: QueueRange, now_ms: int) -> None:
        """Leave the file of a clean stop; the timer queue has `bounds`.

        Raises StoreDirectoryError, OSError.
        """
        found = self.load()
        left = at_clean_stop(found, bounds, now_ms)
        if left != found:
            self.save(left)
