"""Lengths and CRC-32 of the files of a queue.

A manifest stores them, and the broker compares them with the files when it starts. They are updated
while units are added, so that a manifest needs no read. If they are not known, as after a crash,
the files are read. State is in memory only. Used by `ConsumeQueue` only.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rocketpy_broker.store.log.file_sequence import is_file_name
from rocketpy_broker.store.log.segment import STAT_BLOCK_BYTES
from rocketpy_broker.store.queues.files import (
    BLOCK_BYTES,
    STRIDE_BYTES,
    QueueFiles,
    name_of,
    used_end,
)
from rocketpy_broker.store.queues.open_files import OpenFile
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.record.layout import CRC_MASK

NO_RECORD = -1
ZERO_BLOCK = bytes(BLOCK_BYTES)


class Tail(NamedTuple):
    """End of a queue in bytes, end of its last record in the log, and CRC of its last file."""

    end: int
    physical_end: int
    crc: int


NO_TAIL = Tail(0, NO_RECORD, 0)
# The queue's end in bytes, its last file's CRC, and the whole content if it is one short file. This
# and the next are plain tuples, since a start creates them for every queue.
Adopted = tuple[int, int, bytes]
# The CRC of a file's prefix, and the prefix itself if it is short.
_CrcAndContent = tuple[int, bytes]


class Prefixes:
    """The prefixes of one queue's files; one thread changes them, any may read."""

    __slots__ = ("_full", "_verified", "tail")

    def __init__(self) -> None:
        # None if unknown.
        self.tail: Tail | None = NO_TAIL
        # CRCs of full files by start position; full files do not change any more.
        self._full: dict[int, int] | None = None
        self._verified: Mapping[str, FilePrefix] | None = None

    def adopt(
        self, files: QueueFiles, wanted: Mapping[str, FilePrefix], found: Collection[str]
    ) -> Adopted | None:
        """Adopts the files if they hold exactly what is `wanted`; returns None if not.

        `found` are the names in the folder. The tail is known after a call of `end_at`.
        """
        names = sorted(wanted)
        if not names or not all(map(is_file_name, names)):
            return None
        begin, last = int(names[0]), int(names[-1])
        end, length = last + files.file_bytes, wanted[names[-1]].length
        if length == 0 or (name_of(end) in found if len(found) > 1 else names[0] not in found):
            return None
        if len(names) > 1 and not _are_full(files.file_bytes, names, wanted):
            return None
        crcs, content = {}, b""
        for name in names:
            prefix = _read_prefix(f"{files.folder}/{name}", files.file_bytes, wanted[name])
            if prefix is None:
                return None
            crcs[int(name)], content = prefix
        files.adopt(begin, end)
        self._verified = wanted
        crc = crcs[last] if length == files.file_bytes else crcs.pop(last)
        self._full = crcs or None
        return last + length, crc, content if len(names) == 1 else b""

    def end_at(self, end: int, physical_end: int, crc: int) -> None:
        """Sets the tail after the files were adopted."""
        self.tail = Tail(end, physical_end, crc)

    def restart(self, position: int) -> None:
        """Empties the queue, which continues at `position`."""
        self._full, self.tail = None, Tail(position, NO_RECORD, 0)

    def forget(self) -> None:
        """Drops all known CRCs, because existing bytes have changed."""
        self._full = self.tail = self._verified = None

    def extend(self, files: QueueFiles, position: int, data: bytes, physical_end: int) -> None:
        """Updates the CRCs after `data` of one file was added at the queue's end."""
        base, end = files.base_of(position), position + len(data)
        if position == base:
            crc = zlib.crc32(data)
        elif self.tail is not None:
            crc = zlib.crc32(data, self.tail.crc)
        else:
            return
        if end == base + files.file_bytes:
            self._full = {**(self._full or {}), base: crc}
        self.tail = Tail(end, physical_end, crc)

    def of(self, files: QueueFiles, base: int, end: int, tail: Tail | None) -> FilePrefix:
        """Returns the prefix of the file at `base` up to `end`.

        `tail` is the tail that the caller read first; `extend` may have changed it since.
        """
        length, full = end - base, self._full or {}
        is_full = length == files.file_bytes
        if is_full and base in full:
            return FilePrefix(length, full[base] & CRC_MASK)
        if tail is not None and tail.end == end:
            return FilePrefix(length, tail.crc & CRC_MASK)
        crc = _crc_of(files.open_once(base), length)
        if is_full:
            self._full = {**full, base: crc}
        return FilePrefix(length, crc & CRC_MASK)

    def has(self, files: QueueFiles, wanted: Mapping[str, FilePrefix]) -> bool:
        """True if the files have the prefixes `wanted`, and none is missing. Raises OSError."""
        if self._verified is not None and self._verified is wanted:
            self._verified = None
            return True
        bases = {name_of(base): base for base in files.bases}
        return all(
            name in bases
            and prefix.length <= files.file_bytes
            and _has_crc(files.open_once(bases[name]), prefix) is not None
            for name, prefix in wanted.items()
        )


def _are_full(file_bytes: int, names: list[str], wanted: Mapping[str, FilePrefix]) -> bool:
    """True if no file between the first and last is missing, and each but the last is full."""
    bases = range(int(names[0]), int(names[-1]) + file_bytes, file_bytes)
    full = all(wanted[name].length == file_bytes for name in names[:-1])
    return full and names == [name_of(base) for base in bases]


def _read_prefix(path: str, file_bytes: int, prefix: FilePrefix) -> _CrcAndContent | None:
    """Returns CRC and short content of a file that holds exactly this prefix; else None.

    Also returns None for a file that cannot be read.
    """
    try:
        return _read_open_prefix(OpenFile(path, read_only=True), file_bytes, prefix)
    except OSError:
        return None


def _read_open_prefix(file: OpenFile, file_bytes: int, prefix: FilePrefix) -> _CrcAndContent | None:
    """Returns CRC and short content of an open file; None if it holds anything else.

    Most files have one block: a single call reads it, and the block count excludes later bytes.
    """
    status = os.fstat(file.descriptor)
    if status.st_size != file_bytes:
        return None
    if prefix.length < BLOCK_BYTES and status.st_blocks * STAT_BLOCK_BYTES <= BLOCK_BYTES:
        data = os.pread(file.descriptor, BLOCK_BYTES, 0)
        content = data[: prefix.length]
        crc = zlib.crc32(content)
        is_alone = data[prefix.length :] == ZERO_BLOCK[prefix.length : len(data)]
        return (crc, content) if is_alone and _is_of(crc, prefix) else None
    found = _has_crc(file, prefix)
    is_alone = used_end(file, prefix.length) == prefix.length
    return (found, b"") if found is not None and is_alone else None


def _has_crc(file: OpenFile, prefix: FilePrefix) -> int | None:
    """Returns the CRC of a file that begins with this prefix; else None."""
    crc = _crc_of(file, prefix.length)
    return crc if _is_of(crc, prefix) else None


def _is_of(crc: int, prefix: FilePrefix) -> bool:
    return crc & CRC_MASK == prefix.crc


def _crc_of(file: OpenFile, length: int) -> int:
    crc = 0
    for begin in range(0, length, STRIDE_BYTES):
        crc = zlib.crc32(os.pread(file.descriptor, min(STRIDE_BYTES, length - begin), begin), crc)
    return crc
