"""Answers to clients of protocols that the port does not serve.

There is one log line per peer and minute. gRPC owns the socket: it closes a connection at the first
byte that is not HTTP/2, and reports nothing. So this module looks for connections that this side
closed first and that never made a call; Linux lists them for a minute. Their bytes are lost, so the
log line names the protocols that send such bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import grpc

from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.server.calls.failure_log import PeerLines, host_of
from rocketpy_broker.server.calls.guard import CallGuard, GuardedMethod

logger = logging.getLogger(__name__)
LOG_INTERVAL_MS = 5_000
METHOD_CHARACTERS_MAX = 200
PLAINTEXT_PORT = (
    "it sent no gRPC. This port serves only gRPC without TLS. Classic RocketMQ clients (remoting) "
    "need the name server at --name-server-port, HTTP/1 the port of --http-port, and TLS the port "
    "of --tls-port, or this one with --tls-mode enforcing"
)
TLS_PORT = (
    "its TLS handshake failed. This port serves gRPC in TLS alone: connect with TLS, trust this "
    "broker's certificate, and give the certificate that --tls-client-ca asks for"
)


class ForeignCalls(grpc.GenericRpcHandler):
    """The last handler of a server: it refuses each method that the other handlers do not serve."""

    def __init__(self, clock: Clock, guard: CallGuard, names: Sequence[str]) -> None:
        """Takes in `names` the services of the server."""
        self.lines = PeerLines(clock)
        self._guard = guard
        self._names = names

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Returns a handler for a method with or without streams.

        It reads the first request: otherwise a `grpc.aio` client that still sends sees INTERNAL.
        """
        method = str(details.method)[:METHOD_CHARACTERS_MAX].strip("/")
        refusing: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
            partial(self._refuse, method)
        )
        return GuardedMethod(method, refusing, self._guard).handler()

    async def _refuse(self, method: str, _requests: Any, context: Any) -> NoReturn:
        """Logs the refusal, at most once per peer and minute, and raises grpc.aio's own error."""
        reason = self._reason(method)
        withheld = self.lines.due(context.peer())
        if withheld is not None:
            host = host_of(context.peer())
            logger.warning("refused a call of %s: %s%s", host, reason, more(withheld))
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, reason)
        raise AssertionError

    def _reason(self, method: str) -> str:
        if method.rpartition("/")[0] in self._names:
            return (
                f"{method} is not served: client and broker are of different versions. Install "
                "the same version of rocketpy at both"
            )
        return f"{method} is not served: this broker serves {', '.join(self._names)}"


class ForeignConnections:
    """A watcher for connections that gRPC closed at their first bytes."""

    def __init__(
        self,
        clock: Clock,
        lines: PeerLines,
        closed: Callable[[], Awaitable[set[str]]],
        has_called: Callable[[str], bool],
        fault: str,
    ) -> None:
        """Takes functions that find peers, and the likely fault for the log lines.

        `closed` returns the peers that this side closed first; `has_called` is True for a peer
        that made a call.
        """
        self._fault = fault
        self._clock = clock
        self._lines = lines
        self._closed = closed
        self._has_called = has_called
        self._seen: set[str] = set()

    async def run(self) -> None:
        """Logs such connections every LOG_INTERVAL_MS until cancelled."""
        while True:
            await sleep(self._clock, LOG_INTERVAL_MS)
            await self.log_closed()

    async def log_closed(self) -> None:
        """Logs connections closed since the last call, at most one line per host and minute."""
        closed = await self._closed()
        for peer in sorted(closed - self._seen):
            withheld = None if self._has_called(peer) else self._lines.due(peer)
            if withheld is not None:
                logger.warning(
                    "closed a connection of %s: %s%s", host_of(peer), self._fault, more(withheld)
                )
        self._seen = closed


def more(withheld: int) -> str:
    """Returns the end of a log line: the number of withheld lines."""
    return f"; {withheld} more since the last such line"
