"""Signed requests and TLS, at brokers that require them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rocketpy_proto.remoting import RequestCode, ResponseCode, Serialization
from rocketpy_proto.remoting.headers.offsets import GetMaxOffsetRequest
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.interop.cluster.access import (
    ADMIN,
    GUARDED_TOPIC,
    READER,
    STRANGER,
    WRITER,
    Certificates,
    create_user,
    guarded_broker,
    guarded_broker_of_4_9,
    unverified,
)
from tests.interop.cluster.cluster import OLD, A, Cluster
from tests.interop.cluster.connection import Connection, Keys
from tests.interop.cluster.messages import (
    GROUP,
    Outgoing,
    Queue,
    bodies,
    commit,
    max_offset,
    pull,
    put,
    records_of,
    send,
    until_pullable,
)
from tests.interop.cluster.servers import Broker
from tests.interop.rocketmq import V4, V5

QUEUE = Queue(GUARDED_TOPIC)
# The user of 5.x that may read, but not query a queue's range.
BARE_READER = Keys("bare-reader", "bare-readers-secret")


@dataclass(frozen=True)
class Guarded:
    """A broker with access control; `tls` is the context that its clients need."""

    broker: Broker
    refusal: ResponseCode
    tls: ssl.SSLContext | None = None

    def connect(
        self, keys: Keys | None, serialization: Serialization = Serialization.JSON
    ) -> Connection:
        return Connection(self.broker.address, keys=keys, tls=self.tls, serialization=serialization)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.create(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[dict[str, Guarded]]:
    """Yields a broker of each version; the new one speaks TLS only."""
    folder = tmp_path_factory.mktemp("guarded")
    new = Broker(guarded_broker(certificates.system_properties), folder / "new", [])
    old = Broker(guarded_broker_of_4_9(), folder / "old", [])
    guarded = {
        V5: Guarded(new, ResponseCode.NO_PERMISSION, certificates.trusting()),
        V4: Guarded(old, ResponseCode.SYSTEM_ERROR),
    }
    try:
        for one in guarded.values():
            one.broker.start()
        old.until_it_answers()
        new.until_it_answers(certificates.trusting())
        header = CreateTopicRequest(topic=GUARDED_TOPIC, read_queue_nums=1, write_queue_nums=1)
        for one in guarded.values():
            with one.connect(ADMIN) as admin:
                admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).ok()
                if one.broker is new:
                    _create_users(admin)
        yield guarded
    finally:
        for one in guarded.values():
            one.broker.kill()


def _create_users(admin: Connection) -> None:
    topic, group = f"Topic:{GUARDED_TOPIC}", f"Group:{GROUP}"
    create_user(admin, WRITER, {topic: ["Pub", "Get"]})
    create_user(admin, READER, {topic: ["Sub", "Get"], group: ["Sub"]})
    create_user(admin, BARE_READER, {topic: ["Sub"], group: ["Sub"]})
    create_user(admin, STRANGER, {})


@pytest.fixture(params=[V5, V4])
def guarded(request: pytest.FixtureRequest, both: dict[str, Guarded]) -> Guarded:
    """Returns each of them."""
    return both[request.param]


@pytest.mark.parametrize("serialization", Serialization)
def test_who_has_the_rights_and_the_keys_sends_and_reads(
    guarded: Guarded, serialization: Serialization
) -> None:
    with guarded.connect(WRITER, serialization) as writer:
        offset = put(writer, QUEUE, Outgoing(b"signed", {"TAGS": "Köln"})).queue_offset
    with guarded.connect(READER, serialization) as reader:
        assert records_of(pull(reader, QUEUE, offset))[-1].body == b"signed"
        commit(reader, GROUP, QUEUE, offset).ok()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (None, ""),
        (replace(WRITER, secret_key="wrong"), "signature"),
        (Keys("nobody", "nobodys-secret"), "nobody"),
        (STRANGER, GUARDED_TOPIC),
        (READER, GUARDED_TOPIC),
    ],
    ids=["unsigned", "wrong-secret", "unknown-user", "without-rights", "rights-to-read"],
)
def test_a_send_is_refused_without_keys_or_rights(
    guarded: Guarded, keys: Keys | None, reason: str
) -> None:
    with guarded.connect(ADMIN) as admin:
        before = max_offset(admin, QUEUE)
        with guarded.connect(keys) as connection:
            answer = send(connection, QUEUE, Outgoing(b"refused"))
        assert answer.code == guarded.refusal
        assert reason.lower() in answer.remark.lower()
        assert max_offset(admin, QUEUE) == before


def test_a_pull_is_refused_without_rights_to_read(guarded: Guarded) -> None:
    for keys in (WRITER, STRANGER):
        with guarded.connect(keys) as connection:
            assert pull(connection, QUEUE).code == guarded.refusal


def test_ranges_are_told_in_5_to_those_who_may_get(both: dict[str, Guarded]) -> None:
    header = GetMaxOffsetRequest(topic=GUARDED_TOPIC, queue_id=0)
    with both[V5].connect(BARE_READER) as reader:
        assert reader.ask(RequestCode.GET_MAX_OFFSET, header).code == ResponseCode.NO_PERMISSION
    with both[V4].connect(STRANGER) as stranger:
        stranger.ask(RequestCode.GET_MAX_OFFSET, header).ok()


def test_a_broker_that_insists_on_tls_closes_plain_connections(both: dict[str, Guarded]) -> None:
    address = both[V5].broker.address
    with Connection(address, keys=ADMIN) as connection, pytest.raises(ConnectionError):
        connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


def test_a_certificate_of_another_authority_is_not_taken(
    both: dict[str, Guarded], tmp_path: Path
) -> None:
    other = Certificates.create(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        Connection(both[V5].broker.address, tls=other.trusting())


@pytest.mark.parametrize("name", [A, OLD])
def test_tls_and_plain_share_a_port_by_default(cluster: Cluster, name: str) -> None:
    broker = cluster.broker(name)
    for address in (broker.address, cluster.name_servers[0].address):
        with Connection(address, tls=unverified()) as connection:
            answer = send(connection, QUEUE, Outgoing(b"by TLS"))
            is_broker = address == broker.address
            code = ResponseCode.SUCCESS if is_broker else ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.code == code
    with Connection(broker.address) as connection:
        until_pullable(connection, QUEUE, 0)
        assert bodies(connection, QUEUE) == [b"by TLS"]
