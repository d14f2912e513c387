"""Name servers, of which some are away, have just started, or answer nonsense."""

from __future__ import annotations

import pytest

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError, TopicNotExistError
from pyspark_rocketpy.transport.remoting.net.calls import JSON_BODY_BYTES_MAX
from rocketpy_proto.remoting import RemotingCommand, ResponseCode, encode_body
from rocketpy_proto.remoting.bodies.routes import TopicList, TopicRouteData
from tests.support.golden import GOLDEN
from tests.unit.connector.transport.remoting.conftest import Clusters, Peers
from tests.unit.connector.transport.remoting.scripted_cluster import (
    TOPIC,
    Knowledge,
    refusing,
    route_of,
)
from tests.unit.connector.transport.remoting.scripted_peer import (
    Answers,
    ScriptedPeer,
    Visit,
    answering,
    leaving,
    success,
)
from tests.unit.remoting.recorded import needs_golden, request, response

ROUTE = route_of(a="127.0.0.1:1", b="127.0.0.1:2")


def saying(answer: Answers, peers: Peers) -> ScriptedPeer:
    return peers(answering(answer))


def test_the_first_one_is_asked_and_kept(peers: Peers, clusters: Clusters) -> None:
    first, second = Knowledge({TOPIC: ROUTE}), Knowledge()
    cluster = clusters(saying(first.answer, peers), saying(second.answer, peers))
    assert cluster.route(TOPIC).data == ROUTE
    assert cluster.topics() == (TOPIC,)
    assert {name: peer.address for name, peer in cluster.masters().items()} == {
        "a": "127.0.0.1:1",
        "b": "127.0.0.1:2",
    }
    assert (len(first.asked), len(second.asked)) == (3, 0)
    assert first.asked[0].ext_fields == {"topic": TOPIC, "acceptStandardJsonOnly": "true"}


def test_many_routes_are_asked_for_in_one_go(peers: Peers, clusters: Clusters) -> None:
    topics = [f"topic-{number}" for number in range(300)]
    known = Knowledge(dict.fromkeys(topics, ROUTE))

    def script(visit: Visit) -> None:
        """Answers only when all requests that may be in flight have arrived."""
        held: list[RemotingCommand] = []
        for asked in visit.requests():
            held.append(known.answer(asked))
            if len(known.asked) in {128, 256, 300}:
                for answer in held:
                    visit.send(answer)
                held.clear()

    cluster = clusters(peers(script))
    cluster.prepare(topics)
    assert all(cluster.route(topic).data == ROUTE for topic in topics)
    cluster.prepare(topics)
    assert len(known.asked) == 300, "all are kept"


def test_what_is_not_answered_together_is_asked_for_alone(peers: Peers, clusters: Clusters) -> None:
    known = Knowledge({"a": ROUTE, "b": ROUTE})
    cluster = clusters(peers(), saying(known.answer, peers))
    cluster.prepare(["a", "b", "missing"])
    assert known.asked == []
    assert cluster.route("a").data == ROUTE
    cluster.prepare(["a", "b", "missing"])
    assert [request.ext_fields["topic"] for request in known.asked] == ["a", "b", "missing"]
    with pytest.raises(TopicNotExistError):
        cluster.route("missing")


def test_the_next_one_is_asked_where_one_fails_and_is_kept(
    peers: Peers, clusters: Clusters
) -> None:
    known = Knowledge({TOPIC: ROUTE})
    cut = peers(leaving)
    cluster = clusters(peers(), cut, saying(known.answer, peers))
    assert cluster.topics() == (TOPIC,)
    assert cluster.topics() == (TOPIC,)
    assert cut.visits == 1


@pytest.mark.parametrize(
    "code",
    [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.TOPIC_NOT_EXIST],
)
def test_the_next_one_is_asked_where_one_is_not_ready(
    peers: Peers, clusters: Clusters, code: ResponseCode
) -> None:
    known = Knowledge({TOPIC: ROUTE})
    beginning = saying(refusing(code, "name server not ready"), peers)
    assert clusters(beginning, saying(known.answer, peers)).route(TOPIC).data == ROUTE


def test_a_topic_that_none_knows_is_unknown(peers: Peers, clusters: Clusters) -> None:
    cluster = clusters(peers(), *(saying(Knowledge().answer, peers) for _ in range(2)))
    with pytest.raises(
        TopicNotExistError, match=r"^ROCKETPY_BROKER: name server .* for the topic: T "
    ):
        cluster.route("T")
    with pytest.raises(TopicNotExistError) as caught:
        cluster.route(TOPIC)
    assert caught.value.response_code == ResponseCode.TOPIC_NOT_EXIST


