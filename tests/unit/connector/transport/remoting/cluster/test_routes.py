"""Routes: their queues, and when they are requested again."""

from __future__ import annotations

import pytest

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError, TopicNotExistError
from pyspark_rocketpy.transport.remoting.cluster.routes import (
    _ROUTES_MAX,
    QUEUES_MAX,
    ROUTE_MS_MAX,
    Routes,
    TopicRoute,
)
from pyspark_rocketpy.transport.remoting.net.peers import Peer
from rocketpy_proto.remoting.bodies.routes import BrokerData, QueueData, TopicRouteData
from tests.unit.connector.transport.remoting.conftest import Time
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, route_of

FIRST, SECOND = route_of(a="h:1"), route_of(b="h:2")


class LookUp:
    """A name server's answers; the last one is repeated."""

    def __init__(self, *answers: TopicRouteData | Exception) -> None:
        self.answers = list(answers)
        self.times = 0

    def __call__(self, topic: str) -> TopicRouteData:
        answer = self.answers[min(self.times, len(self.answers) - 1)]
        self.times += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


UNKNOWN = TopicNotExistError("no such topic")
AWAY = ConnectionFailedError("nobody")


def test_a_route_is_asked_for_again_after_30_s(time: Time) -> None:
    look_up = LookUp(FIRST, SECOND)
    routes = Routes(look_up)
    time.now_ms += 0
    assert routes.route(TOPIC).data == FIRST
    time.now_ms += ROUTE_MS_MAX - 1
    assert routes.route(TOPIC).data == FIRST
    time.now_ms += 1
    assert routes.route(TOPIC).data == SECOND
    assert look_up.times == 2


def test_a_route_that_is_doubted_is_asked_for_at_once(time: Time) -> None:
    routes = Routes(LookUp(FIRST, SECOND))
    routes.doubt(TOPIC)  # not requested yet
    assert routes.route(TOPIC).data == FIRST
    routes.doubt(TOPIC)
    assert routes.route(TOPIC).data == SECOND


@pytest.mark.parametrize("failure", [AWAY, BrokerError("not ready")])
def test_the_last_route_counts_while_no_name_server_answers(time: Time, failure: Exception) -> None:
    look_up = LookUp(FIRST, failure, SECOND)
    routes = Routes(look_up)
    routes.route(TOPIC)
    routes.doubt(TOPIC)
    assert routes.route(TOPIC).data == FIRST
    # They are not requested each time.
    assert routes.route(TOPIC).data == FIRST
    assert look_up.times == 2
    time.now_ms += ROUTE_MS_MAX
    assert routes.route(TOPIC).data == SECOND


def test_a_topic_that_has_gone_has_no_route(time: Time) -> None:
    routes = Routes(LookUp(FIRST, UNKNOWN, AWAY))
    routes.route(TOPIC)
    routes.doubt(TOPIC)
    with pytest.raises(TopicNotExistError):
        routes.route(TOPIC)
    with pytest.raises(ConnectionFailedError):
        routes.route(TOPIC)


def test_routes_of_so_many_topics_are_kept(time: Time) -> None:
    look_up = LookUp(FIRST)
    routes = Routes(look_up)
    for number in [*range(_ROUTES_MAX + 1), _ROUTES_MAX, 1, 0]:
        routes.route(str(number))
    assert look_up.times == _ROUTES_MAX + 2


def queue_route(*queues: QueueData, order: str | None = None) -> TopicRoute:
    brokers = (BrokerData("a", {0: "h:1", 1: "h:2"}), BrokerData("b", {1: "h:3"}))
    return TopicRoute(TOPIC, TopicRouteData(brokers, queues, order_topic_conf=order))


@pytest.mark.parametrize(
    ("perm", "read", "written"), [(6, 4, 3), (4, 4, 0), (2, 0, 3), (0, 0, 0), (7, 4, 3), (1, 0, 0)]
)
def test_permissions_say_what_queues_are_for(perm: int, read: int, written: int) -> None:
    route = queue_route(QueueData("a", 4, 3, perm))
    assert route.read_queue_nums() == ({"a": read} if read else {})
    assert route.write_queue_nums() == ({"a": written} if written else {})


def test_a_broker_without_a_master_is_read_and_not_written() -> None:
    route = queue_route(QueueData("a", 1, 1, 6), QueueData("b", 2, 2, 6), QueueData("c", 3, 3, 6))
    assert route.read_queue_nums() == {"a": 1, "b": 2, "c": 3}
    assert route.write_queue_nums() == {"a": 1}
    assert route.peer("a") == Peer("h:1")
    assert route.peer("b", 1) == Peer("h:3")
    assert route.peer("b") is None
    assert route.peer("c", 1) is None


def test_an_order_configuration_says_which_queues_are_written() -> None:
    queues = QueueData("a", 4, 4, 6)
    assert queue_route(queues, order="b:9;a:2;").write_queue_nums() == {"a": 2}
    assert queue_route(queues, order="b:9").write_queue_nums() == {}
    assert queue_route(queues, order="").write_queue_nums() == {"a": 4}


@pytest.mark.parametrize("order", ["a", "a:", ":1", "a:x", "a:-1", "a:٣", ";a:1", "a:70000"])
def test_an_order_configuration_that_is_none_is_declared(order: str) -> None:
    with pytest.raises(BrokerError, match=f"option nameServer reports that topic {TOPIC} has"):
        queue_route(QueueData("a", 1, 1, 6), order=order).write_queue_nums()


@pytest.mark.parametrize("count", [-1, QUEUES_MAX + 1, (1 << 31) - 1])
def test_a_number_of_queues_that_cannot_be_meant_is_declared(count: int) -> None:
    with pytest.raises(BrokerError, match=f"{count} queues at one broker"):
        queue_route(QueueData("a", count, 1, 6)).read_queue_nums()
    with pytest.raises(BrokerError, match=f"{count} queues at one broker"):
        queue_route(QueueData("a", 1, count, 6)).write_queue_nums()
