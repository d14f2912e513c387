"""Dispatch to the index: live keys are collected and entered in groups.

Keys of live appends wait in memory and enter the index in large groups. A group costs little more
than a single key. A crash loses the waiting keys; recovery enters them from the log. A query enters
them first, so it finds every message that has been dispatched.
Source: docs/design/storage.md section 7.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.index.file import LOG_END_MAX, StoreTimeOf
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.index.service import NO_END_MS, IndexService
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.counts import counted
from rocketpy_proto.record.index_keys import IndexKeys

logger = logging.getLogger(__name__)
WAITING_KEYS_MAX = 8192
# Entering this number takes 4 ms; the other keys of a block wait for a later slice.
SLICE_KEYS = 32_768
# Joining the keys of this number of blocks takes a few milliseconds.
WAITING_BLOCKS_MAX = 1024

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Keys of a block, with its records' physical offsets and store times."""

    keys: IndexKeys
    offsets: Numbers
    times_ms: Numbers

    def cut(self, count: int) -> tuple[_Waiting, _Waiting]:
        """Returns the keys of the first records, at least `count`, and the remaining keys."""
        rows = self.keys.row
        # A record's keys stay together: the index treats its last record as a whole.
        count = int(np.searchsorted(rows, rows[count - 1], "right"))
        record = int(rows[count]) if count < len(rows) else len(self.offsets)
        head = IndexKeys(self.keys.hash[:count], rows[:count])
        tail = IndexKeys(self.keys.hash[count:], rows[count:] - record)
        return (
            _Waiting(head, self.offsets[:record], self.times_ms[:record]),
            _Waiting(tail, self.offsets[record:], self.times_ms[record:]),
        )


def _slice_end(waiting: list[_Waiting], keys_max: int) -> int:
    """Returns the number of waiting blocks in the next slice; at least one, whatever its keys."""
    total = 0
    for count, each in enumerate(waiting):
        total += len(each.keys)
        if total > keys_max:
            return max(count, 1)
    return len(waiting)


