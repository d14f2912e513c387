"""The index of messages by topic and key, over all files.

Maps: (topic, key, time span) to physical offsets. Entries are described at `IndexFile`; a new file
is created when one is full. Searched: from the newest file back, until one begins before the time
span. Checksummed: no. After a crash of the process `truncate` repairs the newest file. A comparison
with the manifest finds what a power cut has removed; `reset` then removes all files. Missing
entries are dispatched again from the log; known ones are skipped. After a failed flush the system
may drop pages that it treats as written, and their entries. Queries then fail until the next start.
Used by the dispatcher (writes), recovery, and queries of messages by key.

The name of a file is the local time of its creation, and names increase: `yyyyMMddHHmmssSSS`.
Source: IndexService, docs/design/storage.md sections 7.3 to 7.6.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.index.file import LOG_END_MAX, IndexFile, StoreTimeOf
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.counts import counted
from rocketpy_proto.record import IndexKeys, index_hash

logger = logging.getLogger(__name__)
NO_END_MS = (1 << 63) - 1

NAME_DIGITS = 17
HEAD = "/head"
DEFAULT_FORMAT = IndexFormat()


class IndexService:
    """The files of one folder. Times are milliseconds, offsets are positions in the commit log."""

    def __init__(
        self, folder: Path, clock: Clock, index_format: IndexFormat = DEFAULT_FORMAT
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._format = index_format
        self._files: list[IndexFile] = []
        self._flush_error: OSError | None = None

    def load(self) -> None:
        """Opens the files of the folder. Raises StoreDirectoryError and OSError."""
        if not self._folder.exists():
            return
        for path in sorted(self._folder.iterdir()):
            if _is_of_index(path):
                self._files.append(IndexFile.open(path, self._format))
            else:
                logger.warning("%s is no index file and is ignored", path)

    @property
    def in_doubt(self) -> str | None:
        """The fault that `truncate` cannot repair; None if none is known.

        The remedy is `reset` and a new dispatch of the whole log.
        """
        end = -1
        for file in self._files:
            fault = file.fault()
            if fault is None and file is not self._files[-1] and not file.is_full:
                entries = counted(file.count - 1, "entry", "entries")
                fault = f"has {entries} and is not full, but a newer file follows"
            if fault is None and file.count > 1 and file.begin_offset < end:
                fault = f"starts at {file.begin_offset}, the file before it ends at {end}"
            if fault is not None:
                return f"{file.path} {fault}"
            end = file.end_offset
        return None

    @property
    def physical_end(self) -> int:
        """Physical offset of the last record with a key in the index; -1 if there is none."""
        return self._files[-1].end_offset if self._files else -1

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last record with a key in the index; 0 if there is none."""
        return self._files[-1].end_timestamp_ms if self._files else 0

    @property
    def end_timestamp_of_full_ms(self) -> int:
        """Store time of the last record of the newest full file, 0 if none is full.

        The value before a `flush` may go into the checkpoint after it.
        """
        return max((file.end_timestamp_ms for file in self._files if file.is_full), default=0)

    def put(
        self,
        keys: IndexKeys,
        physical_offsets: NDArray[np.int64],
        store_timestamps_ms: NDArray[np.int64],
    ) -> None:
        """Enters the keys of a block of records at these physical offsets. Raises OSError.

        Offsets and times have one item for each record; `keys.row` is the record's index. Known
        keys are skipped, so the same call may be repeated after an error or a restart. RocketMQ
        then enters the keys of the last record twice.
        """
        offsets = physical_offsets[keys.row]
        begin = self._known(offsets)
        offsets, hashes = offsets[begin:], keys.hash[begin:]
        times = store_timestamps_ms[keys.row[begin:]]
        while len(offsets) > 0:
            entered = self._file_with_room().put(hashes, offsets, times)
            hashes, offsets, times = hashes[entered:], offsets[entered:], times[entered:]

    def _known(self, offsets: NDArray[np.int64]) -> int:
        """Returns the number of these keys, ascending by record, that are in the index."""
        end = self.physical_end
        known = int(np.searchsorted(offsets, end))
        if known == len(offsets) or offsets[known] > end:
            return known
        # The last record is known, but a crash may have separated its keys.
        for file in reversed(self._files):
            trailing = file.trailing(end)
            known += trailing
            if trailing < file.count - 1:
                break
        return known

    def _file_with_room(self) -> IndexFile:
        previous = self._files[-1] if self._files else None
        if previous is not None and not previous.is_full:
            return previous
        if previous is not None and previous.new_folders:
            # So a power cut can remove the last file at most.
            self._flush(previous)
        file = IndexFile.create(self._folder / self._new_name(), self._format, previous)
        self._files.append(file)
        return file

    def _new_name(self) -> str:
        """Returns the current time, or the last name plus one if the time would not be newer."""
        now_ms = self._clock.now_ms()
        local = datetime.fromtimestamp(now_ms // 1000, tz=timezone.utc).astimezone()
        name = int(f"{local:%Y%m%d%H%M%S}{now_ms % 1000:03d}")
        if self._files:
            name = max(name, int(self._files[-1].path.name) + 1)
        return f"{name:0{NAME_DIGITS}d}"

    def query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int
    ) -> NDArray[np.int64]:
        """Returns the ascending offsets of the newest `count_max` records that `walk` finds.

        Raises OSError after a failed flush.
        """
        walk = (each for each in self.walk(topic, key, begin_ms, end_ms) if each is not None)
        return np.sort(np.array([*islice(walk, count_max)], np.int64))

    def walk(
        self, topic: str, key: str, begin_ms: int, end_ms: int, before: int = LOG_END_MAX
    ) -> Iterator[int | None]:
        """Yields the offsets below `before` of the records with this key, newest first.

        Yields None at times, so that a caller may let other tasks run. Other keys may have the same
        hash: the caller compares the key. Times are compared in seconds from the start of a file.
        So a record may be missed by less than a second. If times fell within a file, the caller
        compares them too. Raises OSError after a failed flush. See docs/design/storage.md section
        7.5.
        """
        if self._flush_error is not None:
            raise self._flush_error
        key_hash = index_hash(topic, key)
        for file in self._files[::-1]:
            if file.begin_offset >= before:
                continue
            if file.end_timestamp_ms < file.begin_timestamp_ms:
                # The clock was ahead when the file was created: its entries have no times.
                yield from file.walk(key_hash, 0, NO_END_MS, before)
            elif file.overlaps(begin_ms, end_ms):
                yield from file.walk(key_hash, begin_ms, end_ms, before)
            if file.begin_timestamp_ms < begin_ms:
                break

    def truncate(self, physical_end: int, store_time_of: StoreTimeOf | None = None) -> None:
        """Keeps the entries of records below `physical_end` and repairs damage of a crash.

        The result is as if only the kept entries had ever been entered. See `IndexFile.truncate`
        for `store_time_of`. Raises OSError; may then be called again.
        """
        while self._files and not self._files[-1].has_entry_below(physical_end):
            self._files[-1].remove()
            self._files.pop()
        if self._files:
            self._files[-1].truncate(physical_end, store_time_of)

    def reset(self) -> None:
        """Removes all index files, including files that `load` has refused."""
        while self._files:
            self._files.pop().remove()
        for path in filter(_is_of_index, self._folder.glob("*")):
            durable.remove_file(path)

    def expired(self, min_physical_offset: int) -> list[Path]:
        """Returns the files that only have entries of removed records, without the last file.

        See docs/design/storage.md section 7.6.
        """
        paths = []
        for file in self._files[:-1]:
            if file.end_offset >= min_physical_offset:
                break
            paths.append(file.path)
        return paths

    def drop_first(self, count: int) -> None:
        """Drops the oldest files after they have been removed."""
        for _ in range(count):
            self._files.pop(0).close()

    def prefixes(self, physical_end: int) -> dict[str, FilePrefix]:
        """Returns the length and CRC-32 of each file's entries of records below `physical_end`.

        `<name>` has the entries; `<name>/head` has header and slots, if there are no later entries.
        """
        prefixes = {}
        for file in list(self._files):
            prefix = file.prefix(physical_end)
            prefixes[file.path.name] = prefix.entries
            if prefix.head is not None:
                prefixes[file.path.name + HEAD] = prefix.head
        return prefixes

    def has_prefixes(self, prefixes: Mapping[str, FilePrefix], physical_end: int) -> bool:
        """True if the files are as they were when `prefixes` was taken, except later entries."""
        found = self.prefixes(physical_end)
        names = {name for name in found if not name.endswith(HEAD)}
        # A head is compared only if neither side has later entries, which change it.
        names |= {name for name in found if name in prefixes}
        known = {name for name in prefixes if not name.endswith(HEAD)}
        return known <= names and all(found[name] == prefixes.get(name) for name in names)

    def flush(self) -> None:
        """Makes everything entered so far durable. Blocks; call it from a thread. Raises OSError.

        After a failed flush it raises the same error again.
        """
        if self._flush_error is not None:
            raise self._flush_error
        for file in list(self._files):
            if file.dirty:
                self._flush(file)

    @property
    def is_lost(self) -> bool:
        """True if a flush has failed: entries may be lost."""
        return self._flush_error is not None

    def _flush(self, file: IndexFile) -> None:
        if self._flush_error is not None:
            raise self._flush_error
        try:
            file.flush()
        except OSError as error:
            if error.errno not in durable.OUT_OF_DESCRIPTORS:
                self._flush_error = error
            raise

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            file.close()
        self._files.clear()


def _is_of_index(path: Path) -> bool:
    """True if this is a file with the name of an index file."""
    return path.is_file() and path.name.isdecimal() and len(path.name) == NAME_DIGITS
