"""Waits for slaves to confirm appends.

An append that enough slaves have is confirmed. Its callers share one future. State is in memory
only: after a restart the clients send again.
Source: GroupTransferService, docs/design/cluster.md section 4.3.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

from rocketpy_broker.config import Replication
from rocketpy_broker.runtime.clock import Clock, next_pass, resolve
from rocketpy_broker.services.replication.slaves import SlaveTable

# Futures that one pass of the loop resolves; each takes some 40 us with its callers.
FUTURES_A_PASS = 200


class Confirmations:
    """The waits of one master; `run` is its loop."""

    def __init__(self, slaves: SlaveTable, clock: Clock) -> None:
        self._slaves = slaves
        self._clock = clock
        self._progressed = asyncio.Event()
        slaves.progressed.add(self._progressed.set)
        # Futures by the end of their append, and these ends in a heap.
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._ends: list[int] = []

    @classmethod
    def without_slaves(cls, clock: Clock) -> Confirmations:
        """Returns waits that all end at once."""
        return cls(SlaveTable(Replication(), lambda: 0), clock)

    def has(self, end_offset: int) -> bool:
        """True if an append that ends at `end_offset` needs no wait."""
        return self._slaves.confirmed_end >= end_offset

    async def wait(self, end_offset: int) -> None:
        """Waits for the slaves that an append needs.

        Raises SlaveTimeoutError, SlaveNotAvailableError: the append is stored.
        """
        if not self.has(end_offset):
            await asyncio.shield(self.begin(end_offset))

    def begin(self, end_offset: int) -> asyncio.Future[None]:
        """Returns a future that ends as `wait` does. No caller may cancel it."""
        found = self._waiting.get(end_offset)
        if found is not None:
            return found
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Reads the error: asyncio would log it if the caller has gone.
        future.add_done_callback(lambda done: done.exception())
        if self.has(end_offset):
            resolve(future)
        elif (refusal := self._slaves.refusal()) is not None:
            future.set_exception(refusal)
        else:
            self._waiting[end_offset] = future
            heappush(self._ends, end_offset)
            timer = self._clock.call_later(
                self._slaves.timeout_ms, lambda: self._time_out(end_offset)
            )
            future.add_done_callback(lambda _: timer.cancel())
        return future

    def _time_out(self, end_offset: int) -> None:
        future = self._waiting.pop(end_offset, None)
        if future is not None and not future.done():
            future.set_exception(self._slaves.timed_out())
        while self._ends and self._ends[0] not in self._waiting:
            heappop(self._ends)

    def stop(self) -> None:
        """Ends all waits as their time-outs would."""
        while self._ends:
            future = self._waiting.pop(heappop(self._ends), None)
            if future is not None and not future.done():
                future.set_exception(self._slaves.timed_out())

    async def run(self) -> None:
        """Resolves the futures of confirmed appends until cancelled."""
        while True:
            await self._progressed.wait()
            self._progressed.clear()
            count = 0
            while self._ends and self.has(self._ends[0]):
                future = self._waiting.pop(heappop(self._ends), None)
                if future is not None:
                    resolve(future)
                count += 1
                if count % FUTURES_A_PASS == 0:
                    await next_pass()
