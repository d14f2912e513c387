"""The file `config/timercheck`: the delivery position of timer messages.

It has seven int64 in 4,096 bytes, the rest zeros, without a checksum. It is replaced as a whole: a
crash leaves the old or the new values. The broker reads it at its start, and writes it at a clean
stop. After a crash it is as old as the last clean stop. So RocketMQ's broker, if it opens the store
then, misses no pending message.

A broker with timer messages but without this file delivers all due messages again.
Source: TimerCheckpoint, docs/design/storage.md sections 13.5 and 13.7.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import TIMER_TOPIC

TIMER_QUEUE = QueueKey(TIMER_TOPIC, 0)
FILE_BYTES = 4096
SECOND_MS = 1_000
# One int64 for each field of TimerCheckpoint, in order.
_FORMAT = struct.Struct(">7q")


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """RocketMQ's TimerCheckpoint; times in ms since 1970.

    Reading of the timer topic continues at the two queue offsets. Messages below them are
    delivered. In a store that RocketMQ wrote, they may instead wait in its timer log, due after
    `last_read_time_ms`.
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
        """Parses a file's content, which must have at least the fields' bytes."""
        return cls(*_FORMAT.unpack_from(content))


def export_checkpoint(queue_offset: int, now_ms: int) -> TimerCheckpoint:
    """Returns the checkpoint of a timer queue with all messages from `queue_offset` on pending."""
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
        """Returns the file's values; None without a file. Raises StoreDirectoryError, OSError."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if len(content) != FILE_BYTES:
            raise StoreDirectoryError(
                self.path,
                f"it has {len(content)} bytes instead of {FILE_BYTES}",
                "restore it from a copy, or remove it: the broker then delivers all due timer "
                "messages again",
            )
        return TimerCheckpoint.decode(content)

    def save(self, checkpoint: TimerCheckpoint) -> None:
        """Writes the file and creates it if necessary. Raises OSError."""
        durable.replace_bytes(self.path, checkpoint.encode())

    def remove_wheel(self) -> None:
        """Removes RocketMQ's timer wheel and timer log, which it rebuilds from the timer topic.

        Raises OSError.
        """
        store = self.path.parent.parent
        durable.remove_file(store / "timerwheel")
        durable.remove_folder(store / "timerlog")
