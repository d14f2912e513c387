"""The image of the broker as a module of Testcontainers.

A `LocalBroker` starts faster and needs no container engine. A container is for tests of the image,
and for tests beside containers of other programs.
"""

from __future__ import annotations

from typing import Any

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import ExecWaitStrategy

from rocketpy_broker.client.broker_client import BrokerClient, connect
from rocketpy_broker.embedded.process import ReservedPort

IMAGE = "rocketpy-broker"
GRPC_PORT, HTTP_PORT, NAME_SERVER_PORT, REMOTING_PORT = 8081, 5557, 9876, 10911
HEALTH = ["rocketpy", "health", "--endpoint", f"127.0.0.1:{GRPC_PORT}", "--timeout", "5"]


class BrokerContainer(DockerContainer):
    """A broker in a container, from `start` to `stop` or as a context manager.

    All addresses are `host:port` of this machine, while the container runs. The broker gives
    RocketMQ's classic clients the address of its mapped port.
    """

    def __init__(self, image: str = IMAGE, **settings: Any) -> None:
        """Takes the name of the broker's image, and the settings of a DockerContainer."""
        super().__init__(image, **settings)
        self.with_exposed_ports(GRPC_PORT, HTTP_PORT, NAME_SERVER_PORT)
        self.waiting_for(ExecWaitStrategy(HEALTH))

    @property
    def endpoint(self) -> str:
        """The gRPC address, for the connector and RocketMQ 5's SDKs."""
        return self._address(GRPC_PORT)

    @property
    def name_server(self) -> str:
        """The name server, for RocketMQ's classic clients and tools."""
        return self._address(NAME_SERVER_PORT)

    @property
    def remoting_endpoint(self) -> str:
        """The address of RocketMQ's remoting protocol, such as `mqadmin`'s `-b`."""
        return self._address(REMOTING_PORT)

    @property
    def http_endpoint(self) -> str:
        """The address of the console, the JSON API and the metrics."""
        return self._address(HTTP_PORT)

    def connect(self) -> BrokerClient:
        """Returns a client of the broker; the caller closes it. Raises UnreachableError."""
        return connect(self.endpoint)

    def _configure(self) -> None:
        """Names the address that the broker gives to clients; called at each start."""
        # The broker has to know the port before the engine could choose one.
        port = ReservedPort()
        port.close()
        self.with_bind_ports(REMOTING_PORT, port.number)
        self.with_env("ROCKETPY_ADVERTISE_HOST", self.get_docker_client().host())
        self.with_env("ROCKETPY_ADVERTISE_PORT", str(port.number))

    def _address(self, port: int) -> str:
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(port)}"
