"""The gRPC server: protocol services, health and reflection on one port."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from rocketpy_broker.config import KIB, BrokerConfig, TlsMode
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.bind_address import PortInUseError
from rocketpy_broker.server.calls.guard import CallAccess, CallGuard, Failure, GuardedHandlers
from rocketpy_broker.server.grpc.connection_table import closed_peers, connection_count
from rocketpy_broker.server.grpc.foreign_protocols import (
    PLAINTEXT_PORT,
    TLS_PORT,
    ForeignCalls,
    ForeignConnections,
)
from rocketpy_broker.server.security.certificates import Pair, ServerCertificates
from rocketpy_proto.texts import address_text

logger = logging.getLogger(__name__)
# The bytes of a request beside its records: names, sizes, framing.
REQUEST_OVERHEAD_BYTES = 256 * KIB
# New calls that wait for their handler. Beyond this number gRPC cancels some, beyond twice as many
# all.
PENDING_CALLS = 20_000
# Running calls of one connection; its client delays more. Reset calls count until they end.
CALLS_PER_CONNECTION = 10_000
# Bytes that gRPC accepts of a request before it is read.
UNREAD_BYTES_MAX = 65_535
# Connections; gRPC closes more at once.
CONNECTIONS_MAX = 1_000
# The silence after which gRPC pings a connection; without an answer it is closed 20 seconds later.
SILENT_MS_MAX = 60_000
# The time of a new connection until its handshakes have ended, at a server with TLS.
HANDSHAKE_MS_MAX = 20_000
# RocketMQ's SDKs ping idle connections, some of them every minute.
PING_MS_MIN = 10_000
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def _is_news(record: logging.LogRecord) -> bool:
    """True if the record reports an error of the broker.

    gRPC logs a trace when a client leaves in the middle of a pull, which is no error.
    """
    return "ExecuteBatchError" not in record.getMessage()


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)


class ProtocolServices(Protocol):
    """The services of a protocol that clients may use."""

    @property
    def names(self) -> Sequence[str]:
        """The full names of its gRPC services."""

    @property
    def access(self) -> CallAccess | None:
        """The access control of its calls."""

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """Returns the handlers of its services."""

    @property
    def idle_methods(self) -> Collection[str]:
        """The full names of methods with streams of requests that are mostly idle."""

    def failure(self, error: BrokerError) -> bytes:
        """Returns the response, of any of its methods, that reports `error`."""


class _Collected:
    """A collector of handlers with the interface of a gRPC server."""

    def __init__(self) -> None:
        self.handlers: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Adds handlers to the collection."""
        self.handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Ignores the same handlers in a second form, which spares gRPC a look-up."""


class GrpcServer:
    """A gRPC server that lets running answers finish, within a grace time, when it stops."""

    def __init__(
        self,
        config: BrokerConfig,
        protocols: Sequence[ProtocolServices],
        clock: Clock,
        guard: CallGuard,
        certificates: ServerCertificates | None = None,
    ) -> None:
        self._config = config
        self._certificates = certificates
        request_bytes = config.limits.request_bytes_max + REQUEST_OVERHEAD_BYTES
        handshake = ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX)
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", request_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION),
                ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
                ("grpc.http.overload_protection", 1),
                # A window that grows with the link's speed would let an unread call hold MiBs.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.http2.lookahead_bytes", UNREAD_BYTES_MAX),
                ("grpc.keepalive_time_ms", SILENT_MS_MAX),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_MS_MIN),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.server.max_pending_requests", PENDING_CALLS),
                ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING_CALLS),
                *([] if certificates is None else [handshake]),
            ]
        )
        self._port = config.port
        # The port of TLS; None without TLS, and if `_port` itself serves TLS.
        self.tls_port: int | None = None
        self._health = health.aio.HealthServicer()
        self._names = [health.SERVICE_NAME, reflection.SERVICE_NAME]
        self.guard = guard
        self.incomplete_requests = guard.incomplete_requests
        for protocol in protocols:
            self._add(protocol.handlers(), protocol.failure, protocol.access, protocol.idle_methods)
            self._names += protocol.names
        others = _Collected()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, others)
        servicer = reflection.aio.ReflectionServicer(self._names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, others)
        self._add(others.handlers)
        unserved = ForeignCalls(clock, self.guard, self._names)
        self._server.add_generic_rpc_handlers([unserved])
        is_tls = config.tls.mode is TlsMode.ENFORCING
        self.unserved = ForeignConnections(
            clock,
            unserved.lines,
            lambda: closed_peers(self._port),
            self.incomplete_requests.has_called,
            TLS_PORT if is_tls else PLAINTEXT_PORT,
        )
        self.unserved_tls = ForeignConnections(
            clock,
            unserved.lines,
            lambda: closed_peers(self.tls_port or 0),
            self.incomplete_requests.has_called,
            TLS_PORT,
        )

    def _add(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        failure: Failure | None = None,
        access: CallAccess | None = None,
        idle_methods: Collection[str] = (),
    ) -> None:
        guarded = [
            GuardedHandlers(each, self.guard, failure, access, idle_methods) for each in handlers
        ]
        self._server.add_generic_rpc_handlers(guarded)

    async def start(self, scope: TaskScope) -> int:
        """Binds the address, starts serving and returns the port. Raises PortInUseError."""
        tls = self._config.tls
        is_plain = self._certificates is None or tls.mode is TlsMode.PERMISSIVE
        self._port = bound = self._bind(self._config.port, "--port", is_plain=is_plain)
        if self._certificates is not None and is_plain:
            self.tls_port = self._bind(tls.port, "--tls-port", is_plain=False)
        await self._set_health(NOT_SERVING)
        await self._server.start()
        self.incomplete_requests.start(scope)
        scope.start(self.unserved.run())
        if self.tls_port is not None:
            scope.start(self.unserved_tls.run())
        return bound

    async def serving(self) -> None:
        """Makes the health service report that clients can connect to all ports of the broker."""
        await self._set_health(SERVING)

    def _bind(self, port: int, option: str, *, is_plain: bool) -> int:
        """Binds a port and returns it. Raises PortInUseError."""
        host = self._config.host
        address = address_text(host, port)
        try:
            if is_plain or self._certificates is None:
                return self._server.add_insecure_port(address)
            credentials = _credentials(self._certificates)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise PortInUseError(host, port, option) from error

    async def connection_count(self) -> int:
        """Returns the number of client connections; 0 where the system does not report it."""
        plain = await connection_count(self._port)
        return plain + (0 if self.tls_port is None else await connection_count(self.tls_port))

    async def stop(self) -> None:
        """Refuses new requests; cancels the ones that still run after the grace time."""
        await self._set_health(NOT_SERVING)
        await self._server.stop(self._config.stop_grace_ms / 1000)
        self.incomplete_requests.stop()

    async def _set_health(self, serving: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for name in ("", *self._names):
            await self._health.set(name, serving)


def _credentials(certificates: ServerCertificates) -> grpc.ServerCredentials:
    """Returns credentials that follow the certificates; gRPC asks for each new connection."""
    served = certificates.pair

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Returns the pair if it has changed. A thread of gRPC calls it, one at a time."""
        nonlocal served
        pair = certificates.pair
        if pair is served:
            return None
        served = pair
        return _configuration(pair)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(served),
        changed,  # type: ignore[arg-type] # None, which its types lack, keeps the pair.
        require_client_authentication=served.client_ca is not None,
    )


def _configuration(pair: Pair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(pair.key, pair.certificate)], root_certificates=pair.client_ca
    )
