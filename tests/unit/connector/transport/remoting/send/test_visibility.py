"""The end of a task: it waits until its messages are readable, and never without a limit."""

from __future__ import annotations

import logging

import pytest

from pyspark_rocketpy.transport.remoting.send import visibility
from pyspark_rocketpy.transport.remoting.send.requests import SendResult
from pyspark_rocketpy.transport.write_values import DELAY_TIMED
from rocketpy_proto.remoting import BatchMessage, MessageQueue, ResponseCode
from tests.unit.connector.transport.remoting.pull_setup import Waits
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC
from tests.unit.connector.transport.remoting.scripted_store import Fault
from tests.unit.connector.transport.remoting.send.test_send_pipeline import A, B, Setup, setup
from tests.unit.connector.transport.remoting.stored_blocks import of_bodies, stored

__all__ = ["setup"]
ALL_THE_TIME = 1_000_000


def test_a_task_ends_when_its_rows_can_be_read(setup: Setup, waits: Waits) -> None:
    setup.stores[A].unshown = 3
    setup.write(of_bodies(b"a"), of_bodies(b"b", b"c"))
    assert setup.stores[A].ends_asked == [0] * 4
    assert waits.ms == [1, 2, 4]


def test_one_question_a_broker_is_enough(setup: Setup) -> None:
    setup.write(*(of_bodies(b"%d" % n, queue_id=queue) for n in range(5) for queue in range(4)))
    assert len(setup.stores[A].ends_asked) == len(setup.stores[B].ends_asked) == 1


def test_the_last_message_of_the_log_is_asked_for(setup: Setup) -> None:
    found = visibility.Visibility(setup.cluster)
    first, last = (MessageQueue(A, queue_id, TOPIC) for queue_id in (1, 0))
    setup.stores[A].bodies = {0: [b"x"] * 8, 1: [b"x"]}
    found.stored(last, SendResult(ResponseCode.SUCCESS, 0, 7, (f"{900:032X}",)), 1)
    found.stored(first, SendResult(ResponseCode.SUCCESS, 1, 0, (f"{700:032X}",)), 1)
    found.wait()
    assert setup.stores[A].ends_asked == [0]


def test_rows_that_stay_hidden_are_told_and_end_no_task(
    setup: Setup, waits: Waits, caplog: pytest.LogCaptureFixture
) -> None:
    setup.stores[A].unshown = ALL_THE_TIME
    with caplog.at_level(logging.WARNING):
        setup.write(of_bodies(b"a"))
    assert setup.stores[A].bodies == {0: [b"a"]}
    assert (
        visibility.SHOW_MS_MAX <= sum(waits.ms) < visibility.SHOW_MS_MAX + visibility.PAUSE_MS_MAX
    )
    [record] = caplog.records
    assert f"{A}, topic {TOPIC}" in record.getMessage()


def test_messages_that_wait_at_the_broker_are_not_waited_for(setup: Setup, waits: Waits) -> None:
    setup.stores[A].unshown = ALL_THE_TIME
    timed = stored([BatchMessage(b"later", b"TIMER_DELIVER_MS\x01123\x02")], delay=DELAY_TIMED)
    setup.write(timed, stored([BatchMessage(b"a", b"DELAY\x013\x02")], delay=3))
    assert waits.ms == []


def test_a_broker_that_goes_when_all_is_stored_fails_no_task(setup: Setup) -> None:
    writer = setup.writer()
    writer.send(of_bodies(b"a"))
    writer._pipeline.finish()
    setup.peers[A].close()
    assert writer.finish() == b""


@pytest.mark.parametrize("msg_id", ["", "no offset id of a broker"])
def test_an_id_that_tells_no_place_is_passed_over(setup: Setup, msg_id: str) -> None:
    found = visibility.Visibility(setup.cluster)
    result = SendResult(ResponseCode.SUCCESS, 0, 0, (msg_id,))
    found.stored(MessageQueue(A, 0, TOPIC), result, 1)
    found.wait()
    assert setup.stores[A].ends_asked == []


def test_what_is_sent_twice_is_waited_for_at_its_second_place(setup: Setup) -> None:
    setup.stores[A].faults = [Fault.LOSE]
    setup.write(of_bodies(b"a"))
    assert setup.stores[A].bodies == {0: [b"a", b"a"]}
    assert setup.stores[A].ends_asked == [0]
