"""The settings of docker/docker-compose.rocketmq.yml, given to RocketMQ without containers.

A name server and a broker run with the file's settings, but with this machine's addresses and
folders in place of the services' and images'.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy_proto.remoting import RequestCode
from tests.interop.cluster.connection import Connection, ask
from tests.interop.cluster.java_clients import MQADMIN
from tests.interop.cluster.processes import (
    JVM_OPTIONS,
    Program,
    ServerProcess,
    environment,
    until,
)
from tests.interop.cluster.servers import NameServer, conf_arguments, free_port
from tests.interop.clusters_notebook import run_notebook
from tests.interop.rocketmq import V5, RocketMQStore
from tests.support.docker.compose_files import FOLDER, read, settings
from tests.support.time_limits import WAIT_SECONDS_MAX

SERVICES = read(FOLDER / "docker-compose.rocketmq.yml")["services"]
CONF = (FOLDER / "rocketmq" / "broker.conf").read_text("utf-8")
BROKER = "org.apache.rocketmq.broker.BrokerStartup"
# Java 17 opens to RocketMQ what Java 8, which the image has, does not close.
OPENED = tuple(option for option in JVM_OPTIONS if option.startswith("--add-opens"))


def jvm_options(service: str) -> tuple[str, ...]:
    return (*SERVICES[service]["environment"]["JAVA_OPT_EXT"].split(), *OPENED)


class ComposedBroker(ServerProcess):
    """The broker of the compose file, with its own settings alone and its JVM's options."""

    def __init__(self, folder: Path, name_server: str) -> None:
        port = free_port((0, -2, 1))
        # A name, as in the file, in place of the service's.
        self.address = f"localhost:{port}"
        self.replaced: Mapping[str, object] = {
            "brokerIP1": "localhost",
            "listenPort": port,
            "storePathRootDir": folder / "store",
        }
        loopback = {"bindAddress": "127.0.0.1", "brokerIP2": "127.0.0.1", "haListenPort": port + 1}
        arguments = conf_arguments(folder, {**settings(CONF), **self.replaced, **loopback})
        command = ("-n", name_server, *arguments)
        super().__init__("broker", folder, Program(V5, BROKER, command, {}, jvm_options("broker")))


@dataclass(frozen=True)
class Composed:
    """A name server and a broker; a test that needs the broker starts it."""

    name_server: NameServer
    broker: ComposedBroker
    folder: Path

    def start_broker(self) -> None:
        """Starts it, and waits until the name server lists it."""
        self.broker.start()
        until(
            lambda: self.name_server.members() == {("broker-a", 0)},
            "registered",
            [self.name_server, self.broker],
        )

    def at_home(self, text: str) -> str:
        """Returns text of the compose file with this machine's addresses in it."""
        port = self.broker.address.rpartition(":")[2]
        for inside, outside in {
            "namesrv:9876": self.name_server.address,
            "broker:10911": self.broker.address,
            "127.0.0.1/10911": f"127.0.0.1/{port}",
        }.items():
            text = text.replace(inside, outside)
        return text

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Runs a command of the file in the folder of `mqadmin`, as in the image."""
        return subprocess.run(
            [self.at_home(word) for word in command],
            cwd=self.folder,
            env=environment(self.folder),
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS_MAX,
        )


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composed]:
    """Yields a running name server and a broker that is not started."""
    name_server = NameServer("name-server", tmp_path / "name-server", jvm_options("namesrv"))
    broker = ComposedBroker(tmp_path / "broker", name_server.address)
    admin = Program(V5, MQADMIN).command(tmp_path)
    (tmp_path / "mqadmin").write_text(f'exec {" ".join(admin)} "$@"\n', encoding="utf-8")
    try:
        name_server.start()
        until(lambda: name_server.members() == set(), "answered", [name_server])
        yield Composed(name_server, broker, tmp_path)
    finally:
        broker.kill()
        name_server.kill()


def taken(conf: str, folder: Path) -> dict[str, str]:
    """Returns every setting that a broker knows after it has read a file. Does not start it."""
    with RocketMQStore(folder / "rocketmq.log", folder) as process:
        found: dict[str, str] = process.ask("takeSettings", conf=settings(conf))["settings"]
    return found


# RocketMQ has them in the parent class of the queried settings; names of the cluster show them.
IDENTITY = {"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0"}


def test_the_broker_takes_every_setting_of_the_file(tmp_path: Path) -> None:
    known = taken(CONF, tmp_path) | IDENTITY
    told = settings(CONF)
    assert {name: known.get(name) for name in told} == told


def test_a_setting_that_the_broker_does_not_know_is_found(tmp_path: Path) -> None:
    assert "mappedFileSizeCommitLogs" not in taken(f"{CONF}mappedFileSizeCommitLogs=1\n", tmp_path)


def test_the_broker_runs_with_every_setting_of_the_file(composed: Composed) -> None:
    composed.start_broker()
    with Connection(composed.broker.address) as connection:
        body = bytes(connection.ask(RequestCode.GET_BROKER_CONFIG).ok().command.body)
    found = dict(line.split("=", 1) for line in body.decode().splitlines())
    told = settings(CONF) | {name: str(value) for name, value in composed.broker.replaced.items()}
    assert {name: found.get(name) for name in told} == told
    members = ask(composed.name_server.address, RequestCode.GET_BROKER_CLUSTER_INFO).ok().content
    assert members.cluster_addr_table == {IDENTITY["brokerClusterName"]: (IDENTITY["brokerName"],)}


def test_the_services_one_after_the_other(composed: Composed, tmp_path: Path) -> None:
    """Runs them in the file's order: the broker is healthy, the topic is created, notebooks run."""
    health = SERVICES["broker"]["healthcheck"]["test"][1:]
    topic = SERVICES["topic"]["command"]
    assert composed.run(health).returncode == 1
    assert composed.run(topic).returncode == 1
    composed.start_broker()
    assert composed.run(health).returncode == 0
    # The tool waits for the broker for five seconds, of which its own start takes some.
    until(
        lambda: composed.run(topic).returncode == 0,
        "topic created",
        [composed.name_server, composed.broker],
    )
    told = SERVICES["notebooks"]["environment"]
    given = {name: composed.at_home(value) for name, value in told.items() if value is not None}
    route = {"broker-a": {0: composed.broker.address}}
    until(
        lambda: composed.name_server.routes(given["ROCKETPY_TOPIC"]) == route,
        "routed",
        [composed.name_server, composed.broker],
    )
    assert "broker-a" in run_notebook(given, tmp_path)
    log = composed.broker.folder / "store" / "commitlog"
    size = int(settings(CONF)["mappedFileSizeCommitLog"])
    assert {file.stat().st_size for file in log.iterdir()} == {size}
