"""Ranges of a queue, pulled from normal brokers, and from brokers that come and go."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from rocketpy_proto.remoting import RemotingCommand, ResponseCode, encode_frame
from tests.unit.connector.transport.remoting.pull_setup import (
    LIMITS,
    PullSetup,
    Waits,
    first_then,
    refusal,
)
from tests.unit.connector.transport.remoting.scripted_peer import (
    Script,
    Visit,
    answering,
    leaving,
    silent,
)
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue, backwards


@pytest.mark.parametrize("messages_max", [1, 8, 31, 32, 500])
@pytest.mark.parametrize("order", [answering, backwards])
def test_answers_join_however_many_messages_they_have(
    pulls: PullSetup, messages_max: int, order: Callable[..., Script]
) -> None:
    queue = ScriptedQueue(1_500, messages_max=messages_max)
    pulls.route(id_0=order(queue.answer))
    end = min(300 * messages_max, 1_300)
    assert pulls.pulled(7, end) == list(range(7, end))


def test_many_pulls_are_on_their_way_and_more_where_they_are_waited_for(pulls: PullSetup) -> None:
    together: list[int] = []
    queue = ScriptedQueue(20_000)

    def script(visit: Visit) -> None:
        while requests := visit.some_requests():
            together.append(len(requests))
            visit.send(*map(queue.answer, requests))

    pulls.route(id_0=script)
    assert pulls.pulled(0, 20_000) == list(range(20_000))
    assert together[0] == 1
    assert together[1] <= 5
    assert max(together) > 8
    assert queue.pulls[:3] == [(0, 1_024), (32, 32), (64, 32)]
    # No message was requested twice, and none beyond the range.
    assert len(queue.pulls) == len(set(queue.pulls)) == 20_000 // 32


def test_a_broker_that_gives_more_is_asked_for_more(pulls: PullSetup) -> None:
    queue = ScriptedQueue(20_000, messages_max=400)
    pulls.route(id_0=answering(queue.answer))
    assert pulls.pulled(0, 20_000) == list(range(20_000))
    assert {count for _, count in queue.pulls[1:-1]} == {400}


def test_short_answers_make_the_next_pulls_short(pulls: PullSetup) -> None:
    queue = ScriptedQueue(4_000, messages_max=8)
    pulls.route(id_0=answering(queue.answer))
    pulls.pulled(0, 4_000)
    assert len(queue.pulls) < 4_000 // 8 * 1.2


def test_what_is_on_its_way_is_bounded_in_number_and_in_bytes(pulls: PullSetup) -> None:
    queue = ScriptedQueue(3_000)
    together: list[int] = []

    def script(visit: Visit) -> None:
        while requests := visit.some_requests():
            together.append(len(requests))
            visit.send(*map(queue.answer, requests))

    pulls.route(id_0=script)
    pulls.pulled(0, 3_000, limits=replace(LIMITS, pulls_max=3))
    assert max(together) == 3
    together.clear()
    answer_bytes = 32 * len(queue.record(100))
    pulls.pulled(0, 3_000, limits=replace(LIMITS, bytes_max=2 * answer_bytes + 1_000))
    assert max(together) <= 3
    together.clear()
    pulls.pulled(0, 3_000, limits=replace(LIMITS, bytes_max=1))
    assert max(together) == 1 or max(together[5:]) == 1


@pytest.mark.parametrize(
    "code",
    [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL],
)
def test_a_busy_broker_is_asked_again_and_for_less(
    pulls: PullSetup, waits: Waits, code: ResponseCode
) -> None:
    queue = ScriptedQueue(3_000)
    numbers = itertools.count()

    def answer(request: RemotingCommand) -> RemotingCommand:
        if 20 <= next(numbers) < 25:
            return request.answer(code, remark="[REJECTREQUEST]")
        return queue.answer(request)

    pulls.route(id_0=answering(answer))
    assert pulls.pulled(0, 3_000) == list(range(3_000))
    assert 1 <= len(waits.ms) <= 5


def test_a_broken_connection_is_gone_on_from(pulls: PullSetup, waits: Waits) -> None:
    queue = ScriptedQueue(2_000)

    def breaking(visit: Visit) -> None:
        for number, request in enumerate(visit.requests()):
            frame = b"".join(encode_frame(queue.answer(request)))
            if number == 9:
                visit.socket.sendall(frame[: len(frame) // 2])
                return
            visit.socket.sendall(frame)

    pulls.route(id_0=first_then(2, breaking, answering(queue.answer)))
    assert pulls.pulled(0, 2_000) == list(range(2_000))
    assert len(waits.ms) == 2


def test_a_silent_broker_is_left_for_another_connection(pulls: PullSetup) -> None:
    queue = ScriptedQueue(100)
    pulls.route(id_0=first_then(1, silent, answering(queue.answer)))
    impatient = replace(LIMITS, timeouts=Timeouts(1_000, "pullTimeout"))
    assert pulls.pulled(0, 100, limits=impatient) == list(range(100))


def test_a_broker_that_comes_back_elsewhere_is_found(pulls: PullSetup, waits: Waits) -> None:
    queue = ScriptedQueue(500)
    pulls.route(id_0=leaving)

    def restart() -> None:
        pulls.route(id_0=answering(queue.answer))
        waits.then = lambda: None

    waits.then = restart
    assert pulls.pulled(0, 500) == list(range(500))


@pytest.mark.parametrize("is_routed", [True, False])
def test_an_absent_broker_is_waited_for_as_long_as_the_option_says(
    pulls: PullSetup, waits: Waits, is_routed: bool
) -> None:
    if is_routed:
        pulls.route(id_0=leaving)
    else:
        pulls.route()
    with pytest.raises(
        ConnectionFailedError, match=r"limit 60000 ms \(option brokerUnavailableTimeout\)"
    ):
        pulls.pulled(0, 10)
    assert sum(waits.ms) == 60_000
    assert waits.ms[:4] == [100, 200, 400, 800]


def test_a_topic_that_no_name_server_knows_is_waited_for_too(
    pulls: PullSetup, waits: Waits
) -> None:
    queue = ScriptedQueue(10)
    waits.then = lambda: pulls.route(id_0=answering(queue.answer))
    assert pulls.pulled(0, 10) == list(range(10))


def test_the_slave_is_read_while_the_master_is_away(pulls: PullSetup) -> None:
    queue = ScriptedQueue(300, is_slave=True)
    pulls.route(id_1=answering(queue.answer))
    assert pulls.pulled(0, 300) == list(range(300))


def test_the_slave_is_read_when_the_master_does_not_answer(pulls: PullSetup, waits: Waits) -> None:
    queue = ScriptedQueue(300, is_slave=True)
    pulls.route(id_0=leaving, id_1=answering(queue.answer))
    assert pulls.pulled(0, 300) == list(range(300))
    assert len(waits.ms) == 1


def test_a_slave_that_is_behind_is_waited_for(pulls: PullSetup, waits: Waits) -> None:
    queue = ScriptedQueue(100, is_slave=True)
    pulls.route(id_1=answering(queue.answer))

    def replicate() -> None:
        queue.end = min(queue.end + 50, 300)

    waits.then = replicate
    assert pulls.pulled(0, 300) == list(range(300))
    assert 3 <= len(waits.ms) <= 8


def test_a_slave_that_serves_nobody_is_told_of_in_the_end(pulls: PullSetup) -> None:
    refusing = answering(refusal(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy"))
    pulls.route(id_1=refusing)
    with pytest.raises(ConnectionFailedError, match="REJECTREQUEST") as caught:
        pulls.pulled(0, 10)
    assert "brokerUnavailableTimeout" in str(caught.value)
