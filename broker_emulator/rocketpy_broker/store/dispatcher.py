"""Dispatching: what was appended goes on to its consume queue and the index, in the log's order.

A queue that cannot grow, though it had room when the message came, waits by itself: its messages
are tried again, in their order, and those of other queues go on. Holds what waits, in memory; what
a crash leaves undispatched, recovery dispatches from the log.
Source: docs/design/storage.md section 10.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rocketpy_broker.store.index.dispatch import IndexDispatch
from rocketpy_broker.store.queues.dispatch import DispatchRequest, Written
from rocketpy_broker.store.queues.growth import RETRIES_MAX, QueueAllocator
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.values import QueueKey


class Progress(NamedTuple):
    """`end` is the physical offset up to which everything is visible, `timestamp_ms` its time.

    `whole_end` is where the last append ends of which all queues, and the index, have their part.
    """

    end: int
    whole_end: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class _Held:
    """What waits for its queue, and how far everything was before it."""

    written: Written
    before: Progress


class Dispatcher:
    """`progress` is how far all queues are. `listener` gets to know of each that has new units."""

    def __init__(
        self, queues: ConsumeQueueTable, index: IndexDispatch, growth: QueueAllocator
    ) -> None:
        self._queues = queues
        self._index = index
        self._growth = growth
        self._waiting: deque[Written] = deque()
        self._held: dict[QueueKey, deque[_Held]] = {}
        # How far those queues are that hold nothing up.
        self._passed = self.progress = Progress(0, 0, 0)
        self.listener: Callable[[QueueKey], None] = lambda _queue: None

    def started(self, end: int, timestamp_ms: int) -> None:
        """Everything up to `end` has been dispatched."""
        self._passed = self.progress = Progress(end, end, timestamp_ms)

    @property
    def end(self) -> int:
        """Physical offset up to which everything is visible."""
        return self.progress.end

    @property
    def is_behind(self) -> bool:
        """True if something waits."""
        return bool(self._waiting or self._held)

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
        """Dispatches appends up to `end`. One that fails waits, and those behind it in its queue."""
        while self._waiting and self._waiting[0].end <= end:
            written, before = self._waiting.popleft(), self._passed
            request = written.request
            self._index.put_later(request.keys, request.key_offsets, written.store_timestamp_ms)
            whole_end = written.end if written.ends_append else before.whole_end
            self._passed = Progress(written.end, whole_end, written.store_timestamp_ms)
            if request.queue in self._held or not self._append(written):
                held = self._held.setdefault(request.queue, deque())
                held.append(_Held(written, before))
            if not self._held:
                self.progress = self._passed

    def _append(self, written: Written) -> bool:
        """True if its queue has got the units."""
        request = written.request
        if len(request.units) == 0:
            return True
        max_offset = request.queue_offset + len(request.units)
        try:
            self._queues.grown(request.queue).append(request.queue_offset, request.units)
        except OSError as error:
            self._growth.failed(request.queue, max_offset, error)
            return False
        self._growth.grew(request.queue)
        self.listener(request.queue)
        return True

    def retry(self) -> None:
        """Tries some of the queues again that hold something up."""
        for key in list(self._held)[:RETRIES_MAX]:
            held = self._held.pop(key)
            while held and self._append(held[0].written):
                held.popleft()
            if held:
                self._held[key] = held
        self._update()

    def _update(self) -> None:
        self.progress = min((held[0].before for held in self._held.values()), default=self._passed)

    def is_dispatched(self, end: int, begin: int) -> bool:
        """True if readers see everything that was appended from `begin` to `end` in the log."""
        if self._waiting and self._waiting[0].end <= end:
            return False
        return not any(
            begin < one.written.end <= end for held in self._held.values() for one in held
        )

    def drop_topic(self, topic: str) -> None:
        """Nothing of a topic that is deleted goes on."""
        self._waiting = deque(one for one in self._waiting if one.request.queue.topic != topic)
        for key in [key for key in self._held if key.topic == topic]:
            del self._held[key]
        self._growth.forget_topic(topic)
        self._update()
