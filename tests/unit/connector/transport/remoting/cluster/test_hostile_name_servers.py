"""Name servers with impossible answers: declared errors, and bounded memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.offsets import Bounds
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.routes import _ENTRIES_MAX, QUEUES_MAX, Routes
from pyspark_rocketpy.transport.remoting.pull.offset_queries import (
    QUERY_QUEUES_MAX,
    RemotingOffsetQueries,
)
from pyspark_rocketpy.transport.remoting.send.block_writer import RemotingBlockWriter
from pyspark_rocketpy.transport.values import RetryPolicy, Subscription
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.bodies.routes import BrokerData, QueueData, TopicRouteData
from tests.unit.connector.transport.remoting.conftest import Clusters, Peers
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, Knowledge
from tests.unit.connector.transport.remoting.scripted_peer import PATIENT, answering, success
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue

SUBSCRIPTION = Subscription((TOPIC,), None, "group")
MIB = 1 << 20


def planned(cluster: Cluster, subscription: Subscription = SUBSCRIPTION) -> Bounds:
    """Makes the first request of a query."""
    queries = RemotingOffsetQueries(cluster, RetryPolicy(0, 1), "group", PATIENT)
    return queries.bounds(subscription)


def written(cluster: Cluster) -> object:
    """Makes the first request of a sink's task."""
    return RemotingBlockWriter(cluster, RetryPolicy(0, 1), PATIENT).write_queues([TOPIC])


def knowing(peers: Peers, clusters: Clusters, route: object) -> Cluster:
    """Returns a cluster with a name server that answers each route with this body."""
    body = route if isinstance(route, bytes) else msgspec.json.encode(route)
    return clusters(peers(answering(lambda request: success(request, body=body))))


def queue(name: str, nums: int = 1, perm: int = 6) -> dict[str, Any]:
    return {"brokerName": name, "readQueueNums": nums, "writeQueueNums": nums, "perm": perm}


def broker(name: str, address: str = "127.0.0.1:1", broker_id: str = "0") -> dict[str, Any]:
    return {"brokerName": name, "cluster": "C", "brokerAddrs": {broker_id: address}}


def route(brokers: list[dict[str, Any]], queues: list[dict[str, Any]]) -> dict[str, Any]:
    return {"brokerDatas": brokers, "queueDatas": queues, "filterServerTable": {}}


def many(count: int, nums: int) -> dict[str, Any]:
    names = [f"broker-{number}" for number in range(count)]
    return route([broker(name) for name in names], [queue(name, nums) for name in names])


@pytest.mark.parametrize("ask", [planned, written])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(many(2_000, QUEUES_MAX), id="131 million queues"),
        pytest.param(many(2, QUEUES_MAX // 2 + 1), id="just too many"),
        pytest.param(many(2_000, -1), id="negative"),
        pytest.param(many(1, (1 << 31) - 1), id="the largest number"),
        pytest.param(route([broker("a"), broker("a")], [queue("a")]), id="two brokers"),
        pytest.param(route([broker("a")], [queue("a"), queue("a", 2)]), id="two sets of queues"),
        pytest.param(route([broker("")], [queue("")]), id="no name"),
    ],
)
def test_queues_that_cannot_be_meant_are_declared(
    peers: Peers, clusters: Clusters, body: dict[str, Any], ask: Any
) -> None:
    cluster = knowing(peers, clusters, body)
    tracemalloc.start()
    try:
        with pytest.raises(BrokerError, match=f"option nameServer reports that topic {TOPIC} has"):
            ask(cluster)
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            b'{"brokerDatas":' + b"[" * 500_000 + b"]" * 500_000 + b"}", id="nested lists"
        ),
        pytest.param(b'{"a":' * 300_000 + b"1" + b"}" * 300_000, id="nested objects"),
        pytest.param(b"[" * 1_900_000, id="brackets without end"),
        pytest.param(b'{"queueDatas":[{"brokerName":"a"}]}', id="no numbers"),
        pytest.param(msgspec.json.encode(many(1, 1 << 31)), id="more than 32 bits"),
        pytest.param(b'{"queueDatas":[' + b"9" * 100_000 + b"]}", id="a long number"),
        pytest.param(b'{"queueDatas":{}}', id="another type"),
        pytest.param(b"\xff\xfe" * 1_000, id="no UTF-8"),
        pytest.param(b'{"brokerDatas":[{"brokerName":"\\ud800"}]}', id="half a character"),
        pytest.param(b"null", id="nothing"),
        pytest.param(b" " * (2 * MIB), id="blanks"),
    ],
)
@pytest.mark.parametrize("ask", [planned, written])
def test_a_text_that_is_no_route_is_declared(
    peers: Peers, clusters: Clusters, body: bytes, ask: Any
) -> None:
    with pytest.raises(ConnectionFailedError, match="does not answer in RocketMQ's protocol"):
        ask(knowing(peers, clusters, body))


