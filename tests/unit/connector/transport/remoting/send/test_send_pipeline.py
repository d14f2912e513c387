"""A task's blocks at scripted brokers: all are acknowledged, in order, in spite of faults."""

from __future__ import annotations

import logging

import pytest

from pyspark_rocketpy.errors import (
    BrokerError,
    ConnectionFailedError,
    RocketpyError,
    TopicNotExistError,
)
from pyspark_rocketpy.transport.remoting.cluster.congestion_window import SENDS_AT_FIRST
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.send.block_writer import RemotingBlockWriter
from pyspark_rocketpy.transport.remoting.send.pipeline import WAITING_BYTES_MAX
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import DELAY_TIMED, Block, WriteQueues
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.remoting import BatchMessage, ResponseCode
from tests.unit.connector.transport.remoting.conftest import Clusters, Peers
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, Knowledge, route_of
from tests.unit.connector.transport.remoting.scripted_peer import PATIENT, ScriptedPeer, answering
from tests.unit.connector.transport.remoting.scripted_store import (
    Fault,
    Refuse,
    Script,
    Store,
    Unsafe,
)
from tests.unit.connector.transport.remoting.stored_blocks import of_bodies, stored

A, B = "broker-a", "broker-b"
POLICY = RetryPolicy(3, 1)
# Enough for an answer on a busy machine: what has none is sent again, and stored twice.
SHORT = Timeouts(2_000, "sendTimeout")
BUSY = Refuse(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy")
# Answer of 4.x if its queue of sends is too long.
BUSY_ERROR = Refuse(ResponseCode.SYSTEM_ERROR, "system busy, start flow control for a while")


class Setup:
    """Two brokers with two queues each, and a writer."""

    def __init__(self, peers: Peers, clusters: Clusters) -> None:
        self.stores = {A: Store(), B: Store()}
        self.peers: dict[str, ScriptedPeer] = {
            name: peers(store.script) for name, store in self.stores.items()
        }
        self.names = Knowledge()
        self.route(A, B)
        self.cluster = clusters(peers(answering(self.names.answer)))

    def route(self, *names: str) -> None:
        """Sets the brokers of the topic."""
        self.names.routes[TOPIC] = route_of(**{name: self.peers[name].address for name in names})

    def writer(
        self, policy: RetryPolicy = POLICY, timeouts: Timeouts = PATIENT
    ) -> RemotingBlockWriter:
        made = RemotingBlockWriter(self.cluster, policy, timeouts)
        made.write_queues([TOPIC])
        return made

    def write(self, *blocks: Block, timeouts: Timeouts = PATIENT) -> None:
        writer = self.writer(timeouts=timeouts)
        for block in blocks:
            writer.send(block)
        assert writer.finish() == b""
        writer.close()


@pytest.fixture
def setup(peers: Peers, clusters: Clusters) -> Setup:
    """Returns the setup of two brokers."""
    return Setup(peers, clusters)


def test_queues_are_counted_through_the_brokers_by_name(setup: Setup) -> None:
    setup.route(B, A)
    queues = setup.writer().write_queues([TOPIC])[TOPIC]
    assert list(queues.nums.items()) == [(A, 2), (B, 2)]
    assert [queues.place(number) for number in range(4)] == [(A, 0), (A, 1), (B, 0), (B, 1)]
    setup.write(*(of_bodies(b"%d" % number, b"x", queue_id=number) for number in range(4)))
    assert setup.stores[A].bodies == {0: [b"0", b"x"], 1: [b"1", b"x"]}
    assert setup.stores[B].bodies == {0: [b"2", b"x"], 1: [b"3", b"x"]}


def test_a_broker_without_queues_has_no_place() -> None:
    queues = WriteQueues({"a": 2, "b": 0, "c": 1})
    assert [queues.place(number) for number in range(3)] == [("a", 0), ("a", 1), ("c", 0)]
    assert (queues.at("c"), queues.at("d"), queues.at("")) == (range(2, 3), None, None)
    assert WriteQueues({"a": 2}).at("") == range(2)


def test_a_task_keeps_the_queues_that_it_began_with(setup: Setup) -> None:
    writer = setup.writer()
    setup.route(B)
    setup.cluster.route(TOPIC)
    assert writer.write_queues([TOPIC])[TOPIC].count == 4


def test_a_topic_that_nobody_has_is_told(setup: Setup) -> None:
    with pytest.raises(TopicNotExistError, match="nowhere"):
        setup.writer().write_queues(["nowhere"])
    with pytest.raises(TopicNotExistError, match="nowhere"):
        setup.writer().send(stored([BatchMessage(b"a")], topic="nowhere"))


def test_a_topic_without_queues_to_write_is_told(setup: Setup) -> None:
    setup.names.routes[TOPIC] = route_of()
    with pytest.raises(BrokerError, match="no broker accepts messages of topic"):
        setup.writer()


def test_several_queues_are_under_way_and_one_send_in_each(setup: Setup) -> None:
    # The broker answers once it has sends of two queues, and would fail on two of one queue.
    setup.stores[A].held = 2
    blocks = [
        of_bodies(b"%d" % number, b"-", queue_id=queue) for number in range(5) for queue in (0, 1)
    ]
    setup.write(*blocks)
    expected = [body for number in range(5) for body in (b"%d" % number, b"-")]
    assert setup.stores[A].bodies == {0: expected, 1: expected}


def test_a_block_of_several_queues_goes_to_each(setup: Setup) -> None:
    messages = [BatchMessage(b"%d" % number) for number in range(4)]
    setup.write(stored(messages, [0, 0, 3, 3], queue_id=OWN_QUEUES))
    assert setup.stores[A].bodies == {0: [b"0", b"1"]}
    assert setup.stores[B].bodies == {1: [b"2", b"3"]}


@pytest.mark.parametrize(
    "fault", [BUSY, BUSY_ERROR, Fault.DROP, Refuse(ResponseCode.SERVICE_NOT_AVAILABLE)]
)
def test_what_was_not_stored_is_sent_again_in_its_order(
    setup: Setup, caplog: pytest.LogCaptureFixture, fault: Script
) -> None:
    setup.stores[A].faults = [fault, fault]
    with caplog.at_level(logging.WARNING):
        setup.write(of_bodies(b"a", b"b"), of_bodies(b"c"), of_bodies(b"d"))
    assert setup.stores[A].bodies == {0: [b"a", b"b", b"c", b"d"]}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "are stored twice" in caplog.text


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.SILENCE])
def test_what_may_be_stored_is_sent_again_and_may_double(setup: Setup, fault: Script) -> None:
    setup.stores[A].faults = [fault]
    setup.write(of_bodies(b"a", b"b"), of_bodies(b"c"), timeouts=SHORT)
    assert setup.stores[A].bodies == {0: [b"a", b"b", b"a", b"b", b"c"]}


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ],
)
def test_what_is_stored_less_safely_is_told_once_and_not_sent_again(
    setup: Setup, caplog: pytest.LogCaptureFixture, code: ResponseCode
) -> None:
    setup.stores[A].faults = [Unsafe(code)] * 3
    with caplog.at_level(logging.WARNING):
        setup.write(of_bodies(b"a"), of_bodies(b"b"), of_bodies(b"c", queue_id=1))
    assert setup.stores[A].bodies == {0: [b"a", b"b"], 1: [b"c"]}
    [record] = caplog.records
    assert code.name in record.getMessage()


