"""Requests that have not come as a whole: so many bytes in all, and the first of none for ever.

gRPC gathers a request in memory from when it is asked for it, up to the largest that it takes.
While there are such requests, it is looked what their connections hold; when that is too much, some
end with UNAVAILABLE: nothing of the request was done, and it may be repeated. No call waits before
its request is asked for. Lives in memory.
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
# What connections with these peers have sent and received; without those of which nothing tells.
TrafficOf: TypeAlias = "Callable[[list[str]], Awaitable[dict[str, Traffic]]]"
UNFINISHED_MS_MAX = 120_000
# While all that have begun could hold too much: LOOK_INTERVAL_MS between two looks, or so long for
# each connection. After so many looks at which little was held it is looked more rarely.
LOOK_MS = 0.05
CALM_BYTES_MAX, CALM_LOOKS, CALM_FACTOR = 16 * MIB, 40, 10
# So many that begin end a calm.
BEGIN_COUNT = 8
# While they could not, and where there are none.
OLD_INTERVAL_MS = 1_000
# Of connections looked at in a pass of the event loop.
SLICE = 1_000
# A pass of the event loop ends so many requests at most.
ENDED_MAX = 100
# Beyond twice as many connections as there were, but not before so many, those that are gone are
# forgotten.
SENDERS_MIN = 1_000


class IncompleteRequestError(BrokerError):
    """Not raised: a request was not received. A status of gRPC tells its text."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self) -> None:
        super().__init__(
            "SYSTEM_BUSY: the request did not come as a whole in time, or stood still while "
            "others took the memory; nothing of it was done, call again"
        )


class IncompleteRequests:
    """The requests of a server that are being received."""

    def __init__(self, clock: Clock, request_bytes_max: int, traffic: TrafficOf) -> None:
        self._clock = clock
        self._request_bytes_max = request_bytes_max
        self._traffic = traffic
        self._lines = PeerLines(clock)
        # Who sends, and until when it may, in ms; by call, in the order in which they began.
        self._reads: dict[Any, tuple[Sender, float]] = {}
        # How many of them are of a sender, in the order in which these began their first.
        self._counts: dict[Sender, int] = {}
        # So many hold less than anybody ends for.
        self._harmless_count = STRANGERS_BYTES_MAX // request_bytes_max
        # By peer: of all connections that have sent something, also those that are gone.
        self._senders: dict[str, Sender] = {}
        self._senders_max = SENDERS_MIN
        # Those that have had much taken since they were looked at.
        self._busy: dict[Sender, None] = {}
        # Looks in a row at which little was held.
        self._calm_looks = 0
        # Between two looks, and how many unfinished requests end that.
        self._rest_over: asyncio.Future[None] | None = None
        self._rest_count = 0
        self._scope: TaskScope | None = None
        self.ended = 0

    def start(self, scope: TaskScope) -> None:
        """Ends what has its time behind it or holds too much, from now on."""
        self._scope = scope
        scope.start(self._look_for_ever())

    def stop(self) -> None:
        """Ends nothing any more."""
        self._scope = None

    def __len__(self) -> int:
        return len(self._reads)

    def has_called(self, peer: str) -> bool:
        """True if a call of this connection has begun."""
        return peer in self._senders

    @property
    def held(self) -> int:
        """What they are believed to hold, in bytes."""
        return sum(each.held for each in self._counts)

    async def first(self, context: Any) -> Any:
        """Returns the first request of a call, or EOF. Raises grpc.aio's own errors."""
        return await self._read(context, self._clock.monotonic_ms() + UNFINISHED_MS_MAX)

    async def next(self, context: Any) -> Any:
        """Returns a later one. It may take for ever: a stream may idle."""
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
                # It came while the call was being ended, by another task.
                raise asyncio.CancelledError
        finally:
            if context in reads:
                self._leave(context)
        sender.deliver(len(request) if request else 0)
        if sender.delivered >= DELIVERED_BYTES_MAX:
            self._busy[sender] = None
        return request

    def _leave(self, context: Any) -> Sender:
        """Returns a request is no longer waited for."""
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
        """Waits for so long, or until so many requests are unfinished.

        Time in which the loop stood still is nobody's: none could go on.
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
        """True if so many connections are known that it is time to forget those that are gone."""
        return len(self._senders) > self._senders_max

    async def _look(self) -> None:
        """At those with unfinished requests, and those that have had much taken."""
        busy, forgets = self._busy, self._forgets
        self._busy = {}
        looked_at = self._senders.values() if forgets else {**self._counts, **busy}
        # What is given meanwhile is counted by the next look: the bytes are of now or later.
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
        """The connections that are gone."""
        for each in list(self._senders.values()):
            if each.peer not in known and each not in self._counts:
                del self._senders[each.peer]
        self._senders_max = max(SENDERS_MIN, 2 * len(self._senders))

    def _end_old(self, now_ms: float) -> None:
        old = [call for call, (_, until_ms) in self._reads.items() if until_ms <= now_ms]
        for call in old[:ENDED_MAX]:
            self._end(call)

    def _end_held(self, now_ms: float) -> None:
        """All of a connection, since nothing tells which of them it holds."""
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
    """From a task of its own: gRPC would lose what it gathered if the one that reads left."""
    with contextlib.suppress(grpc.aio.BaseError):
        await context.abort(grpc.StatusCode.UNAVAILABLE, IncompleteRequestError().remark)
