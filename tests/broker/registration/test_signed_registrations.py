"""A broker signs its registration at name servers that have users."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rocketpy_broker.broker import Broker, Ready
from rocketpy_broker.cli.broker.network_options import name_server_user
from rocketpy_broker.cli.commands import app
from rocketpy_broker.config import BrokerConfig, SigningUser
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_proto.remoting.signature import ACCESS_KEY, is_signed_by
from tests.broker.registration.recorder import Recorder
from tests.broker.registration.test_own_name_server import own
from tests.support.broker.clients.users import SECRETS, USERS, users_path, write_users
from tests.support.broker.running_broker import StartBroker, serving, until

ADMIN = SigningUser("admin", SECRETS["admin"])


@asynccontextmanager
async def registering(folder: Path, address: str, user: SigningUser | None) -> AsyncIterator[Ready]:
    """Yields broker-b, which registers at a name server."""
    config = BrokerConfig(
        folder,
        port=0,
        remoting_port=0,
        name_servers=(address,),
        name_server_user=user,
        broker_name="broker-b",
        commit_log_segment_bytes=1 << 20,
        consume_queue_file_bytes=20_000,
        stop_grace_ms=500,
    )
    async with serving(Broker(config, ManualClock()).serve_until) as ready:
        yield ready


async def test_a_broker_registers_at_a_name_server_with_users(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with own(start_broker) as running:
        name_server = running.broker.remoting.name_server
        assert name_server is not None
        brokers = name_server.routes._brokers
        address = f"127.0.0.1:{running.ready.name_server_port}"
        async with registering(tmp_path / "b", address, ADMIN) as ready:
            await until(lambda: "broker-b" in brokers and len(brokers["broker-b"].topics) > 0)
            assert brokers["broker-b"].addresses == {0: f"127.0.0.1:{ready.remoting_port}"}
        # The end of the registration is signed, too.
        assert "broker-b" not in brokers


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (None, "names none; set access key and secret key"),
        (SigningUser("admin", "another-secret-key"), "is not accepted"),
        (SigningUser("writer", SECRETS["writer"]), "lacks the role admin for the broker"),
    ],
)
async def test_a_registration_that_is_refused_names_the_reason(
    start_broker: StartBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    user: SigningUser | None,
    reason: str,
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with own(start_broker) as running:
        address = f"127.0.0.1:{running.ready.name_server_port}"
        async with registering(tmp_path / "b", address, user):
            await until(lambda: "the broker is not registered" in caplog.text)
    assert re.search(reason, caplog.text), caplog.text
    assert not any(secret in caplog.text for secret in (*SECRETS.values(), "another-secret-key"))


async def test_every_request_to_a_name_server_is_signed(
    tmp_path: Path, record_name_server: Recorder
) -> None:
    async with registering(tmp_path, record_name_server.address, ADMIN):
        await record_name_server.asked(1)
    assert {"REGISTER_BROKER", "UNREGISTER_BROKER"} <= {*record_name_server.codes}
    for request in record_name_server.requests:
        assert request.ext_fields[ACCESS_KEY] == "admin"
        assert is_signed_by(request, SECRETS["admin"])


def test_no_configuration_shows_the_secret_key(tmp_path: Path) -> None:
    config = BrokerConfig(tmp_path, name_server_user=name_server_user("ns:1", "a", "hidden-key"))
    assert config.name_server_user == SigningUser("a", "hidden-key")
    assert "hidden-key" not in repr(config)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("ns:1", "a", ""), "or neither"),
        (("ns:1", "", "hidden-key"), "or neither"),
        (("", "a", "hidden-key"), "without --name-server"),
    ],
)
def test_half_a_user_of_name_servers_is_refused(given: tuple[str, str, str], reason: str) -> None:
    with pytest.raises(typer.BadParameter, match=reason) as refusal:
        name_server_user(*given)
    assert "hidden-key" not in str(refusal.value)


def test_the_command_takes_the_user_of_name_servers_from_the_environment() -> None:
    variables = {"ROCKETPY_NAME_SERVER_ACCESS_KEY": "a"}
    done = CliRunner().invoke(app, ["broker", "--name-server", "ns:1"], env=variables)
    assert done.exit_code == 2
    assert "or neither" in " ".join(done.output.replace("│", " ").split())
