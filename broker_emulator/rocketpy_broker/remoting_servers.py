"""The broker's remoting server and name server."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.nameserver.name_server import NameServer, NameServerConfig
from rocketpy_broker.nameserver.own_broker import OwnBroker
from rocketpy_broker.nameserver.route_table import RouteTable
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.bind_address import ListenAddress, PortInUseError
from rocketpy_broker.server.calls.failure_log import ConnectionLog
from rocketpy_broker.server.calls.guard import CallGuard
from rocketpy_broker.server.grpc.server import CALLS_PER_CONNECTION
from rocketpy_broker.server.remoting.client import RemotingClient
from rocketpy_broker.server.remoting.server import RemotingServer
from rocketpy_broker.server.security.certificates import ServerCertificates
from rocketpy_broker.server.security.remoting_access import RemotingAccess
from rocketpy_broker.server.security.tls import TlsPort
from rocketpy_broker.services.registration.addresses import host_and_port
from rocketpy_broker.services.registration.identity import BrokerIdentity
from rocketpy_broker.services.registration.name_server import NameServerRegistration
from rocketpy_broker.services.registration.service import RegistrationService
from rocketpy_broker.services.registration.topics import RegisteredTopics

logger = logging.getLogger(__name__)
# RocketMQ's `fastListenPort` is 2 below its `listenPort`.
SLAVE_PORT_BELOW = 2


@dataclass(frozen=True, slots=True)
class RemotingPorts:
    """The ports of remoting and the name server; None where the server is off."""

    remoting: int | None = None
    name_server: int | None = None


class RemotingServers:
    """The servers that the configuration turns on."""

    def __init__(
        self,
        config: BrokerConfig,
        services: BrokerServices,
        clock: Clock,
        guard: CallGuard,
        certificates: ServerCertificates | None = None,
    ) -> None:
        self._config = config
        self._tls = TlsPort.of(certificates, ConnectionLog(clock).closed)
        self._services = services
        self._clock = clock
        self._guard = guard
        self._access = RemotingAccess(services.access)
        self.server: RemotingServer | None = None
        self._for_slaves: RemotingServer | None = None
        self.name_server: NameServer | None = None
        self._registrations: RegistrationService | None = None

    async def start(self, scope: TaskScope, ha_port: int | None) -> RemotingPorts:
        """Starts the servers; returns their ports. Raises PortInUseError, ConfigFileError.

        `ha_port` is the port for slaves, which the registration gives to name servers.
        """
        config, port, name_server_port = self._config, None, None
        if config.remoting_port is not None:
            address = self._address(config.remoting_port, "--remoting-port")
            self.server = self._remoting_server(address)
            port = await self.server.start(scope)
        if port is not None and ha_port is not None:
            await self._start_for_slaves(scope, port - SLAVE_PORT_BELOW)
        topics = RegisteredTopics(self._services.topics, config.broker_permission)
        self._services.admin.settings.changed.add(topics.configure)
        identity = None if port is None else BrokerIdentity.of(config, port, ha_port)
        if config.name_server_port is not None:
            self.name_server = self._name_server(config.name_server_port, topics, identity)
            name_server_port = await self.name_server.start(scope)
        if identity is not None and config.name_servers:
            self._registrations = self._registration_service(topics, identity)
            self._registrations.start(scope)
        return RemotingPorts(port, name_server_port)

    def _address(self, port: int, option: str) -> ListenAddress:
        is_preferred = port in self._config.preferred_ports
        return ListenAddress(self._config.host, port, option, is_preferred)

    def _remoting_server(self, address: ListenAddress) -> RemotingServer:
        server = RemotingServer(
            address,
            self._services.processors(self._config),
            self._clock,
            self._guard,
            CALLS_PER_CONNECTION,
            self._access,
            self._tls,
        )
        server.connection_lost.add(self._services.remoting_clients.connection_lost)
        return server

    async def _start_for_slaves(self, scope: TaskScope, port: int) -> None:
        """Serves RocketMQ's slaves, which ask for topics at a port of their own."""
        if port < 1:
            logger.warning(
                "slaves of RocketMQ get no topics: --remoting-port is %d; give a port of 3 or more",
                port + SLAVE_PORT_BELOW,
            )
            return
        server = self._remoting_server(ListenAddress(self._config.host, port, "--remoting-port"))
        try:
            await server.start(scope)
            self._for_slaves = server
        except PortInUseError as error:
            logger.warning("slaves of RocketMQ get no topics: %s", error.remark)

    def _name_server(
        self, port: int, topics: RegisteredTopics, identity: BrokerIdentity | None
    ) -> NameServer:
        """Returns the name server; without remoting it has no routes to this broker."""
        own = None if identity is None else OwnBroker(RouteTable(self._clock), topics, identity)
        address = self._address(port, "--name-server-port")
        config = NameServerConfig(address, data=self._config.data / "rocketpy")
        return NameServer(config, self._clock, self._guard, own, self._access, self._tls)

    def _registration_service(
        self, topics: RegisteredTopics, identity: BrokerIdentity
    ) -> RegistrationService:
        clock, config = self._clock, self._config
        tls, user = config.name_server_tls, config.name_server_user
        registrations = [
            NameServerRegistration(
                address,
                RemotingClient(*host_and_port(address), clock, tls, user),
                topics,
                identity,
                clock,
            )
            for address in config.name_servers
        ]
        return RegistrationService(registrations, self._services.topics, clock)

    async def stop(self) -> None:
        """Ends the registrations, then closes all connections."""
        if self._registrations is not None:
            await self._registrations.stop()
        if self.name_server is not None:
            await self.name_server.stop()
        if self._for_slaves is not None:
            await self._for_slaves.stop(0)
        if self.server is not None:
            await self.server.stop(self._config.stop_grace_ms)
