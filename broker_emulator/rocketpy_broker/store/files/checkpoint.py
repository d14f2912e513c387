"""The file `checkpoint`: flushed positions of log, queues and index.

It has 4096 bytes: three timestamps and three positions, of 8 bytes each, big-endian:

    physicMsgTimestamp | logicsMsgTimestamp | indexMsgTimestamp
    masterFlushed      | confirmPhyOffset   | logicsPhysicalOffset

RocketMQ has the last field since 5.5: after a crash it completes the queues from there. If the
field is 0, RocketMQ uses the timestamps, or refuses to start with enableAcceleratedRecovery. Older
brokers leave the field unchanged.

The file has no checksum. It is written in place and flushed. A crash leaves older, smaller values,
which are always safe. Recovery reads from it how far the log of another broker had been flushed.
Source: StoreCheckpoint, docs/design/storage.md section 8.1, and ConsumeQueueStore of RocketMQ
5.5.0.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from rocketpy_broker.store.files import durable

FILE_BYTES = 4096
FIELDS = struct.Struct(">qqqqqq")


class StoreCheckpoint:
    """The values in memory; `save` writes them to disk. Timestamps in ms."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.physic_msg_timestamp_ms = 0
        self.logics_msg_timestamp_ms = 0
        self.index_msg_timestamp_ms = 0
        self.confirm_physical_offset = 0
        # Every record below it has its unit on disk.
        self.logics_physical_offset = 0
        self._master_flushed_offset = 0
        self._saved = b""

    def load(self) -> None:
        """Reads the file; a missing file, or one of a wrong size, counts as all zeros."""
        data = self._path.read_bytes() if self._path.exists() else b""
        if len(data) != FILE_BYTES:
            data = bytes(FILE_BYTES)
        fields: tuple[int, ...] = FIELDS.unpack_from(data)
        # A negative time is invalid, and zero is always safe.
        physic, logics, index, self._master_flushed_offset, confirm, logics_offset = fields
        self.physic_msg_timestamp_ms = max(physic, 0)
        self.logics_msg_timestamp_ms = max(logics, 0)
        self.index_msg_timestamp_ms = max(index, 0)
        self.confirm_physical_offset = max(confirm, 0)
        self.logics_physical_offset = max(logics_offset, 0)

    def recovered(self, log_end: int) -> None:
        """Sets the positions to the log's end after recovery. Blocks. Raises OSError.

        Positions beyond the end are corrected on disk at once, because new records will be written
        there.
        """
        is_beyond = max(self.confirm_physical_offset, self.logics_physical_offset) > log_end
        self.confirm_physical_offset = self.logics_physical_offset = log_end
        if is_beyond:
            self.save()

    def save(self) -> None:
        """Writes the values to disk if they have changed. Blocks. Raises OSError."""
        packed = FIELDS.pack(
            self.physic_msg_timestamp_ms,
            self.logics_msg_timestamp_ms,
            self.index_msg_timestamp_ms,
            self._master_flushed_offset,
            self.confirm_physical_offset,
            self.logics_physical_offset,
        )
        if packed == self._saved:
            return
        if not self._path.exists() or self._path.stat().st_size != FILE_BYTES:
            durable.replace_bytes(self._path, packed.ljust(FILE_BYTES, b"\0"))
        else:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                durable.write_whole(descriptor, memoryview(packed), 0)
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        self._saved = packed
