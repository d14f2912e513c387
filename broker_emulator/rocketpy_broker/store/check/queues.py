"""Check of the consume queues against the log.

Every record of a queue must have its unit at its queue offset. The unit's offset, size and tags
code must be the record's. Other units must be blank, or point to records that the log no longer
has. Memory: a few numbers per queue. The check only reads.
Source: docs/design/storage.md section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.check.faults import (
    FINDINGS_PER_FILE_MAX,
    CheckContext,
    Finding,
    Note,
    Run,
    finding,
    runs,
)
from rocketpy_broker.store.check.read_only import load_segments, queue_folders
from rocketpy_broker.store.delay_levels import SCHEDULE_TOPIC
from rocketpy_broker.store.log.segment import NAME_DIGITS
from rocketpy_broker.store.log.segment_queue import SegmentQueue
from rocketpy_broker.store.queues.dispatch import DispatchRequest
from rocketpy_broker.store.queues.units import BLANK_SIZE, UNIT, UNIT_BYTES, Units
from rocketpy_broker.store.values import QueueKey

# Codes below this are addresses in consumequeue_ext, which is not read.
EXTENSION_CODE_MAX = -(1 << 31) - 1


@dataclass(slots=True)
class _Queue:
    """One queue.

    `covered` are the ranges of offsets that records have, `next_offset` is their end.
    """

    key: QueueKey
    files: SegmentQueue
    exists: bool
    end: int = 0
    next_offset: int = 0
    covered: list[Run] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def path_of(self, offset: int) -> Path:
        """Returns the file that holds, or should hold, the unit at `offset`."""
        base = offset * UNIT_BYTES // self.files.segment_bytes * self.files.segment_bytes
        return self.files.folder / f"{base:0{NAME_DIGITS}d}"

    def position_of(self, offset: int) -> int:
        """Returns the position of the unit at `offset` in its file."""
        return offset * UNIT_BYTES % self.files.segment_bytes

    def units(self, offset: int, offset_end: int) -> Units:
        """Returns units from `offset` to the end of their file at most; none without a file."""
        position = offset * UNIT_BYTES
        segment = self.files.find(position)
        if segment is None:
            return np.empty(0, UNIT)
        count = (min(offset_end * UNIT_BYTES, segment.end) - position) // UNIT_BYTES
        return np.frombuffer(segment.view, UNIT, count, position - segment.base)

    def cover(self, begin: int, end: int) -> None:
        """Adds a range of offsets that records have."""
        if self.covered and self.covered[-1].end == begin:
            begin = self.covered.pop().begin
        self.covered.append(Run(begin, end))
        self.next_offset = max(self.next_offset, end)


class QueuesCheck:
    """The check of one store's queues."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._queues: dict[QueueKey, _Queue] = {}
        self._misplaced: list[Finding] = []
        for found in queue_folders(context.folder):
            loaded = load_segments(found.path, context.sizes.queue_file_bytes)
            queue = self._add(found.key, exists=True)
            queue.files.segments.extend(loaded.segments)
            queue.end = _used_end(queue.files)
            self._misplaced += [
                finding(one.path, 0, one.reason, is_fault=not _is_empty_last(one.path))
                for one in loaded.misplaced
            ]

    def _add(self, key: QueueKey, *, exists: bool) -> _Queue:
        folder = self._context.folder / "consumequeue" / key.topic / str(key.queue_id)
        files = SegmentQueue(folder, self._context.sizes.queue_file_bytes)
        queue = self._queues[key] = _Queue(key, files, exists)
        return queue

    @property
    def keys(self) -> list[QueueKey]:
        """The queues that have a folder."""
        return [key for key, queue in self._queues.items() if queue.exists]

    def close(self) -> None:
        """Closes the files."""
        for queue in self._queues.values():
            queue.files.close()

    def compare(self, request: DispatchRequest) -> None:
        """Compares the expected units of records with the units in the files."""
        context, key = self._context, request.queue
        alive = request.units["physical_offset"] >= context.deleted_below.get(key.topic, -1)
        first = int(np.argmax(alive)) if alive.any() else len(alive)
        if first == len(alive):
            return
        queue = self._queues.get(key) or self._add(key, exists=False)
        offset, units = request.queue_offset + first, request.units[first:]
        if offset < queue.next_offset:
            self._given_twice(queue, offset, int(units["physical_offset"][0]))
        queue.cover(offset, offset + len(units))
        while len(units) > 0:
            found = queue.units(offset, offset + len(units))
            if len(found) == 0:
                found = _missing(queue, offset, len(units))
            part = _comparable(key, units[: len(found)], found)
            if found.tobytes() != part.tobytes() and len(queue.findings) <= FINDINGS_PER_FILE_MAX:
                queue.findings += self._differences(queue, offset, found, part)
            offset, units = offset + len(found), units[len(found) :]

    def _given_twice(self, queue: _Queue, offset: int, physical_offset: int) -> None:
        """Handles a queue offset that an earlier record has.

        RocketMQ has no marks of deleted topics; their offsets start again at 0.
        """
        if offset == 0 and not self._context.traces.ours:
            queue.findings.clear()
            queue.covered.clear()
            queue.next_offset = 0
            return
        segment = self._context.log.files.find(physical_offset)
        assert segment is not None
        text = (
            f"the record has queue offset {offset} of {_name(queue.key)}, "
            "which a record before it has too"
        )
        place = physical_offset - segment.base
        queue.findings.append(finding(segment.path, place, text, is_fault=True))

    def _differences(
        self, queue: _Queue, offset: int, found: Units, expected: Units
    ) -> Iterator[Finding]:
        kinds = _kinds(found, expected)
        for kind in np.unique(kinds[kinds > 0]).tolist():
            for run in runs(kinds == kind):
                first, right = found[run.begin], expected[run.begin]
                text = _DIFFERENCES[kind].format(
                    units=Run(offset + run.begin, offset + run.end).of("unit"),
                    offset=first["physical_offset"],
                    size=first["size"],
                    code=first["tags_code"],
                    right_offset=right["physical_offset"],
                    right_size=right["size"],
                    right_code=right["tags_code"],
                )
                place = offset + run.begin
                mended = kind == _MISSING and self._is_mended(int(right["physical_offset"]))
                yield finding(
                    queue.path_of(place), queue.position_of(place), text, is_fault=not mended
                )

    def _is_mended(self, physical_offset: int) -> bool:
        """True if the next start restores the record's unit."""
        return self._context.traces.abnormal and physical_offset >= self._context.mended_from

    def finish(self) -> Iterator[Finding]:
        """Yields all findings, once the log has been read."""
        yield from self._misplaced
        for key in sorted(self._queues):
            queue = self._queues[key]
            if not queue.exists and self._context.went_on:
                count = sum(map(len, queue.covered))
                text = f"does not exist; {count} records of {_name(key)} are of a deleted topic"
                yield Note(queue.files.folder, 0, text)
                continue
            yield from queue.findings
            for run in _uncovered(queue):
                yield from self._leftovers(queue, run)
            yield from self._behind_end(queue)

    def _leftovers(self, queue: _Queue, run: Run) -> Iterator[Finding]:
        """Yields units without a record in the log."""
        offset = run.begin
        while offset < run.end:
            units = queue.units(offset, run.end)
            assert len(units) > 0, "a queue's files follow each other up to its end"
            yield from self._leftover(queue, offset, units)
            offset += len(units)

    def _leftover(self, queue: _Queue, offset: int, units: Units) -> Iterator[Finding]:
        context = self._context
        starts = units["physical_offset"].astype(np.int64)
        below = max(context.log.begin, context.deleted_below.get(queue.key.topic, -1))
        fine = (units["size"] == BLANK_SIZE) | ((units["size"] > 0) & (starts < below))
        fine |= context.is_damaged(starts)
        behind = (units["size"] > 0) & (starts + units["size"] > context.log_end) & ~fine
        for wrong, what, is_fault in (
            (behind, f"behind the log's end {context.log_end}", not context.traces.abnormal),
            (~fine & ~behind, "where the log has no record of this queue offset", True),
        ):
            for part in runs(wrong):
                place = offset + part.begin
                names = f"{Run(place, offset + part.end).of('unit')}: log offset"
                text = f"{names} {starts[part.begin]}, {what}"
                path, position = queue.path_of(place), queue.position_of(place)
                yield finding(path, position, text, is_fault=is_fault)

    def _behind_end(self, queue: _Queue) -> Iterator[Finding]:
        """Yields nonzero bytes after the last unit."""
        position = queue.end * UNIT_BYTES
        for segment in queue.files.dirty_segments(position, queue.files.end):
            start = max(position - segment.base, 0)
            used = segment.used_end(start)
            if used > start:
                text = f"{used - start} bytes behind the last unit are not zero"
                abnormal = self._context.traces.abnormal
                yield finding(segment.path, start, text, is_fault=not abnormal)


