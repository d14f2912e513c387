"""Delay levels: waiting times of messages in SCHEDULE_TOPIC_XXXX.

A record's delivery time is in the tags code of its unit. It is computed when the record is
dispatched.
Source: docs/design/storage.md sections 4.2 and 13.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_proto.record import RecordBlock, property_column
from rocketpy_proto.record.properties import DELAY

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
# RocketMQ's schedule topic has this number of queues, whatever the number of levels.
LEVELS_MAX = 18
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ITEM = re.compile(r"([1-9][0-9]{0,5})([smhd])")


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays of levels 1, 2, ... in ms."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str = DEFAULT_LEVELS) -> DelayLevels:
        """Parses RocketMQ's messageDelayLevel, such as `1s 5s 1m`. Raises ParameterIllegalError."""
        items = [_ITEM.fullmatch(item) for item in text.split()]
        if not 1 <= len(items) <= LEVELS_MAX or None in items:
            raise ParameterIllegalError(
                "messageDelayLevel",
                text,
                f"1 to {LEVELS_MAX} numbers with unit s, m, h or d, such as '1s 5s 1m'",
            )
        return cls(tuple(int(item[1]) * _UNIT_MS[item[2]] for item in items if item is not None))

    def __str__(self) -> str:
        return " ".join(map(_item, self.delays_ms))

    @property
    def level_max(self) -> int:
        """The highest level; a higher one counts as this one."""
        return len(self.delays_ms)

    def of(self, block: RecordBlock) -> NDArray[np.int64]:
        """Returns the level of each record; 0 for none, or if it is not a number."""
        texts = property_column(block, DELAY)
        if texts.null_count == len(block):
            return np.zeros(len(block), np.int64)
        distinct = texts.dictionary_encode()
        levels = [min(level_of(text), self.level_max) for text in distinct.dictionary.to_pylist()]
        codes = distinct.indices.fill_null(len(levels)).to_numpy(zero_copy_only=False)
        found: NDArray[np.int64] = np.array([*levels, 0], np.int64)[codes]
        return found

    def _delays(self, levels: NDArray[np.int64]) -> NDArray[np.int64]:
        delays: NDArray[np.int64] = np.array((0, *self.delays_ms), np.int64)[levels]
        return delays

    def longest(self, levels: NDArray[np.int64]) -> int:
        """Returns the level with the longest delay."""
        return int(levels[np.argmax(self._delays(levels))])

    def due_codes(self, block: RecordBlock, tags_codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the delivery time of each record in ms, or its tags code if it has no level."""
        levels = self.of(block)
        due = block.header["store_timestamp"].astype(np.int64)
        due = due + self._delays(levels)
        codes: NDArray[np.int64] = np.where(levels > 0, due, tags_codes)
        return codes


def _item(delay_ms: int) -> str:
    """Returns a delay in the largest unit of which it is a whole number."""
    name, unit_ms = next(
        (name, unit_ms) for name, unit_ms in reversed(_UNIT_MS.items()) if not delay_ms % unit_ms
    )
    return f"{delay_ms // unit_ms}{name}"


def level_of(text: str) -> int:
    """Returns the level that a property names; 0 for one that delays nothing."""
    try:
        return max(int(text), 0)
    except ValueError:
        return 0
