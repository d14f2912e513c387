"""Offsets and pulls, with recorded answers of brokers and with odd ones."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from pyspark_rocketpy.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectionFailedError,
    TopicNotExistError,
)
from pyspark_rocketpy.transport.remoting.cluster import queue_requests
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import Pull, PullStatus
from pyspark_rocketpy.transport.remoting.net.calls import NO_BODY_BYTES_MAX, Call
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from rocketpy_proto.remoting import MessageQueue, RemotingCommand, ResponseCode
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from rocketpy_proto.remoting.headers.pulls import PullMessageResponse
from tests.unit.connector.transport.remoting.conftest import Clusters, Peers, Time
from tests.unit.connector.transport.remoting.scripted_cluster import (
    TOPIC,
    Knowledge,
    refusing,
    route_of,
)
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    Answers,
    Script,
    ScriptedPeer,
    Visit,
    answering,
    echo,
    leaving,
    silent,
    success,
)
from tests.unit.remoting.recorded import needs_golden, request, response

QUEUE = MessageQueue("broker-p", 0, "GoldT")


class Setup:
    """A cluster of one name server and one broker, and their received requests."""

    def __init__(self, peers: Peers, clusters: Clusters, script: Script) -> None:
        self.broker: ScriptedPeer = peers(script)
        route = route_of(**{QUEUE.broker_name: self.broker.address})
        self.names = Knowledge({QUEUE.topic: route, TOPIC: route})
        self.cluster: Cluster = clusters(peers(answering(self.names.answer)))


MakeSetup = Callable[[Answers], Setup]


@pytest.fixture
def setup(peers: Peers, clusters: Clusters) -> MakeSetup:
    """Returns a function that makes a cluster with these answers of the broker."""
    return lambda answer: Setup(peers, clusters, answering(answer))


def recorded(exchange: str, heard: list[RemotingCommand]) -> Answers:
    """Answers as a real broker did in a recording."""

    def answer(asked: RemotingCommand) -> RemotingCommand:
        heard.append(asked)
        found = response(exchange)
        return asked.answer(
            found.code, remark=found.remark, ext_fields=found.ext_fields, body=found.body
        )

    return answer


def pulling(cluster: Cluster, offset: int = 0) -> Call[queue_requests.PullResult]:
    return queue_requests.pull(cluster, Pull("GoldCG", QUEUE, offset), PATIENT)


@needs_golden
@pytest.mark.parametrize(
    ("exchange", "ask"),
    [
        ("21_max_offset", queue_requests.max_offset),
        ("22_min_offset", queue_requests.min_offset),
        (
            "23_search_offset_lower",
            lambda cluster, queue: queue_requests.search_offset(cluster, queue, 0),
        ),
        ("19_query_offset", lambda c, queue: queue_requests.consumer_offset(c, "GoldCG", queue)),
    ],
)
def test_an_offset_is_what_a_broker_answered(
    setup: MakeSetup, exchange: str, ask: Callable[[Cluster, MessageQueue], Call[int]]
) -> None:
    heard: list[RemotingCommand] = []
    offset = ask(setup(recorded(exchange, heard)).cluster, QUEUE).answer()
    assert offset == int(response(exchange).ext_fields["offset"])
    assert heard[0].code == request(exchange).code
    assert set(request(exchange).ext_fields) <= {*heard[0].ext_fields, "boundaryType", "committed"}
    assert heard[0].ext_fields["bname"] == QUEUE.broker_name


@needs_golden
def test_nothing_committed_is_none(setup: MakeSetup) -> None:
    heard: list[RemotingCommand] = []
    cluster = setup(recorded("17_query_offset_not_found", heard)).cluster
    assert queue_requests.consumer_offset(cluster, "GoldCG", QUEUE).answer() is None
    assert heard[0].ext_fields["setZeroIfNotFound"] == "false"


def test_what_was_committed_as_nothing_is_none(setup: MakeSetup) -> None:
    cluster = setup(lambda asked: success(asked, OffsetResponse(-1))).cluster
    assert queue_requests.consumer_offset(cluster, "g", QUEUE).answer() is None


@needs_golden
def test_a_commit_is_acknowledged_or_refused_by_its_code(setup: MakeSetup) -> None:
    heard: list[RemotingCommand] = []
    cluster = setup(recorded("18_update_offset", heard)).cluster
    queue_requests.update_consumer_offset(cluster, "GoldCG", QUEUE, 1).answer()
    assert heard[0].ext_fields["commitOffset"] == "1"
    cluster = setup(recorded("20_update_offset_unknown_group", [])).cluster
    with pytest.raises(BrokerError, match="response code 26, SUBSCRIPTION_GROUP_NOT_EXIST") as e:
        queue_requests.update_consumer_offset(cluster, "unknown", QUEUE, 1).answer()
    assert e.value.response_code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@needs_golden
@pytest.mark.parametrize(
    ("exchange", "status"),
    [
        ("10_pull_found", PullStatus.FOUND),
        ("11_pull_found_batch", PullStatus.FOUND),
        ("12_pull_not_found", PullStatus.NO_NEW_MESSAGE),
        ("13_pull_offset_illegal", PullStatus.OFFSET_ILLEGAL),
        ("14_pull_offset_too_small", PullStatus.OFFSET_ILLEGAL),
        ("15_pull_no_match", PullStatus.NO_MATCHED_MESSAGE),
        ("B04_binary_pull_found", PullStatus.FOUND),
    ],
)
def test_a_pull_is_what_a_broker_answered(
    setup: MakeSetup, exchange: str, status: PullStatus
) -> None:
    heard: list[RemotingCommand] = []
    asked, answered = request(exchange).ext_fields, response(exchange)
    cluster = setup(recorded(exchange, heard)).cluster
    found = pulling(cluster, int(asked["queueOffset"])).answer()
    assert found.status is status
    assert found.next_begin_offset == int(answered.ext_fields["nextBeginOffset"])
    assert found.min_offset == int(answered.ext_fields["minOffset"])
    assert found.max_offset == int(answered.ext_fields["maxOffset"])
    assert (found.records, found.remark) == (answered.body, answered.remark or "")
    sent = heard[0].ext_fields
    for name in ("topic", "queueId", "queueOffset", "sysFlag", "commitOffset", "subVersion"):
        expected = {"topic": "GoldT", "queueId": "0", "sysFlag": "4"}.get(name, asked[name])
        assert sent[name] == ("0" if name == "subVersion" else expected)
    assert sent["subscription"] == "*"


@needs_golden
def test_a_pull_without_a_subscription_at_the_broker_is_refused(setup: MakeSetup) -> None:
    cluster = setup(recorded("16_pull_no_subscription", [])).cluster
    with pytest.raises(BrokerError, match="SUBSCRIPTION_NOT_EXIST"):
        pulling(cluster).answer()


def test_pulls_are_under_way_together_and_may_be_held(
    peers: Peers, clusters: Clusters, time: Time
) -> None:
    def script(visit: Visit) -> None:
        requests = visit.requests()
        for asked in reversed([next(requests) for _ in range(4)]):
            begin = int(asked.ext_fields["queueOffset"])
            header = PullMessageResponse(0, begin + 32, 0, 128)
            visit.send(success(asked, header, b"%d" % begin))
        held = next(requests)
        assert (held.ext_fields["sysFlag"], held.ext_fields["suspendTimeoutMillis"]) == ("6", "9")
        visit.wait_for_end()

    setup = Setup(peers, clusters, script)
    calls = [pulling(setup.cluster, begin) for begin in range(0, 128, 32)]
    assert [bytes(call.answer().records) for call in calls] == [b"0", b"32", b"64", b"96"]
    held = queue_requests.pull(
        setup.cluster, Pull("g", QUEUE, 128, suspend_ms=9), Timeouts(1_000, "pullTimeout")
    )
    time.now_ms += 11_009
    with pytest.raises(ConnectionFailedError, match="within 11009 ms; set option pullTimeout"):
        held.answer()


def test_found_messages_that_lead_nowhere_are_an_error(setup: MakeSetup) -> None:
    header = PullMessageResponse(0, 7, 0, 9)
    cluster = setup(lambda asked: success(asked, header, b"records")).cluster
    with pytest.raises(
        ConnectionFailedError, match=r"from offset 7 with .* and 7 as the next offset"
    ) as e:
        pulling(cluster, 7).answer()
    assert e.value.is_lasting


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ({}, "OffsetResponse: Object missing required field `offset`"),
        ({"offset": "x"}, "OffsetResponse: "),
        ({"offset": str(1 << 63)}, "OffsetResponse: "),
    ],
)
def test_an_answer_without_an_offset_is_declared(
    setup: MakeSetup, header: dict[str, str], problem: str
) -> None:
    made = setup(lambda asked: asked.answer(ResponseCode.SUCCESS, ext_fields=header))
    with pytest.raises(ConnectionFailedError, match=problem) as caught:
        queue_requests.max_offset(made.cluster, QUEUE).answer()
    assert f"broker {made.broker.address} does not answer in RocketMQ's protocol" in str(
        caught.value
    )


def test_an_answer_that_needs_no_body_has_a_small_one(setup: MakeSetup) -> None:
    body = bytes(NO_BODY_BYTES_MAX + 1)
    cluster = setup(lambda asked: success(asked, OffsetResponse(1), body)).cluster
    with pytest.raises(ConnectionFailedError, match=f"bytes, limit {NO_BODY_BYTES_MAX};"):
        queue_requests.max_offset(cluster, QUEUE).answer()


ERRORS = {
    ResponseCode.SYSTEM_BUSY: (BrokerBusyError, False),
    ResponseCode.SYSTEM_ERROR: (BrokerError, False),
    ResponseCode.SERVICE_NOT_AVAILABLE: (BrokerBusyError, True),
    ResponseCode.TOPIC_NOT_EXIST: (TopicNotExistError, True),
    ResponseCode.INVALID_PARAMETER: (BrokerError, True),
    ResponseCode.NOT_LEADER_FOR_QUEUE: (BrokerError, True),
    ResponseCode.GO_AWAY: (BrokerBusyError, False),
}


@pytest.mark.parametrize("code", ERRORS)
def test_a_refusal_has_its_error_and_makes_the_route_doubtful(
    setup: MakeSetup, code: ResponseCode
) -> None:
    kind, is_doubted = ERRORS[code]
    made = setup(refusing(code, "no"))
    with pytest.raises(
        BrokerError, match=rf": no \(response code {code.value}, {code.name}\)"
    ) as e:
        queue_requests.max_offset(made.cluster, QUEUE).answer()
    assert type(e.value) is kind
    assert pickle.loads(pickle.dumps(e.value)).response_code == code
    made.cluster.route(QUEUE.topic)
    assert len(made.names.asked) == 1 + is_doubted


def test_a_broker_that_moved_is_found_at_its_new_address(peers: Peers, clusters: Clusters) -> None:
    setup = Setup(peers, clusters, leaving)
    with pytest.raises(ConnectionFailedError, match="closed the connection"):
        queue_requests.max_offset(setup.cluster, QUEUE).answer()
    moved = peers(answering(lambda asked: success(asked, OffsetResponse(5))))
    setup.names.routes[QUEUE.topic] = route_of(**{QUEUE.broker_name: moved.address})
    assert queue_requests.max_offset(setup.cluster, QUEUE).answer() == 5


def test_a_broker_that_takes_no_connection_makes_the_route_doubtful(
    peers: Peers, clusters: Clusters
) -> None:
    setup = Setup(peers, clusters, silent)
    setup.broker.close()
    for times in (1, 2):
        with pytest.raises(ConnectionFailedError, match="cannot be reached"):
            queue_requests.max_offset(setup.cluster, QUEUE)
        # Requested at once: the broker may have moved.
        assert len(setup.names.asked) == 1 + times


def test_a_broker_that_no_route_has_is_named(setup: MakeSetup) -> None:
    made = setup(echo)
    gone = MessageQueue("broker-q", 0, "GoldT")
    for times in (1, 2):
        with pytest.raises(
            ConnectionFailedError, match="address of broker broker-q with id 0"
        ) as e:
            queue_requests.max_offset(made.cluster, gone)
        assert "option nameServer" in str(e.value)
        assert not e.value.is_lasting
        assert len(made.names.asked) == times
