"""Messages that pulls skip: lost ones, filtered ones, and bytes that are no record."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError, DataLossError
from pyspark_rocketpy.transport.remoting.net.peers import Peer
from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode
from rocketpy_proto.remoting.headers import EXCHANGES
from rocketpy_proto.remoting.headers.pulls import PullMessageResponse
from tests.unit.connector.transport.remoting.pull_setup import (
    OPTIONS,
    TOLERANT,
    PullSetup,
    Waits,
    refusal,
)
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    Visit,
    answering,
    success,
)
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue, backwards


def test_messages_that_expired_are_a_loss(
    pulls: PullSetup, caplog: pytest.LogCaptureFixture
) -> None:
    queue = ScriptedQueue(500, begin=200)
    pulls.route(id_0=answering(queue.answer))
    with pytest.raises(DataLossError, match=r"100 messages are gone.*now holds \[200, 500\)"):
        pulls.pulled(100, 400)
    with caplog.at_level(logging.WARNING):
        assert pulls.pulled(100, 400, TOLERANT) == list(range(200, 400))
    assert "100 messages are gone" in caplog.text


def test_messages_that_expire_meanwhile_are_a_loss(pulls: PullSetup) -> None:
    queue = ScriptedQueue(5_000)

    def answer(request: RemotingCommand) -> RemotingCommand:
        if int(request.ext_fields["queueOffset"]) > 1_000:
            queue.begin = 3_000
        return queue.answer(request)

    pulls.route(id_0=answering(answer))
    found = pulls.pulled(0, 5_000, TOLERANT)
    assert found[-2_000:] == list(range(3_000, 5_000))
    assert 32 <= len(found) < 5_000


def test_messages_that_the_master_never_had_are_a_loss(pulls: PullSetup) -> None:
    pulls.route(id_0=answering(ScriptedQueue(100).answer))
    for end in (101, 5_000):
        with pytest.raises(DataLossError, match=r"now holds \[0, 100\)"):
            pulls.pulled(0, end)
        assert pulls.pulled(0, end, TOLERANT) == list(range(100))


def test_a_queue_that_is_hidden_is_an_error_and_no_loss(pulls: PullSetup) -> None:
    remark = "queueId[0] is illegal, topic:[T] topicConfig.readQueueNums:[0] consumer:[c]"
    for code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR):
        pulls.route(id_0=answering(refusal(code, remark)))
        for options in (OPTIONS, TOLERANT):
            with pytest.raises(DataLossError, match=r"\[0, 10\).*out of reach.*is illegal"):
                pulls.pulled(0, 10, options)


def test_missing_messages_are_a_loss(pulls: PullSetup) -> None:
    missing = frozenset({0, 40, 41, 99, 100, *range(200, 320), 399})
    pulls.route(id_0=answering(ScriptedQueue(400, missing=missing).answer))
    with pytest.raises(DataLossError, match="1 message is gone"):
        pulls.pulled(0, 400)
    assert pulls.pulled(0, 400, TOLERANT) == [n for n in range(400) if n not in missing]


def test_a_reset_of_the_group_is_not_for_us(pulls: PullSetup) -> None:
    queue = ScriptedQueue(100)
    numbers = itertools.count()

    def answer(request: RemotingCommand) -> RemotingCommand:
        if next(numbers) == 0:
            form = EXCHANGES[RequestCode.PULL_MESSAGE].response
            header = form.encode(PullMessageResponse(0, 5, 0, 100))
            return request.answer(ResponseCode.PULL_OFFSET_MOVED, ext_fields=header)
        return queue.answer(request)

    pulls.route(id_0=answering(answer))
    assert pulls.pulled(50, 100) == list(range(50, 100))


def test_tags_are_told_and_only_they_come(pulls: PullSetup) -> None:
    queue = ScriptedQueue(5_000, tag=lambda offset: "rare" if offset % 333 == 0 else "usual")
    pulls.route(id_0=backwards(queue.answer))
    for tags in (("rare",), ("usual", "other"), ("rare", "usual")):
        options = replace(OPTIONS, tags_codes=(1,), tags=tags)
        wanted = [n for n in range(3, 4_500) if queue.tag(n) in tags]
        assert pulls.pulled(3, 4_500, options) == wanted


@pytest.mark.parametrize("tags", [("*",), ("a||b",), (" a",), ("",), ("even", "")])
def test_tags_that_no_expression_names_are_left_to_the_task(
    pulls: PullSetup, tags: tuple[str, ...]
) -> None:
    pulls.route(id_0=answering(ScriptedQueue(50).answer))
    options = replace(OPTIONS, tags_codes=(1,), tags=tags)
    assert pulls.pulled(0, 50, options) == list(range(50))


def test_an_expression_that_a_broker_refuses_is_told_with_what_to_do(pulls: PullSetup) -> None:
    remark = "The broker does not support consumer to filter message by SQL92"
    pulls.route(id_0=answering(refusal(ResponseCode.SYSTEM_ERROR, remark)))
    with pytest.raises(BrokerError, match="enablePropertyFilter=true"):
        pulls.pulled(0, 9, replace(OPTIONS, expression="a > 1"))


def test_what_a_broker_does_not_allow_is_told_at_once(pulls: PullSetup, waits: Waits) -> None:
    pulls.route(id_0=answering(refusal(ResponseCode.NO_PERMISSION, "no")))
    with pytest.raises(BrokerError, match="NO_PERMISSION"):
        pulls.pulled(0, 9)
    assert waits.ms == []


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda body: body[:-1], "a record that does not end at its stated size"),
        (lambda body: b"\0\0\0\x01" + body[4:], "a record that does not end at its stated size"),
        (lambda body: body[:4] + b"\0\0\0\0" + body[8:], "data other than records"),
        (lambda body: body[:15] + b"\x07" + body[16:], "records of another queue"),
        (lambda body: body + body, "queue offsets that do not increase"),
        (lambda body: b"x" * 1_000, "a record that does not end at its stated size"),
    ],
)
def test_what_is_no_record_of_the_queue_is_declared(
    pulls: PullSetup, spoil: Callable[[bytes], bytes], problem: str
) -> None:
    queue = ScriptedQueue(100)

    def answer(request: RemotingCommand) -> RemotingCommand:
        found = queue.answer(request)
        return success(request, PullMessageResponse(0, 32, 0, 100), spoil(bytes(found.body)))

    pulls.route(id_0=answering(answer))
    with pytest.raises(ConnectionFailedError, match=problem) as caught:
        pulls.pulled(0, 100)
    assert caught.value.is_lasting


def test_closing_leaves_nothing_behind(pulls: PullSetup) -> None:
    queue = ScriptedQueue(50_000)
    late: list[RemotingCommand] = []

    def script(visit: Visit) -> None:
        for request in visit.requests():
            if request.ext_fields.get("queueOffset", "0") == "0" or late:
                visit.send(*map(queue.answer, [request, *late]))
                late.clear()
            else:
                late.append(request)

    pulls.route(id_0=script)
    puller = pulls.puller(0, 50_000)
    with closing(puller.chunks()) as chunks:
        next(chunks)
    assert not puller._pipelines
    master = Peer(pulls.names.routes[TOPIC].broker_datas[0].broker_addrs[0])
    connection = pulls.cluster._caller._connections.get(master, PATIENT, None)
    assert not connection.is_awaited
    # Late answers do not end the connection.
    assert pulls.pulled(0, 1) == [0]
    assert connection.is_open


def test_an_empty_range_asks_for_nothing(pulls: PullSetup) -> None:
    assert pulls.pulled(5, 5) == []
    assert pulls.names.asked == []
