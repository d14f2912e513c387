"""The broker's image: build, start, health check, use, stop, restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.topics import list_topics
from tests.interop.containers.podman import RUN_OPTIONS, Container, inspect, podman
from tests.support.time_limits import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("containers"),
    pytest.mark.timeout(2 * WAIT_SECONDS_MAX),
]
IMAGE = "rocketpy-broker"
USER = "10001:10001"
# As in the compose file.
RIGHTS = ("--cap-drop=ALL", "--security-opt=no-new-privileges")
# Sends to the broker of the topic's route, as RocketMQ's clients do; prints the answer's code.
SEND_BY_ROUTE = """
import json, socket, sys
from rocketpy_proto.remoting import EXCHANGES, FrameDecoder, RemotingCommand, RequestCode
from rocketpy_proto.remoting import encode_frame
from rocketpy_proto.remoting.headers.sends import SendMessageRequest

def ask(address, code, fields, body=b""):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        command = RemotingCommand(code, 1, body=body, ext_fields=fields)
        connection.sendall(b"".join(encode_frame(command)))
        decoder = FrameDecoder()
        while not (answers := [*decoder.feed(connection.recv(65536))]):
            pass
        return answers[0]

route = ask(sys.argv[1], RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
[broker] = json.loads(bytes(route.body))["brokerDatas"]
form = EXCHANGES[RequestCode.SEND_MESSAGE].request
header = SendMessageRequest("producers", "orders", 0, 0)
address = broker["brokerAddrs"]["0"]
print(ask(address, RequestCode.SEND_MESSAGE, form.encode(header), b"by remoting").code)
"""


@pytest.fixture
def broker() -> Iterator[Container]:
    with Container(IMAGE, options=(*RIGHTS, "-p=127.0.0.1::8081")) as container:
        container.wait_until_healthy()
        yield container


def test_b04_a_message_outlives_the_container(volume: str) -> None:
    options = (*RIGHTS, f"-v={volume}:/data")
    with Container(IMAGE, options=options) as first:
        first.wait_until_healthy()
        first.run("rocketpy", "topic", "create", "orders", "--queues", "1")
        first.run("rocketpy", "message", "send", "orders", "--body", "kept by the volume")
        assert first.stop() == 0, first.log
        assert first.log.splitlines()[-1] == "rocketpy broker stopped"
    with Container(IMAGE, options=options) as second:
        second.wait_until_healthy()
        assert "kept by the volume" in second.run(
            "rocketpy", "message", "tail", "orders", "-n", "1"
        )
        assert "recovered after a crash" not in second.log
        assert second.stop() == 0, second.log


def test_another_container_reaches_it_by_its_name(network: str) -> None:
    with Container(IMAGE, options=(*RIGHTS, f"--network={network}")) as broker:
        broker.wait_until_healthy()
        words = ("rocketpy", "topic", "create", "orders", "--endpoint", f"{broker.name}:8081")
        options = (f"--network={network}", f"--env=no_grpc_proxy={broker.name}")
        with Container(IMAGE, options=options) as other:
            assert "created topic orders" in other.run(*words)
            assert other.run("python", "-c", SEND_BY_ROUTE, f"{broker.name}:9876") == "0\n"
        assert "by remoting" in broker.run("rocketpy", "message", "tail", "orders", "-n", "1")


def test_a_published_port_is_reached_from_the_host(broker: Container) -> None:
    broker.run("rocketpy", "topic", "create", "orders")
    endpoint = podman("port", broker.name, "8081").stdout.strip()
    with BrokerConnection(endpoint) as connection:
        assert [topic.topic for topic in list_topics(connection)] == ["orders"]


def test_a_killed_broker_recovers_in_a_new_container(volume: str) -> None:
    options = (*RIGHTS, f"-v={volume}:/data")
    with Container(IMAGE, options=options) as first:
        first.wait_until_healthy()
        first.run("rocketpy", "topic", "create", "orders", "--queues", "1")
        first.run("rocketpy", "message", "send", "orders", "--body", "acknowledged")
        podman("kill", first.name)
    with Container(IMAGE, options=options) as second:
        second.wait_until_healthy()
        assert "acknowledged" in second.run("rocketpy", "message", "tail", "orders", "-n", "1")


def test_the_user_is_not_root_and_owns_the_volume(broker: Container) -> None:
    config = inspect(IMAGE)["Config"]
    assert config["User"] == USER
    assert list(config["Volumes"]) == ["/data"]
    assert broker.run("stat", "-c", "%u:%g", "/data").strip() == USER
    # Folders that only root may read hold no store.
    found = broker.run("find", "/", "-xdev", "-name", "commitlog", check=False).split()
    assert found == []
    assert broker.run("find", "/data", "-name", "commitlog").split() == ["/data/commitlog"]


def test_it_has_what_the_extra_brings_and_no_tools_of_tests() -> None:
    listed = podman("run", "--rm", *RUN_OPTIONS, "--entrypoint=python", IMAGE, "-m", "pip", "list")
    names = {line.split()[0].replace("_", "-").lower() for line in listed.stdout.splitlines()[2:]}
    assert {"pyspark-rocketpy", "grpcio", "typer", "lark"} <= names
    assert not {"pytest", "pyspark", "jupyterlab", "ruff"} & names