def test_a_refusal_that_all_would_give_is_told_at_once(peers: Peers, clusters: Clusters) -> None:
    refused = saying(refusing(ResponseCode.NO_PERMISSION, "User:u1 has no permission"), peers)
    other = saying(Knowledge({TOPIC: ROUTE}).answer, peers)
    with pytest.raises(BrokerError, match=r"no permission .*options accessKey and secretKey"):
        clusters(refused, other).route(TOPIC)
    assert not other.visits


def test_where_none_answers_all_are_named(peers: Peers, clusters: Clusters) -> None:
    away, cut = peers(), peers(leaving)
    with pytest.raises(ConnectionFailedError) as caught:
        clusters(away, cut).route(TOPIC)
    text = str(caught.value)
    assert f"name server {away.address} cannot be reached (Connection refused)" in text
    assert f"name server {cut.address} closed the connection" in text
    assert text.count("ROCKETPY_CONNECTION") == 1
    assert not caught.value.is_lasting


def strange(visit: Visit) -> None:
    visit.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    visit.wait_for_end()


def test_where_all_are_strangers_another_try_would_be_for_nothing(
    peers: Peers, clusters: Clusters
) -> None:
    with pytest.raises(ConnectionFailedError, match=r"speaks HTTP.*speaks HTTP") as caught:
        clusters(peers(strange), peers(strange)).route(TOPIC)
    assert caught.value.is_lasting


def test_a_list_of_many_topics_is_taken_and_more_than_that_refused(
    peers: Peers, clusters: Clusters
) -> None:
    topics = tuple(f"{number:0127}" for number in range(10_000))

    def answer(asked: RemotingCommand) -> RemotingCommand:
        return success(asked, body=TopicList(topics))

    peer = saying(answer, peers)
    assert clusters(peer).topics() == topics
    topics *= 2
    with pytest.raises(
        ConnectionFailedError, match=f"bytes, limit {JSON_BODY_BYTES_MAX};"
    ) as caught:
        clusters(peer).topics()
    assert peer.address in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"", b"[", b"[" * 100_000, b'{"brokerDatas":[{"$ref":"$"}]}', b"\xff"]
)
def test_a_body_that_is_none_is_declared(peers: Peers, clusters: Clusters, body: bytes) -> None:
    peer = saying(lambda asked: success(asked, body=body), peers)
    with pytest.raises(
        ConnectionFailedError, match="does not answer in RocketMQ's protocol"
    ) as caught:
        clusters(peer).route(TOPIC)
    assert peer.address in str(caught.value)
    assert caught.value.is_lasting


def test_a_code_that_nobody_knows_and_a_long_remark(peers: Peers, clusters: Clusters) -> None:
    def answer(asked: RemotingCommand) -> RemotingCommand:
        return asked.answer(-1000, remark="r" * 900_000)

    with pytest.raises(BrokerError, match=r"r \(response code -1000, unknown\)") as caught:
        clusters(saying(answer, peers)).topics()
    assert len(str(caught.value)) < 700


@needs_golden
def test_recorded_answers_of_a_name_server_are_read(peers: Peers, clusters: Clusters) -> None:
    table = {
        str(request(name).code): response(name) for name in ("01_get_route", "04_cluster_info")
    }

    def answer(asked: RemotingCommand) -> RemotingCommand:
        recorded = table[str(int(asked.code))]
        return asked.answer(recorded.code, body=recorded.body)

    cluster = clusters(saying(answer, peers))
    route = cluster.route("GoldT")
    assert route.read_queue_nums() == route.write_queue_nums() == {"broker-p": 2}
    assert cluster.masters() == {"broker-p": route.peer("broker-p")}


@needs_golden
@pytest.mark.parametrize("name", ["nonstandard.txt", "standard_by_flag.json", "order.json"])
def test_a_recorded_route_is_read_in_each_form(peers: Peers, clusters: Clusters, name: str) -> None:
    body = (GOLDEN / "cluster" / f"route_TopicTest_{name}").read_bytes()
    route = clusters(saying(lambda asked: success(asked, body=body), peers)).route(TOPIC)
    assert route.read_queue_nums() == {"broker-a": 4, "broker-b": 4}
    assert route.write_queue_nums()["broker-a"] == 4
    slave = route.peer("broker-a", 1)
    assert slave is not None
    assert slave.address == "127.0.0.1:21911"


def test_an_empty_route_is_one(peers: Peers, clusters: Clusters) -> None:
    empty = encode_body(TopicRouteData())
    route = clusters(saying(lambda asked: success(asked, body=empty), peers)).route(TOPIC)
    assert route.read_queue_nums() == {}
