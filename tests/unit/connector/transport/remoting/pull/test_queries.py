"""Offset queries to brokers that answer normally, and while some do not."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError, OptionError
from pyspark_rocketpy.offsets import BrokerQueue, QueueBounds, QueueRange
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.fan_out import LEFT_MS, SLOW_MS
from pyspark_rocketpy.transport.remoting.pull.offset_queries import RemotingOffsetQueries
from pyspark_rocketpy.transport.remoting.source import RemotingSource
from pyspark_rocketpy.transport.values import QueueTime, RetryPolicy, Subscription
from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode
from rocketpy_proto.remoting.bodies.routes import BrokerData, QueueData, TopicRouteData
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from rocketpy_proto.remoting.headers.pulls import PullMessageResponse
from tests.unit.connector.transport.remoting.conftest import Clusters, Peers, Time
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, Knowledge
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    Answers,
    Script,
    Visit,
    answering,
    leaving,
    success,
)
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue

REMOTING = "pyspark_rocketpy.transport.remoting"
A, B = "broker-a", "broker-b"
SUBSCRIPTION = Subscription((TOPIC,), None, "group")
RETRIES = RetryPolicy(2, 1)


class Setup:
    """A cluster of brokers with one queue each."""

    def __init__(self, peers: Peers, clusters: Clusters) -> None:
        self._peers = peers
        self.names = Knowledge()
        names = peers(answering(self.names.answer))
        self.cluster: Cluster = clusters(names)

    def route(self, topic: str = TOPIC, queues: int = 1, **brokers: dict[int, str]) -> None:
        """Sets the route to these brokers by name, with `_` for a dash: addresses by id."""
        named = {name.replace("_", "-"): addresses for name, addresses in brokers.items()}
        self.names.routes[topic] = TopicRouteData(
            tuple(BrokerData(name, each, "C") for name, each in named.items() if each),
            tuple(QueueData(name, queues, queues, 6) for name in named),
        )

    def broker(self, answer: Answers) -> str:
        return self._peers(answering(answer)).address

    def scripted(self, script: Script) -> str:
        return self._peers(script).address

    def left(self) -> str:
        """Starts a broker that reads one request and closes; returns its address."""
        return self._peers(leaving).address

    def queries(self) -> RemotingOffsetQueries:
        return RemotingOffsetQueries(self.cluster, RETRIES, "group", PATIENT)


@pytest.fixture
def setup(peers: Peers, clusters: Clusters) -> Setup:
    return Setup(peers, clusters)


def test_bounds_are_of_each_brokers_queues(setup: Setup) -> None:
    first, second = ScriptedQueue(9, begin=2), ScriptedQueue(5)
    setup.route(
        broker_a={0: setup.broker(first.answer)},
        broker_b={0: setup.broker(second.answer)},
        queues=300,
    )
    bounds = setup.queries().bounds(SUBSCRIPTION)[TOPIC]
    assert len(bounds) == 600
    assert bounds[BrokerQueue(A, 299)] == QueueBounds(2, 9, -1)
    assert bounds[BrokerQueue(B, 0)] == QueueBounds(0, 5, -1)


def test_only_topics_of_users_match_a_pattern(setup: Setup) -> None:
    address = setup.broker(ScriptedQueue(1).answer)
    own = ("TBW102", "%RETRY%g", "%DLQ%g", "rmq_sys_x", "RMQ_SYS_TRANS_HALF_TOPIC", "C", A)
    for topic in (*own, "C_REPLY_TOPIC", "mine", "mine-too"):
        setup.route(topic, broker_a={0: address})
    queries = setup.queries()
    assert {*queries.bounds(Subscription((), ".*", "g"))} == {"mine", "mine-too"}
    assert {*queries.bounds(Subscription((), ".*o", "g", "%RETRY%g"))} == {"mine-too", "%RETRY%g"}


def test_a_broker_that_does_not_answer_is_left_out(setup: Setup) -> None:
    queue = ScriptedQueue(9)
    setup.route(broker_a={0: setup.broker(queue.answer)}, broker_b={0: setup.left()})
    queries = setup.queries()
    assert {*queries.bounds(SUBSCRIPTION)[TOPIC]} == {BrokerQueue(A, 0)}
    assert "closed the connection" in str(queries.unanswered)
    setup.route(broker_a={}, broker_b={0: setup.broker(queue.answer)})
    setup.cluster._routes.doubt(TOPIC)
    assert {*queries.bounds(SUBSCRIPTION)[TOPIC]} == {BrokerQueue(B, 0)}
    assert "have no address of a broker with queues" in str(queries.unanswered)
    setup.route(broker_b={0: setup.broker(queue.answer)})
    setup.cluster._routes.doubt(TOPIC)
    assert {*queries.bounds(SUBSCRIPTION)[TOPIC]} == {BrokerQueue(B, 0)}
    assert queries.unanswered is None
    setup.route(broker_a={}, broker_b={})
    setup.cluster._routes.doubt(TOPIC)
    assert queries.bounds(SUBSCRIPTION) == {TOPIC: {}}


def test_the_first_query_tells_that_nobody_answers(setup: Setup) -> None:
    setup.route(broker_a={0: setup.left()})
    with pytest.raises(ConnectionFailedError, match="closed the connection"):
        setup.queries().bounds(SUBSCRIPTION)
    setup.route(broker_a={})
    setup.cluster._routes.doubt(TOPIC)
    with pytest.raises(
        ConnectionFailedError, match=f"have no address of a broker with queues of {TOPIC}"
    ):
        setup.queries().bounds(SUBSCRIPTION)


def test_a_slave_answers_in_its_masters_place(setup: Setup) -> None:
    slave = setup.broker(ScriptedQueue(7).answer)
    for brokers in ({1: slave}, {0: setup.left(), 1: slave}):
        setup.route(broker_a=brokers)
        setup.cluster._routes.doubt(TOPIC)
        (bounds,) = setup.queries().bounds(SUBSCRIPTION)[TOPIC].values()
        assert bounds == QueueBounds(0, 7, -1, is_lagging=True)


@pytest.mark.parametrize(("slow_ms", "counts"), [(SLOW_MS, [1, 1, 2]), (SLOW_MS - 1, [1, 2, 3])])
def test_a_broker_that_was_slow_not_to_answer_is_not_asked_for_a_time(
    setup: Setup, time: Time, slow_ms: int, counts: list[int]
) -> None:
    asked = []

    def leave_late(visit: Visit) -> None:
        asked.append(visit.request())
        time.now_ms += slow_ms

    queue = ScriptedQueue(9)
    setup.route(broker_a={0: setup.broker(queue.answer)}, broker_b={0: setup.scripted(leave_late)})
    queries = setup.queries()
    for count in counts:
        assert {*queries.bounds(SUBSCRIPTION)[TOPIC]} == {BrokerQueue(A, 0)}
        assert len(asked) == count
        time.now_ms += LEFT_MS // 2


def test_a_wait_is_over_when_a_held_pull_is_answered(setup: Setup) -> None:
    queue = ScriptedQueue(4)
    is_held, has_come = threading.Event(), threading.Event()

    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.PULL_MESSAGE:
            assert request.ext_fields["suspendTimeoutMillis"] == "15000"
            is_held.set()
            has_come.wait()
            queue.end = 5
        return queue.answer(request)

    setup.route(broker_a={0: setup.broker(answer)})
    queries = setup.queries()
    known = queries.bounds(SUBSCRIPTION)
    found = []
    waiting = threading.Thread(
        target=lambda: found.append(queries.bounds(SUBSCRIPTION, known, 60_000))
    )
    waiting.start()
    is_held.wait()
    has_come.set()
    waiting.join()
    assert found[0][TOPIC][BrokerQueue(A, 0)].max_offset == 5


def test_what_has_changed_before_a_wait_ends_it(setup: Setup) -> None:
    queue = ScriptedQueue(4)
    setup.route(broker_a={0: setup.broker(queue.answer)}, queues=2)
    queries = setup.queries()
    known = queries.bounds(SUBSCRIPTION)
    fewer = {TOPIC: {BrokerQueue(A, 0): known[TOPIC][BrokerQueue(A, 0)]}}
    assert queries.bounds(SUBSCRIPTION, fewer, 60_000) == known
    queue.end = 3
    assert queries.bounds(SUBSCRIPTION, known, 60_000)[TOPIC][BrokerQueue(A, 0)].max_offset == 3
    assert RequestCode.PULL_MESSAGE not in queue.asked


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.PULL_NOT_FOUND])
def test_a_broker_that_holds_no_pull_is_not_asked_over_and_over(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, code: ResponseCode
) -> None:
    queue = ScriptedQueue(4)
    now = [1_000_000]

    def sleep(duration_ms: int) -> None:
        now[0] += duration_ms

    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.PULL_MESSAGE:
            queue.asked.append(RequestCode.PULL_MESSAGE)
            assert len(queue.asked) < 1_000, "it is asked without end"
            fields = success(request, PullMessageResponse(0, 4, 0, 4)).ext_fields
            return request.answer(code, ext_fields=fields, remark="not held")
        return queue.answer(request)

    setup.route(broker_a={0: setup.broker(answer)})
    queries = setup.queries()
    known = queries.bounds(SUBSCRIPTION)
    monkeypatch.setattr(clock, "sleep_ms", sleep)
    monkeypatch.setattr(clock, "monotonic_ms", lambda: now[0])
    assert queries.bounds(SUBSCRIPTION, known, 30_000) == known
    assert queue.asked.count(RequestCode.PULL_MESSAGE) <= 3
    assert queue.asked.count(RequestCode.GET_MAX_OFFSET) <= 12


@pytest.mark.parametrize("told", [lambda right: right, lambda right: max(right - 3, 0)])
def test_a_time_is_found_whatever_a_broker_tells(setup: Setup, told: Callable[[int], int]) -> None:
    """Tests brokers of 4.9 and early 5.x: they return any of several messages of one time."""
    queue = ScriptedQueue(500, begin=50, stored_ms=lambda offset: offset // 10 * 10)

    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            right = queue.first_since(int(request.ext_fields["timestamp"]))
            return success(request, OffsetResponse(told(right)))
        return queue.answer(request)

    setup.route(broker_a={0: setup.broker(answer)})
    times = [0, 50, 51, 60, 333, 490, 491, 10_000]
    found = setup.queries().search([QueueTime(TOPIC, 0, at, A) for at in times])
    assert found == [50, 50, 60, 60, 340, 490, None, None]


def test_an_empty_queue_has_no_time(setup: Setup) -> None:
    setup.route(broker_a={0: setup.broker(ScriptedQueue(7, begin=7).answer)})
    assert setup.queries().search([QueueTime(TOPIC, 0, 0, A)]) == [None]


def test_bytes_are_limited_by_the_size_of_some_records(setup: Setup) -> None:
    queue = ScriptedQueue(2_000)
    setup.route(broker_a={0: setup.broker(queue.answer)})
    ranges = [QueueRange(TOPIC, 0, 1_000, 2_000, broker_name=A)]
    size = len(queue.record(1_500))
    queries = setup.queries()
    assert queries.limit_bytes(ranges, 1_100 * size) == [2_000]
    (end,) = queries.limit_bytes(ranges, 500 * size)
    assert 1_450 <= end <= 1_550
    assert queries.limit_bytes(ranges, 1) == [1_001]
    assert len(queue.pulls) == 6


def test_an_expression_is_right_wrong_or_not_wanted(setup: Setup) -> None:
    def answering_with(code: ResponseCode, remark: str) -> None:
        address = setup.broker(lambda request: request.answer(code, remark=remark))
        setup.route(broker_a={0: address})

    answering_with(ResponseCode.SUCCESS, "")
    queries = setup.queries()
    assert queries.expression_fault("a > 1") is None
    answering_with(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "x.y.ParseException: bad\nWas: 1")
    assert queries.expression_fault("a >> 1") == "bad"
    answering_with(ResponseCode.SYSTEM_ERROR, "does not support SQL92")
    with pytest.raises(OptionError, match="enablePropertyFilter=true"):
        queries.expression_fault("a > 1")
    answering_with(ResponseCode.NO_PERMISSION, "no")
    with pytest.raises(BrokerError, match="NO_PERMISSION"):
        queries.expression_fault("a > 1")


def test_brokers_that_are_away_are_passed_over_where_others_tell(setup: Setup) -> None:
    queue = ScriptedQueue(2_000)
    setup.route(broker_a={0: setup.broker(queue.answer)}, broker_b={0: setup.left()})
    ranges = [QueueRange(TOPIC, 0, 0, 1_000, broker_name=name) for name in (A, B)]
    queries = setup.queries()
    ends = queries.limit_bytes(ranges, 1_000 * len(queue.record(500)))
    assert all(400 <= end <= 600 for end in ends)
    checking = setup.broker(lambda request: request.answer(ResponseCode.SUCCESS))
    setup.route(broker_a={0: setup.left()}, broker_b={0: checking})
    assert queries.expression_fault("a > 1") is None
    setup.route(broker_a={0: setup.left()})
    with pytest.raises(ConnectionFailedError, match="closed the connection"):
        setup.queries().expression_fault("a > 1")


def test_what_brokers_do_not_know(setup: Setup) -> None:
    setup.route(broker_b={0: "127.0.0.1:1"}, broker_a={0: "127.0.0.1:1"})
    queries = setup.queries()
    part = QueueRange(TOPIC, 0, 1, 2, broker_name=A)
    assert queries.find_keys([part], ["key"]) == [part]
    queries.require_store("a store")
    assert (queries.store_id, queries.recovery_id) == ("", "")
    assert queries.broker_name() == A


def test_a_source_is_made_of_its_options_and_travels() -> None:
    options = SourceOptions.parse({"nameServer": "ns1:9876;ns2:9876", "topic": "T"})
    source = RemotingSource.of_source(options)
    assert pickle.loads(pickle.dumps(source)) == source
    assert source.cluster.name_servers == ("ns1:9876", "ns2:9876")
    assert source.pulls_in_flight_max == options.pulls_in_flight_max


def test_planners_start_without_what_only_tasks_need() -> None:
    program = "import sys, pyspark_rocketpy.transport.remoting.source; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    unwanted = {"numpy", "grpc", "rocketpy_proto.record", f"{REMOTING}.pull.range_puller"}
    assert unwanted & set(told.split()) == set()
