"""What the files of a queue hold, by length and CRC-32: what a manifest tells and a start compares.

Kept while units are added, so that telling it reads nothing; where it is not known, as behind a
crash, the files are read. Memory only. Used by `ConsumeQueue` only.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from rocketpy_broker.store.queues.files import (
    STRIDE_BYTES,
    QueueFiles,
    is_file_name,
    name_of,
    used_end,
)
from rocketpy_broker.store.queues.open_files import OpenFile
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.record.layout import CRC_MASK

NO_RECORD = -1


class Tail(NamedTuple):
    """Where a queue ends, in bytes; where its last record ends in the log; CRC of its last file."""

    end: int
    physical_end: int
    crc: int


class Prefixes:
    """Of the files of one queue. One thread changes it; any may ask."""

    __slots__ = ("_full", "_vouched", "tail")

    def __init__(self) -> None:
        # None where it is not known.
        self.tail: Tail | None = Tail(0, NO_RECORD, 0)
        # CRCs of full files, by where they begin: those change no more.
        self._full: dict[int, int] | None = None
        self._vouched: Mapping[str, FilePrefix] | None = None

    def adopt(self, files: QueueFiles, wanted: Mapping[str, FilePrefix]) -> int | None:
        """Where the queue ends, if its files hold what is `wanted` and nothing else; None if not.

        The tail is known once it is given to `end_at`.
        """
        names = sorted(wanted)
        if not names or not all(is_file_name(name) for name in names):
            return None
        bases, last = [int(name) for name in names], wanted[names[-1]]
        files.adopt(bases[0], bases[-1] + files.file_bytes)
        follow = bases == list(files.bases) and not os.access(files.path_of(files.end), os.F_OK)
        full = all(wanted[name].length == files.file_bytes for name in names[:-1])
        if follow and full and last.length > 0:
            with contextlib.suppress(OSError):
                crcs = {base: _crc_alone(files, base, wanted[name_of(base)]) for base in bases}
                found = {base: crc for base, crc in crcs.items() if crc is not None}
                if len(found) == len(bases):
                    self._adopted(wanted, found, last.length == files.file_bytes)
                    return bases[-1] + last.length
        files.adopt(0, 0)
        return None

    def _adopted(
        self, wanted: Mapping[str, FilePrefix], crcs: dict[int, int], is_last_full: bool
    ) -> None:
        last = max(crcs)
        self._vouched = wanted
        self.tail = Tail(0, NO_RECORD, crcs[last])
        if not is_last_full:
            del crcs[last]
        self._full = crcs or None

    def end_at(self, end: int, physical_end: int) -> None:
        """The files were adopted, and end there."""
        assert self.tail is not None
        self.tail = Tail(end, physical_end, self.tail.crc)

    def restart(self, position: int) -> None:
        """The queue is empty and goes on at `position`."""
        self._full, self.tail = None, Tail(position, NO_RECORD, 0)

    def forget(self) -> None:
        """Something has changed that was there."""
        self._full = self.tail = None

    def go_on(self, files: QueueFiles, position: int, data: bytes, physical_end: int) -> None:
        """`data` of one file was added at the queue's end."""
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
        """Of the file at `base` up to `end`; `tail` as it was when the caller began."""
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
        """Whether the files begin as `wanted` says, and none is missing. Raises OSError."""
        if self._vouched is not None and self._vouched is wanted:
            self._vouched = None
            return True
        bases = {name_of(base): base for base in files.bases}
        return all(
            name in bases
            and prefix.length <= files.file_bytes
            and _has_crc(files.open_once(bases[name]), prefix) is not None
            for name, prefix in wanted.items()
        )


def _crc_alone(files: QueueFiles, base: int, prefix: FilePrefix) -> int | None:
    """The CRC of a file that holds these bytes and nothing behind them; None for another."""
    file = files.open_once(base)
    if os.fstat(file.descriptor).st_size != files.file_bytes:
        return None
    crc = _has_crc(file, prefix)
    return crc if used_end(file, prefix.length) == prefix.length else None


def _has_crc(file: OpenFile, prefix: FilePrefix) -> int | None:
    """The CRC of a file that begins with these bytes; None for another."""
    crc = _crc_of(file, prefix.length)
    return crc if crc & CRC_MASK == prefix.crc else None


def _crc_of(file: OpenFile, length: int) -> int:
    crc = 0
    for begin in range(0, length, STRIDE_BYTES):
        crc = zlib.crc32(os.pread(file.descriptor, min(STRIDE_BYTES, length - begin), begin), crc)
    return crc
