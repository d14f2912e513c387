"""Deliveries in the log that may not be on disk yet.

A delay level is one sequence of deliveries, and so is the timer. The progress of a sequence is a
series of marks. Each mark has the log span of its deliveries, and counts once the span is on disk.
Until then a start must scan the span. State is in memory only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Mark(Generic[Value]):
    """A `value` that holds once the log is on disk up to `end`; its deliveries start at `begin`."""

    begin: int
    end: int
    value: Value


class FlushedProgress(Generic[Value]):
    """The marks of one sequence of deliveries."""

    def __init__(self) -> None:
        self._marks: deque[_Mark[Value]] = deque()
        self._begin: int | None = None

    def begin(self, log_end: int) -> None:
        """Notes that the log may have unmarked deliveries from `log_end` on."""
        if self._begin is None:
            self._begin = log_end

    @property
    def is_begun(self) -> bool:
        """True if there may be deliveries without a mark."""
        return self._begin is not None

    def mark(self, log_end: int, value: Value) -> None:
        """Adds a mark: all deliveries that `value` covers are in the log."""
        begin = log_end if self._begin is None else self._begin
        self._marks.append(_Mark(begin, log_end, value))
        self._begin = None

    @property
    def is_pending(self) -> bool:
        """True if a mark is not on disk yet."""
        return bool(self._marks)

    def flushed(self, end: int) -> Value | None:
        """Returns the value of the last mark that is now on disk; None without a new one."""
        value = None
        while self._marks and self._marks[0].end <= end:
            value = self._marks.popleft().value
        return value

    def scan_begin(self, flushed: int) -> int:
        """Returns the log offset from which deliveries may lack a mark on disk."""
        if self._marks:
            return min(self._marks[0].begin, flushed)
        return flushed if self._begin is None else min(self._begin, flushed)
