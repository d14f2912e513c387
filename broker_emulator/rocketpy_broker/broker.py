"""A broker: its store, services and server, started and stopped in order.

State on disk is the store's and the configuration files'. The store's recovery repairs the files
after a crash at any point. A clean stop saves all tables and removes the abort marker.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.config import BrokerConfig, BrokerRole, ConsoleMode, TlsMode
from rocketpy_broker.remoting_servers import RemotingPorts, RemotingServers
from rocketpy_broker.runtime.clock import Clock, SystemClock, sleep
from rocketpy_broker.runtime.guarded_clock import GuardedClock
from rocketpy_broker.runtime.movable_clock import MovableClock
from rocketpy_broker.runtime.tasks import TaskScope, run_until
from rocketpy_broker.server.bind_address import (
    ListenAddress,
    PublicSlavePortError,
    check_host,
    check_ports,
    console_url,
    is_loopback,
)
from rocketpy_broker.server.calls.failure_log import ConnectionLog
from rocketpy_broker.server.calls.guard import call_guard
from rocketpy_broker.server.grpc.server import GrpcServer
from rocketpy_broker.server.ha.server import HaServer
from rocketpy_broker.server.rocketpy_v1.services import RocketpyV1Services
from rocketpy_broker.server.security.certificates import ServerCertificates
from rocketpy_broker.server.security.credentials import basic_credentials
from rocketpy_broker.server.security.http_access import HttpAccess
from rocketpy_broker.server.security.rocketpy_v1_access import RocketpyV1Access
from rocketpy_broker.server.security.tls import TlsPort
from rocketpy_broker.services.config_files.saver import save_all
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.files.promotion import SLAVE, PromotionFile
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.recovery.passes import RecoveryResult
from rocketpy_proto.record import Host

if TYPE_CHECKING:
    from rocketpy_broker.server.http.server import HttpServer

logger = logging.getLogger(__name__)
LOOPBACK = ipaddress.IPv4Address("127.0.0.1")


@dataclass(frozen=True, slots=True)
class Ready:
    """The address of a broker that serves, and the recovery result of its start.

    A port is None where its server is off. `tls_port` is the second gRPC port, for TLS.
    """

    host: str
    port: int
    recovery: RecoveryResult
    http_port: int | None = None
    remoting_port: int | None = None
    name_server_port: int | None = None
    tls_port: int | None = None
    ha_port: int | None = None
    console_url: str | None = None


def _store_config(config: BrokerConfig) -> StoreConfig:
    return StoreConfig(
        config.data,
        config.commit_log_segment_bytes,
        config.consume_queue_file_bytes,
        config.flush_disk_type,
        index_slot_count=config.index_slot_count,
        index_entry_count_max=config.index_entry_count_max,
        unflushed_bytes_max=config.limits.unflushed_bytes_max,
        staging_bytes_max=config.staging_bytes_max,
        delay_levels=config.delay_levels,
        clean_policy=config.clean_policy,
        memory_ratio=config.memory_ratio_percent / 100,
    )


def _store_host(config: BrokerConfig, port: int) -> Host:
    """Returns the IPv4 address written into records, as RocketMQ does by default."""
    for host in (config.advertise_host, config.host):
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(host or "")
            if isinstance(address, ipaddress.IPv4Address) and not address.is_unspecified:
                return Host(address, port)
    return Host(LOOPBACK, port)


def as_promoted(config: BrokerConfig) -> BrokerConfig:
    """Returns a master's configuration for a slave that was promoted. Raises StoreDirectoryError.

    The promotion counts until `rocketpy store align` makes the store a slave's again.
    """
    if not config.replication.is_slave:
        return config
    promotion = PromotionFile(config.data).load()
    if promotion is None or promotion.role == SLAVE:
        return config
    logger.warning(
        "this store was promoted to a master's (epoch %d): --broker-role SLAVE and --master are "
        "ignored. To make it a slave's again, stop the broker and run `rocketpy store align`",
        promotion.epoch,
    )
    role = BrokerRole(promotion.role)
    replication = replace(config.replication, role=role, broker_id=0, master=None)
    return replace(config, replication=replication)


class Broker:
    """A broker in one event loop; `serve_until` starts it, serves and stops it."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        server_class: type[GrpcServer] = GrpcServer,
    ) -> None:
        self._server_class = server_class
        self._config = config = as_promoted(config)
        self._call_clock = self._clock = clock or GuardedClock(SystemClock())
        if config.clock_ahead_ms is not None:
            self._clock = MovableClock(self._call_clock, config.clock_ahead_ms)
        host = _store_host(config, config.port)
        self.store = MessageStore(_store_config(config), self._clock, host)
        context = BrokerContext(config, self._clock, self._call_clock, self.store)
        self._tasks = context.tasks
        self._lifecycle = context.lifecycle
        self.services = BrokerServices(context)
        self.server: GrpcServer
        self.remoting: RemotingServers
        self.http: HttpServer | None = None
        self.ha: HaServer | None = None
        self._certificates: ServerCertificates | None = None
        self._ready: Ready | None = None

    @property
    def promoted(self) -> BrokerConfig | None:
        """The configuration of the master that this slave has become, at the same ports."""
        done, ready = self.services.promotion.done, self._ready
        if done is None or ready is None or not done.done():
            return None
        config = self._config
        return replace(
            config,
            port=ready.port,
            http_port=ready.http_port,
            remoting_port=ready.remoting_port,
            name_server_port=ready.name_server_port,
            tls=replace(config.tls, port=ready.tls_port or 0),
            replication=replace(config.replication, port=ready.ha_port),
            preferred_ports=frozenset(),
        )

    async def serve_until(self, stopped: asyncio.Event, ready: asyncio.Future[Ready]) -> None:
        """Serves until `stopped` is set; resolves `ready` when clients can connect.

        Raises StoreLockedError, StoreDirectoryError, ConfigFileError, PortInUseError,
        PublicBindError, CertificateError.
        """
        users = self.services.access.users
        users.load()
        if not self._config.tls.is_mutual:
            check_host(
                self._config.host,
                insecure=self._config.insecure,
                has_users=users.is_on,
                is_encrypted=self._config.tls.mode is TlsMode.ENFORCING,
            )
        has_slaves = self._config.replication.port is not None
        if has_slaves and not (self._config.insecure or is_loopback(self._config.host)):
            raise PublicSlavePortError(self._config.host)
        check_ports(self._config)
        if not self._config.tls.is_self_signed:
            self._open_certificates()
        # The first array makes pyarrow import pandas, unless `leave_pandas_out` ran: no call should
        # wait for that.
        pa.array([0])
        recovery = self.store.open()
        try:
            for load in self._lifecycle.loads:
                load()
            with contextlib.ExitStack() as closing:
                for close in self._lifecycle.closes:
                    closing.callback(close)
                for table in self._lifecycle.tables:
                    closing.callback(table.close)
                await self._serve(recovery, stopped, ready)
            for close in self._lifecycle.clean_closes:
                close()
        finally:
            self.store.close()

    async def _serve(
        self, recovery: RecoveryResult, stopped: asyncio.Event, ready: asyncio.Future[Ready]
    ) -> None:
        services = self.services
        if self._config.tls.is_self_signed:
            # The store's lock is held: no other broker writes the pair.
            self._open_certificates()
        guard = call_guard(
            self._call_clock,
            None if services.metrics is None else services.statistics.counter.called,
        )
        rocketpy_v1 = services.rocketpy_v1(self._config)
        server = self.server = self._server_class(
            self._config,
            [rocketpy_v1, services.apache_v2(self._config)],
            self._call_clock,
            guard,
            self._certificates,
        )
        self.remoting = RemotingServers(
            self._config, services, self._call_clock, guard, self._certificates
        )
        async with self._tasks as scope:
            await self._start_tasks(scope)
            port = await server.start(scope)
            try:
                ha_port = await self._start_ha(scope)
                ports = await self.remoting.start(scope, ha_port)
                # RocketMQ's tools ask for a message at the address in its id.
                self.store.store_host = self._advertised_host(port, ports)
                self.services.admin.status.serves(recovery, server.connection_count)
                self.services.admin.settings.listens(ports.remoting, ha_port)
                http_port = await self._start_http(scope, rocketpy_v1)
                self._ready = Ready(
                    self._config.host,
                    port,
                    recovery,
                    http_port,
                    ports.remoting,
                    ports.name_server,
                    server.tls_port,
                    ha_port,
                    self._console_url(http_port),
                )
                await server.serving()
                promoted = services.promotion.done = asyncio.get_running_loop().create_future()
                ready.set_result(self._ready)
                with contextlib.suppress(TimeoutError):
                    await run_until(promoted, stopped.wait())
            finally:
                if self.http is not None:
                    self.http.stopping()
                try:
                    for stop in self._lifecycle.stops:
                        stop()
                finally:
                    if self.ha is not None:
                        self.ha.stop()
                    await self.remoting.stop()
                    await server.stop()
                    if self.http is not None:
                        await self.http.stop()
        await self._save_tables()

    async def _start_tasks(self, scope: TaskScope) -> None:
        for start in self._lifecycle.starts:
            await start(scope)
        scope.start(self._persist_loop())
        if self._certificates is not None:
            scope.start(self._certificates.run())

    def _open_certificates(self) -> None:
        """Reads the certificates of the ports. Raises CertificateError."""
        config, hosts = self._config, [self._config.host, self._config.advertise_host]
        self._certificates = ServerCertificates.of(
            config.tls, config.config_folder, hosts, self._call_clock
        )

    def _advertised_host(self, port: int, ports: RemotingPorts) -> Host:
        """Returns the address in the ids of messages."""
        if ports.remoting is None:
            return _store_host(self._config, port)
        return _store_host(self._config, self._config.advertise_port or ports.remoting)

    async def _start_ha(self, scope: TaskScope) -> int | None:
        """Listens for slaves if they have a port, and returns it. Raises PortInUseError."""
        if self._config.replication.port is None:
            return None
        services = self.services
        slaves, metrics = services.replication.slaves, services.metrics
        if metrics is not None:
            metrics.watch("rocketpy_slaves", lambda: len(slaves.slaves))
            metrics.watch("rocketpy_slave_lag_bytes", lambda: slaves.lag_bytes or 0)
        self.ha = HaServer(
            self._config,
            self.store,
            slaves,
            services.flush.group_commit,
            self._call_clock,
        )
        return await self.ha.start(scope)

    async def _start_http(self, scope: TaskScope, rocketpy_v1: RocketpyV1Services) -> int | None:
        """Listens for HTTP if it has a port, and returns it. Raises PortInUseError."""
        metrics, port = self.services.metrics, self._config.http_port
        if metrics is None or port is None:
            return None
        from rocketpy_broker.server.http.api.calls import InnerCalls
        from rocketpy_broker.server.http.api.cross_site import HostRule
        from rocketpy_broker.server.http.api.endpoint import JsonApi
        from rocketpy_broker.server.http.server import HttpRoutes, HttpServer

        running = self.server.guard
        metrics.watch("rocketpy_running_calls", lambda: running.running)
        admin, access = self.services.admin.admin, self.services.access
        host, advertised = self._config.host, self._config.advertise_host or ""
        names = frozenset({host.lower(), advertised.lower()} - {""})
        hosts = HostRule(is_loopback(host), names, lambda: access.is_on)
        calls = InnerCalls(rocketpy_v1, running, RocketpyV1Access(access, basic_credentials))
        routes: list[HttpRoutes] = [JsonApi(calls, self._clock, hosts)]
        if self._config.console is not ConsoleMode.OFF:
            from rocketpy_broker.server.http.console.endpoint import Console

            name = self._config.broker_name
            routes.append(Console(calls, self._clock, hosts, name, self._config.console))
        is_preferred = port in self._config.preferred_ports
        self.http = HttpServer(
            ListenAddress(host, port, "--http-port", is_preferred),
            metrics.text,
            lambda: admin.refusal,
            self._call_clock,
            routes,
            HttpAccess(access),
            TlsPort.of(self._certificates, ConnectionLog(self._call_clock).closed),
        )
        return await self.http.start(scope)

    def _console_url(self, http_port: int | None) -> str | None:
        """Returns the console's address for a browser on this machine, and notes its port."""
        config = self._config
        if http_port is None or config.console is ConsoleMode.OFF:
            return None
        self.services.admin.admin.console_port = http_port
        return console_url(config.host, http_port, is_tls=self._certificates is not None)

    async def _persist_loop(self) -> None:
        while True:
            await sleep(self._clock, self._config.persist_interval_ms)
            with contextlib.suppress(OSError):
                await self._save_tables()

    async def _save_tables(self) -> None:
        """Saves all tables unless the store's lock is lost to another broker. Raises OSError."""
        if not self.store.is_lost:
            await save_all(self._lifecycle.tables)
