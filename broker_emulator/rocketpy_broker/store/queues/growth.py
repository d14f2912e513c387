"""Queues that cannot grow: why, for those who ask how the broker is, and for the log once a minute.

A queue has room for its units before a message to it is stored. One that gets none refuses its own
messages; no other queue knows of it. Each is tried again by interval, so that one nobody sends to
any more is not complained of for ever. Memory only.
"""

from __future__ import annotations

import logging

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.store.queues.errors import QueueGrowthError
from rocketpy_broker.store.queues.slices import QueueSlice
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.values import QueueKey

logger = logging.getLogger(__name__)
# Of more queues is only known that they are there no more, once they are tried again.
QUEUES_MAX = 1_000
# Queues that are tried again at a time.
RETRIES_MAX = 64


class QueueAllocator:
    """Makes room in the queues of one store."""

    def __init__(self, queues: ConsumeQueueTable, clock: Clock) -> None:
        self._queues = queues
        # Why, and up to which offset there is to be room; first those to be tried first.
        self._refused: dict[QueueKey, tuple[str, int]] = {}
        self._seldom = LogThrottle(clock)

    def reserve(self, runs: list[QueueSlice]) -> None:
        """See that the queues of some records have room for their units.

        Raises QueueGrowthError; nothing may be stored then.
        """
        for run in runs:
            max_offset = run.queue_offset + run.end - run.begin
            try:
                self._queues.reserve(run.queue, max_offset)
            except OSError as error:
                self.failed(run.queue, max_offset, error)
                raise QueueGrowthError(
                    f"queue {_name(run.queue)} cannot grow ({_reason(error)}); nothing was "
                    f"stored, and other queues go on; {_way_out(error)}, and send again"
                ) from error
            self.grew(run.queue)

    def grew(self, key: QueueKey) -> None:
        """The queue has got room."""
        if self._refused:
            self._refused.pop(key, None)

    def failed(self, key: QueueKey, max_offset: int, error: OSError) -> None:
        """The queue has got none, and is to have it up to `max_offset`."""
        reason = _reason(error)
        if key in self._refused or len(self._refused) < QUEUES_MAX:
            self._refused[key] = reason, max_offset
        if self._seldom.may_say():
            logger.warning("%s", self.refusal)

    @property
    def refusal(self) -> str | None:
        """Which queues take no messages, and why; None where all do."""
        if not self._refused:
            return None
        key, (reason, _) = next(iter(self._refused.items()))
        others = len(self._refused) - 1
        and_others = f", and {others} other{'s' * (others > 1)}" if others else ""
        return f"queue {_name(key)}{and_others} cannot grow ({reason}): messages to it are refused"

    def retry(self) -> None:
        """Tries again with some of those that had no room."""
        for key in list(self._refused)[:RETRIES_MAX]:
            reason, max_offset = self._refused.pop(key)
            try:
                self._queues.reserve(key, max_offset)
            except OSError:
                self._refused[key] = reason, max_offset

    def forget_topic(self, topic: str) -> None:
        """The topic's queues are gone."""
        for key in [key for key in self._refused if key.topic == topic]:
            del self._refused[key]


def _is_in_place(error: OSError) -> bool:
    """True if a file lies where the queue, or its topic, has its folder."""
    return isinstance(error, (NotADirectoryError, FileExistsError)) and bool(error.filename)


def _reason(error: OSError) -> str:
    if _is_in_place(error):
        return f"a file lies where its folder belongs: {error.filename}"
    return error.strerror or str(error)


def _way_out(error: OSError) -> str:
    if _is_in_place(error):
        return "move that file out of the store"
    return "free space on the broker's disk, or grant it more open files"


def _name(key: QueueKey) -> str:
    return f"{key.topic}-{key.queue_id}"
