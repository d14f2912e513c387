"""The index's side of dispatch: live keys are gathered before they are entered.

Keys of live appends wait in memory and enter the index in large groups, since a group costs little
more than a single key. A crash loses those that wait; recovery enters them from the log. A query
enters them first, so it sees every message that has been dispatched.
Source: spec/storage.md section 7; row S05.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.clock import Clock
from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.index.file import StoreTimeOf
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.index.service import NO_END_MS, IndexService
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.record.index_keys import IndexKeys

logger = logging.getLogger(__name__)
WAITING_KEYS_MAX = 8192
# Joining the keys of so many blocks takes a few milliseconds.
WAITING_BLOCKS_MAX = 1024

Numbers = NDArray[np.int64]


class IndexDispatch:
    """Feeds the index and asks it; does nothing where the index is switched off."""

    def __init__(
        self, folder: Path, clock: Clock, config: StoreConfig, store_time_of: StoreTimeOf
    ) -> None:
        index_format = IndexFormat(config.index_slot_count, config.index_entry_count_max)
        self._service = IndexService(folder, clock, index_format)
        self._enabled = config.index_enable
        self._store_time_of = store_time_of
        self._waiting: list[tuple[IndexKeys, Numbers, Numbers]] = []
        self._waiting_count = 0

    def load(self) -> list[str]:
        """Open the files; return what about them cannot be believed. Raises OSError."""
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
        """Enter keys of records that lie at `offsets`. Raises OSError."""
        if self._enabled and len(keys) > 0:
            self._service.put(keys, offsets, store_timestamps_ms)

    def put_later(self, keys: IndexKeys, offsets: Numbers, store_timestamp_ms: int) -> None:
        """Enter keys soon. A full disk makes them wait, since their messages are stored anyway."""
        if not self._enabled or len(keys) == 0:
            return
        times = np.full(len(offsets), store_timestamp_ms)
        self._waiting.append((keys, offsets, times))
        self._waiting_count += len(keys)
        if self._waiting_count >= WAITING_KEYS_MAX or len(self._waiting) % WAITING_BLOCKS_MAX == 0:
            self.drain()

    def drain(self) -> None:
        """Enter the keys that wait."""
        if not self._waiting:
            return
        bases = np.cumsum([0] + [len(offsets) for _, offsets, _ in self._waiting])
        rows = [keys.row + base for (keys, _, _), base in zip(self._waiting, bases, strict=False)]
        keys = IndexKeys(
            np.concatenate([keys.hash for keys, _, _ in self._waiting]), np.concatenate(rows)
        )
        try:
            self._service.put(
                keys,
                np.concatenate([offsets for _, offsets, _ in self._waiting]),
                np.concatenate([times for _, _, times in self._waiting]),
            )
        except OSError as error:
            logger.warning("the index cannot grow, %d keys wait: %s", self._waiting_count, error)
            return
        self._waiting.clear()
        self._waiting_count = 0

    @property
    def is_behind(self) -> bool:
        """Whether keys wait."""
        return bool(self._waiting)

    def entered_end(self, log_end: int) -> int:
        """`log_end`, or where the first record lies whose keys wait."""
        return min(log_end, int(self._waiting[0][1][0])) if self._waiting else log_end

    def query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int
    ) -> NDArray[np.int64]:
        """Physical offsets of records that may have the key; see `IndexService.query`."""
        self.drain()
        return self._service.query(topic, key, begin_ms, end_ms, count_max)

    def query_all(self, topic: str, key: str, count_max: int) -> NDArray[np.int64] | None:
        """Physical offsets of all records that may have the key.

        None where there are more than `count_max`, or where keys still wait.
        """
        self.drain()
        if not self._enabled or self.is_behind:
            return None
        found = self._service.query(topic, key, 0, NO_END_MS, count_max + 1)
        return found if len(found) <= count_max else None

    def vouch(self, prefixes: Mapping[str, FilePrefix], log_end: int) -> bool:
        """Whether the index holds what it held at `log_end`; what came later is then dropped."""
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
        """Drop entries of records at or behind physical offset `end`."""
        self._service.truncate(end, self._store_time_of)

    def reset(self) -> None:
        """Remove everything, to be rebuilt."""
        self._service.reset()

    def expired(self, log_begin: int) -> list[Path]:
        """Files about records only that the log no longer has."""
        return self._service.expired(log_begin)

    def drop_first(self, count: int) -> None:
        """Forget the oldest files, which have been removed."""
        self._service.drop_first(count)

    def flush(self) -> None:
        """Make what was entered durable. Blocks. Raises OSError."""
        self._service.flush()

    def close(self) -> None:
        """Close the files."""
        self._service.close()
