"""Dispatching: what was appended goes on to its consume queue and the index, in the log's order.

Holds what waits, in memory; what a crash leaves undispatched, recovery dispatches from the log.
Source: spec/storage.md section 10.4; row S06.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from rocketpy_broker.store.index.dispatch import IndexDispatch
from rocketpy_broker.store.queues.dispatch import DispatchRequest, Written
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.values import QueueKey

logger = logging.getLogger(__name__)


class Dispatcher:
    """`end` is the physical offset up to which everything is visible, `timestamp_ms` its time.

    `whole_end` is where the last append ends of which all queues, and the index, have their part.
    `listener` is called with each queue that has got new units.
    """

    def __init__(self, queues: ConsumeQueueTable, index: IndexDispatch) -> None:
        self._queues = queues
        self._index = index
        self._waiting: deque[Written] = deque()
        self.end = self.whole_end = 0
        self.timestamp_ms = 0
        self.listener: Callable[[QueueKey], None] = lambda _queue: None

    @property
    def is_behind(self) -> bool:
        """Whether something waits."""
        return bool(self._waiting)

    @property
    def waiting_count(self) -> int:
        """How many parts of appends wait, each for one queue."""
        return len(self._waiting)

    def add(self, requests: Sequence[DispatchRequest], end: int, store_timestamp_ms: int) -> None:
        """An append that ends at `end` in the log, which waits until its turn has come."""
        for request in requests[:-1]:
            last = request.units[-1]
            end_of_run = int(last["physical_offset"]) + int(last["size"])
            self._waiting.append(Written(end_of_run, store_timestamp_ms, request, False))
        self._waiting.append(Written(end, store_timestamp_ms, requests[-1]))

    def dispatch(self, end: int) -> None:
        """Dispatch appends up to `end`; one that fails waits, and those behind it."""
        while self._waiting and self._waiting[0].end <= end:
            written = self._waiting[0]
            request = written.request
            try:
                if len(request.units):
                    self._queues.grown(request.queue).append(request.queue_offset, request.units)
                self._index.put_later(request.keys, request.key_offsets, written.store_timestamp_ms)
            except OSError as error:
                logger.warning("queue %s cannot grow, its messages wait: %s", request.queue, error)
                return
            self._waiting.popleft()
            self.end = written.end
            if written.ends_append:
                self.whole_end = written.end
            self.timestamp_ms = written.store_timestamp_ms
            if len(request.units):
                self.listener(request.queue)

    def is_dispatched(self, end: int) -> bool:
        """Whether readers see everything that was appended below physical offset `end`."""
        return not self._waiting or self._waiting[0].end > end

    def drop_topic(self, topic: str) -> None:
        """Nothing of a topic that is deleted goes on."""
        self._waiting = deque(one for one in self._waiting if one.request.queue.topic != topic)
