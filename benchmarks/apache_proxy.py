"""Apache RocketMQ's proxy with its broker, in one process.

It runs in the proxy's LOCAL mode, with the settings of `real_cluster.py`. Its JVM compiles fully.
The proxy does not start without a name server, which is ours. Source: RocketMQ's ProxyStartup and
ProxyConfig.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.real_cluster import BROKER, QUEUES
from rocketpy_proto.remoting import RequestCode
from rocketpy_proto.remoting.bodies.configs import SubscriptionGroupConfig
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.processes import JVM_OPTIONS, Program, ServerProcess, until
from tests.interop.cluster.servers import (
    CLUSTER,
    LOOPBACK,
    NameServer,
    conf_arguments,
    free_port,
)
from tests.interop.rocketmq import TOP, V5

JARS = TOP / ".interop" / "proxy"
# Of the later options the last one counts.
_JVM = (*JVM_OPTIONS, "-XX:TieredStopAtLevel=4", *BROKER.jvm_options)


@dataclass(frozen=True)
class _ProxyProgram:
    """The proxy, which has jars of its own."""

    arguments: tuple[str, ...]

    def command(self, folder: Path) -> list[str]:
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        java, *rest = Program(V5, main, self.arguments, jvm_options=_JVM).command(folder)
        rest[rest.index("-cp") + 1] = f"{JARS}/*"
        return [java, *rest]


class ApacheProxy(ServerProcess):
    """The process; `endpoint` is its gRPC address."""

    def __init__(self, folder: Path, name_server: str) -> None:
        # A broker listens at a second port, too.
        port, grpc_port = free_port((0, -2, 1)), free_port((0,))
        self._address, self.endpoint = f"{LOOPBACK}:{port}", f"{LOOPBACK}:{grpc_port}"
        conf = {
            "brokerClusterName": CLUSTER,
            "brokerName": "broker-proxied",
            "brokerIP1": LOOPBACK,
            "listenPort": port,
            "haListenPort": port + 1,
            "namesrvAddr": name_server,
            "storePathRootDir": folder / "store",
            "storePathCommitLog": folder / "store" / "commitlog",
            **BROKER.conf,
        }
        proxy = {
            "rocketMQClusterName": CLUSTER,
            "namesrvAddr": name_server,
            "grpcServerPort": grpc_port,
            "remotingListenPort": free_port((0,)),
            "localServeAddr": LOOPBACK,
        }
        _, path = conf_arguments(folder, conf)
        (folder / "rmq-proxy.json").write_text(json.dumps(proxy))
        words = ("-pm", "local", "-bc", path, "-pc", str(folder / "rmq-proxy.json"))
        super().__init__("proxy", folder, _ProxyProgram(words))

    def answers(self) -> bool:
        """True if the port of gRPC is open, which the proxy opens after the broker's."""
        host, _, port = self.endpoint.rpartition(":")
        with socket.create_connection((host, int(port))):
            return True

    def create(self, topics: Sequence[str], groups: Sequence[str]) -> None:
        """Creates topics of QUEUES queues, and groups."""
        with Connection(self._address) as connection:
            for topic in topics:
                header = CreateTopicRequest(
                    topic=topic,
                    read_queue_nums=QUEUES,
                    write_queue_nums=QUEUES,
                    attributes="+message.type=NORMAL",
                )
                connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).ok()
            for group in groups:
                body = SubscriptionGroupConfig(group_name=group)
                connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).ok()


@contextmanager
def apache_proxy(folder: Path) -> Iterator[ApacheProxy]:
    """Yields the proxy while it runs; then it is killed."""
    name_server = NameServer("name-server", folder / "name-server", is_own=True)
    proxy = ApacheProxy(folder / "proxy", name_server.address)
    try:
        name_server.start()
        proxy.start()
        until(proxy.answers, "served by the proxy", [name_server, proxy])
        yield proxy
    finally:
        proxy.kill()
        name_server.kill()
