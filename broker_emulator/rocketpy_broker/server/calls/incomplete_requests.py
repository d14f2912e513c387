"""Limits for partly received requests.

The limits are the total bytes, and the time for a call's first request. gRPC buffers a request in
memory from the read call until it is complete, up to the largest allowed size. While requests are
incomplete, this module measures the bytes that their connections hold. Beyond the limit some calls
end with UNAVAILABLE: nothing of the request was done, and the client may repeat it. Every call
reads its request without delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Container
from functools import partial
from typing import Any, TypeAlias

import grpc

from rocketpy_broker.config import MIB
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.runtime.clock import Clock, resolve
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.calls.connection_traffic import Traffic
from rocketpy_broker.server.calls.failure_log import PeerLines
from rocketpy_broker.server.calls.senders import (
    DELIVERED_BYTES_MAX,
    LOOK_INTERVAL_MS,
    STRANGERS_BYTES_MAX,
    Sender,
    to_end,
)

logger = logging.getLogger(__name__)
# Returns the traffic of connections with these peers; connections without counters are missing.
TrafficOf: TypeAlias = "Callable[[list[str]], Awaitable[dict[str, Traffic]]]"
UNFINISHED_MS_MAX = 120_000
# While the incomplete requests could exceed the limit, looks are LOOK_INTERVAL_MS apart, or LOOK_MS
# for each connection. After CALM_LOOKS looks with at most CALM_BYTES_MAX held, CALM_FACTOR times
# as far.
LOOK_MS = 0.05
CALM_BYTES_MAX, CALM_LOOKS, CALM_FACTOR = 16 * MIB, 40, 10
# This number of new incomplete requests ends the calm.
BEGIN_COUNT = 8
# The interval while the incomplete requests cannot exceed the limit.
OLD_INTERVAL_MS = 1_000
# Connections per scheduler slot of a look.
SLICE = 1_000
# The most requests that one look ends.
ENDED_MAX = 100
# The least number of known connections at which closed ones are removed; see `_forget`.
SENDERS_MIN = 1_000


class IncompleteRequestError(BrokerError):
    """A request that was not received; not raised, its text goes into a gRPC status."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self) -> None:
        super().__init__(
            "SYSTEM_BUSY: the request did not come as a whole in time, or stood still while "
            "others took the memory; nothing of it was done, call again"
        )


