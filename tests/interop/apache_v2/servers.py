"""The servers of the suite: our broker, and Apache RocketMQ's proxy with its broker.

Apache's are one process, in the proxy's LOCAL mode. They register at a name server of ours, since
the proxy does not start without one. Source: RocketMQ's ProxyStartup and ProxyConfig.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rocketpy_broker import LocalBroker, Message
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.remoting import RequestCode
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Queue, read_all
from tests.interop.cluster.processes import JVM_OPTIONS, Program, ServerProcess, until
from tests.interop.cluster.servers import (
    BROKER_PORTS,
    CLUSTER,
    COMMON,
    LOOPBACK,
    NameServer,
    conf_arguments,
    free_port,
)
from tests.interop.rocketmq import TOP, V5
from tests.support.certificates import Authority

PROXY = TOP / ".interop" / "proxy"
OURS, APACHE = "rocketpy", "apache"
NORMAL, FIFO, DELAY, TRANSACTION = "NORMAL", "FIFO", "DELAY", "TRANSACTION"
QUEUES = 4
# A topic has as many unless it was created.
_QUEUES_DEFAULT = 1


class Server(Protocol):
    """A server of the SDKs, with the calls that prepare and judge a test."""

    name: str
    # A delay that `advance` lets pass, or that is short enough to wait for.
    delay_ms: int

    @property
    def endpoint(self) -> str:
        """The address for plaintext."""

    @property
    def tls_endpoint(self) -> str:
        """The address for TLS."""

    @property
    def ca_file(self) -> str:
        """The authority of the server's certificate."""

    def create_topic(self, topic: str, queues: int = QUEUES, kind: str | None = NORMAL) -> None:
        """Creates a topic; `kind` is its attribute `message.type`."""

    def create_group(
        self, group: str, retry_max_times: int = 16, *, is_orderly: bool = False
    ) -> None:
        """Creates a consumer group."""

    def stored(self, topic: str) -> list[Message]:
        """Returns the visible messages of a topic in the order of the log."""

    def advance(self, seconds: float) -> None:
        """Lets time pass, where the server's clock can be moved."""


class OwnServer:
    """Our broker. Its clock is moved."""

    name = OURS
    delay_ms = 3_600_000

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker

    @property
    def endpoint(self) -> str:
        return self.broker.endpoint

    @property
    def tls_endpoint(self) -> str:
        return self.broker.tls_endpoint

    @property
    def ca_file(self) -> str:
        return self.broker.tls_ca_file

    def create_topic(self, topic: str, queues: int = QUEUES, kind: str | None = NORMAL) -> None:
        attributes = {} if kind is None else {"message.type": kind}
        self.broker.create_topic(topic, queues, attributes=attributes)

    def create_group(
        self, group: str, retry_max_times: int = 16, *, is_orderly: bool = False
    ) -> None:
        self.broker.create_group(
            group, retry_max_times=retry_max_times, consume_message_orderly=is_orderly
        )

    def stored(self, topic: str) -> list[Message]:
        return self.broker.messages(topic) if topic in self.broker.topics() else []

    def advance(self, seconds: float) -> None:
        self.broker.advance_clock(seconds)


class ApacheServer(ServerProcess):
    """Apache's proxy and broker of the newest version. Their clock is the machine's."""

    delay_ms = 3_000

    def __init__(
        self,
        folder: Path,
        conf: Mapping[str, object] | None = None,
        jvm_options: Sequence[str] = ("-Xmx384m",),
        proxy_conf: Mapping[str, object] | None = None,
    ) -> None:
        """Takes properties of broker and proxy, and options of the JVM, over the tests'."""
        self._name_server = NameServer("name-server", folder / "name-server", is_own=True)
        port, self._grpc_port = free_port(BROKER_PORTS), free_port((0,))
        self.address = f"{LOOPBACK}:{port}"
        self._queues: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)
        authority = Authority(folder)
        pair = authority.issue("server")
        self.ca_file = str(authority.path)
        properties = {
            **COMMON,
            "brokerName": "broker-proxied",
            "listenPort": port,
            "haListenPort": port + 1,
            "storePathRootDir": folder / "store",
            "storePathCommitLog": folder / "store" / "commitlog",
            "namesrvAddr": self._name_server.address,
            "recallMessageEnable": "true",
            # It checks each second, and another producer may take longer to start.
            "transactionCheckMax": 1_000,
            **(conf or {}),
        }
        proxy = {
            "rocketMQClusterName": CLUSTER,
            "namesrvAddr": self._name_server.address,
            "grpcServerPort": self._grpc_port,
            "remotingListenPort": free_port((0,)),
            "localServeAddr": LOOPBACK,
            "tlsTestModeEnable": False,
            "tlsCertPath": str(pair.certificate),
            "tlsKeyPath": str(pair.key),
            **(proxy_conf or {}),
        }
        _, path = conf_arguments(folder, properties)
        proxy_path = folder / "rmq-proxy.json"
        proxy_path.write_text(json.dumps(proxy))
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        words = ["-pm", "local", "-bc", path, "-pc", str(proxy_path)]
        options = (*JVM_OPTIONS, *jvm_options)
        super().__init__(
            APACHE, folder, Program(V5, main, words, {}, options, class_path=f"{PROXY}/*")
        )

    @property
    def endpoint(self) -> str:
        return f"{LOOPBACK}:{self._grpc_port}"

    @property
    def tls_endpoint(self) -> str:
        """The first byte of a connection decides."""
        return self.endpoint

    def create_topic(self, topic: str, queues: int = QUEUES, kind: str | None = NORMAL) -> None:
        attributes = None if kind is None else f"+message.type={kind}"
        header = CreateTopicRequest(
            topic=topic, read_queue_nums=queues, write_queue_nums=queues, attributes=attributes
        )
        self._queues[topic] = queues
        with Connection(self.address) as connection:
            connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).ok()
        # The proxy keeps the answer that a topic has no route for a while.
        servers = [self._name_server, self]
        until(lambda: bool(self._name_server.routes(topic)), f"routed to {topic}", servers)

    def create_group(
        self, group: str, retry_max_times: int = 16, *, is_orderly: bool = False
    ) -> None:
        config = SubscriptionGroupConfig(
            group=group, retry_max_times=retry_max_times, consume_message_orderly=is_orderly
        )
        with Connection(self.address) as connection:
            connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config).ok()

    def stored(self, topic: str) -> list[Message]:
        queues = range(self._queues.get(topic, _QUEUES_DEFAULT))
        with Connection(self.address) as connection:
            records = [one for each in queues for one in read_all(connection, Queue(topic, each))]
        return [Message.of(each) for each in sorted(records, key=lambda one: one.physical_offset)]

    def advance(self, seconds: float) -> None:
        """Returns at once: the tests wait until the time has passed."""

    def serve(self) -> None:
        """Starts both processes and waits until the proxy serves."""
        self._name_server.start()
        self.start()

        def answers() -> bool:
            # The proxy opens its port after the broker's.
            with socket.create_connection((LOOPBACK, self._grpc_port)):
                return True

        until(answers, "served by the proxy", [self._name_server, self])

    def kill(self) -> None:
        """Kills both processes."""
        super().kill()
        self._name_server.kill()


def texts(server: Server, topic: str) -> list[str]:
    """Returns the visible bodies of a topic."""
    return [each.text for each in server.stored(topic)]
