"""What has been delivered and is in the log, but may not be on disk yet.

A track is one sequence of deliveries: a delay level, or the timer. Its progress is a row of marks,
each with the stretch of the log in which its deliveries lie. A mark counts once the disk has that
stretch; until then a start has to look through the stretch. Lives in memory only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Mark(Generic[Value]):
    """`value` holds once the log is on disk up to `end`; what it tells of began at `begin`."""

    begin: int
    end: int
    value: Value


class FlushedProgress(Generic[Value]):
    """The marks of one sequence of deliveries."""

    def __init__(self) -> None:
        self._marks: deque[_Mark[Value]] = deque()
        self._begin: int | None = None

    def begin(self, log_end: int) -> None:
        """From here on the log may have deliveries that no mark tells of yet."""
        if self._begin is None:
            self._begin = log_end

    @property
    def is_begun(self) -> bool:
        """True if there may be deliveries that no mark tells of."""
        return self._begin is not None

    def mark(self, log_end: int, value: Value) -> None:
        """Everything that `value` tells of is in the log by now."""
        begin = log_end if self._begin is None else self._begin
        self._marks.append(_Mark(begin, log_end, value))
        self._begin = None

    def flushed(self, end: int) -> Value | None:
        """Returns the last mark that is on disk, once; None where there is no new one."""
        value = None
        while self._marks and self._marks[0].end <= end:
            value = self._marks.popleft().value
        return value

    def scan_begin(self, flushed: int) -> int:
        """From where on the log may have deliveries of which no mark on disk tells."""
        if self._marks:
            return min(self._marks[0].begin, flushed)
        return flushed if self._begin is None else min(self._begin, flushed)
