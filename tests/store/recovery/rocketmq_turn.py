"""A RocketMQ broker's changes to a directory, made with files alone.

RocketMQ ends its log at the first bad record and continues there. It leaves the bytes after that as
they are: neither zeroed nor named by any unit. Its start writes `lock`. Facts:
docs/design/storage.md sections 6.5, 8 and 10. The tests in tests/interop do the same with
RocketMQ's own code.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from rocketpy_broker.store.files.checkpoint import FILE_BYTES
from rocketpy_broker.store.queues.units import UNIT_BYTES
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import Record, encode_record
from tests.support.store.planted_faults import FIRST, write_at

_UNIT = struct.Struct(">qiq")
_CHECKPOINT = struct.Struct(">qqqqq")
LATER_MS = 60_000


@dataclass
class RocketMQTurn:
    """One run of RocketMQ over the only log segment of `folder`; `end` is its log's end."""

    folder: Path
    end: int = 0
    last_ms: int = 0
    units: dict[QueueKey, int] = field(default_factory=dict)

    def start(self, cut: int) -> None:
        """Recovers: ends the log at byte `cut`, and the queues with it."""
        write_at(self.folder / "lock", 0, b"lock")
        self.end = cut
        for path in self.folder.glob(f"consumequeue/*/*/{FIRST}"):
            data = path.read_bytes()
            kept = 0
            for position in range(0, len(data), UNIT_BYTES):
                offset, size, _ = _UNIT.unpack_from(data, position)
                if size <= 0 or offset + size > cut:
                    break
                kept = position + UNIT_BYTES
            path.write_bytes(data[:kept].ljust(len(data), b"\0"))
            key = QueueKey(path.parents[1].name, int(path.parent.name))
            self.units[key] = kept // UNIT_BYTES

    def put(
        self,
        key: QueueKey,
        body: bytes,
        stored_ms: int,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Stores a message and its unit."""
        number = self.units.get(key, 0)
        record = encode_record(
            Record(
                key.topic,
                key.queue_id,
                body,
                properties,
                queue_offset=number,
                physical_offset=self.end,
                store_timestamp_ms=stored_ms,
            )
        )
        write_at(self.folder / "commitlog" / FIRST, self.end, record)
        unit = _UNIT.pack(self.end, len(record), 0)
        path = self.folder / "consumequeue" / key.topic / str(key.queue_id) / FIRST
        write_at(path, number * UNIT_BYTES, unit)
        self.units[key] = number + 1
        self.end += len(record)
        self.last_ms = stored_ms

    def leave(self, *, abort: str | None) -> None:
        """Stops cleanly, or crashes and leaves `abort` with that text."""
        packed = _CHECKPOINT.pack(self.last_ms, self.last_ms, 0, 0, self.end)
        (self.folder / "checkpoint").write_bytes(packed.ljust(FILE_BYTES, b"\0"))
        (self.folder / "abort").unlink(missing_ok=True)
        if abort is not None:
            (self.folder / "abort").write_text(abort, encoding="ascii")
