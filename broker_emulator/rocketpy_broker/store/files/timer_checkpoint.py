"""`config/timercheck`: up to where arbitrary-time messages have been delivered.

Maps: nothing; seven int64 in a file of 4,096 bytes, the rest zeros. Not checksummed. Replaced as a
whole: a crash leaves the old or the new values. Called by the broker at its start and at a clean
stop; after a crash it is as old as the last clean stop, so RocketMQ leaves nothing pending out.

A broker that finds timer messages but no such file delivers all of them that are due, again.
Source: TimerCheckpoint, docs/design/storage.md sections 13.5 and 13.7.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.values import QueueKey

TIMER_QUEUE = QueueKey("rmq_sys_wheel_timer", 0)
FILE_BYTES = 4096
SECOND_MS = 1_000
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
        """Returns the file's content."""
        return _FORMAT.pack(*astuple(self)).ljust(FILE_BYTES, b"\0")

    @classmethod
    def decode(cls, content: bytes) -> TimerCheckpoint:
        """Of a file's content, which has at least the fields' bytes."""
        return cls(*_FORMAT.unpack_from(content))


def handed_over(queue_offset: int, now_ms: int) -> TimerCheckpoint:
    """For a timer queue in which nothing below `queue_offset` is pending, and all behind it is."""
    return TimerCheckpoint(
        last_read_time_ms=now_ms // SECOND_MS * SECOND_MS,
        last_timer_queue_offset=queue_offset,
        master_timer_queue_offset=queue_offset,
    )


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
        """Writes the file, which is made if it is not there. Raises OSError."""
        durable.replace_bytes(self.path, checkpoint.encode())

    def remove_wheel(self) -> None:
        """Removes RocketMQ's wheel and its log, which it rebuilds from the queue. Raises OSError."""
        store = self.path.parent.parent
        durable.remove_file(store / "timerwheel")
        durable.remove_folder(store / "timerlog")
