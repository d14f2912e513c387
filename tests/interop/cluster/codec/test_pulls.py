"""Pulls by our codec from masters of both versions: their results and their filters."""

from __future__ import annotations

import pytest

from rocketpy_proto.record.properties import encode_properties
from rocketpy_proto.remoting import BatchMessage, RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.pulls import SUBSCRIPTION, SUSPEND, PullMessageRequest
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import (
    GROUP,
    MESSAGES_MAX,
    Outgoing,
    Queue,
    pull,
    put,
    put_batch,
    read_all,
    records_of,
)
from tests.interop.cluster.servers import Broker
from tests.interop.rocketmq import V4

MANY = 70


def batch_of(count: int) -> list[BatchMessage]:
    return [
        BatchMessage(b"%d" % number, encode_properties({"TAGS": f"t{number % 2}"}))
        for number in range(count)
    ]


def test_a_pull_has_at_most_32_and_says_where_to_go_on(
    connection: Connection, queue: Queue
) -> None:
    put_batch(connection, queue, batch_of(MANY))
    answer = pull(connection, queue)
    header = answer.header
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (32, 0, MANY)
    assert header.suggest_which_broker_id == 0
    assert len(records_of(answer)) == MESSAGES_MAX
    records = read_all(connection, queue)
    assert [record.body for record in records] == [b"%d" % number for number in range(MANY)]


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (2, ResponseCode.PULL_NOT_FOUND, 2),
        (3, ResponseCode.PULL_OFFSET_MOVED, 2),
        (-1, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
def test_a_pull_outside_says_what_the_queue_has(
    connection: Connection, queue: Queue, offset: int, code: ResponseCode, next_offset: int
) -> None:
    put_batch(connection, queue, batch_of(2))
    answer = pull(connection, queue, offset)
    assert answer.code == code
    header = answer.header
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (next_offset, 0, 2)


def test_a_broker_leaves_out_what_has_other_tags(connection: Connection, queue: Queue) -> None:
    put_batch(connection, queue, batch_of(6))
    answer = pull(connection, queue, subscription="t1 || other")
    assert [record.queue_offset for record in records_of(answer)] == [1, 3, 5]
    assert answer.header.next_begin_offset == 6
    assert pull(connection, queue, subscription="other").code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_an_empty_queue_has_nothing_to_find(connection: Connection, queue: Queue) -> None:
    answer = pull(connection, queue)
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.header.max_offset == 0


def test_queues_and_topics_that_are_not_there_are_refused(
    connection: Connection, topic: str, master: Broker
) -> None:
    is_new = master.spec.version != V4
    wrong_queue = ResponseCode.INVALID_PARAMETER if is_new else ResponseCode.SYSTEM_ERROR
    assert pull(connection, Queue(topic, 2)).code == wrong_queue
    assert pull(connection, Queue("nowhere")).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_suspended_pull_is_answered_when_a_message_comes(
    connection: Connection, queue: Queue, master: Broker
) -> None:
    header = PullMessageRequest(
        consumer_group=GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=MESSAGES_MAX,
        sys_flag=SUBSCRIPTION | SUSPEND,
        suspend_timeout_ms=50_000,
        subscription="*",
    )
    connection.begin(RequestCode.PULL_MESSAGE, header)
    with Connection(master.address) as other:
        put(other, queue, Outgoing(b"awaited"))
    (record,) = records_of(connection.expect(RequestCode.PULL_MESSAGE))
    assert record.body == b"awaited"
