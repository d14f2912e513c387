"""Check of the consume queues against the log.

Recovery's dispatch gives the unit of every record; the files must have it at the record's queue
offset. Other units must be blank, or of records that the log no longer has. Memory: a few numbers
per queue, and the units of one log span. Open files are limited as in a broker.
Source: docs/design/storage.md section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.check.faults import (
    FINDINGS_PER_FILE_MAX,
    CheckContext,
    Fault,
    Finding,
    Note,
    finding,
    numbered,
    runs,
)
from rocketpy_broker.store.check.read_only import queue_folder, queue_keys
from rocketpy_broker.store.log.file_sequence import FileSequence
from rocketpy_broker.store.queues.dispatch import DispatchRequest
from rocketpy_broker.store.queues.files import QueueFiles, used_end
from rocketpy_broker.store.queues.open_files import OpenFiles
from rocketpy_broker.store.queues.prefixes import Prefixes
from rocketpy_broker.store.queues.units import BLANK_SIZE, UNIT, UNIT_BYTES, Units
from rocketpy_broker.store.values import FilePrefix, QueueKey
from rocketpy_proto.counts import counted
from rocketpy_proto.model import SCHEDULE_TOPIC

# Codes up to this one are addresses in consumequeue_ext, which is not read.
EXTENSION_CODE_MAX = -(1 << 31) - 1


@dataclass(slots=True)
class _Queue:
    """One queue, as far as the log has been read.

    `next_offset` is the one after the last record. `gaps` are earlier offsets without a record.
    """

    key: QueueKey
    files: QueueFiles
    exists: bool
    next_offset: int = 0
    record_count: int = 0
    gaps: list[range] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def cover(self, begin: int, end: int) -> None:
        """Adds the queue offsets of records."""
        if begin > self.next_offset:
            self.gaps.append(range(self.next_offset, begin))
        elif begin < self.next_offset:
            # The offset of an earlier record is wrong.
            below = [range(gap.start, min(gap.stop, begin)) for gap in self.gaps]
            above = [range(max(gap.start, end), gap.stop) for gap in self.gaps]
            self.gaps = [gap for gap in (*below, *above) if len(gap) > 0]
        self.next_offset = max(self.next_offset, end)
        self.record_count += end - begin

    def place(self, offset: int) -> tuple[Path, int]:
        """Returns the file that has, or should have, the unit at `offset`, and the byte in it."""
        position = offset * UNIT_BYTES
        base = self.files.base_of(position)
        return Path(self.files.path_of(base)), position - base

    def units(self, offset: int, offset_end: int) -> Units:
        """Returns units from `offset` to the end of their file at most; zeros without a file."""
        position, end = offset * UNIT_BYTES, offset_end * UNIT_BYTES
        if not self.files.has(position):
            end = min(end, self.files.begin) if position < self.files.begin else end
            return np.zeros((end - position) // UNIT_BYTES, UNIT)
        end = min(end, self.files.base_of(position) + self.files.file_bytes)
        return np.frombuffer(self.files.read(position, end - position), UNIT)


class QueuesCheck:
    """The check of one store's queues."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._open_files = OpenFiles(read_only=True)
        self._queues: dict[QueueKey, _Queue] = {}
        self._misplaced: list[Finding] = []
        for key in queue_keys(context.folder):
            queue = self._add(key, exists=True)
            folder, file_bytes = queue_folder(context.folder, key), queue.files.file_bytes
            self._misplaced += [
                finding(one.path, 0, one.reason, is_fault=not _is_empty_last(one.path))
                for one in queue.files.adopt_found(FileSequence.find(folder, file_bytes))
            ]

    def _add(self, key: QueueKey, *, exists: bool) -> _Queue:
        folder = str(queue_folder(self._context.folder, key))
        files = QueueFiles(folder, self._context.sizes.queue_file_bytes, self._open_files)
        queue = self._queues[key] = _Queue(key, files, exists)
        return queue

    def close(self) -> None:
        """Closes the files."""
        for queue in self._queues.values():
            queue.files.close()

    @property
    def keys(self) -> list[QueueKey]:
        """The queues that have a folder."""
        return [key for key, queue in self._queues.items() if queue.exists]

    def compare(self, request: DispatchRequest) -> None:
        """Compares the expected units of records with the units in the files."""
        context, key = self._context, request.queue
        alive = request.units["physical_offset"] >= context.deleted.below(key.topic)
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
            right = units[: len(found)]
            if key.topic == SCHEDULE_TOPIC:
                # The due times of waiting messages depend on the broker's levels.
                right = right.copy()
                right["tags_code"] = found["tags_code"]
            if found.tobytes() != right.tobytes() and len(queue.findings) <= FINDINGS_PER_FILE_MAX:
                queue.findings += self._differences(queue, offset, found, right)
            offset, units = offset + len(found), units[len(found) :]

    def _given_twice(self, queue: _Queue, offset: int, physical_offset: int) -> None:
        """Handles a queue offset that an earlier record has.

        RocketMQ has no marks of deleted topics; their offsets start again at 0.
        """
        if offset == 0 and not self._context.traces.ours:
            queue.findings.clear()
            queue.gaps.clear()
            queue.next_offset = queue.record_count = 0
            return
        segment = self._context.log.files.find(physical_offset)
        assert segment is not None
        text = (
            f"the record has queue offset {offset} of {_name(queue.key)}, which an earlier "
            "record has, too"
        )
        place = physical_offset - segment.base
        queue.findings.append(finding(segment.path, place, text, is_fault=True))

    def _differences(
        self, queue: _Queue, offset: int, found: Units, expected: Units
    ) -> Iterator[Finding]:
        kinds = _kinds(found, expected)
        for kind in np.unique(kinds[kinds > 0]).tolist():
            for run in runs(kinds == kind):
                right = expected[run.start]
                units = numbered("unit", run, offset)
                text = _DIFFERENCES[kind].format(units, f=found[run.start], r=right)
                mended = kind == _MISSING and self._context.is_mended(int(right["physical_offset"]))
                yield finding(*queue.place(offset + run.start), text, is_fault=not mended)

    def finish(self) -> Iterator[Finding]:
        """Yields all findings, once the log has been read."""
        yield from self._misplaced
        manifest = self._context.manifest
        prefixes = {} if manifest is None else manifest.queues
        for key in sorted({*self._queues, *prefixes}):
            queue = self._queues.get(key) or self._add(key, exists=False)
            if not queue.exists and not self._context.traces.ours:
                records = counted(queue.record_count, "record")
                text = f"does not exist; the log has {records} of {_name(key)}, a deleted topic"
                yield Note(Path(queue.files.folder), 0, text)
                continue
            yield from queue.findings
            yield from self._tail(queue)
            if manifest and self._context.deleted.below(key.topic) < manifest.log_end:
                yield from _changed(queue, prefixes.get(key, {}))

    def _tail(self, queue: _Queue) -> Iterator[Finding]:
        """Yields nonzero bytes after the last unit, and units without a record before."""
        files, abnormal = queue.files, self._context.traces.abnormal
        end = files.begin
        for base in reversed(files.bases):
            used = used_end(files.open_once(base), 0)
            units = queue.units(base // UNIT_BYTES, (base + used) // UNIT_BYTES + 1)
            sized = np.flatnonzero(units["size"] > 0)
            size = (int(sized[-1]) + 1) * UNIT_BYTES if len(sized) else 0
            if used > size:
                text = f"{used - size} bytes after the last unit are not zero"
                yield finding(Path(files.path_of(base)), size, text, is_fault=not abnormal)
            if size > 0:
                end = base + size
                break
        begin, end = files.begin // UNIT_BYTES, end // UNIT_BYTES
        for gap in [*queue.gaps, range(queue.next_offset, end)]:
            offset, gap_end = max(gap.start, begin), min(gap.stop, end)
            while offset < gap_end:
                units = queue.units(offset, gap_end)
                yield from self._leftover(queue, offset, units)
                offset += len(units)

    def _leftover(self, queue: _Queue, offset: int, units: Units) -> Iterator[Finding]:
        """Yields units without a record, except units of removed or damaged records."""
        context = self._context
        starts = units["physical_offset"].astype(np.int64)
        below = max(context.log.begin, context.deleted.below(queue.key.topic))
        removed = (units["size"] > 0) & (starts >= 0) & (starts < below)
        fine = (units["size"] == BLANK_SIZE) | removed
        fine |= context.is_damaged(starts)
        behind = (units["size"] > 0) & (starts + units["size"] > context.log_end) & ~fine
        abnormal = context.traces.abnormal
        # After a crash, units after the log's end are notes. Otherwise a whole run is one fault.
        for wrong in [behind, ~fine & ~behind] if abnormal else [~fine]:
            for part in runs(wrong):
                what = "where the log has no record of this queue offset"
                if behind[part.start]:
                    what = f"after the log's end {context.log_end}"
                is_fault = not (abnormal and behind[part.start])
                text = f"{numbered('unit', part, offset)}: log offset {starts[part.start]}, {what}"
                yield finding(*queue.place(offset + part.start), text, is_fault=is_fault)


_MISSING, _BLANK, _OFFSET, _SIZE, _CODE = range(1, 6)
# Texts with fields of the unit found (f) and of the right one (r).
_DIFFERENCES = {
    _MISSING: "{} missing; the record is at log offset {r[physical_offset]}",
    _BLANK: "{} blank, but a record is at log offset {r[physical_offset]}",
    _OFFSET: "{}: log offset {f[physical_offset]}, but the record is at {r[physical_offset]}",
    _SIZE: "{}: size {f[size]}, but the record has {r[size]} bytes",
    _CODE: "{}: tags code {f[tags_code]}, but the record's is {r[tags_code]}",
}


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


def _changed(queue: _Queue, prefixes: Mapping[str, FilePrefix]) -> Iterator[Finding]:
    """Yields the files that differ from their prefixes in the manifest."""
    for name, prefix in prefixes.items():
        path = Path(queue.files.folder, name)
        if not path.exists():
            yield Fault(path, 0, "is missing, though the manifest names it")
        elif not Prefixes().has(queue.files, {name: prefix}):
            yield Fault(path, 0, "differs from its entry in the manifest")


def _is_empty_last(path: Path) -> bool:
    """True if the next start removes the file: it is empty and the queue's last."""
    return path.is_file() and path.stat().st_size == 0 and path == max(path.parent.iterdir())


def _name(key: QueueKey) -> str:
    return f"{key.topic}-{key.queue_id}"
