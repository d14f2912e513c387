"""Calls whose work grows with the request: how many entries they take, and how long they work.

Such a call answers for the first entries of its request, and its caller asks for the rest. So a
deadline never ends a call that would have to begin anew, and again, for ever. Work is done an entry
or a stretch at a time, with a turn for everybody else in between. Holds no state but one time.
"""

from __future__ import annotations

from collections.abc import Sized

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_proto.call_limits import ENTRIES_MAX, WORK_MS_MAX


def check_count(name: str, entries: Sized, count_max: int = ENTRIES_MAX) -> None:
    """Raises ParameterIllegalError where a call has too many of something."""
    if len(entries) > count_max:
        raise ParameterIllegalError(f"number of {name}", len(entries), f"{count_max} or fewer")


class WorkTime:
    """The time of one call, from now on. What is begun by its end is done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + WORK_MS_MAX

    @property
    def is_over(self) -> bool:
        """True if the call is to answer what it has."""
        return self._clock.monotonic_ms() >= self._end_ms
