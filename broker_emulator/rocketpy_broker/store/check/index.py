"""Check of the index files, by themselves and against the log's keys.

A header fits its entries, a slot names the newest entry of its hash, and a chain leads to older
entries only. Entries are compared with the log's keys in the order of both; tags may have entries.
Memory: the numbers of one file.
Source: docs/design/storage.md section 7; IndexService#buildIndex of RocketMQ 5.5.0.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.check.faults import CheckContext, Fault, Finding, Note, finding, runs
from rocketpy_broker.store.index.layout import ENTRY, HEADER, IndexFormat
from rocketpy_broker.store.index.service import NAME_DIGITS
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.record.crc import body_crc
from rocketpy_proto.record.index_keys import IndexKeys

INT32_MAX = (1 << 31) - 1
ZERO_CHECK_BYTES = 1 << 20

Numbers = NDArray[np.int64]


class IndexView:
    """One mapped index file. `entries` includes the unused number 0."""

    def __init__(self, path: Path, index_format: IndexFormat) -> None:
        self.path = path
        self.format = index_format
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._mapping = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        self.header = np.frombuffer(self._mapping, HEADER, 1)[0]
        self.slots = np.frombuffer(self._mapping, ">i4", index_format.slot_count, HEADER.itemsize)
        room = (len(self._mapping) - index_format.entries_begin) // ENTRY.itemsize
        self.count = max(int(self.header["count"]), 1)
        used = min(self.count, room)
        self.entries = np.frombuffer(self._mapping, ENTRY, used, index_format.entries_begin)

    def position_of(self, number: int) -> int:
        """Returns the position of an entry in the file."""
        return self.format.entries_begin + number * ENTRY.itemsize

    def first_used_behind(self, position: int) -> int | None:
        """Returns the first nonzero byte from `position` on; skips holes of the file."""
        size = len(self._mapping)
        while position < size:
            try:
                begin = os.lseek(self._descriptor, position, os.SEEK_DATA)
                end = os.lseek(self._descriptor, begin, os.SEEK_HOLE)
            except OSError:
                return None
            for start in range(begin, end, ZERO_CHECK_BYTES):
                part = self._mapping[start : min(start + ZERO_CHECK_BYTES, end)]
                rest = part.lstrip(b"\0")
                if rest:
                    return start + len(part) - len(rest)
            position = end
        return None

    def prefix(self, physical_end: int) -> FilePrefix:
        """Returns the same value as `IndexFile.prefix`."""
        offsets = self.entries["physical_offset"][1:]
        kept = int(np.searchsorted(offsets, physical_end))
        begin, length = self.format.entries_begin, (1 + kept) * ENTRY.itemsize
        with memoryview(self._mapping) as view:
            return FilePrefix(length, body_crc(view[begin : begin + length]))

    def close(self) -> None:
        """Closes the descriptor; the mapping is freed with its last view."""
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class _Found:
    """Entries of one file, from `number` on."""

    file: IndexView
    number: int
    entries: NDArray[np.void]


class IndexCheck:
    """The check of one store's index."""

    def __init__(self, context: CheckContext, index_format: IndexFormat) -> None:
        self._context = context
        self._misplaced: list[Finding] = []
        self.files: list[IndexView] = []
        folder = context.folder / "index"
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            problem = _misplaced(path, index_format)
            if problem is None:
                self.files.append(IndexView(path, index_format))
            else:
                self._misplaced.append(Fault(path, 0, problem))
        # The next entry to compare, and the log offset of the very last entry.
        self._file, self._number = 0, 1
        used = [file for file in self.files if len(file.entries) > 1]
        self._end = int(used[-1].entries["physical_offset"][-1]) if used else -1
        self._tail_count, self._tail_offset = 0, 0

    def close(self) -> None:
        """Closes the files."""
        for file in self.files:
            file.close()

    # --- Against the log ---

    def compare(
        self,
        keys: IndexKeys,
        are_tags: NDArray[np.bool_],
        offsets: Numbers,
        times_ms: Numbers,
        end: int,
    ) -> Iterator[Finding]:
        """Compares the keys of the log's next records, up to `end`, with the next entries."""
        if not self.files:
            return
        hashes = keys.hash.astype(np.int64)
        wanted = _Wanted(offsets[keys.row], hashes, times_ms[keys.row], are_tags)
        while True:
            found = self._take(end)
            if found is None:
                break
            part, rest = wanted.split(found)
            if not self._is_equal(found, part):
                part = part.without_lost_tags(found)
            if not self._is_equal(found, part):
                yield from self._differences(found, part)
            else:
                yield from _times(found, part)
            wanted = rest
        yield from self._not_entered(wanted)

    def _take(self, end: int) -> _Found | None:
        """Returns the next entries of one file for records below `end`; None if there are none."""
        while self._file < len(self.files):
            file = self.files[self._file]
            entries = file.entries[self._number :]
            count, step = 0, 1 << 14
            while count < len(entries):
                beyond = entries["physical_offset"][count : count + step] >= end
                if beyond.any():
                    count += int(np.argmax(beyond))
                    break
                count = min(count + step, len(entries))
            number = self._number
            self._number += count
            if self._number >= len(file.entries) and self._file + 1 < len(self.files):
                self._file, self._number = self._file + 1, 1
            elif count == 0:
                return None
            if count > 0:
                return _Found(file, number, entries[:count])
        return None

    def _is_equal(self, found: _Found, wanted: _Wanted) -> bool:
        return (
            len(found.entries) == len(wanted.offsets)
            and bool((found.entries["physical_offset"] == wanted.offsets).all())
            and bool((found.entries["hash"] == wanted.hashes).all())
        )

    def _differences(self, found: _Found, wanted: _Wanted) -> Iterator[Finding]:
        """Yields entries without a key, and keys without an entry.

        A key may be entered twice (docs/design/storage.md section 7.4).
        """
        have = _pairs(found.entries["physical_offset"], found.entries["hash"])
        want = _pairs(wanted.offsets, wanted.hashes)
        offsets = found.entries["physical_offset"].astype(np.int64)
        extra = ~np.isin(have, want) & (offsets >= self._context.log.begin)
        extra &= ~self._context.is_damaged(offsets)
        for run in runs(extra):
            number = found.number + run.begin
            offset = int(offsets[run.begin])
            text = (
                f"entry {number} names log offset {offset}, where no record has this key "
                f"({len(run)} of them)"
            )
            yield Fault(found.file.path, found.file.position_of(number), text)
        lost = ~np.isin(want, have)
        for run in runs(lost):
            offset = int(wanted.offsets[run.begin])
            text = f"{len(run)} keys of records from log offset {offset} on are not in the index"
            yield Fault(found.file.path, found.file.position_of(found.number), text)

    def _not_entered(self, wanted: _Wanted) -> Iterator[Finding]:
        """Yields missing entries. Keys after the last entry are reported by `finish`."""
        wanted = wanted.where(~wanted.are_tags)
        if len(wanted.offsets) == 0:
            return
        tail = wanted.offsets >= self._end
        if tail.any() and self._tail_count == 0:
            self._tail_offset = int(wanted.offsets[np.argmax(tail)])
        self._tail_count += int(tail.sum())
        lost = int((~tail).sum())
        if lost:
            file = self.files[min(self._file, len(self.files) - 1)]
            text = f"{lost} keys of records from log offset {wanted.offsets[0]} on are not entered"
            yield Fault(file.path, file.position_of(self._number), text)

    def finish(self) -> Iterator[Finding]:
        """Yields entries beyond the log, keys beyond the index, and the faults of each file."""
        yield from self._misplaced
        abnormal = self._context.traces.abnormal
        folder = self._context.folder / "index"
        if not self.files:
            yield Note(folder, 0, "there is no index: messages are not found by key")
        rest = self._take(1 << 62)
        while rest is not None:
            first = int(rest.entries["physical_offset"][0])
            text = f"{len(rest.entries)} entries are of log offset {first} and beyond the log's end"
            place = rest.file.position_of(rest.number)
            yield finding(rest.file.path, place, text, is_fault=not abnormal)
            rest = self._take(1 << 62)
        if self._tail_count:
            last = self.files[-1]
            text = f"{self._tail_count} keys of records from log offset {self._tail_offset} on"
            yield finding(
                last.path,
                last.position_of(len(last.entries)),
                f"{text} are not entered",
                is_fault=not (abnormal and self._tail_offset >= self._context.mended_from),
            )
        for file in self.files:
            yield from self._own_faults(file)

    # --- By itself ---

    def _own_faults(self, file: IndexView) -> Iterator[Finding]:
        count_max = file.format.entry_count_max
        if file.count > count_max or file.count > len(file.entries) > 1:
            text = f"counts {file.count - 1} entries, at most {count_max - 1} fit"
            yield Fault(file.path, _field("count"), text)
            return
        if file is not self.files[-1] and file.count < count_max:
            text = f"has {file.count - 1} entries and is not full, but a newer file follows"
            yield Fault(file.path, _field("count"), text)
        if file.count > 1:
            yield from self._header_faults(file)
            yield from self._chain_faults(file)
        used = file.first_used_behind(file.position_of(file.count))
        if used is not None:
            text = "behind the last entry is something that is not zero"
            yield finding(file.path, used, text, is_fault=not self._context.traces.abnormal)

    def _header_faults(self, file: IndexView) -> Iterator[Finding]:
        """Yields faults of the header.

        After a crash, other fields may be ahead of the count; the next start corrects them.
        """
        entries = file.entries
        abnormal = self._context.traces.abnormal and file is self.files[-1]
        expected = {
            "begin_offset": int(entries["physical_offset"][1]),
            "end_offset": int(entries["physical_offset"][-1]),
            "slots_used": int(np.count_nonzero(entries["previous"][1:] == 0)),
        }
        for name, value in expected.items():
            found = int(file.header[name])
            if found != value:
                text = f"{name} of the header is {found}, by the entries it is {value}"
                mended = abnormal and found > value
                yield finding(file.path, _field(name), text, is_fault=not mended)

    def _chain_faults(self, file: IndexView) -> Iterator[Finding]:
        numbers = np.arange(1, file.count)
        hashes = file.entries["hash"][1:].astype(np.int64)
        slots = hashes % file.format.slot_count
        order = np.argsort(slots, kind="stable")
        previous = np.zeros(file.count, np.int64)
        same = slots[order][1:] == slots[order][:-1]
        previous[numbers[order][1:][same]] = numbers[order][:-1][same]
        found = file.entries["previous"].astype(np.int64)
        for run in runs((found != previous)[1:]):
            number = run.begin + 1
            text = (
                f"entry {number} names {found[number]} as the one before it in its slot, "
                f"that is {previous[number]} ({len(run)} of them)"
            )
            place = file.position_of(number) + _place(ENTRY, "previous")
            yield Fault(file.path, place, text)
        newest = np.zeros(file.format.slot_count, np.int64)
        newest[slots] = numbers
        wrong = np.flatnonzero(file.slots != newest)
        for slot in wrong[:1].tolist():
            ahead = bool((file.slots[wrong] >= file.count).all())
            text = (
                f"slot {slot} names entry {file.slots[slot]}, its newest is {newest[slot]} "
                f"({len(wrong)} slots are wrong)"
            )
            mended = ahead and self._context.traces.abnormal and file is self.files[-1]
            yield finding(file.path, HEADER.itemsize + 4 * slot, text, is_fault=not mended)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The keys of records: log offset, hash and store time of each.

    Keys in `are_tags` need no entry.
    """

    offsets: Numbers
    hashes: Numbers
    times_ms: Numbers
    are_tags: NDArray[np.bool_]

    def where(self, chosen: slice | NDArray[np.bool_]) -> _Wanted:
        """Returns the chosen keys."""
        return _Wanted(
            self.offsets[chosen], self.hashes[chosen], self.times_ms[chosen], self.are_tags[chosen]
        )

    def split(self, found: _Found) -> tuple[_Wanted, _Wanted]:
        """Returns the keys up to the last found entry, and the remaining ones."""
        last = int(found.entries["physical_offset"][-1])
        count = int(np.searchsorted(self.offsets, last, "right"))
        # Keys of one record may be in two files.
        if found.number + len(found.entries) == found.file.format.entry_count_max:
            begin = int(np.searchsorted(self.offsets, last))
            entries = found.entries[found.entries["physical_offset"] == last]
            count = begin + self.where(slice(begin, count)).entered(entries["hash"].tolist())
        return self.where(slice(None, count)), self.where(slice(count, None))

    def entered(self, found: list[int]) -> int:
        """Returns the number of keys, all of one record, that have entries; tags may have none."""
        place = 0
        for number, (key_hash, is_tag) in enumerate(zip(self.hashes, self.are_tags, strict=True)):
            if place == len(found):
                return number
            if found[place] == key_hash or not is_tag:
                place += 1
        return len(self.hashes)

    def without_lost_tags(self, found: _Found) -> _Wanted:
        """Returns all keys except tags without an entry."""
        have = _pairs(found.entries["physical_offset"], found.entries["hash"])
        return self.where(~self.are_tags | np.isin(_pairs(self.offsets, self.hashes), have))


def _pairs(offsets: NDArray[np.integer], hashes: NDArray[np.integer]) -> NDArray[np.void]:
    pairs = np.empty(len(offsets), [("offset", np.int64), ("hash", np.int64)])
    pairs["offset"], pairs["hash"] = offsets, hashes
    return pairs


def _times(found: _Found, wanted: _Wanted) -> Iterator[Finding]:
    """Yields wrong seconds and header times, for entries that are otherwise right."""
    file = found.file
    begin_ms = int(file.header["begin_timestamp"])
    seconds = np.clip((wanted.times_ms - begin_ms) // 1000, 0, INT32_MAX)
    wrong = found.entries["seconds"] != seconds
    # The first entry of a file counts from the end of the previous file (docs/design/storage.md
    # section 7.3).
    if found.number == 1:
        wrong[0] = False
        yield from _header_time(file, "begin_timestamp", int(wanted.times_ms[0]))
    if found.number + len(found.entries) == file.count:
        yield from _header_time(file, "end_timestamp", int(wanted.times_ms[-1]))
    for run in runs(wrong):
        number = found.number + run.begin
        text = (
            f"entry {number} is of second {found.entries['seconds'][run.begin]} since the file's "
            f"begin, its record of {seconds[run.begin]} ({len(run)} of them)"
        )
        yield Fault(file.path, file.position_of(number), text)


def _header_time(file: IndexView, name: str, time_ms: int) -> Iterator[Finding]:
    if int(file.header[name]) != time_ms:
        text = f"{name} of the header is {file.header[name]}, by the log it is {time_ms}"
        yield Fault(file.path, _field(name), text)


def _field(name: str) -> int:
    """Returns the position of a header field in the file."""
    return _place(HEADER, name)


def _place(layout: np.dtype[np.void], name: str) -> int:
    """Returns the position of a field in a header or an entry."""
    assert layout.fields is not None
    return int(layout.fields[name][1])


def _misplaced(path: Path, index_format: IndexFormat) -> str | None:
    """Returns the reason for which a file is not an index file, or None.

    A file that is too short counts as cut.
    """
    if not (path.is_file() and path.name.isdecimal() and len(path.name) == NAME_DIGITS):
        return f"is no file named by {NAME_DIGITS} digits, and is not used"
    length = path.stat().st_size
    if not index_format.entries_begin <= length <= index_format.file_bytes:
        return f"has {length} bytes, an index file {index_format.file_bytes}"
    return None
