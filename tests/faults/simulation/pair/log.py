"""A commit log read from its files, without the store."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketpy_proto.record import END_OF_SEGMENT_MAGIC, decode_record
from tests.faults.histories.history import id_of
from tests.faults.simulation.machine import SEGMENT_BYTES

_SIZE_AND_MAGIC = struct.Struct(">iI")


@dataclass(frozen=True)
class Entry:
    """A record: its message, its queue and its place."""

    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    begin: int
    end: int


@dataclass(frozen=True)
class RawLog:
    """The bytes of a log from `begin` on."""

    begin: int
    data: bytes

    @classmethod
    def of(cls, folder: Path, end: int) -> RawLog:
        """Reads the files of a store up to `end`."""
        paths = sorted((folder / "commitlog").iterdir())
        begin = int(paths[0].name) if paths else end
        data = b"".join(path.read_bytes() for path in paths)
        return cls(begin, data[: end - begin])

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.begin + len(self.data)

    def entries(self, begin: int = 0) -> Iterator[Entry]:
        """Yields the records that begin at `begin` or later."""
        position = 0
        while position < len(self.data):
            left = SEGMENT_BYTES - position % SEGMENT_BYTES
            if left < _SIZE_AND_MAGIC.size or position + _SIZE_AND_MAGIC.size > len(self.data):
                position += left
                continue
            size, magic = _SIZE_AND_MAGIC.unpack_from(self.data, position)
            if magic != END_OF_SEGMENT_MAGIC and self.begin + position >= begin:
                record = decode_record(self.data, position).record
                start = self.begin + position
                yield Entry(
                    id_of(bytes(record.body)),
                    record.topic,
                    record.queue_id,
                    record.queue_offset,
                    start,
                    start + size,
                )
            position += left if magic == END_OF_SEGMENT_MAGIC else size

    def used_after(self, offset: int) -> bytes:
        """Returns the bytes from an offset on, without the zeros at each segment's end."""
        data, used = self.data[offset - self.begin :], b""
        while data:
            left = SEGMENT_BYTES - (self.end - len(data)) % SEGMENT_BYTES
            used, data = used + data[:left].rstrip(b"\0"), data[left:]
        return used

    def common_end(self, other: RawLog) -> int:
        """Returns the end of the last record that both logs have, from a common begin on."""
        begin = max(self.begin, other.begin)
        own, theirs = self.data[begin - self.begin :], other.data[begin - other.begin :]
        size = min(len(own), len(theirs))
        if own[:size] == theirs[:size]:
            same = begin + size
        else:
            same = begin + next(i for i in range(size) if own[i] != theirs[i])
        if same == self.end:
            return same
        ends = [each.end for each in self.entries(begin) if each.end <= same]
        return max(ends, default=begin)
