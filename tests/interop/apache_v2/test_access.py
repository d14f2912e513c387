"""Users and TLS for clients of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker import BrokerUser, LocalBroker
from tests.interop.apache_v2.clients import Clients
from tests.interop.apache_v2.conftest import ALL, ALL_AT_OURS, Place, at
from tests.interop.apache_v2.servers import APACHE, OwnServer, Server, texts
from tests.interop.drivers import RocketMQError

pytestmark = pytest.mark.xdist_group("apache_v2")
TOPIC, GROUP = "guarded", "readers"
WRITER = {"accessKey": "the-writer", "secretKey": "a-secret-of-the-writer"}
READER = {"accessKey": "the-reader", "secretKey": "a-secret-of-the-reader"}
REFUSED: dict[str, dict[str, str]] = {
    "none": {},
    "wrong secret": {**WRITER, "secretKey": "another-secret"},
    "unknown user": {**WRITER, "accessKey": "a-stranger"},
    "no permission": READER,
}
USERS = [
    BrokerUser("root", "a-secret-of-the-admin", role="admin"),
    BrokerUser(WRITER["accessKey"], WRITER["secretKey"], topics={TOPIC: "PUB"}),
    BrokerUser(
        READER["accessKey"], READER["secretKey"], topics={TOPIC: "SUB"}, groups={GROUP: "SUB"}
    ),
]


@pytest.fixture
def guarded(place: Place, tmp_path: Path) -> Iterator[tuple[Server, Clients]]:
    """Yields a broker of ours with users, and clients of the place."""
    with LocalBroker(users=USERS) as broker:
        server = OwnServer(broker)
        server.create_topic(TOPIC, queues=1)
        clients = Clients(place[0], server, tmp_path)
        yield server, clients
        clients.kill()


@pytest.fixture
def with_tls(
    place: Place, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Server, Clients]]:
    """Yields a server with TLS, and clients of the place that use it."""
    if place[1] == APACHE:
        server: Server = request.getfixturevalue("apache")
        clients = Clients(place[0], server, tmp_path, server.ca_file)
        yield server, clients
        clients.kill()
        return
    with LocalBroker(tls=True) as broker:
        server = OwnServer(broker)
        clients = Clients(place[0], server, tmp_path, server.ca_file)
        yield server, clients
        clients.kill()


@at(ALL_AT_OURS)
def test_clients_with_keys_do_what_their_users_may(guarded: tuple[Server, Clients]) -> None:
    _, clients = guarded
    clients.producer(TOPIC, **WRITER).send(TOPIC, "a")
    (message,) = clients.simple(TOPIC, GROUP, **READER).receive(1)
    assert message.body == "a"


@at(ALL_AT_OURS)
def test_a_request_without_a_right_is_refused(guarded: tuple[Server, Clients]) -> None:
    server, clients = guarded
    for keys in REFUSED.values():
        with pytest.raises(RocketMQError):
            clients.producer(TOPIC, **keys).send(TOPIC, "x")
    clients.producer(TOPIC, **WRITER).send(TOPIC, "a")
    assert texts(server, TOPIC) == ["a"]


@at(ALL)
def test_messages_are_sent_and_received_over_tls(
    with_tls: tuple[Server, Clients], topic: str, group: str
) -> None:
    server, clients = with_tls
    server.create_topic(topic, queues=1)
    server.create_group(group)
    clients.producer(topic).send(topic, "in TLS")
    (message,) = clients.simple(topic, group).receive(1)
    assert message.body == "in TLS"
