"""The connector's transport at a live cluster: routes, offsets, sends and pulls."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError, TopicNotExistError
from pyspark_rocketpy.transport.remoting.cluster import client
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import (
    PULLED_MESSAGES_MAX,
    Pull,
    PullStatus,
    consumer_offset,
    max_offset,
    min_offset,
    pull,
    search_offset,
    update_consumer_offset,
)
from pyspark_rocketpy.transport.remoting.net.access_keys import AccessKeys
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.connections import Connections
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.send.requests import SendBatch, send
from rocketpy_proto.record import RecordBlock, decode_record
from rocketpy_proto.remoting import BatchMessage, MessageQueue, ResponseCode, encode_batch
from rocketpy_proto.tls import TlsConfig
from tests.interop.cluster.cluster import OLD, A, B, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import GROUP, Queue, until_pullable
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import SLAVE_ID
from tests.support.time_limits import WAIT_SECONDS_MAX

PATIENT = Timeouts(WAIT_SECONDS_MAX * 1000, "requestTimeoutMs")
TOPIC = "transport"
QUEUES = 2
NAMES = (A, B, OLD)
Connect = Callable[..., client.Cluster]


@pytest.fixture(scope="module", autouse=True)
def _topic(cluster: Cluster) -> None:
    cluster.create_topic(TOPIC, QUEUES)


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Connect]:
    """Yields a function that returns the connector's view of the cluster, with new connections."""
    connections = Connections()

    def make(
        tls: TlsConfig | None = None,
        access: AccessKeys | None = None,
        request: Timeouts = PATIENT,
    ) -> client.Cluster:
        name_servers = tuple(cluster.addresses.split(";"))
        config = ClusterConfig(name_servers, PATIENT, request, tls, access)
        return client.Cluster(config, connections)

    yield make
    connections.close()


def stored(cluster: Cluster, queue: MessageQueue, offset: int) -> None:
    """Waits until a queue has passed an offset."""
    with Connection(cluster.broker(queue.broker_name).address) as connection:
        until_pullable(connection, Queue(queue.topic, queue.queue_id), offset)


def bodies(seen: client.Cluster, queue: MessageQueue, begin: int, end: int) -> list[bytes]:
    """Returns the bodies of a queue's range, by concurrent pulls."""
    found: list[bytes] = []
    begins = range(begin, end, PULLED_MESSAGES_MAX)
    for call in [pull(seen, Pull(GROUP, queue, offset), PATIENT) for offset in begins]:
        result = call.answer()
        assert result.status is PullStatus.FOUND
        data = bytes(result.records)
        positions = RecordBlock.parse(data).positions.tolist()
        found += [decode_record(data, position).record.body for position in positions]
    return found


def test_routes_name_every_broker_and_its_queues(connect: Connect, cluster: Cluster) -> None:
    seen = connect()
    route = seen.route(TOPIC)
    assert route.read_queue_nums() == route.write_queue_nums() == dict.fromkeys(NAMES, QUEUES)
    slave = route.peer(A, SLAVE_ID)
    assert slave is not None
    assert slave.address == cluster.broker(A, SLAVE_ID).address
    assert TOPIC in seen.topics()
    masters = {name: peer.address for name, peer in seen.masters().items()}
    assert masters == {name: cluster.broker(name).address for name in NAMES}
    with pytest.raises(TopicNotExistError):
        seen.route("nowhere")


@pytest.mark.parametrize("tls", [None, TlsConfig(is_verified=False)], ids=["plain", "tls"])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_sent_is_read_at_each_broker(
    connect: Connect, cluster: Cluster, name: str, tls: TlsConfig | None
) -> None:
    seen, queue = connect(tls), MessageQueue(name, 1, TOPIC)
    begin = max_offset(seen, queue).answer()
    first = send(seen, queue, SendBatch(b"one", 1, "TAGS\x01a\x02"), PATIENT).answer()
    assert (first.code, first.queue_id, first.queue_offset) == (0, 1, begin)
    batch = [BatchMessage(b"%d" % number) for number in range(2 * PULLED_MESSAGES_MAX - 1)]
    rest = send(seen, queue, SendBatch(encode_batch(batch), len(batch)), PATIENT).answer()
    assert (rest.code, rest.queue_offset, len(rest.msg_ids)) == (0, begin + 1, len(batch))
    end = begin + 1 + len(batch)
    stored(cluster, queue, end - 1)
    assert bodies(seen, queue, begin, end) == [b"one", *(message.body for message in batch)]
    assert min_offset(seen, queue).answer() == 0
    assert search_offset(seen, queue, 0).answer() == 0
    at_end = pull(seen, Pull(GROUP, queue, end), PATIENT).answer()
    assert (at_end.status, at_end.next_begin_offset) == (PullStatus.NO_NEW_MESSAGE, end)
    beyond = pull(seen, Pull(GROUP, queue, end + 1), PATIENT).answer()
    assert (beyond.status, beyond.max_offset) == (PullStatus.OFFSET_ILLEGAL, end)
    unmatched = pull(seen, Pull(GROUP, queue, begin, expression="b"), PATIENT).answer()
    assert unmatched.status is PullStatus.NO_MATCHED_MESSAGE
    assert unmatched.next_begin_offset > begin


