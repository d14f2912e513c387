"""Limits for partly received requests: their number and time.

gRPC buffers a request of any allowed size in memory, and reports nothing of it before it is
complete. So the number of reads is limited, which limits these bytes. A call's first request has a
time limit, too. Before the read, HTTP/2's flow control stops a client after 64 KiB. Later requests
of a stream are read at once, since a stream may idle; the call guard limits the streams.

Connections without a completed request have places of their own, so they delay no other client. A
read that takes too long ends with UNAVAILABLE: nothing of the request was done, and the client may
repeat it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from typing import Any

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.shares import InFlightLimiter
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.calls.failure_log import PeerLines
from rocketpy_proto.model.codes import ResponseCode

logger = logging.getLogger(__name__)
# First requests that are read at a time: of new connections, and of connections with a completed
# request. One connection may have half of them.
READS_MAX, READS_OF_CONNECTION = 16, 8
# The time for a first request, and the time while other calls wait for a place.
UNFINISHED_MS_MAX, CROWDED_MS_MAX = 120_000, 20_000
INTERVAL_MS = 1_000
# Connections whose calls are remembered; the one unused for longest is forgotten.
PEERS_MAX = 10_000


class IncompleteRequestError(BrokerError):
    """A request that was not received in time; it is not raised: a gRPC status has its text."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self) -> None:
        super().__init__(
            "SYSTEM_BUSY: the request was not complete in time. Nothing of it was done; call again"
        )


class IncompleteRequests:
    """The first requests of calls that are being received, and the places for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines = PeerLines(clock)
        self._new = InFlightLimiter(READS_MAX, READS_OF_CONNECTION)
        self._known = InFlightLimiter(READS_MAX, READS_OF_CONNECTION)
        # By connection with a call: the places for its next request.
        self._places: OrderedDict[str, InFlightLimiter] = OrderedDict()
        # The start and the places of each read, in order of the starts.
        self._reads: dict[Any, tuple[float, InFlightLimiter]] = {}
        self._scope: TaskScope | None = None
        self.ended = 0

    def start(self, scope: TaskScope) -> None:
        """Starts to end requests that take too long."""
        self._scope = scope
        scope.start(self._end_old())

    def stop(self) -> None:
        """Stops ending requests."""
        self._scope = None

    def __len__(self) -> int:
        return len(self._reads)

    def has_called(self, peer: str) -> bool:
        """True if a call of this connection has started."""
        return peer in self._places

    async def first(self, context: Any) -> Any:
        """Returns the first request of a call, or EOF. Raises grpc.aio's own errors."""
        peer = context.peer()
        places = self._places.get(peer, self._new)
        self._remember(peer, places)
        await places.take(peer, 1)
        self._reads[context] = self._clock.monotonic_ms(), places
        try:
            request = await context.read()
            if context not in self._reads:
                # The request came while another task was ending the call.
                raise asyncio.CancelledError
        finally:
            self._reads.pop(context, None)
            places.free(peer, 1)
        self._remember(peer, self._known)
        return request

    def _remember(self, peer: str, places: InFlightLimiter) -> None:
        self._places[peer] = places
        self._places.move_to_end(peer)
        if len(self._places) > PEERS_MAX:
            self._places.popitem(last=False)

    async def _end_old(self) -> None:
        while True:
            await sleep(self._clock, INTERVAL_MS)
            now_ms = self._clock.monotonic_ms()
            crowded = [each for each in (self._new, self._known) if each.waiting_count]
            for context, (begin_ms, places) in list(self._reads.items()):
                ms_max = CROWDED_MS_MAX if places in crowded else UNFINISHED_MS_MAX
                if now_ms - begin_ms >= ms_max:
                    self._end(context)

    def _end(self, context: Any) -> None:
        """Ends a call; its connection counts as new."""
        del self._reads[context]
        peer = context.peer()
        self._remember(peer, self._new)
        self.ended += 1
        withheld = self._lines.due(peer)
        if withheld is not None:
            logger.warning(
                "the broker ended an incomplete request of %s; %d more of this address since the "
                "last such line",
                peer,
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
