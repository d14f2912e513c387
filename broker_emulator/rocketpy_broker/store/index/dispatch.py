"""The index's side of dispatch: live keys are gathered before they are entered.

Keys of live appends wait in memory and enter the index in large groups, since a group costs little
more than a single key. A crash loses those that wait; recovery enters them from the log. A query
enters them first, so it sees every message that has been dispatched.
Source: docs/design/storage.md section 7.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.index.file import StoreTimeOf
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.index.service import NO_END_MS, IndexService
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.record.index_keys import IndexKeys

logger = logging.getLogger(__name__)
WAITING_KEYS_MAX = 8192
# To enter so many takes 4 ms; the others of a block wait for a turn of their own.
SLICE_KEYS = 32_768
# Joining the keys of so many blocks takes a few milliseconds.
WAITING_BLOCKS_MAX = 1024

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Keys of a block whose records lie at `offsets`."""

    keys: IndexKeys
    offsets: Numbers
    times_ms: Numbers

    def cut(self, count: int) -> tuple[_Waiting, _Waiting]:
        """Returns the keys of the first records, at least so many, and those of the others."""
        rows = self.keys.row
        # A record's keys stay together: the index looks at its last record as a whole.
        count = int(np.searchsorted(rows, rows[count - 1], "right"))
        record = int(rows[count]) if count < len(rows) else len(self.offsets)
        head = IndexKeys(self.keys.hash[:count], rows[:count])
        tail = IndexKeys(self.keys.hash[count:], rows[count:] - record)
        return (
            _Waiting(head, self.offsets[:record], self.times_ms[:record]),
            _Waiting(tail, self.offsets[record:], self.times_ms[record:]),
        )


def _slice_end(waiting: list[_Waiting]) -> int:
    """How many of the blocks that wait make up a slice; one whatever its keys."""
    total = 0
    for count, each in enumerate(waiting):
        total += len(each.keys)
        if total > SLICE_KEYS:
            return max(count, 1)
    return len(waiting)


class IndexDispatch:
    """Feeds the index and asks it; does nothing where the index is switched off."""

    def __init__(
        self, folder: Path, clock: Clock, config: StoreConfig, store_time_of: StoreTimeOf
    ) -> None:
        index_format = IndexFormat(config.index_slot_count, config.index_entry_count_max)
        self._service = IndexService(folder, clock, index_format)
        self._enabled = config.index_enable
        self._store_time_of = store_time_of
        self._waiting: list[_Waiting] = []
        self._waiting_count = 0
        self._seldom = LogThrottle(clock)

    def load(self) -> list[str]:
        """Opens the files; return what about them cannot be believed. Raises OSError."""
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
        """Enters keys of records that lie at `offsets`. Raises OSError."""
        if self._enabled and len(keys) > 0:
            self._service.put(keys, offsets, store_timestamps_ms)

    def put_later(self, keys: IndexKeys, offsets: Numbers, store_timestamp_ms: int) -> None:
        """Enters keys soon. A full disk makes them wait, since their messages are stored anyway.

        Behind a failed flush nobody asks for them before the next start, which has them from the
        log.
        """
        if not self._enabled or len(keys) == 0 or self._service.is_lost:
            return
        times = np.full(len(offsets), store_timestamp_ms)
        self._waiting.append(_Waiting(keys, offsets, times))
        self._waiting_count += len(keys)
        if self._waiting_count >= WAITING_KEYS_MAX or len(self._waiting) % WAITING_BLOCKS_MAX == 0:
            self.drain_some()

    @property
    def has_many(self) -> bool:
        """True if more keys wait than go into one slice."""
        return self._waiting_count > SLICE_KEYS

    def drain(self) -> None:
        """Enters the keys that wait."""
        while self.drain_some():
            pass

    def drain_some(self) -> bool:
        """Enters a slice of them; return whether others wait that can be entered."""
        count = _slice_end(self._waiting)
        first, others = self._waiting[:count], self._waiting[count:]
        if len(first) == 1 and len(first[0].keys) > SLICE_KEYS:
            head, tail = first[0].cut(SLICE_KEYS)
            first, others = [head], [tail, *others] if len(tail.keys) else others
        if not first or self._service.is_lost or not self._enter(first):
            return False
        self._waiting = others
        self._waiting_count -= sum(len(each.keys) for each in first)
        return bool(others)

    def _enter(self, blocks: list[_Waiting]) -> bool:
        """Enters the keys of some blocks; return whether it was possible."""
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
            if self._seldom.may_say():
                logger.warning(
                    "the index cannot grow, %d keys wait: %s", self._waiting_count, error
                )
            return False
        return True

    @property
    def is_behind(self) -> bool:
        """True if keys wait."""
        return bool(self._waiting)

    def entered_end(self, log_end: int) -> int:
        """`log_end`, or where the first record lies whose keys wait."""
        return min(log_end, int(self._waiting[0].offsets[0])) if self._waiting else log_end

    def query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int
    ) -> NDArray[np.int64]:
        """Physical offsets of records that may have the key; see `IndexService.query`.

        Raises OSError.
        """
        self.drain()
        return self._service.query(topic, key, begin_ms, end_ms, count_max)

    def query_all(self, topic: str, key: str, count_max: int) -> NDArray[np.int64] | None:
        """Physical offsets of all records that may have the key.

        None where there are more than `count_max`, or keys still wait, and behind a failed flush.
        """
        self.drain()
        if not self._enabled or self.is_behind or self._service.is_lost:
            return None
        found = self._service.query(topic, key, 0, NO_END_MS, count_max + 1)
        return found if len(found) <= count_max else None

    def verify_against(self, prefixes: Mapping[str, FilePrefix], log_end: int) -> bool:
        """True if the index holds what it held at `log_end`; what came later is then dropped."""
        if self._service.in_doubt is not None:
            return False
        if not self._service.has_prefixes(prefixes, log_end):
            return False
        self._service.truncate(log_end, self._store_time_of)
        return True

    def prefixes(self, log_end: int) -> dict[str, FilePrefix]:
        """Of each file, the bytes with entries of records below that, and their CRC."""
        return self._service.prefixes(log_end)

    @property
    def end_timestamp_of_full_ms(self) -> int:
        """Store time of the last record of the newest full file; 0 where none is full."""
        return self._service.end_timestamp_of_full_ms

    def truncate(self, end: int) -> None:
        """Drops entries of records at or behind physical offset `end`."""
        self._service.truncate(end, self._store_time_of)

    def reset(self) -> None:
        """Removes everything, to be rebuilt."""
        self._service.reset()

    def expired(self, log_begin: int) -> list[Path]:
        """Files about records only that the log no longer has."""
        return self._service.expired(log_begin)

    def drop_first(self, count: int) -> None:
        """Forgets the oldest files, which have been removed."""
        self._service.drop_first(count)

    def flush(self) -> None:
        """Makes what was entered durable. Blocks. Raises OSError."""
        self._service.flush()

    def close(self) -> None:
        """Closes the files."""
        self._service.close()
