"""BrokerContainer, at Podman's socket in place of Docker's."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

import rocketpy_broker
from rocketpy_broker import connect
from rocketpy_proto.model.codes import RequestCode
from rocketpy_proto.remoting.headers.offsets import GetMaxOffsetRequest
from tests.broker.nameserver.registrations import addresses
from tests.interop.cluster.servers import free_port
from tests.interop.containers.podman import environment
from tests.support.broker.clients.remoting_client import connected
from tests.support.time_limits import WAIT_SECONDS_MAX

if TYPE_CHECKING:
    from rocketpy_broker import BrokerContainer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("containers"),
    pytest.mark.timeout(2 * WAIT_SECONDS_MAX),
]


# Ryuk's image, which ends what a killed program leaves, is in a registry of images; and a container
# that runs the tests has the address of its own machine.
ENVIRONMENT = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
    # Java's names of the same.
    "TESTCONTAINERS_HOST_OVERRIDE": "localhost",
    "TESTCONTAINERS_CHECKS_DISABLE": "true",
}
DOCUMENT = Path(__file__).parents[3] / "docs" / "broker.md"
JAVA_SDK = Path(__file__).parents[3] / ".interop" / "java-sdk"
# The documented program, which ends when its input does.
PROGRAM = """
import java.util.List;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;

public class Program {
    public static void main(String[] arguments) throws Exception {
        %s
        System.out.println(endpoints + " " + nameServer);
        System.in.read();
        rocketpy.stop();
    }
}
"""


@pytest.fixture(scope="module")
def kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[BrokerContainer]]:
    """Serves Docker's interface by Podman, and yields the class, which reads the environment."""
    path = tmp_path_factory.mktemp("engine") / "podman.sock"
    address = f"unix://{path}"
    words = ["podman", "system", "service", "--time=0", address]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with subprocess.Popen(words, env=environment()) as service:
            deadline = time.monotonic() + WAIT_SECONDS_MAX
            while not path.exists():
                assert service.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield rocketpy_broker.BrokerContainer
            service.terminate()


def use(endpoint: str, name_server: str, remoting_endpoint: str) -> None:
    """Sends and reads a message by each protocol."""
    with connect(endpoint) as broker:
        broker.create_topic("orders", queues=1)
        broker.send("orders", ["first"])
        assert [each.body for each in broker.pull("orders", "billing")] == [b"first"]
    asyncio.run(use_remoting(name_server, remoting_endpoint))


async def use_remoting(name_server: str, remoting_endpoint: str) -> None:
    async with connected(port_of(name_server)) as client:
        found = await addresses(client, "orders")
    assert found == {"broker-a": {0: remoting_endpoint}}
    async with connected(port_of(remoting_endpoint)) as client:
        answer = await client.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest("orders", 0))
        assert answer.ext_fields["offset"] == "1"


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_a_broker_of_testcontainers_is_used_by_all_its_addresses(
    kind: type[BrokerContainer],
) -> None:
    with kind() as container:
        use(container.endpoint, container.name_server, container.remoting_endpoint)
        with urlopen(f"http://{container.http_endpoint}/api/v1/topics/orders") as answer:
            assert answer.status == HTTPStatus.OK


@pytest.mark.usefixtures("kind")
def test_the_documented_program_in_java_starts_a_broker(tmp_path: Path) -> None:
    programs = re.findall(r"```java[^\n]*\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    [recipe] = [each for each in programs if "GenericContainer" in each]
    port = free_port((0,))
    source = tmp_path / "Program.java"
    source.write_text(PROGRAM % recipe.replace("10911;", f"{port};"), "utf-8")
    java = Path(os.environ["JAVA_HOME"]) / "bin"
    classes = ["-cp", f"{JAVA_SDK / 'lib' / '*'}:{tmp_path}"]
    subprocess.run([java / "javac", *classes, "-d", tmp_path, source], check=True)
    words: list[str | Path] = [java / "java", *classes, "Program"]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        # Log lines of libraries come first.
        lines = iter(program.stdout)
        endpoint, name_server = next(line for line in lines if line.startswith("localhost")).split()
        use(endpoint, name_server, f"localhost:{port}")
        program.stdin.close()
        assert program.wait(WAIT_SECONDS_MAX) == 0