_MISSING, _BLANK, _OFFSET, _SIZE, _CODE = range(1, 6)
_DIFFERENCES = {
    _MISSING: "{units} missing; the record lies at log offset {right_offset}",
    _BLANK: "{units} blank, but a record lies at log offset {right_offset}",
    _OFFSET: "{units}: log offset {offset}, but the record lies at {right_offset}",
    _SIZE: "{units}: size {size}, but the record has {right_size} bytes",
    _CODE: "{units}: tags code {code}, but the record's is {right_code}",
}


def _comparable(key: QueueKey, expected: Units, found: Units) -> Units:
    """Returns the expected units; the due times of waiting messages are taken from `found`."""
    if key.topic == SCHEDULE_TOPIC:
        expected = expected.copy()
        expected["tags_code"] = found["tags_code"]
    return expected


def _kinds(found: Units, expected: Units) -> NDArray[np.int8]:
    """Returns the kind of error of each unit; 0 for none."""
    kinds = np.zeros(len(found), np.int8)
    codes = found["tags_code"]
    kinds[(codes != expected["tags_code"]) & (codes > EXTENSION_CODE_MAX)] = _CODE
    kinds[found["size"] != expected["size"]] = _SIZE
    kinds[found["physical_offset"] != expected["physical_offset"]] = _OFFSET
    kinds[found["size"] == BLANK_SIZE] = _BLANK
    kinds[(found["size"] == 0) & (found["physical_offset"] == 0)] = _MISSING
    return kinds