def test_patience_with_a_busy_broker_ends(setup: Setup) -> None:
    setup.stores[A].faults = [BUSY] * 4
    with pytest.raises(BrokerError, match="REJECTREQUEST"):
        setup.write(of_bodies(b"a"))
    assert len(setup.stores[A].heard) == 1 + POLICY.times_max


def test_a_queue_s_failures_are_counted_anew_after_a_success(setup: Setup) -> None:
    setup.stores[A].faults = [BUSY, BUSY, BUSY, Fault.NONE] * 2
    setup.write(of_bodies(b"a"), of_bodies(b"b"))
    assert setup.stores[A].bodies == {0: [b"a", b"b"]}


@pytest.mark.parametrize(
    "code",
    [ResponseCode.NO_PERMISSION, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER],
)
def test_a_refusal_ends_the_task(setup: Setup, code: ResponseCode) -> None:
    setup.stores[A].faults = [Refuse(code, "the reason")]
    with pytest.raises(BrokerError, match=rf"the reason.*{code.name}"):
        setup.write(of_bodies(b"a", b"b"))
    assert len(setup.stores[A].heard) == 1


def test_a_topic_that_is_gone_for_a_moment_is_waited_for(setup: Setup) -> None:
    store = setup.stores[A]
    store.faults = [Refuse(ResponseCode.TOPIC_NOT_EXIST, "not here")]
    asked = len(setup.names.asked)
    setup.write(of_bodies(b"a"))
    assert store.bodies == {0: [b"a"]}
    # Once at the start of the task, and once after the refusal.
    assert len(setup.names.asked) - asked == 2


def gone(setup: Setup, name: str) -> None:
    setup.peers[name].close()
    setup.route(*({A, B} - {name}))