@pytest.mark.parametrize("name", NAMES)
def test_a_pull_is_held_until_a_message_comes(
    connect: Connect, cluster: Cluster, name: str
) -> None:
    seen, queue = connect(), MessageQueue(name, 0, TOPIC)
    begin = max_offset(seen, queue).answer()
    held = pull(seen, Pull(GROUP, queue, begin, suspend_ms=60_000), PATIENT)
    send(seen, queue, SendBatch(b"awaited", 1, ""), PATIENT).answer()
    assert b"awaited" in bytes(held.answer().records)


@pytest.mark.parametrize("name", [A, OLD])
def test_a_group_is_where_it_has_committed(connect: Connect, name: str) -> None:
    seen, queue = connect(), MessageQueue(name, 0, TOPIC)
    group = f"group-at-{name}"
    # A pull creates the group.
    pull(seen, Pull(group, queue, 0), PATIENT).answer()
    # 4.9 does not distinguish no offset from 0.
    assert consumer_offset(seen, group, queue).answer() == (None if name == A else 0)
    update_consumer_offset(seen, group, queue, 1).answer()
    assert consumer_offset(seen, group, queue).answer() == 1


def test_what_5_3_refuses_has_its_code(connect: Connect) -> None:
    seen, queue = connect(), MessageQueue(A, 0, TOPIC)
    with pytest.raises(BrokerError, match="response code 26, SUBSCRIPTION_GROUP_NOT_EXIST"):
        update_consumer_offset(seen, "unknown-group", queue, 1).answer()
    with pytest.raises(BrokerError, match="response code 29, INVALID_PARAMETER"):
        send(seen, MessageQueue(A, 9, TOPIC), SendBatch(b"body", 1, ""), PATIENT).answer()
    with pytest.raises(BrokerError, match="response code 2, SYSTEM_BUSY"):
        pull(seen, Pull(GROUP, queue, 0, broker_id=SLAVE_ID), PATIENT).answer()


def test_one_name_server_is_enough(connect: Connect, fragile_cluster: Cluster) -> None:
    seen = connect()
    seen.topics()
    fragile_cluster.name_servers[0].kill()
    assert TOPIC in seen.topics()
    fragile_cluster.name_servers[1].kill()
    with pytest.raises(ConnectionFailedError) as caught:
        seen.topics()
    for server in fragile_cluster.name_servers:
        assert server.address in str(caught.value)


def test_a_broker_that_comes_back_is_found_again(
    connect: Connect, fragile_cluster: Cluster
) -> None:
    seen, queue = connect(), MessageQueue(B, 0, TOPIC)
    before = max_offset(seen, queue).answer()
    broker = fragile_cluster.broker(B)
    broker.kill()
    with pytest.raises(ConnectionFailedError) as caught:
        max_offset(seen, queue).answer()
    assert broker.address in str(caught.value)
    server = fragile_cluster.name_servers[0]
    until(lambda: B not in server.routes(TOPIC), "left the route", [])
    with pytest.raises(ConnectionFailedError, match=f"address of broker {B} with id 0"):
        max_offset(seen, queue).answer()
    fragile_cluster.heal()
    # An error of the first query would end the wait.
    until(lambda: max_offset(seen, queue).answer() == before, "found again", [broker])


def test_a_frozen_broker_is_given_up_and_found_again(
    connect: Connect, fragile_cluster: Cluster
) -> None:
    seen, queue = connect(request=Timeouts(5_000, "requestTimeoutMs")), MessageQueue(B, 0, TOPIC)
    max_offset(seen, queue).answer()
    broker = fragile_cluster.broker(B)
    broker.freeze()
    with pytest.raises(ConnectionFailedError, match="has not answered within 5000 ms"):
        max_offset(seen, queue).answer()
    broker.thaw()
    assert max_offset(connect(), queue).answer() >= 0


def test_a_server_whose_certificate_is_its_own_is_not_believed(connect: Connect) -> None:
    with pytest.raises(ConnectionFailedError, match="has a certificate that is not accepted"):
        connect(TlsConfig()).topics()


def test_a_signature_is_read_over_by_who_asks_for_none(connect: Connect, cluster: Cluster) -> None:
    seen, queue = connect(access=AccessKeys("user", "secret", "token")), MessageQueue(A, 0, TOPIC)
    assert max_offset(seen, queue).answer() >= 0
    sent = send(seen, queue, SendBatch(b"signed", 1, ""), PATIENT).answer()
    assert sent.code == ResponseCode.SUCCESS
    # Other tests take the queue's end for the next message's offset.
    stored(cluster, queue, sent.queue_offset)
