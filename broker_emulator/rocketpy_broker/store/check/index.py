"""Comparison of index files with rebuilt ones.

A file must have the entries of the log's keys, in the log's order. A tag may have an entry or none,
and a key may be entered twice (docs/design/storage.md section 7.4). The code that writes an index
file rebuilds its entries and its head, which must be equal. Memory: the slots of one file, and the
entries of one log span.
Source: docs/design/storage.md section 7; IndexService#buildIndex of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.check.faults import CheckContext, Fault, Finding, Note, finding, runs
from rocketpy_broker.store.index.file import IndexFile
from rocketpy_broker.store.index.head import IndexHead
from rocketpy_broker.store.index.layout import ENTRY, HEADER, IndexFormat
from rocketpy_broker.store.index.service import HEAD, NAME_DIGITS
from rocketpy_proto.counts import counted
from rocketpy_proto.record.index_keys import IndexKeys

ENTRIES_AT_ONCE = 1 << 16
# More than the length of a log span.
SPAN_BYTES_MAX = 1 << 30
LAST_OFFSET = (1 << 63) - 1
# The position of the number of entries in a file.
COUNT_PLACE = HEADER.itemsize - 4

Numbers = NDArray[np.int64]
NO_NUMBERS: Numbers = np.empty(0, np.int64)

# By field of an entry: its distance from the entry's start, and the text of a finding.
_ENTRY_FINDINGS = {
    "seconds": (0, "has second {} since the file's start, but its record has second {}"),
    "previous": (16, "names entry {} as the previous one of its slot, but that is entry {}"),
}


@dataclass(frozen=True, slots=True)
class _Part:
    """Adjacent entries of one file, from `number` at byte `position` on."""

    path: Path
    number: int
    position: int
    entries: NDArray[np.void]

    def position_of(self, row: int) -> int:
        """Returns the position of one of the entries in the file."""
        return self.position + row * ENTRY.itemsize


class _File:
    """One index file, and its head rebuilt up to the next entry."""

    def __init__(self, path: Path, index_format: IndexFormat) -> None:
        self.path = path
        self.index = IndexFile.open_read_only(path, index_format)
        self.rebuilt = IndexHead.empty(index_format.slot_count)
        self._entries_begin = index_format.entries_begin
        self.fitting = max(len(self.index.entries), 1)
        self.end = self.index.count if self.index.count <= self.fitting else 1

    @property
    def position(self) -> int:
        """The position of the next entry in the file."""
        return self._entries_begin + self.rebuilt.count * ENTRY.itemsize

    @property
    def is_read(self) -> bool:
        """True if there is no next entry."""
        return self.rebuilt.count == self.end

    def next_part(self, end: int) -> _Part | None:
        """Returns the next entries of records below `end`, or some of them; None for none."""
        number = self.rebuilt.count
        entries = self.index.entries[number : min(number + ENTRIES_AT_ONCE, self.end)]
        beyond = entries["physical_offset"] >= end
        # An entry beyond `end`, followed by one that is not, only has a wrong offset.
        beyond &= np.append(beyond[1:], True)
        entries = entries[: int(np.argmax(beyond))] if beyond.any() else entries
        return _Part(self.path, number, self.position, entries) if len(entries) else None

    def rebuild(self, part: _Part, offsets: Numbers, times_ms: Numbers) -> Iterator[Finding]:
        """Adds the next entries to the rebuilt head, and yields differences.

        The records at `offsets` were stored at `times_ms`; other times are taken from the file.
        """
        number, entries = part.number, part.entries
        begins = entries["physical_offset"].astype(np.int64)
        rows = np.searchsorted(offsets, begins)
        known = np.append(offsets, -1)[rows] == begins
        header = self.index.head.header
        times = int(header["begin_timestamp"]) + entries["seconds"].astype(np.int64) * 1000
        if number == 1:
            times[0] = header["begin_timestamp"]
        if number + len(entries) == self.end:
            times[-1] = header["end_timestamp"]
        times[known] = times_ms[rows[known]]
        right = self.rebuilt.entries_of(entries["hash"].astype(np.int32), begins, times)
        self.rebuilt.enter(right)
        different = {name: entries[name] != right.entries[name] for name in _ENTRY_FINDINGS}
        different["seconds"] &= known
        if number == 1:
            # A file's first entry counts from the previous file's end
            # (docs/design/storage.md section 7.3).
            different["seconds"][0] = False
        for name, (place, form) in _ENTRY_FINDINGS.items():
            for run in runs(different[name]):
                what = form.format(entries[name][run.start], right.entries[name][run.start])
                text = f"entry {number + run.start} {what} ({_such(run)})"
                yield Fault(self.path, part.position_of(run.start) + place, text)

    def differences(self, *, is_mended: bool) -> Iterator[Finding]:
        """Yields differences of the head.

        With `is_mended`, values ahead of the count are no faults: a crash may leave them, and the
        next start corrects them.
        """
        found, right = self.index.head, self.rebuilt
        for name, field in (HEADER.fields or {}).items():
            value, expected = int(found.header[name]), int(right.header[name])
            if value != expected:
                text = f"{name} of the header is {value}, but {expected} by the log"
                is_fault = not (is_mended and value > expected)
                yield finding(self.path, field[1], text, is_fault=is_fault)
        wrong = np.flatnonzero(found.slots != right.slots)
        for slot in wrong[:1].tolist():
            text = (
                f"slot {slot} names entry {found.slots[slot]}, but its newest is "
                f"{right.slots[slot]} ({counted(len(wrong), 'slot is', 'slots are')} wrong)"
            )
            is_fault = not (is_mended and (found.slots[wrong] >= self.index.count).all())
            yield finding(self.path, HEADER.itemsize + 4 * slot, text, is_fault=is_fault)


@dataclass(slots=True)
class _MissingKeys:
    """Keys after the last entry so far, with the place where their entries would be."""

    path: Path
    position: int
    offset: int
    count: int

    def finding(self, *, is_fault: bool) -> Finding:
        """Returns the finding for these keys."""
        of_log = f"of records from log offset {self.offset} on"
        keys = counted(self.count, f"key {of_log} is", f"keys {of_log} are")
        text = f"{keys} not entered"
        return finding(self.path, self.position, text, is_fault=is_fault)


class IndexCheck:
    """The check of one store's index; one file is open at a time."""

    def __init__(self, context: CheckContext, index_format: IndexFormat) -> None:
        self._context = context
        self._format = index_format
        self._misplaced: list[Finding] = []
        self._paths: list[Path] = []
        folder = context.folder / "index"
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            problem = _misplaced(path, index_format)
            if problem is None:
                self._paths.append(path)
            else:
                self._misplaced.append(Fault(path, 0, problem))
        self._later = iter(self._paths)
        self._file = self._next()
        self._missing: _MissingKeys | None = None

    def _next(self) -> _File | None:
        path = next(self._later, None)
        return None if path is None else _File(path, self._format)

    def close(self) -> None:
        """Closes the open file."""
        if self._file is not None:
            self._file.index.close()

    def _parts(
        self, end: int, offsets: Numbers = NO_NUMBERS, times_ms: Numbers = NO_NUMBERS
    ) -> Iterator[_Part | Finding]:
        """Yields the next entries, of records below `end`, and the faults in them."""
        while self._file is not None:
            part = self._file.next_part(end)
            if part is not None:
                yield part
                yield from self._file.rebuild(part, offsets, times_ms)
            elif self._file.is_read and self._file.path != self._paths[-1]:
                yield from self._of_file(self._file)
                self.close()
                self._file = self._next()
            else:
                return

    def compare(
        self,
        keys: IndexKeys,
        are_tags: NDArray[np.bool_],
        offsets: Numbers,
        times_ms: Numbers,
        end: int,
    ) -> Iterator[Finding]:
        """Compares the keys of the records of a log span, up to `end`, with the next entries."""
        if self._file is None:
            return
        parts = []
        for item in self._parts(end, offsets, times_ms):
            if isinstance(item, _Part):
                parts.append(item)
            else:
                yield item
        if parts and self._missing is not None:
            yield self._missing.finding(is_fault=True)
            self._missing = None
        base, key_offsets = int(offsets[0]), offsets[keys.row]
        wanted = _pairs(key_offsets, keys.hash, base)
        found = [_pairs(one.entries["physical_offset"], one.entries["hash"], base) for one in parts]
        all_found = np.concatenate([NO_NUMBERS, *found])
        if np.array_equal(all_found, wanted):
            return
        for part, pairs in zip(parts, found, strict=True):
            yield from self._extra(part, np.isin(pairs, wanted, invert=True))
        missing = np.isin(wanted, all_found, invert=True)[~are_tags]
        yield from self._not_entered(parts, key_offsets[~are_tags], missing)

    def _not_entered(
        self, parts: list[_Part], offsets: Numbers, missing: NDArray[np.bool_]
    ) -> Iterator[Finding]:
        """Yields missing entries of the keys of the records at `offsets`.

        Keys after the last entry wait for the next one: the next start may enter them.
        """
        last = int(parts[-1].entries["physical_offset"][-1]) if parts else -1
        for run in runs(missing & (offsets < last)):
            offset = int(offsets[run.start])
            part = next(one for one in parts if one.entries["physical_offset"][-1] > offset)
            row = int(np.argmax(part.entries["physical_offset"] > offset))
            keys = _MissingKeys(part.path, part.position_of(row), offset, len(run))
            yield keys.finding(is_fault=True)
        later = offsets[missing & (offsets >= last)]
        if len(later) > 0 and self._missing is None and self._file is not None:
            self._missing = _MissingKeys(self._file.path, self._file.position, int(later[0]), 0)
        if self._missing is not None:
            self._missing.count += len(later)

    def _extra(self, part: _Part, extra: NDArray[np.bool_]) -> Iterator[Finding]:
        """Yields entries without a key, except of records that are removed or damaged."""
        offsets = part.entries["physical_offset"].astype(np.int64)
        extra &= (offsets >= self._context.log.begin) & ~self._context.is_damaged(offsets)
        for run in runs(extra):
            text = (
                f"entry {part.number + run.start} names log offset {offsets[run.start]}, "
                f"where no record has this key ({_such(run)})"
            )
            yield Fault(part.path, part.position_of(run.start), text)

    def finish(self) -> Iterator[Finding]:
        """Yields entries beyond the log, keys beyond the index, and the faults of each file."""
        abnormal, folder = self._context.traces.abnormal, self._context.folder / "index"
        yield from self._misplaced
        for item in self._parts(LAST_OFFSET):
            if not isinstance(item, _Part):
                yield item
                continue
            count, first = len(item.entries), item.entries["physical_offset"][0]
            entries = counted(count, "entry is", "entries are")
            text = f"{entries} beyond the log's end, from log offset {first} on"
            yield finding(item.path, item.position, text, is_fault=not abnormal)
        if self._missing is not None:
            is_mended = self._context.is_mended(self._missing.offset)
            yield self._missing.finding(is_fault=not is_mended)
        if self._file is None:
            yield Note(folder, 0, "there is no index: messages are not found by key")
        else:
            yield from self._of_file(self._file)
        manifest = self._context.manifest
        for name in {} if manifest is None else manifest.index:
            if not name.endswith(HEAD) and folder / name not in self._paths:
                yield Fault(folder / name, 0, "is missing, though the manifest names it")

    def _of_file(self, file: _File) -> Iterator[Finding]:
        """Yields the findings of a whole file."""
        is_last, count = file.path == self._paths[-1], file.index.count
        is_mended = is_last and self._context.traces.abnormal
        if count > file.fitting:
            entries = counted(count - 1, "entry", "entries")
            text = f"counts {entries}, but at most {file.fitting - 1} fit"
            yield Fault(file.path, COUNT_PLACE, text)
            return
        if not (is_last or file.index.is_full):
            entries = counted(count - 1, "entry", "entries")
            text = f"has {entries} and is not full, but a newer file follows"
            yield Fault(file.path, COUNT_PLACE, text)
        if count > 1:
            yield from file.differences(is_mended=is_mended)
        leftover = file.index.leftover()
        if leftover is not None:
            text = "the bytes after the last entry are not zero"
            is_fault = not self._context.traces.abnormal
            yield finding(file.path, leftover, text, is_fault=is_fault)
        manifest = self._context.manifest
        prefix = None if manifest is None else manifest.index.get(file.path.name)
        if manifest and prefix and file.index.prefix(manifest.log_end).entries != prefix:
            yield Fault(file.path, 0, "differs from its entry in the manifest")


def _such(run: range) -> str:
    return counted(len(run), "such entry", "such entries")


def _pairs(offsets: NDArray[np.integer], hashes: NDArray[np.integer], base: int) -> Numbers:
    """Returns a number for each pair of log offset and hash; the offsets are near `base`."""
    near = np.clip(offsets.astype(np.int64), base - 1, base + SPAN_BYTES_MAX) - base
    pairs: Numbers = near << 32 | hashes.astype(np.int64) & 0xFFFFFFFF
    return pairs


def _misplaced(path: Path, index_format: IndexFormat) -> str | None:
    """Returns the reason why a file is not an index file, or None.

    A file that was cut after its head is one.
    """
    if not (path.is_file() and path.name.isdecimal() and len(path.name) == NAME_DIGITS):
        return f"is no file with a name of {NAME_DIGITS} digits, and is not used"
    length = path.stat().st_size
    if not index_format.entries_begin <= length <= index_format.file_bytes:
        return f"has {length} bytes, but an index file has {index_format.file_bytes}"
    return None
