"""The gRPC server: every door, health and reflection on one port. Holds no state on disk."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from rocketpy_broker.config import KIB, BrokerConfig
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.bind_address import PortInUseError
from rocketpy_broker.server.calls import connection_traffic
from rocketpy_broker.server.calls.failure_log import FailureLog
from rocketpy_broker.server.calls.guard import (
    Called,
    CallGuard,
    Failure,
    GuardedHandlers,
    TimedCalls,
)
from rocketpy_broker.server.calls.incomplete_requests import IncompleteRequests
from rocketpy_broker.server.grpc.foreign_protocols import ForeignCalls, ForeignConnections

logger = logging.getLogger(__name__)
# What a request carries beside its records: names, sizes, framing.
REQUEST_OVERHEAD_BYTES = 256 * KIB
# New calls that wait to be looked at. Beyond so many gRPC cancels some, beyond twice as many all.
PENDING_CALLS = 20_000
# Calls of one connection; its client lets more wait. Those that it resets count until they end.
CALLS_PER_CONNECTION = 10_000
# Calls of all connections; more are answered with SYSTEM_BUSY. A held one takes 13 KiB.
CALLS_MAX = 20_000
# A connection that is silent for so long is asked, and closed 20 seconds later without an answer.
SILENT_MS_MAX = 60_000
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def _is_news(record: logging.LogRecord) -> bool:
    """Returns a client that leaves in the middle of a pull is no error, but gRPC tells it with a trace."""
    return "ExecuteBatchError" not in record.getMessage()


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)


class ProtocolServices(Protocol):
    """A protocol that clients may speak."""

    @property
    def names(self) -> Sequence[str]:
        """Its gRPC services, by full name."""

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """Returns its services."""

    def failure(self, error: BrokerError) -> bytes:
        """Returns the response of any of its methods that tells of `error`."""


class _Collected:
    """Takes up services as a server does, to hand them on."""

    def __init__(self) -> None:
        self.handlers: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Keeps them."""
        self.handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """The same handlers again, in a form that spares gRPC a look-up."""


class GrpcServer:
    """Binds, serves, and stops without cutting off answers that are on their way."""

    def __init__(
        self,
        config: BrokerConfig,
        protocols: Sequence[ProtocolServices],
        clock: Clock,
        on_called: Called | None = None,
    ) -> None:
        """`on_called` is told of calls that were answered."""
        self._config = config
        request_bytes = config.limits.request_bytes_max + REQUEST_OVERHEAD_BYTES
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", request_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION),
                ("grpc.http.overload_protection", 1),
                ("grpc.keepalive_time_ms", SILENT_MS_MAX),
                ("grpc.server.max_pending_requests", PENDING_CALLS),
                ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING_CALLS),
            ]
        )
        self._port = config.port
        self._health = health.aio.HealthServicer()
        self._names = [health.SERVICE_NAME, reflection.SERVICE_NAME]
        self._traffic = connection_traffic.ConnectionTraffic(clock)
        of = self._traffic.of if connection_traffic.is_told(clock) else connection_traffic.untold
        self.unfinished = IncompleteRequests(clock, request_bytes, of)
        timed = None if on_called is None else TimedCalls(clock, on_called)
        self.guard = CallGuard(FailureLog(clock), CALLS_MAX, self.unfinished, timed)
        for protocol in protocols:
            self._add(protocol.handlers(), protocol.failure)
            self._names += protocol.names
        others = _Collected()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, others)
        servicer = reflection.aio.ReflectionServicer(self._names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, others)
        self._add(others.handlers)
        unserved = ForeignCalls(clock, self.guard, self._names)
        self._server.add_generic_rpc_handlers([unserved])
        self.unserved = ForeignConnections(
            clock,
            unserved.lines,
            lambda: self._traffic.closed(self._port),
            self.unfinished.has_called,
        )

    def _add(
        self, handlers: Sequence[grpc.GenericRpcHandler], failure: Failure | None = None
    ) -> None:
        guarded = [GuardedHandlers(each, self.guard, failure) for each in handlers]
        self._server.add_generic_rpc_handlers(guarded)

    async def start(self, scope: TaskScope) -> int:
        """Listens; return the port. Raises PortInUseError."""
        host, port = self._config.host, self._config.port
        address = f"[{host}]" if ":" in host else host
        try:
            bound = self._server.add_insecure_port(f"{address}:{port}")
        except RuntimeError as error:
            raise PortInUseError(host, port) from error
        self._port = bound
        await self._server.start()
        self.unfinished.start(scope)
        scope.start(self.unserved.run())
        await self._set_health(SERVING)
        return bound

    async def connection_count(self) -> int:
        """How many connections clients have; 0 where the system does not tell."""
        return await self._traffic.count(self._port)

    async def stop(self) -> None:
        """Takes no more requests; let running ones end within the grace time, then cut them."""
        await self._set_health(NOT_SERVING)
        await self._server.stop(self._config.stop_grace_ms / 1000)
        self.unfinished.stop()
        self._traffic.close()

    async def _set_health(self, serving: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for name in ("", *self._names):
            await self._health.set(name, serving)
