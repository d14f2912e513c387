"""The user of options accessKey and secretKey, at a broker with users."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from pyspark_rocketpy.errors import BrokerError
from pyspark_rocketpy.options.values import SinkOptions, SourceOptions
from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.values import PullOptions, Subscription
from rocketpy_broker import BrokerUser, LocalBroker
from tests.unit.connector.transport.contract import Setup

ADMIN, WORKER = "secret-of-the-admin", "secret-of-the-worker"
WRONG = "a-wrong-secret"
READERS = PullOptions("readers", 1 << 20, fail_on_data_loss=True)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """Yields a broker with a user that may send to a topic, and read it in a group."""
    users = [
        BrokerUser("admin", ADMIN, role="admin"),
        BrokerUser("worker", WORKER, topics={"orders": "PUB|SUB"}, groups={"readers": "SUB"}),
    ]
    with LocalBroker(users=users) as started:
        for topic in ("orders", "invoices"):
            started.create_topic(topic, queues=1)
        yield started


def options(broker: LocalBroker, secret_key: str | None) -> dict[str, str]:
    given = {"endpoints": broker.endpoint, "topic": "orders", "consumerGroup": "readers"}
    if secret_key is None:
        return given
    return {**given, "accessKey": "worker", "secretKey": secret_key}


def transport(broker: LocalBroker, secret_key: str | None) -> GrpcTransport:
    return GrpcTransport.of_source(SourceOptions.parse(options(broker, secret_key)))


def test_n09_a_user_sends_reads_and_commits(broker: LocalBroker) -> None:
    used = transport(broker, WORKER)
    setup = Setup(used, used, broker.create_topic, lambda: None, lambda _topic, _queues: None)
    setup.send("orders", b"a", b"b")
    queries = used.offset_queries()
    subscription = Subscription(("orders",), None, "readers", wants_committed=True)
    (queue,) = queries.bounds(subscription)["orders"]
    assert setup.bodies("orders", options=READERS) == [b"a", b"b"]
    queries.commit("readers", {"orders": {queue: 1}}, {})
    assert queries.bounds(subscription)["orders"][queue].committed_offset == 1
    # The pattern finds only what the user may read.
    assert list(queries.bounds(Subscription((), ".*", "readers"))) == ["orders"]
    forget_client(used.client)


@pytest.mark.parametrize(
    ("secret_key", "problem"),
    [(None, "names none; set access key"), (WRONG, "the signature is not accepted")],
)
def test_n09_a_refused_user_is_named_without_its_secret(
    secret_key: str | None, problem: str, broker: LocalBroker
) -> None:
    used = transport(broker, secret_key)
    for work in (used.offset_queries().broker_name, used.limits):
        with pytest.raises(BrokerError, match=problem) as caught:
            work()
        assert WRONG not in str(caught.value)
        assert "response code 40100" in str(caught.value)


def test_n09_a_missing_permission_is_named(broker: LocalBroker) -> None:
    queries = transport(broker, WORKER).offset_queries()
    for subscription in (
        Subscription(("invoices",), None, "readers"),
        Subscription(("orders",), None, "another-group", wants_committed=True),
    ):
        with pytest.raises(BrokerError, match="user 'worker' lacks the permission SUB"):
            queries.bounds(subscription)


def test_n09_no_value_of_the_connector_shows_a_secret(broker: LocalBroker) -> None:
    source = SourceOptions.parse(options(broker, WORKER))
    sink = SinkOptions.parse(
        {"endpoints": broker.endpoint, "accessKey": "worker", "secretKey": WORKER}
    )
    shown = [source, sink, transport(broker, WORKER), GrpcTransport.of_sink(sink)]
    shown += [pickle.loads(pickle.dumps(each)) for each in shown]
    for each in shown:
        assert "worker" in repr(each)
        assert WORKER not in repr(each)
