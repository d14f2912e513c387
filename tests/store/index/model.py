"""A model of the index, one key at a time; the fast index is compared with it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from rocketpy_broker.store.index.layout import IndexFormat

INT32_MAX = (1 << 31) - 1


def key_hash(topic: str, key: str) -> int:
    """Returns the hash of docs/design/storage.md section 7.2, step by step."""
    value = 0
    units = f"{topic}#{key}".encode("utf-16-be")
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) % (1 << 32)
    value = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if value == -(1 << 31) else abs(value)


@dataclass
class ModelEntry:
    """One entry of a file."""

    hash: int
    offset: int
    seconds: int
    previous: int


@dataclass
class ModelFile:
    """A file as lists and numbers (docs/design/storage.md sections 7.1, 7.3 and 7.5)."""

    format: IndexFormat
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slots_used: int = 0
    slots: dict[int, int] = field(default_factory=dict)
    entries: list[ModelEntry] = field(default_factory=lambda: [ModelEntry(0, 0, 0, 0)])

    def put(self, hash_: int, offset: int, timestamp: int) -> bool:
        number = len(self.entries)
        if number >= self.format.entry_count_max:
            return False
        slot = hash_ % self.format.slot_count
        previous = self.slots.get(slot, 0)
        if previous <= 0 or previous > number:
            previous = 0
        seconds = (timestamp - self.begin_timestamp) // 1000
        if self.begin_timestamp <= 0 or seconds < 0:
            seconds = 0
        seconds = min(seconds, INT32_MAX)
        self.entries.append(ModelEntry(hash_, offset, seconds, previous))
        self.slots[slot] = number
        if number <= 1:
            self.begin_offset, self.begin_timestamp = offset, timestamp
        self.slots_used += previous == 0
        self.end_offset, self.end_timestamp = offset, timestamp
        return True

    def select(self, hash_: int, begin: int, end: int, count_max: int) -> list[int]:
        found: list[int] = []
        number = self.slots.get(hash_ % self.format.slot_count, 0)
        while number > 0 and len(found) < count_max:
            entry = self.entries[number]
            time = self.begin_timestamp + entry.seconds * 1000
            if entry.hash == hash_ and begin <= time <= end:
                found.append(entry.offset)
            if time < begin:
                break
            number = entry.previous
        return found

    def to_bytes(self) -> bytes:
        count = len(self.entries)
        times = (self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset)
        header = struct.pack(">qqqqii", *times, self.slots_used, count if count > 1 else 0)
        slots = [self.slots.get(slot, 0) for slot in range(self.format.slot_count)]
        entries = b"".join(
            struct.pack(">iqii", one.hash, one.offset, one.seconds, one.previous)
            for one in self.entries
        )
        written = header + struct.pack(f">{len(slots)}i", *slots) + entries
        return written.ljust(self.format.file_bytes, b"\0")


@dataclass
class ModelService:
    """Files in order (docs/design/storage.md sections 7.4 and 7.5)."""

    format: IndexFormat
    files: list[ModelFile] = field(default_factory=list)

    def put(self, hashes: list[int], offset: int, timestamp: int) -> None:
        """Enters all keys of one record."""
        for hash_ in hashes:
            if not self.files:
                self.files.append(ModelFile(self.format))
            if not self.files[-1].put(hash_, offset, timestamp):
                old = self.files[-1]
                end = (old.end_timestamp, old.end_timestamp, old.end_offset, old.end_offset)
                self.files.append(ModelFile(self.format, *end))
                assert self.files[-1].put(hash_, offset, timestamp)

    def query(self, hash_: int, begin: int, end: int, count_max: int) -> list[int]:
        count_max = min(count_max, 64)
        found: list[int] = []
        for file in reversed(self.files):
            if file.begin_timestamp <= end and begin <= file.end_timestamp:
                found += file.select(hash_, begin, end, count_max - len(found))
            if file.begin_timestamp < begin or len(found) >= count_max:
                break
        return sorted(found)
