"""A name server in one event loop.

State: the key-value configuration alone is kept on disk. After a restart brokers register again.
Source: NamesrvController, docs/design/cluster.md section 3.4.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from rocketpy_broker.config import ServerTls
from rocketpy_broker.nameserver.kv_config import KVConfig
from rocketpy_broker.nameserver.own_broker import OwnBroker
from rocketpy_broker.nameserver.processors import NameServerProcessors
from rocketpy_broker.nameserver.route_table import RouteTable
from rocketpy_broker.nameserver.steps import in_steps
from rocketpy_broker.runtime.clock import Clock, SystemClock, sleep
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.bind_address import ListenAddress, check_name_server_host
from rocketpy_broker.server.calls.failure_log import ConnectionLog
from rocketpy_broker.server.calls.guard import CallGuard, call_guard
from rocketpy_broker.server.remoting.server import RemotingServer
from rocketpy_broker.server.security.certificates import ServerCertificates
from rocketpy_broker.server.security.remoting_access import RemotingAccess
from rocketpy_broker.server.security.tls import TlsPort

# The time between two searches for brokers that register no more.
SCAN_MS = 5_000
# Requests of a connection that run at a time. Its brokers and clients wait for their answers.
REQUESTS_OF_CONNECTION = 8


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """Settings of a name server.

    `insecure` allows addresses beyond this machine. `data` is the folder of the key-value
    configuration, None for memory alone. With `order_message_enable`, routes have the configuration
    of ordered topics. `tls` is that of a name server in its own process.
    """

    address: ListenAddress
    insecure: bool = False
    data: Path | None = None
    order_message_enable: bool = False
    tls: ServerTls = field(default_factory=ServerTls)


class NameServer:
    """A name server; `serve_until` starts it, serves and stops it."""

    def __init__(
        self,
        config: NameServerConfig,
        clock: Clock | None = None,
        guard: CallGuard | None = None,
        own: OwnBroker | None = None,
        access: RemotingAccess | None = None,
        tls: TlsPort | None = None,
    ) -> None:
        """Reads the configuration file and certificates. Raises ConfigFileError, CertificateError.

        Takes in the guard, the routes, the users and the TLS of the broker in whose process it
        runs.
        """
        self._config = config
        self._clock = clock or SystemClock()
        self._certificates = ServerCertificates.of(
            config.tls, config.data, [config.address.host], self._clock
        )
        if self._certificates is not None:
            tls = TlsPort(self._certificates, ConnectionLog(self._clock).closed)
        self._own = own
        self.routes = RouteTable(self._clock) if own is None else own.routes
        path = None if config.data is None else config.data / "kvConfig.json"
        processors = NameServerProcessors(
            self.routes, KVConfig(path), own, is_order_served=config.order_message_enable
        )
        self.server = RemotingServer(
            config.address,
            processors.by_code(),
            self._clock,
            guard or call_guard(self._clock),
            REQUESTS_OF_CONNECTION,
            access,
            tls,
        )
        self.server.connection_lost.add(self.routes.connection_lost)

    async def serve_until(self, stopped: asyncio.Event, ready: asyncio.Future[int]) -> None:
        """Serves until `stopped` is set; `ready` gets the port.

        Raises PortInUseError, PublicNameServerError.
        """
        if not self._config.tls.is_mutual:
            check_name_server_host(self._config.address.host, insecure=self._config.insecure)
        async with TaskScope() as scope:
            ready.set_result(await self.start(scope))
            try:
                await stopped.wait()
            finally:
                await self.stop()

    async def start(self, scope: TaskScope) -> int:
        """Starts serving in `scope`; returns the port. Raises PortInUseError."""
        if self._own is not None:
            await self._own.start(scope)
        port = await self.server.start(scope)
        scope.start(self._scan())
        if self._certificates is not None:
            scope.start(self._certificates.run())
        self.server.connection_lost.add(lambda _: scope.start(self._drop()))
        return port

    async def stop(self) -> None:
        """Closes all connections."""
        await self.server.stop()

    async def _scan(self) -> None:
        while True:
            await sleep(self._clock, SCAN_MS)
            self.routes.remove_expired()
            await self._drop()

    async def _drop(self) -> None:
        await in_steps(self.routes.drop_removed())
