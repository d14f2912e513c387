"""Topics of a cluster that have fewer queues or fewer brokers for a while."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from pyspark_rocketpy.errors import DataLossError
from pyspark_rocketpy.offsets import BrokerQueue, QueueBounds
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.columns import source_schema
from pyspark_rocketpy.source.readers import RocketpyStreamReader
from pyspark_rocketpy.transport.interface import SourceTransport
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.bodies.routes import BrokerData, QueueData, TopicRouteData
from tests.unit.connector.transport.remoting.conftest import Clusters, Peers
from tests.unit.connector.transport.remoting.pull.test_queries import Setup
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue

A, B = "broker-a", "broker-b"
KEY = f"{TOPIC}@pyspark-rocketpy"


class Brokers:
    """Two brokers, with up to two queues each; a broker without any is not in the route."""

    def __init__(self, peers: Peers, clusters: Clusters) -> None:
        self.setup = Setup(peers, clusters)
        self.queues = {name: [ScriptedQueue(0), ScriptedQueue(0)] for name in (A, B)}
        self._addresses = {name: self.setup.broker(self._answers(name)) for name in (A, B)}

    def _answers(self, name: str) -> Any:
        def answer(request: RemotingCommand) -> RemotingCommand:
            return self.queues[name][int(request.ext_fields["queueId"])].answer(request)

        return answer

    def show(self, *, is_noticed: bool = True, **counts: int) -> None:
        """Sets the numbers of queues of brokers a and b."""
        there = {f"broker-{name}": count for name, count in counts.items() if count}
        self.setup.names.routes[TOPIC] = TopicRouteData(
            tuple(BrokerData(name, {0: self._addresses[name]}, "C") for name in there),
            tuple(QueueData(name, count, count, 6) for name, count in there.items()),
        )
        if is_noticed:
            self.setup.cluster.doubt(TOPIC)

    def offset_queries(self) -> object:
        return self.setup.queries()


class Query:
    """A query as Spark drives it; each batch is planned and nothing is read."""

    def __init__(self, brokers: Brokers, *, restarts: bool, fails: bool = True) -> None:
        options = {"nameServer": "n:1", "topic": TOPIC, "startingOffsets": "earliest"}
        fixed = {"pollTimeout": "0s", "commitOffsets": "false", "failOnDataLoss": str(fails)}
        self._options = SourceOptions.parse({**options, **fixed})
        self._brokers, self._restarts = brokers, restarts
        self.source = self._make()
        self.offset: dict[str, Any] = self.source.initialOffset()

    def _make(self) -> RocketpyStreamReader:
        transport = cast("SourceTransport", self._brokers)
        return RocketpyStreamReader(self._options, source_schema(None), transport)

    def batch(self) -> list[str]:
        """Plans the next micro-batch; returns the ranges of its tasks."""
        if self._restarts:
            self.source = self._make()
        start = json.loads(json.dumps(self.offset))
        end = json.loads(json.dumps(self.source.latestOffset(start, _limit(self.source))))
        tasks = self.source.partitions(start, end) if end != start else []
        self.offset = end
        ranges = [part for task in tasks for part in cast("Any", task).plan.ranges]
        return [f"{part.broker_name}:{part.queue_id} {part.begin}-{part.end}" for part in ranges]


def _limit(source: RocketpyStreamReader) -> Any:
    return source.getDefaultReadLimit()


@pytest.fixture
def brokers(peers: Peers, clusters: Clusters) -> Brokers:
    found = Brokers(peers, clusters)
    found.show(a=2, b=2)
    return found


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_s5_queues_of_a_broker_that_are_hidden_for_a_while_are_read_once(
    brokers: Brokers, restarts: bool, fails: bool
) -> None:
    query = Query(brokers, restarts=restarts, fails=fails)
    brokers.queues[A][1].end = brokers.queues[B][1].end = 2
    assert query.batch() == [f"{A}:1 0-2", f"{B}:1 0-2"]
    for number in range(1, 3):
        brokers.show(a=1, b=2)
        brokers.queues[B][0].end = number
        assert query.batch() == [f"{B}:0 {number - 1}-{number}"]
        assert query.offset["kept"] == {KEY: {A: {"1": number + 1}}}
        assert query.batch() == []
        brokers.show(a=2, b=2)
        assert query.batch() == []
        brokers.queues[A][1].end = number + 2
        assert query.batch() == [f"{A}:1 {number + 1}-{number + 2}"]
        assert "kept" not in query.offset


@pytest.mark.parametrize("fails", [True, False])
def test_s5_a_planned_batch_waits_for_a_queue_that_a_cluster_hides(
    brokers: Brokers, fails: bool
) -> None:
    query = Query(brokers, restarts=False, fails=fails)
    brokers.queues[A][1].end = 2
    end = query.source.latestOffset(query.offset, _limit(query.source))
    brokers.show(a=1, b=2)
    words = r"offsets \[0, 2\) of queue 1 of broker broker-a of topic '.*' are out of reach"
    with pytest.raises(DataLossError, match=words):
        query.source.partitions(query.offset, end)
    brokers.show(a=2, b=2)
    [task] = cast("Any", query.source.partitions(query.offset, end))
    assert [(part.begin, part.end) for part in task.plan.ranges] == [(0, 2)]


@pytest.mark.parametrize("restarts", [True, False])
def test_s5_a_broker_that_is_away_while_another_hides_queues_is_read_on(
    brokers: Brokers, restarts: bool
) -> None:
    query = Query(brokers, restarts=restarts)
    for queues in brokers.queues.values():
        queues[0].end = queues[1].end = 3
    assert len(query.batch()) == 4
    brokers.show(a=1)
    assert query.batch() == []
    brokers.queues[A][0].end = 4
    assert query.batch() == [f"{A}:0 3-4"]
    brokers.show(b=1)
    assert query.batch() == []
    brokers.queues[B][0].end = 5
    assert query.batch() == [f"{B}:0 3-5"]
    brokers.show(a=2, b=2)
    assert query.batch() == []
    for queues in brokers.queues.values():
        queues[1].end = 4
    assert query.batch() == [f"{A}:1 3-4", f"{B}:1 3-4"]


def test_s5_unread_messages_of_a_hidden_queue_of_a_broker_are_named(brokers: Brokers) -> None:
    query = Query(brokers, restarts=False)
    assert query.batch() == []
    brokers.queues[B][1].end = 7
    brokers.show(a=2, b=1)
    words = rf"offsets \[0, 7\) of queue 1 of broker {B} of topic '{TOPIC}' are out of reach"
    with pytest.raises(DataLossError, match=words):
        query.batch()
    brokers.show(a=2, b=2)
    assert query.batch() == [f"{B}:1 0-7"]


def test_s5_messages_of_a_queue_that_is_back_before_the_route_says_so_are_no_loss(
    brokers: Brokers,
) -> None:
    query = Query(brokers, restarts=False)
    brokers.queues[A][1].end = 2
    assert query.batch() == [f"{A}:1 0-2"]
    brokers.show(a=1, b=2)
    brokers.queues[A][0].end = 1
    assert query.batch() == [f"{A}:0 0-1"]
    brokers.show(a=2, b=2, is_noticed=False)
    brokers.queues[A][1].end = 3
    assert query.batch() == [f"{A}:1 2-3"]
    assert query.batch() == []


def test_s5_hidden_queues_of_brokers_that_do_not_answer_are_missing(brokers: Brokers) -> None:
    brokers.queues[A][1] = ScriptedQueue(9, begin=2)
    brokers.show(a=1)
    wanted = {TOPIC: {BrokerQueue(A, 1): 5, BrokerQueue(B, 1): 5}, "gone": {BrokerQueue(A, 0): 1}}
    found = brokers.setup.queries().hidden_bounds(wanted)
    assert found == {TOPIC: {BrokerQueue(A, 1): QueueBounds(2, 9, -1, is_hidden=True)}}