class IncompleteRequests:
    """The partly received requests of a server."""

    def __init__(self, clock: Clock, request_bytes_max: int, traffic: TrafficOf) -> None:
        self._clock = clock
        self._request_bytes_max = request_bytes_max
        self._traffic = traffic
        self._lines = PeerLines(clock)
        # The sender and its deadline in ms, by call, in order of the calls' starts.
        self._reads: dict[Any, tuple[Sender, float]] = {}
        # The number of reads by sender, in order of the senders' first reads.
        self._counts: dict[Sender, int] = {}
        # This number of requests cannot exceed any limit.
        self._harmless_count = STRANGERS_BYTES_MAX // request_bytes_max
        # By peer: all connections that made a call, including closed ones.
        self._senders: dict[str, Sender] = {}
        self._senders_max = SENDERS_MIN
        # Senders with more than DELIVERED_BYTES_MAX delivered since their last look.
        self._busy: dict[Sender, None] = {}
        # Successive looks with at most CALM_BYTES_MAX held.
        self._calm_looks = 0
        # The rest between two looks, and the number of incomplete requests that ends it.
        self._rest_over: asyncio.Future[None] | None = None
        self._rest_count = 0
        self._scope: TaskScope | None = None
        self.ended = 0

    def start(self, scope: TaskScope) -> None:
        """Starts to end requests that take too long or hold too many bytes."""
        self._scope = scope
        scope.start(self._look_for_ever())

    def stop(self) -> None:
        """Stops ending requests."""
        self._scope = None

    def __len__(self) -> int:
        return len(self._reads)

    def has_called(self, peer: str) -> bool:
        """True if a call of this connection has started."""
        return peer in self._senders

    @property
    def held(self) -> int:
        """The estimated bytes that incomplete requests hold."""
        return sum(each.held for each in self._counts)

    async def first(self, context: Any) -> Any:
        """Returns the first request of a call, or EOF. Raises grpc.aio's own errors."""
        return await self._read(context, self._clock.monotonic_ms() + UNFINISHED_MS_MAX)

    async def next(self, context: Any) -> Any:
        """Returns a later request of a stream; without a time limit, since a stream may idle."""
        return await self._read(context, math.inf)

    async def _read(self, context: Any, until_ms: float) -> Any:
        peer = context.peer()
        sender = self._senders.get(peer)
        if sender is None:
            sender = self._senders[peer] = Sender(peer, self._clock.monotonic_ms())
        reads = self._reads
        reads[context] = sender, until_ms
        self._counts[sender] = self._counts.get(sender, 0) + 1
        if len(reads) >= self._rest_count and self._rest_over is not None:
            resolve(self._rest_over)
        try:
            request = await context.read()
            if context not in reads:
                # The request came while another task was ending the call.
                raise asyncio.CancelledError
        finally:
            if context in reads:
                self._leave(context)
        sender.deliver(len(request) if request else 0)
        if sender.delivered >= DELIVERED_BYTES_MAX:
            self._busy[sender] = None
        return request

    def _leave(self, context: Any) -> Sender:
        """Ends the wait for a request; returns its sender."""
        sender, _ = self._reads.pop(context)
        self._counts[sender] -= 1
        if not self._counts[sender]:
            del self._counts[sender]
        return sender

    async def _look_for_ever(self) -> None:
        while True:
            count = len(self._reads)
            if count <= self._harmless_count:
                await self._rest(OLD_INTERVAL_MS, self._harmless_count + 1)
            else:
                factor = CALM_FACTOR if self._calm_looks >= CALM_LOOKS else 1
                interval_ms = max(LOOK_INTERVAL_MS, LOOK_MS * len(self._counts))
                await self._rest(interval_ms * factor, count + BEGIN_COUNT)
            self._end_old(self._clock.monotonic_ms())
            if len(self._reads) > self._harmless_count or self._forgets:
                await self._look()

    async def _rest(self, delay_ms: float, count: int) -> None:
        """Waits for `delay_ms`, or until `count` requests are incomplete.

        Time in which the event loop was blocked does not count as a standstill of a sender.
        """
        self._rest_over, self._rest_count = asyncio.get_running_loop().create_future(), count
        until_ms = self._clock.monotonic_ms() + delay_ms
        timer = self._clock.call_later(delay_ms, partial(resolve, self._rest_over))
        try:
            await self._rest_over
        finally:
            timer.cancel()
            self._rest_over = None
        if len(self._reads) >= count:
            self._calm_looks = 0
        late_ms = self._clock.monotonic_ms() - until_ms
        if late_ms > LOOK_INTERVAL_MS:
            for sender in self._counts:
                sender.moved_ms += late_ms

    @property
    def _forgets(self) -> bool:
        """True if the known connections are too many, so that closed ones are to be removed."""
        return len(self._senders) > self._senders_max

    async def _look(self) -> None:
        """Measures senders with incomplete requests or many delivered bytes."""
        busy, forgets = self._busy, self._forgets
        self._busy = {}
        looked_at = self._senders.values() if forgets else {**self._counts, **busy}
        # The next look counts deliveries during this one.
        given = {each: each.delivered for each in looked_at}
        traffic = await self._traffic([each.peer for each in given])
        now_ms = self._clock.monotonic_ms()
        for number, (each, delivered) in enumerate(given.items(), 1):
            if not number % SLICE:
                await take_slot()
            if each.peer in traffic:
                held_max = self._counts.get(each, 0) * self._request_bytes_max
                each.look(traffic[each.peer], delivered, held_max, now_ms)
        if forgets:
            self._forget(traffic)
        is_calm = sum(each.held + each.gained for each in self._counts) <= CALM_BYTES_MAX
        self._calm_looks = self._calm_looks + 1 if is_calm else 0
        self._end_held(now_ms)

    def _forget(self, known: Container[str]) -> None:
        """Removes closed connections; sets the next threshold to twice the rest."""
        for each in list(self._senders.values()):
            if each.peer not in known and each not in self._counts:
                del self._senders[each.peer]
        self._senders_max = max(SENDERS_MIN, 2 * len(self._senders))

    def _end_old(self, now_ms: float) -> None:
        old = [call for call, (_, until_ms) in self._reads.items() if until_ms <= now_ms]
        for call in old[:ENDED_MAX]:
            self._end(call)

    def _end_held(self, now_ms: float) -> None:
        """Ends all calls of a connection: its held bytes cannot be assigned to one of them."""
        left = ENDED_MAX
        for sender in list(to_end(self._counts, now_ms)):
            calls = [call for call, (each, _) in self._reads.items() if each is sender][:left]
            for call in calls:
                self._end(call)
            left -= len(calls)

    def _end(self, context: Any) -> None:
        sender = self._leave(context)
        self.ended += 1
        withheld = self._lines.due(sender.peer)
        if withheld is not None:
            logger.warning(
                "a request of %s did not come as a whole, and was ended; %d more of this address "
                "since the last such line",
                sender.peer,
                withheld,
            )
        if self._scope is not None:
            self._scope.start(_abort(context))


async def _abort(context: Any) -> None:
    """Aborts a call in a task of its own.

    gRPC would leak the buffered bytes if the task that reads were cancelled.
    """
    with contextlib.suppress(grpc.aio.BaseError):
        await context.abort(grpc.StatusCode.UNAVAILABLE, IncompleteRequestError().remark)
