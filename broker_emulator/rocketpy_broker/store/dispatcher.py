"""Dispatch of appended records to consume queues and index, in log order.

A queue may fail to grow even if it had space when the message was received. Its messages then wait
and are retried in order; other queues continue. The waiting messages are kept in memory. After a
crash, recovery dispatches them from the log.
Source: docs/design/storage.md section 10.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rocketpy_broker.store.index.dispatch import IndexDispatch
from rocketpy_broker.store.queues.allocator import RETRIES_MAX, QueueAllocator
from rocketpy_broker.store.queues.dispatch import DispatchRequest
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.values import QueueKey


class DispatchProgress(NamedTuple):
    """Positions of dispatch: `end` is the physical offset up to which all records are visible.

    `timestamp_ms` is the store timestamp at `end`. `whole_end` is the end of the last append that
    is complete in all its queues and in the index.
    """

    end: int
    whole_end: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class _Written:
    """An append in progress, or its part for one queue; `end` is its end in the log.

    `reached` is the physical offset up to which all records are visible with this part.
    """

    end: int
    store_timestamp_ms: int
    request: DispatchRequest
    reached: int
    ends_append: bool = True


@dataclass(frozen=True, slots=True)
class _HeldSlice:
    """A part of an append that waits for its queue, and the progress before it."""

    written: _Written
    before: DispatchProgress


class Dispatcher:
    """The dispatcher of one store. `progress` is the position that all queues have reached.

    `listener` is notified of each queue that has new units.
    """

    def __init__(
        self, queues: ConsumeQueueTable, index: IndexDispatch, queue_allocator: QueueAllocator
    ) -> None:
        self._queues = queues
        self._index = index
        self._queue_allocator = queue_allocator
        self._waiting: deque[_Written] = deque()
        self._held: dict[QueueKey, deque[_HeldSlice]] = {}
        # The progress of all queues that hold nothing back.
        self._passed = self.progress = DispatchProgress(0, 0, 0)
        self.listener: Callable[[QueueKey], None] = lambda _queue: None

    def started(self, end: int, timestamp_ms: int) -> None:
        """Starts with everything up to `end` dispatched."""
        self._passed = self.progress = DispatchProgress(end, end, timestamp_ms)

    @property
    def end(self) -> int:
        """The physical offset up to which all records are visible."""
        return self.progress.end

    @property
    def is_behind(self) -> bool:
        """True if any part of an append waits."""
        return bool(self._waiting or self._held)

    @property
    def is_holding(self) -> bool:
        """True if a queue could not grow, and readers see later messages of other queues."""
        return bool(self._held)

    @property
    def waiting_count(self) -> int:
        """The number of parts of appends that wait, each for one queue."""
        return len(self._waiting)

    def add(self, requests: Sequence[DispatchRequest], end: int, store_timestamp_ms: int) -> None:
        """Adds an append that ends at `end` in the log. It waits for `dispatch`."""
        for request in requests[:-1]:
            last = request.units[-1]
            slice_end = int(last["physical_offset"]) + int(last["size"])
            part = _Written(slice_end, store_timestamp_ms, request, slice_end, ends_append=False)
            self._waiting.append(part)
        self._waiting.append(_Written(end, store_timestamp_ms, requests[-1], end))

    def add_span(
        self, requests: Sequence[DispatchRequest], begin: int, end: int, store_timestamp_ms: int
    ) -> None:
        """Adds records of any queues, from `begin` to `end` in the log, which a slave has copied.

        A request may have records from all over the span; the last request has its keys.
        """
        for request in requests[:-1]:
            part = _Written(end, store_timestamp_ms, request, begin, ends_append=False)
            self._waiting.append(part)
        self._waiting.append(_Written(end, store_timestamp_ms, requests[-1], end))

    def dispatch(self, end: int) -> None:
        """Dispatches appends up to `end`. A failed one and the later ones of its queue wait."""
        while self._waiting and self._waiting[0].end <= end:
            written, before = self._waiting.popleft(), self._passed
            request = written.request
            times_ms = request.key_times_ms
            self._index.put_later(
                request.keys,
                request.key_offsets,
                written.store_timestamp_ms if times_ms is None else times_ms,
            )
            whole_end = written.end if written.ends_append else before.whole_end
            self._passed = DispatchProgress(written.reached, whole_end, written.store_timestamp_ms)
            if request.queue in self._held or not self._append(written):
                held = self._held.setdefault(request.queue, deque())
                held.append(_HeldSlice(written, before))
            if not self._held:
                self.progress = self._passed

    def _append(self, written: _Written) -> bool:
        """Appends the units to their queue; returns False after an error."""
        request = written.request
        if len(request.units) == 0:
            return True
        max_offset = request.queue_offset + len(request.units)
        try:
            self._queues.grown(request.queue).append(request.queue_offset, request.units)
        except OSError as error:
            self._queue_allocator.failed(request.queue, max_offset, error)
            return False
        self._queue_allocator.grew(request.queue)
        self.listener(request.queue)
        return True

    def retry(self) -> None:
        """Retries some of the queues that hold appends back."""
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
        """Drops all waiting appends of a deleted topic."""
        self._waiting = deque(one for one in self._waiting if one.request.queue.topic != topic)
        for key in [key for key in self._held if key.topic == topic]:
            del self._held[key]
        self._queue_allocator.forget_topic(topic)
        self._update()
