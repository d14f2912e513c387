"""A broker that runs at another address than in the cached route."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.offsets import BrokerQueue, QueueRange
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import consumer_offset
from pyspark_rocketpy.transport.remoting.pull.offset_queries import RemotingOffsetQueries
from pyspark_rocketpy.transport.remoting.send.requests import SendBatch, broker_version, send
from pyspark_rocketpy.transport.values import QueueTime, RetryPolicy, Subscription
from rocketpy_proto.remoting import MessageQueue, RemotingCommand, RequestCode
from rocketpy_proto.remoting.bodies.routes import TopicRouteData
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from rocketpy_proto.remoting.headers.sends import SendMessageResponse
from tests.support.time_limits import WAIT_SECONDS_MAX
from tests.unit.connector.transport.remoting.pull_setup import BROKER, PullSetup, Waits
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    ScriptedPeer,
    answering,
    success,
)
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue

GROUP = "group"
QUEUE = MessageQueue(BROKER, 0, TOPIC)
PART = QueueRange(TOPIC, 0, 0, 50, broker_name=BROKER)
BOTH = {BrokerQueue(BROKER, 0): 7}


def answer(request: RemotingCommand) -> RemotingCommand:
    """Answers as a broker of one queue, which accepts messages."""
    code = RequestCode(request.code)
    if code in {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT}:
        return success(request)
    if code == RequestCode.UPDATE_CONSUMER_OFFSET:
        return success(request)
    if code == RequestCode.QUERY_CONSUMER_OFFSET:
        return success(request, OffsetResponse(4))
    if code == RequestCode.SEND_MESSAGE_V2:
        return success(request, SendMessageResponse("AB", 0, 50))
    if code == RequestCode.CHECK_CLIENT_CONFIG:
        return success(request)
    return ScriptedQueue(50).answer(request)


def queries(pulls: PullSetup) -> RemotingOffsetQueries:
    """Returns the queries of a new query, whose first request is not repeated."""
    return RemotingOffsetQueries(pulls.cluster, RetryPolicy(0, 1), GROUP, PATIENT)


def bounds(pulls: PullSetup) -> object:
    found = queries(pulls).bounds(Subscription((TOPIC,), None, GROUP, wants_committed=True))
    return {queue: each.max_offset for queue, each in found[TOPIC].items()}


ASKED: dict[str, tuple[Callable[[PullSetup], object], object]] = {
    "bounds": (bounds, {BrokerQueue(BROKER, 0): 50}),
    "search": (
        lambda pulls: queries(pulls).search([QueueTime(TOPIC, 0, 1_010, BROKER)]),
        [10],
    ),
    "limit": (lambda pulls: queries(pulls).limit_bytes([PART], 1), [1]),
    "pull": (lambda pulls: pulls.pulled(0, 50), list(range(50))),
    "send": (
        lambda pulls: (
            send(pulls.cluster, QUEUE, SendBatch(b"", 1, ""), PATIENT).answer().queue_offset
        ),
        50,
    ),
    "committed": (lambda pulls: consumer_offset(pulls.cluster, GROUP, QUEUE).answer(), 4),
    "commit": (lambda pulls: queries(pulls).commit(GROUP, {TOPIC: BOTH}, {}), None),
    "version": (lambda pulls: broker_version(pulls.cluster, TOPIC, BROKER).answer() > 0, True),
    "expression": (lambda pulls: queries(pulls).expression_fault("a > 1"), None),
}


def close(pulls: PullSetup, peer: ScriptedPeer) -> None:
    """Closes a broker; returns when the cluster's connections to it have noticed."""
    peer.close()
    end = time.monotonic() + WAIT_SECONDS_MAX
    places = pulls.cluster._caller._connections._entries
    while any(
        place.connection is not None and place.connection.is_open
        for (to, _), place in places.items()
        if to.address == peer.address
    ):
        assert time.monotonic() < end
        time.sleep(0.001)


def moved(pulls: PullSetup) -> ScriptedPeer:
    """Moves the broker after a query; the cached route has its old address, which is closed."""
    old = pulls.peers(answering(answer))
    pulls.route(id_0=old.address)
    bounds(pulls)
    close(pulls, old)
    new = pulls.peers(answering(answer))
    pulls.route(id_0=new.address)
    return new


@pytest.mark.parametrize("what", ASKED)
def test_a_broker_that_moved_is_asked_at_its_new_address(
    pulls: PullSetup, waits: Waits, what: str
) -> None:
    new = moved(pulls)
    ask, expected = ASKED[what]
    assert ask(pulls) == expected
    assert new.visits == 1
    assert waits.ms == []


def test_a_slave_that_moved_is_asked_at_its_new_address(pulls: PullSetup, waits: Waits) -> None:
    old = pulls.peers(answering(answer))
    pulls.route(id_1=old.address)
    assert pulls.pulled(0, 50) == list(range(50))
    close(pulls, old)
    pulls.route(id_1=answering(answer))
    assert pulls.pulled(0, 50) == list(range(50))
    assert waits.ms == []


@pytest.mark.parametrize("left", ["the same", "no broker", "no topic"])
def test_an_address_that_refuses_is_told_where_no_other_is_known(
    pulls: PullSetup, left: str
) -> None:
    old = pulls.peers(answering(answer))
    pulls.route(id_0=old.address)
    bounds(pulls)
    close(pulls, old)
    if left == "no broker":
        route = pulls.names.routes[TOPIC]
        pulls.names.routes[TOPIC] = TopicRouteData((), route.queue_datas)
    elif left == "no topic":
        del pulls.names.routes[TOPIC]
    asked = len(pulls.names.asked)
    with pytest.raises(ConnectionFailedError, match=f"broker {old.address} cannot be reached"):
        consumer_offset(pulls.cluster, GROUP, QUEUE)
    assert len(pulls.names.asked) == asked + 1


def test_a_broker_that_moves_again_and_again_is_followed_once_a_call(pulls: PullSetup) -> None:
    close(pulls, moved(pulls))
    gone = pulls.peers(answering(answer))
    close(pulls, gone)
    pulls.route(id_0=gone.address)
    asked = len(pulls.names.asked)
    with pytest.raises(ConnectionFailedError, match=f"broker {gone.address} cannot be reached"):
        consumer_offset(pulls.cluster, GROUP, QUEUE)
    assert len(pulls.names.asked) == asked + 1