def _missing(queue: _Queue, offset: int, count: int) -> Units:
    """Returns zeros for the units that have no file, up to the next existing file."""
    begin = queue.files.begin // UNIT_BYTES
    return np.zeros(min(count, begin - offset) if offset < begin else count, UNIT)


def _used_end(files: SegmentQueue) -> int:
    """Returns the offset after the last unit with a size."""
    for segment in reversed(files.segments):
        used = np.flatnonzero(np.frombuffer(segment.view, UNIT)["size"] > 0)
        if len(used) > 0:
            return segment.base // UNIT_BYTES + int(used[-1]) + 1
    return files.begin // UNIT_BYTES


def _uncovered(queue: _Queue) -> Iterator[Run]:
    """Yields the ranges of units, up to the last one, that no record has."""
    offset = queue.files.begin // UNIT_BYTES
    for run in sorted(queue.covered, key=lambda run: run.begin):
        if run.begin > offset:
            yield Run(offset, min(run.begin, queue.end))
        offset = max(offset, run.end)
    if offset < queue.end:
        yield Run(offset, queue.end)


def _is_empty_last(path: Path) -> bool:
    """True if the next start removes the file: it is empty and the queue's last."""
    return path.is_file() and path.stat().st_size == 0 and path == max(path.parent.iterdir())


def _name(key: QueueKey) -> str:
    return f"{key.topic}-{key.queue_id}"
