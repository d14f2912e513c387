"""Limits of entries and work time for calls with large requests.

Such a call answers for the first entries of its request, and its caller requests the rest. So a
deadline never ends a call that would start over with each attempt. The work is done an entry or a
queue slice at a time, with a scheduler slot in between.
"""

from __future__ import annotations

from collections.abc import Sized

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_proto.call_limits import ENTRIES_MAX, WORK_MS_MAX


def check_count(name: str, entries: Sized, count_max: int = ENTRIES_MAX) -> None:
    """Raises ParameterIllegalError if a call has more than `count_max` entries."""
    if len(entries) > count_max:
        raise ParameterIllegalError(f"number of {name}", len(entries), f"{count_max} or fewer")


class WorkTime:
    """The work time of one call, from now on; an entry started in it is finished."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + WORK_MS_MAX

    @property
    def is_over(self) -> bool:
        """True if the call must now return the entries that are done."""
        return self._clock.monotonic_ms() >= self._end_ms
