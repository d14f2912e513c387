"""A broker with users that `rocketpy user` has added, and processes of RocketMQ's Java code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketpy_broker import BrokerUser, LocalBroker
from rocketpy_broker.cli.commands import app
from tests.interop.cluster.java_clients import answered
from tests.interop.cluster.processes import configure_logs
from tests.interop.remoting.clients import Messaging
from tests.interop.rocketmq import VERSIONS, RocketMQStore

SECRETS = {name: f"secret-of-the-{name}" for name in ("admin", "writer", "reader")}
WRONG = "another-secret-key"
TOPIC, GROUP = "orders", "consumers"
# NO_PERMISSION of the remoting protocol, as RocketMQ's Java code shows it.
REFUSED = "CODE: 16 "
# Options of `rocketpy user add`.
PERMISSIONS = {
    "admin": ("--role", "admin"),
    "writer": ("--topic", f"{TOPIC}=PUB", "--group", "producers=PUB"),
    "reader": ("--topic", f"{TOPIC}=SUB", "--group", f"{GROUP}=SUB"),
}


in_java = pytest.mark.parametrize("java", VERSIONS, indirect=True, scope="module")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """Yields a broker with the users of PERMISSIONS."""
    data = str(tmp_path_factory.mktemp("secured"))
    for name, options in PERMISSIONS.items():
        words = ["user", "add", name, *options, "--user-secret-key", SECRETS[name], "--data", data]
        shown = CliRunner().invoke(app, words)
        assert shown.exit_code == 0, shown.output
    with LocalBroker(data, users=[BrokerUser("admin", SECRETS["admin"], role="admin")]) as started:
        yield started


@pytest.fixture
def topic(broker: LocalBroker) -> Iterator[str]:
    """Yields the topic of the users' permissions."""
    broker.create_topic(TOPIC, queues=1)
    yield TOPIC
    broker.reset()


def keys(name: str, secret_key: str = "") -> dict[str, str]:
    """Returns the keys of a user, as all clients of these tests take them."""
    return {"accessKey": name, "secretKey": secret_key or SECRETS[name]}


def texts(broker: LocalBroker) -> list[str]:
    """Returns the bodies in the topic."""
    return [message.text for message in broker.messages(TOPIC)]


@dataclass(frozen=True)
class Signing:
    """Classic clients and mqadmin of a version, in one process whose home is `folder`."""

    process: RocketMQStore
    folder: Path
    broker: LocalBroker
    version: str

    def clients(self) -> Messaging:
        """Returns producers and consumers; their options are `accessKey` and `secretKey`."""
        return Messaging(self.process, self.broker.name_server, self.version)

    def mqadmin(self, access_key: str, secret_key: str, command: str, *words: str) -> str:
        """Returns the output of a command, with keys in mqadmin's own file."""
        text = f"accessKey: {access_key}\nsecretKey: {secret_key}\n"
        (self.folder / "conf" / "tools.yml").write_text(text)
        told = [command, "-n", self.broker.name_server, *words]
        return answered(lambda: str(self.process.ask("admin", words=told)["printed"]))


@pytest.fixture(scope="module")
def java(
    request: pytest.FixtureRequest, broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Signing]:
    """Yields the clients and the tool of a version."""
    folder = tmp_path_factory.mktemp("signing")
    configure_logs(folder)
    with RocketMQStore(folder / "java.log", folder, request.param) as process:
        yield Signing(process, folder, broker, request.param)
