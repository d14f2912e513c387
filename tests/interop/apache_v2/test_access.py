"""Users and TLS for clients of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy_broker import BrokerUser, LocalBroker
from tests.interop.apache_v2.clients import JAVA, OWN, PYTHON, Clients
from tests.interop.apache_v2.conftest import ALL, Place, at
from tests.interop.apache_v2.servers import APACHE, ApacheServer, OwnServer, Server, texts
from tests.interop.cluster.access import create_user
from tests.interop.cluster.connection import Connection, Keys
from tests.interop.drivers import RocketMQError

pytestmark = pytest.mark.xdist_group("apache_v2")
_AUTH = "org.apache.rocketmq.auth"
# The broker has the users; the proxy checks them.
WITH_USERS = {
    f"{kind}MetadataProvider": f"{_AUTH}.{kind}.provider.Local{kind.title()}MetadataProvider"
    for kind in ("authentication", "authorization")
}
CHECKING = {
    name: value
    for kind in ("authentication", "authorization")
    for name, value in {
        f"{kind}Enabled": True,
        f"{kind}Provider": f"{_AUTH}.{kind}.provider.Default{kind.title()}Provider",
        f"{kind}MetadataProvider": (
            f"org.apache.rocketmq.proxy.auth.Proxy{kind.title()}MetadataProvider"
        ),
    }.items()
}
# Texts of refusals, by client: for keys of no user, and for a user without the permission. They are
# the same at all servers. The SDK for Python hides the status of a route, and the one for Java the
# status of its settings.
REFUSALS = {
    OWN: (r"\(code 40100\)$", r"lacks the permission PUB .*\(code 16\)"),
    JAVA: (r"response-code=40100\]", "Stream is already completed"),
    PYTHON: ("failed to fetch topic:.* route", "40100, .*(?:lacks the|has no) permission"),
}


def keys_of(user: str, topic: str) -> Keys:
    """Returns the keys of a user of a topic."""
    return Keys(f"{user}-{topic}", f"a-secret-of-the-{user}")


def users_of(topic: str, group: str) -> list[BrokerUser]:
    """Returns an admin, and the users of a topic."""
    writer, reader = (keys_of(each, topic) for each in ("writer", "reader"))
    topics, groups = {topic: "SUB"}, {group: "SUB"}
    return [
        BrokerUser("root", "a-secret-of-the-admin", role="admin"),
        BrokerUser(writer.access_key, writer.secret_key, topics={topic: "PUB"}),
        BrokerUser(reader.access_key, reader.secret_key, topics=topics, groups=groups),
    ]


def options_of(keys: Keys) -> dict[str, str]:
    """Returns a client's options with these keys."""
    return {"accessKey": keys.access_key, "secretKey": keys.secret_key}


@dataclass(frozen=True)
class Guarded:
    """A server whose users may send to the topic, or read it with the group."""

    server: Server
    clients: Clients
    topic: str
    group: str

    @property
    def writer(self) -> Mapping[str, str]:
        """The keys of the user that sends."""
        return options_of(keys_of("writer", self.topic))

    @property
    def reader(self) -> Mapping[str, str]:
        """The keys of the user that reads."""
        return options_of(keys_of("reader", self.topic))

    @property
    def unknown(self) -> list[Mapping[str, str]]:
        """Keys of no user: none, with a wrong secret, and of an unknown user."""
        wrong = {**self.writer, "secretKey": "another-secret"}
        return [{}, wrong, {**self.writer, "accessKey": "a-stranger"}]


@pytest.fixture(scope="module")
def guarded_apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """Yields Apache's proxy and broker with users."""
    folder = tmp_path_factory.mktemp("guarded") / "server"
    started = ApacheServer(folder, WITH_USERS, proxy_conf=CHECKING)
    try:
        started.serve()
        yield started
    finally:
        started.kill()


@pytest.fixture
def guarded(
    place: Place, topic: str, group: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Guarded]:
    """Yields a server with users, and clients of the place."""
    with ExitStack() as stack:
        if place[1] == APACHE:
            server: Server = request.getfixturevalue("guarded_apache")
        else:
            server = OwnServer(stack.enter_context(LocalBroker(users=users_of(topic, group))))
        found = Guarded(server, Clients(place[0], server, tmp_path), topic, group)
        stack.callback(found.clients.kill)
        if isinstance(server, ApacheServer):
            with Connection(server.address) as admin:
                create_user(admin, keys_of("writer", topic), {f"Topic:{topic}": ["Pub"]})
                rights = {f"Topic:{topic}": ["Sub"], f"Group:{group}": ["Sub"]}
                create_user(admin, keys_of("reader", topic), rights)
        server.create_topic(topic, queues=1)
        server.create_group(group)
        yield found


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


@at(ALL)
def test_clients_with_keys_do_what_their_users_may(guarded: Guarded) -> None:
    clients, topic = guarded.clients, guarded.topic
    clients.producer(topic, **guarded.writer).send(topic, "a")
    (message,) = clients.simple(topic, guarded.group, **guarded.reader).receive(1)
    assert message.body == "a"


@at(ALL)
def test_a_request_without_a_right_is_refused(guarded: Guarded) -> None:
    clients, topic = guarded.clients, guarded.topic
    unknown, forbidden = REFUSALS[clients.kind]
    for keys in guarded.unknown:
        with pytest.raises(RocketMQError, match=unknown):
            clients.producer(topic, **keys).send(topic, "x")
    with pytest.raises(RocketMQError, match=forbidden):
        clients.producer(topic, **guarded.reader).send(topic, "x")
    clients.producer(topic, **guarded.writer).send(topic, "a")
    assert texts(guarded.server, topic) == ["a"]


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