@pytest.mark.parametrize(
    "address",
    [
        *("", ":", "h", "h:", ":9", "h:0", "h:65536", "h:-1", "h:x", "h:٣", f"h:{'9' * 5_000}"),
        *("[::1", "[::1]:", "a b:1", "a..b:1", "\0:1", "x" * 300 + ":1", "x" * 100_000 + ":1"),
        *("größe.invalid:1", "%s:1", "http://127.0.0.1:1", "127.0.0.1:1:1"),
    ],
)
def test_an_address_that_is_none_is_declared_in_few_words(
    peers: Peers, clusters: Clusters, address: str
) -> None:
    cluster = knowing(peers, clusters, route([broker("a", address)], [queue("a")]))
    with pytest.raises(ConnectionFailedError) as caught:
        planned(cluster)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("perm", [-1, -(1 << 31), 8, 15, 1 << 30, (1 << 31) - 1])
def test_a_strange_permission_means_its_bits(peers: Peers, clusters: Clusters, perm: int) -> None:
    address = peers(answering(ScriptedQueue(3).answer)).address
    cluster = knowing(peers, clusters, route([broker("a", address)], [queue("a", perm=perm)]))
    assert cluster.route(TOPIC).read_queue_nums() == ({"a": 1} if perm & 4 else {})
    assert cluster.route(TOPIC).write_queue_nums() == ({"a": 1} if perm & 2 else {})


@pytest.mark.parametrize("broker_id", ["-1", str((1 << 63) - 1), "7"])
def test_a_strange_broker_id_is_a_slave(peers: Peers, clusters: Clusters, broker_id: str) -> None:
    address = peers(answering(ScriptedQueue(3).answer)).address
    brokers = [broker("a", address, broker_id)]
    cluster = knowing(peers, clusters, route(brokers, [queue("a")]))
    assert all(each.is_lagging for each in planned(cluster)[TOPIC].values())
    with pytest.raises(BrokerError, match="no broker accepts messages"):
        written(cluster)


def test_topics_of_a_query_have_bounded_queues_together(peers: Peers, clusters: Clusters) -> None:
    count = QUERY_QUEUES_MAX // QUEUES_MAX
    counts = {f"T{n}": QUEUES_MAX for n in range(count)} | {"more": 1}
    names = Knowledge(
        {topic: TopicRouteData((), (QueueData("a", n, n, 6),)) for topic, n in counts.items()}
    )
    cluster = clusters(peers(answering(names.answer)))
    with pytest.raises(ConnectionFailedError, match="have no address of a broker with queues"):
        planned(cluster, Subscription((), "T.*", "g"))
    told = (
        f"{QUERY_QUEUES_MAX + 1} in {count + 1} of {count + 1} topics, limit {QUERY_QUEUES_MAX}; "
        "read fewer topics"
    )
    with pytest.raises(BrokerError, match=told):
        planned(cluster, Subscription((), ".*", "g"))


def test_routes_that_are_kept_are_bounded_in_all() -> None:
    names = [f"broker-{number}" for number in range(1_000)]
    data = TopicRouteData(
        tuple(BrokerData(name, {0: "h:1"}) for name in names),
        tuple(QueueData(name, 1, 1, 6) for name in names),
    )
    routes = Routes(lambda _topic: data)
    topics = [f"T{number}" for number in range(_ENTRIES_MAX // len(names))]
    routes.prepare(topics, lambda topics: dict.fromkeys(topics, data))
    for topic in topics:
        assert routes.route(topic).data is data
    assert 0 < routes._entry_count <= _ENTRIES_MAX
    assert sum(kept.route.entry_count for kept in routes._cached.values()) == routes._entry_count
    routes.doubt(topics[-1])
    assert routes.route(topics[-1]).data is data
    assert routes._entry_count <= _ENTRIES_MAX


def test_a_route_is_kept_without_what_nobody_asks_it_for(peers: Peers, clusters: Clusters) -> None:
    body = {**many(1, 1), "topicQueueMappingByBroker": {"a": [[[]]] * 1_000}}
    body["filterServerTable"] = {f"h:{number}": ["x"] for number in range(1_000)}
    data = knowing(peers, clusters, body).route(TOPIC).data
    assert (data.filter_server_table, data.topic_queue_mapping_by_broker) == ({}, None)


def test_many_brokers_have_a_route(peers: Peers, clusters: Clusters) -> None:
    cluster = knowing(peers, clusters, many(8_000, 1))
    assert len(cluster.route(TOPIC).write_queue_nums()) == 8_000


@pytest.mark.parametrize("name", ["b" * 100_000, "\x01\x02", "a\nb", "größe", "@", "%RETRY%"])
def test_a_strange_name_is_a_name(peers: Peers, clusters: Clusters, name: str) -> None:
    address = peers(answering(ScriptedQueue(3).answer)).address
    cluster = knowing(peers, clusters, route([broker(name, address)], [queue(name)]))
    assert [queue.broker_name for queue in planned(cluster)[TOPIC]] == [name]


def test_a_list_of_strange_topics_is_declared(peers: Peers, clusters: Clusters) -> None:
    def answer(request: RemotingCommand) -> RemotingCommand:
        return success(request, body=b'{"topicList":["' + b"t" * MIB + b'","",null]}')

    with pytest.raises(ConnectionFailedError, match="does not answer in RocketMQ's protocol"):
        planned(clusters(peers(answering(answer))), Subscription((), ".*", "g"))