class IndexDispatch:
    """Writer and reader of the index; does nothing if the index is disabled."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        config: StoreConfig,
        store_time_of: StoreTimeOf,
        slice_keys: int = SLICE_KEYS,
    ) -> None:
        index_format = IndexFormat(config.index_slot_count, config.index_entry_count_max)
        self._service = IndexService(folder, clock, index_format)
        self._enabled = config.index_enable
        self._store_time_of = store_time_of
        self._slice_keys = slice_keys
        self._waiting: list[_Waiting] = []
        self._waiting_count = 0
        self._log_throttle = LogThrottle(clock)

    def load(self) -> list[str]:
        """Opens the files; returns the faults that make the index unreliable. Raises OSError."""
        if not self._enabled:
            return []
        try:
            self._service.load()
        except StoreDirectoryError as error:
            logger.warning("%s; the index is rebuilt from the log", error)
            return [str(error)]
        doubt = self._service.in_doubt
        return [] if doubt is None else [f"index: {doubt}"]

    def put(self, keys: IndexKeys, offsets: Numbers, store_timestamps_ms: Numbers) -> None:
        """Enters keys of the records at `offsets`. Raises OSError."""
        if self._enabled and len(keys) > 0:
            self._service.put(keys, offsets, store_timestamps_ms)

    def put_later(
        self, keys: IndexKeys, offsets: Numbers, store_timestamps_ms: int | Numbers
    ) -> None:
        """Enters keys soon; the records have one timestamp, or each its own.

        On a full disk they wait, since their messages are stored anyway. After a failed flush the
        keys are dropped; the next start enters them from the log.
        """
        if not self._enabled or len(keys) == 0 or self._service.is_lost:
            return
        times = np.full(len(offsets), store_timestamps_ms, np.int64)
        self._waiting.append(_Waiting(keys, offsets, times))
        self._waiting_count += len(keys)
        if self._waiting_count >= WAITING_KEYS_MAX or len(self._waiting) % WAITING_BLOCKS_MAX == 0:
            self.drain_some()

    @property
    def has_many(self) -> bool:
        """True if more keys wait than fit one slice."""
        return self._waiting_count > self._slice_keys

    def drain(self) -> None:
        """Enters the waiting keys."""
        while self.drain_some():
            pass

    def drain_some(self) -> bool:
        """Enters a slice of the waiting keys; returns True if more can be entered."""
        count = _slice_end(self._waiting, self._slice_keys)
        first, others = self._waiting[:count], self._waiting[count:]
        if len(first) == 1 and len(first[0].keys) > self._slice_keys:
            head, tail = first[0].cut(self._slice_keys)
            first, others = [head], [tail, *others] if len(tail.keys) else others
        if not first or self._service.is_lost or not self._enter(first):
            return False
        self._waiting = others
        self._waiting_count -= sum(len(each.keys) for each in first)
        return bool(others)

    def _enter(self, blocks: list[_Waiting]) -> bool:
        """Enters the keys of some blocks; returns False if the index cannot grow."""
        bases = np.cumsum([0] + [len(each.offsets) for each in blocks])
        rows = [each.keys.row + base for each, base in zip(blocks, bases, strict=False)]
        keys = IndexKeys(np.concatenate([each.keys.hash for each in blocks]), np.concatenate(rows))
        try:
            self._service.put(
                keys,
                np.concatenate([each.offsets for each in blocks]),
                np.concatenate([each.times_ms for each in blocks]),
            )
        except OSError as error:
            if self._log_throttle.may_log():
                waiting = counted(self._waiting_count, "key waits", "keys wait")
                logger.warning("the index cannot grow, %s: %s", waiting, error)
            return False
        return True

    @property
    def is_behind(self) -> bool:
        """True if keys wait."""
        return bool(self._waiting)

    def entered_end(self, log_end: int) -> int:
        """Returns `log_end`, or the physical offset of the first record with waiting keys."""
        return min(log_end, int(self._waiting[0].offsets[0])) if self._waiting else log_end

    def last_update(self) -> tuple[int, int]:
        """Returns store time and physical offset of the last record with entered keys, or zeros."""
        return self._service.end_timestamp_ms, max(self._service.physical_end, 0)

    def walk(
        self, topic: str, key: str, begin_ms: int, end_ms: int, before: int = LOG_END_MAX
    ) -> Iterator[int | None]:
        """Yields the physical offsets of records that may have the key, newest first, and None.

        See `IndexService.walk`. Raises OSError.
        """
        self.drain()
        return self._service.walk(topic, key, begin_ms, end_ms, before)

    def query_all(self, topic: str, key: str, count_max: int) -> NDArray[np.int64] | None:
        """Returns the physical offsets of all records that may have the key.

        Returns None if there are more than `count_max`, if keys still wait, or after a failed
        flush.
        """
        self.drain()
        if not self._enabled or self.is_behind or self._service.is_lost:
            return None
        found = self._service.query(topic, key, 0, NO_END_MS, count_max + 1)
        return found if len(found) <= count_max else None

    def verify_against(self, prefixes: Mapping[str, FilePrefix], log_end: int) -> bool:
        """True if the index holds what it held at `log_end`; later entries are then dropped."""
        if self._service.in_doubt is not None:
            return False
        if not self._service.has_prefixes(prefixes, log_end):
            return False
        self._service.truncate(log_end, self._store_time_of)
        return True

    def prefixes(self, log_end: int) -> dict[str, FilePrefix]:
        """Returns each file's length and CRC-32 of the entries of records below `log_end`."""
        return self._service.prefixes(log_end)

    @property
    def end_timestamp_of_full_ms(self) -> int:
        """Store time of the last record of the newest full file; 0 if none is full."""
        return self._service.end_timestamp_of_full_ms

    def truncate(self, end: int) -> None:
        """Drops entries of records at or after physical offset `end`."""
        self._service.truncate(end, self._store_time_of)

    def reset(self) -> None:
        """Removes all index files, so that they can be rebuilt."""
        self._service.reset()

    def expired(self, log_begin: int) -> list[Path]:
        """Returns the files that only have entries of records removed from the log."""
        return self._service.expired(log_begin)

    def drop_first(self, count: int) -> None:
        """Drops the oldest files after they have been removed."""
        self._service.drop_first(count)

    def flush(self) -> None:
        """Makes the entered keys durable. Blocks. Raises OSError."""
        self._service.flush()

    def close(self) -> None:
        """Closes the files."""
        self._service.close()
