"""Progress of groups: queried at the start of a query, and committed while it runs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyspark_rocketpy.offsets import BrokerQueue
from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from tests.support.time_limits import WAIT_SECONDS_MAX
from tests.unit.connector.transport.remoting.pull.test_queries import (
    SUBSCRIPTION,
    A,
    B,
    Setup,
    setup,
)
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, route_with
from tests.unit.connector.transport.remoting.scripted_peer import Visit, success
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue

__all__ = ["setup"]
WANTING = replace(SUBSCRIPTION, wants_committed=True)


def test_what_a_group_has_committed_is_asked_where_it_is_wanted(setup: Setup) -> None:
    queue = ScriptedQueue(9)

    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            queue.asked.append(RequestCode.QUERY_CONSUMER_OFFSET)
            return success(request, OffsetResponse(4))
        return queue.answer(request)

    setup.route(broker_a={0: setup.broker(answer)})
    queries = setup.queries()
    for subscription, committed in ((SUBSCRIPTION, -1), (WANTING, 4)):
        (bounds,) = queries.bounds(subscription)[TOPIC].values()
        assert bounds.committed_offset == committed
    assert queue.asked.count(RequestCode.QUERY_CONSUMER_OFFSET) == 1


def test_a_broker_that_does_not_tell_what_a_group_has_committed_is_left_out(setup: Setup) -> None:
    queue = ScriptedQueue(9)
    refusals = [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY]

    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.code != RequestCode.QUERY_CONSUMER_OFFSET:
            return queue.answer(request)
        if refusals:
            return request.answer(refusals.pop(), remark="busy")
        return success(request, OffsetResponse(4))

    setup.route(broker_a={0: setup.broker(answer)})
    queries = setup.queries()
    assert queries.bounds(SUBSCRIPTION)[TOPIC]
    # As for a group without commits, the query would start elsewhere.
    assert queries.bounds(WANTING) == {TOPIC: {}}
    assert "busy" in str(queries.unanswered)
    queries.bounds(WANTING)
    (bounds,) = queries.bounds(WANTING)[TOPIC].values()
    assert bounds.committed_offset == 4
    assert queries.unanswered is None


class HeldProgress:
    """Brokers that answer progress after ASKED_MAX later requests for offsets."""

    ASKED_MAX = 20

    def __init__(self) -> None:
        self.held = threading.Semaphore(0)
        # The number of each broker's commits before the answer to the first one; all commits.
        self.together: list[int] = []
        self.progress = list[RemotingCommand]()

    def script(self, visit: Visit) -> None:
        queue, asked, held = ScriptedQueue(9), 0, list[RemotingCommand]()
        for request in visit.requests():
            is_progress = request.code == RequestCode.UPDATE_CONSUMER_OFFSET
            self.progress += [request] * is_progress
            if is_progress and asked < self.ASKED_MAX:
                held.append(request)
                self.held.release()
            elif request.code in {RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET}:
                visit.send(queue.answer(request))
                asked += 1
                if asked == self.ASKED_MAX:
                    self.together.append(len(held))
                    visit.send(*map(success, held))
            else:
                visit.send(success(request))


def test_a_group_s_first_progress_is_told_before_any_other(setup: Setup) -> None:
    """Checks the order: 4.9.7 kept one of two concurrent queues, as each created a new table."""
    brokers = HeldProgress()
    addresses = [setup.scripted(brokers.script) for _ in range(2)]
    setup.route(broker_a={0: addresses[0]}, broker_b={0: addresses[1]})
    positions = {TOPIC: {BrokerQueue(name, n): 5 + n for n in range(3) for name in (A, B)}}
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(setup.queries().commit, "group", positions, {})
        for _ in addresses:
            assert brokers.held.acquire(timeout=WAIT_SECONDS_MAX)
        while len(brokers.together) < len(addresses):
            setup.queries().bounds(SUBSCRIPTION)
        committing.result()
    assert (brokers.together, len(brokers.progress)) == ([1, 1], 6)


def test_progress_is_told_to_masters_once_the_group_is_there(setup: Setup) -> None:
    heard: list[RemotingCommand] = []

    def answer(request: RemotingCommand) -> RemotingCommand:
        heard.append(request)
        return success(request)

    address = setup.broker(answer)
    setup.route(broker_a={0: address}, broker_b={1: address})
    queries = setup.queries()
    positions = {TOPIC: {BrokerQueue(A, 0): 5, BrokerQueue(B, 0): 6}}
    for _ in range(2):
        # A missing master of broker-b is not logged at each batch.
        queries.commit("group", positions, {})
    assert [RequestCode(each.code) for each in heard] == [
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    ]
    assert heard[2].ext_fields["commitOffset"] == "5"
    assert b'"groupName":"group"' in bytes(heard[0].body)
    heard.clear()
    # A group that has a retry topic is not joined.
    setup.names.routes["%RETRY%known"] = route_with(A, id_0=address)
    queries.commit("known", {TOPIC: {BrokerQueue(A, 0): 5}}, {})
    assert [RequestCode(each.code) for each in heard] == [RequestCode.UPDATE_CONSUMER_OFFSET]