def test_rows_that_no_queue_was_asked_for_go_to_another_broker(setup: Setup) -> None:
    writer = setup.writer()
    gone(setup, A)
    for number in range(4):
        writer.send(of_bodies(b"%d" % number, queue_id=number, is_movable=True))
    writer.finish()
    found = [body for bodies in setup.stores[B].bodies.values() for body in bodies]
    assert sorted(found) == [b"0", b"1", b"2", b"3"]


def test_rows_that_ask_for_a_queue_wait_for_it_until_patience_ends(setup: Setup) -> None:
    writer = setup.writer()
    gone(setup, A)
    writer.send(of_bodies(b"a", queue_id=0))
    writer.send(of_bodies(b"b", queue_id=2))
    with pytest.raises(ConnectionFailedError, match=A):
        writer.finish()
    assert setup.stores[B].bodies.get(0) in (None, [b"b"])


def test_what_another_try_would_meet_again_ends_the_task(setup: Setup, peers: Peers) -> None:
    setup.peers[A] = peers(lambda visit: visit.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n"))
    setup.route(A, B)
    writer = setup.writer()
    writer.send(of_bodies(b"a", is_movable=True))
    with pytest.raises(ConnectionFailedError, match="speaks HTTP"):
        writer.finish()


def test_where_no_broker_is_left_the_task_fails(setup: Setup) -> None:
    writer = setup.writer()
    gone(setup, A)
    gone(setup, B)
    for number in range(4):
        writer.send(of_bodies(b"%d" % number, queue_id=number, is_movable=True))
    with pytest.raises(ConnectionFailedError):
        writer.finish()


def test_a_task_waits_when_it_holds_too_much(setup: Setup) -> None:
    block, waiting = of_bodies(bytes(WAITING_BYTES_MAX // 10)), 10
    writer = setup.writer()
    for _ in range(waiting + 3):
        writer.send(block)
    assert len(setup.stores[A].heard) >= 3
    writer.finish()
    assert len(setup.stores[A].bodies[0]) == waiting + 3


def test_a_broker_that_refuses_gets_less_at_once(setup: Setup) -> None:
    setup.stores[A].faults = [BUSY, BUSY]
    writer = setup.writer(RetryPolicy(3, 1))
    for number in range(8):
        writer.send(of_bodies(b"%d" % number, queue_id=number % 2))
    writer.finish()
    bodies = setup.stores[A].bodies
    assert bodies == {0: [b"0", b"2", b"4", b"6"], 1: [b"1", b"3", b"5", b"7"]}
    window = writer._pipeline._windows[A]
    assert window.in_flight == 0
    assert 1 < window.size < SENDS_AT_FIRST + 8


def test_a_broker_that_takes_all_gets_more_at_once_than_it_got(setup: Setup) -> None:
    writer = setup.writer()
    for number in range(200):
        writer.send(of_bodies(b"%d" % number, queue_id=number % 2))
    writer.finish()
    # There are two queues, so there are at most two sends.
    size = writer._pipeline._windows[A].size
    assert SENDS_AT_FIRST < size <= SENDS_AT_FIRST + 1


TIMED = stored([BatchMessage(b"later", b"TIMER_DELIVER_MS\x01123\x02")], delay=DELAY_TIMED)


def test_a_broker_of_5_takes_times(setup: Setup) -> None:
    setup.write(TIMED, TIMED)
    assert setup.stores[A].bodies == {0: [b"later", b"later"]}
    [first, _] = setup.stores[A].heard
    assert first.ext_fields["i"] == "TIMER_DELIVER_MS\x01123\x02"


def test_a_broker_of_4_is_sent_no_times(setup: Setup) -> None:
    setup.stores[A].version = 407
    with pytest.raises(BrokerError, match=r"deliverAt.*broker-a is older than RocketMQ 5"):
        setup.write(TIMED)
    assert setup.stores[A].heard == []


@pytest.mark.parametrize("count", [0, 1])
def test_a_task_without_rows_asks_nobody(setup: Setup, count: int) -> None:
    writer = RemotingBlockWriter(setup.cluster, POLICY, PATIENT)
    if count:
        writer.write_queues([TOPIC])
    assert writer.finish() == b""
    assert len(setup.names.asked) == count


def test_a_name_server_that_is_away_is_asked_again(
    setup: Setup, peers: Peers, clusters: Clusters
) -> None:
    nobody = peers(answering(setup.names.answer))
    nobody.close()
    writer = RemotingBlockWriter(clusters(nobody), POLICY, PATIENT)
    with pytest.raises(RocketpyError, match="option nameServer"):
        writer.write_queues([TOPIC])
