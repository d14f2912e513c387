"""Name servers and brokers, each with its own folder, ports and properties.

A server keeps its ports for life, so a restart keeps its address. They are below the ports that the
system gives to outgoing connections. Source: docs/design/cluster.md section 1.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocketpy_proto.remoting import RequestCode
from rocketpy_proto.remoting.headers.topics import GetRouteInfoRequest
from tests.interop.cluster.connection import Connection, ask
from tests.interop.cluster.processes import (
    JVM_OPTIONS,
    Program,
    ServerProcess,
    configure_logs,
    until,
)
from tests.interop.rocketmq import ENDS_STORED_AT_ONCE, V5

LOOPBACK = "127.0.0.1"
CLUSTER = "LoopCluster"
MASTER_ID, SLAVE_ID = 0, 1
# Each process of a run with several has ports of its own: a server listens some seconds after its
# port was found free, and one that is killed leaves its ports for a while.
_WORKERS_MAX, _PORTS_OF_WORKER = 3, 5_000
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS_MAX
_FIRST_PORT = 15_000 + _worker * _PORTS_OF_WORKER
_PORTS = range(_FIRST_PORT + 2, _FIRST_PORT + _PORTS_OF_WORKER - 1)
# A broker's listening ports, as steps: clients, old clients, slaves.
BROKER_PORTS = (0, -2, 1)

# Small files, short waits, and no refusal for a machine that is slow or full.
COMMON = {
    "brokerClusterName": CLUSTER,
    "bindAddress": LOOPBACK,
    "brokerIP1": LOOPBACK,
    "brokerIP2": LOOPBACK,
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 600_000,
    "mappedFileSizeTimerLog": 1024 * 1024,
    # A broker of 5.x writes 37 MB each time, by default each second.
    "timerFlushIntervalMs": 30_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    "diskMaxUsedSpaceRatio": 95,
    "enablePropertyFilter": "true",
    "registerNameServerPeriod": 10_000,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": 20_000,
    **ENDS_STORED_AT_ONCE,
}

# System properties of a broker that needs no TLS: to make a key and a certificate takes half of its
# start.
WITHOUT_TLS = {"tls.server.mode": "disabled"}


@dataclass(frozen=True)
class BrokerSpec:
    """The settings of one broker.

    `conf` overrides the common properties; `files` are texts in its folder, by path.
    """

    name: str
    broker_id: int = MASTER_ID
    version: str = V5
    conf: Mapping[str, object] = field(default_factory=dict)
    system_properties: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    jvm_options: Sequence[str] = JVM_OPTIONS


@dataclass(frozen=True)
class OwnProgram:
    """A command of `rocketpy`."""

    arguments: Sequence[str]

    def command(self, folder: Path) -> list[str]:
        """Returns the whole command line."""
        return [sys.executable, "-m", "rocketpy_broker", *self.arguments]


class NameServer(ServerProcess):
    """A name server: RocketMQ's of the newest version, or our own."""

    def __init__(
        self,
        name: str,
        folder: Path,
        jvm_options: Sequence[str] = JVM_OPTIONS,
        *,
        is_own: bool = False,
    ) -> None:
        self.address = f"{LOOPBACK}:{free_port((0,))}"
        port = self.address.rpartition(":")[2]
        if is_own:
            super().__init__(name, folder, OwnProgram(["nameserver", "--port", port]))
            return
        conf = {"listenPort": port, "bindAddress": LOOPBACK}
        main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
        arguments = conf_arguments(folder, conf)
        super().__init__(name, folder, Program(V5, main_class, arguments, {}, jvm_options))

    def routes(self, topic: str) -> dict[str, dict[int, str]]:
        """Returns the addresses of each broker name that has the topic, by broker id."""
        with Connection(self.address) as connection:
            answer = connection.ask(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=topic)
            )
        if answer.code != 0:
            return {}
        return {data.broker_name: data.broker_addrs for data in answer.content.broker_datas}

    def addresses(self, name: str) -> set[str]:
        """Returns the addresses of a broker's master and slaves."""
        info = ask(self.address, RequestCode.GET_BROKER_CLUSTER_INFO).ok().content
        broker = info.broker_addr_table.get(name)
        return set() if broker is None else set(broker.broker_addrs.values())

    def members(self) -> set[tuple[str, int]]:
        """Returns name and id of each registered broker."""
        info = ask(self.address, RequestCode.GET_BROKER_CLUSTER_INFO).ok().content
        table = info.broker_addr_table
        return {(name, number) for name in table for number in table[name].broker_addrs}


class Broker(ServerProcess):
    """A broker of some version; it registers at the name servers, if there are any."""

    def __init__(self, spec: BrokerSpec, folder: Path, name_servers: Sequence[str]) -> None:
        self.spec = spec
        port = free_port(BROKER_PORTS)
        self.address = f"{LOOPBACK}:{port}"
        conf = {
            **COMMON,
            "brokerName": spec.name,
            "brokerId": spec.broker_id,
            "brokerRole": "ASYNC_MASTER" if spec.broker_id == MASTER_ID else "SLAVE",
            "listenPort": port,
            "haListenPort": port + 1,
            "storePathRootDir": folder / "store",
            "storePathCommitLog": folder / "store" / "commitlog",
            **({"namesrvAddr": ";".join(name_servers)} if name_servers else {}),
            **spec.conf,
        }
        program = Program(
            spec.version,
            "org.apache.rocketmq.broker.BrokerStartup",
            conf_arguments(folder, conf),
            spec.system_properties,
            spec.jvm_options,
        )
        super().__init__(f"{spec.name}-{spec.broker_id}", folder, program)
        configure_logs(folder)
        for path, text in spec.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)

    def until_it_answers(self, tls: ssl.SSLContext | None = None) -> None:
        """Waits until it answers at its port, even with a refusal."""

        def answers() -> bool:
            with Connection(self.address, tls=tls) as connection:
                connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            return True

        until(answers, f"answered by {self.name}", [self])

    @contextlib.contextmanager
    def switched(self, name: str, *, to: bool) -> Iterator[None]:
        """Changes a running broker's setting; restores it afterwards."""
        self._configure(name, to)
        try:
            yield
        finally:
            self._configure(name, not to)

    def _configure(self, name: str, value: bool) -> None:
        with Connection(self.address) as connection:
            text = f"{name}={str(value).lower()}\n".encode()
            connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text).ok()


def conf_arguments(folder: Path, conf: Mapping[str, object]) -> tuple[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in conf.items()))
    return "-c", str(path)


def log_of(folder: Path) -> bytes:
    """Returns the segments of a store's log, one after the other."""
    return b"".join(path.read_bytes() for path in sorted((folder / "commitlog").iterdir()))


_taken: set[int] = set()


def free_port(steps: Sequence[int]) -> int:
    """Returns a free port with free ports at these steps from it; returns none twice."""
    while True:
        port = random.choice(_PORTS)
        ports = {port + step for step in steps}
        if not ports & _taken and all(map(_is_free, ports)):
            _taken.update(ports)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("", port))
        return True
    return False
