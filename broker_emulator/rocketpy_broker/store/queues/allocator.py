"""Space of queues, and the queues that cannot grow.

A queue allocates space for its units before a message to it is stored. A queue that cannot grow
refuses its own messages; other queues are not affected. The reasons go to the broker's status, and
to the log once a minute. Every refused queue is tried again at intervals, so that warnings end for
a queue without senders. State is in memory only.
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
# Limit of refused queues that are listed and tried again.
QUEUES_MAX = 1_000
# Queues tried again in one step.
RETRIES_MAX = 64


class QueueAllocator:
    """Allocator of space in the queues of one store."""

    def __init__(self, queues: ConsumeQueueTable, clock: Clock) -> None:
        self._queues = queues
        # Reason and needed offset of each refused queue; the next to be tried comes first.
        self._refused: dict[QueueKey, tuple[str, int]] = {}
        self._log_throttle = LogThrottle(clock)

    def reserve(self, slices: list[QueueSlice]) -> None:
        """Allocates space for the units of some records in their queues.

        Raises QueueGrowthError; nothing may be stored then.
        """
        for one in slices:
            max_offset = one.queue_offset + one.end - one.begin
            try:
                self._queues.reserve(one.queue, max_offset)
            except OSError as error:
                self.failed(one.queue, max_offset, error)
                raise QueueGrowthError(
                    f"queue {_name(one.queue)} cannot grow ({_reason(error)}); nothing was "
                    f"stored, and other queues work; {_way_out(error)}, and send again"
                ) from error
            self.grew(one.queue)

    def grew(self, key: QueueKey) -> None:
        """Removes the queue from the refused ones."""
        if self._refused:
            self._refused.pop(key, None)

    def failed(self, key: QueueKey, max_offset: int, error: OSError) -> None:
        """Adds the queue, which needs space up to `max_offset`, to the refused ones."""
        reason = _reason(error)
        if key in self._refused or len(self._refused) < QUEUES_MAX:
            self._refused[key] = reason, max_offset
        if self._log_throttle.may_log():
            logger.warning("%s", self.refusal)

    @property
    def refusal(self) -> str | None:
        """The queues that accept no messages, and the reason; None if all do."""
        if not self._refused:
            return None
        key, (reason, _) = next(iter(self._refused.items()))
        others = len(self._refused) - 1
        and_others = f", and {others} other{'s' * (others > 1)}" if others else ""
        them = "them" if others else "it"
        return (
            f"queue {_name(key)}{and_others} cannot grow ({reason}): messages to {them} are refused"
        )

    def retry(self) -> None:
        """Tries again to allocate space for some of the refused queues."""
        for key in list(self._refused)[:RETRIES_MAX]:
            reason, max_offset = self._refused.pop(key)
            try:
                self._queues.reserve(key, max_offset)
            except OSError:
                self._refused[key] = reason, max_offset

    def forget_topic(self, topic: str) -> None:
        """Removes the topic's queues from the refused ones."""
        for key in [key for key in self._refused if key.topic == topic]:
            del self._refused[key]


def _is_in_place(error: OSError) -> bool:
    """True if a file is in the place of the folder of the queue or its topic."""
    return isinstance(error, (NotADirectoryError, FileExistsError)) and bool(error.filename)


def _reason(error: OSError) -> str:
    if _is_in_place(error):
        return f"a file is in the place of its folder: {error.filename}"
    return error.strerror or str(error)


def _way_out(error: OSError) -> str:
    if _is_in_place(error):
        return "move that file out of the store"
    return "free space on the broker's disk, or grant it more open files"


def _name(key: QueueKey) -> str:
    return f"{key.topic}-{key.queue_id}"
