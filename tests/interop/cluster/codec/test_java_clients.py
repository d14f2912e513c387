"""RocketMQ's Java clients and our codec: each reads the other's messages, at both versions."""

from __future__ import annotations

import pytest

from rocketpy_proto.record import decode_offset_message_id
from rocketpy_proto.record.properties import encode_properties
from rocketpy_proto.remoting import BatchMessage, RequestCode
from rocketpy_proto.remoting.headers.sends import COMMIT, EndTransactionRequest
from tests.interop.cluster.cluster import OLD, A, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.java_clients import ConnectJava, JavaClient, JavaMessage, JavaQueue
from tests.interop.cluster.messages import (
    Outgoing,
    Queue,
    bodies,
    body_of,
    commit,
    committed,
    offset_by_time,
    put,
    put_batch,
    read_all,
    send,
    until_pullable,
)
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import Broker
from tests.interop.rocketmq import ENDS

LARGE = b"compressed by its producer " * 300
UNIQUE_KEY = "0C" * 16


@pytest.fixture(params=ENDS)
def java(request: pytest.FixtureRequest, connect_java: ConnectJava, topic: str) -> JavaClient:
    """Returns a client of the newest and of the oldest version, for a topic at one master."""
    return connect_java(request.param, topic)


@pytest.fixture
def java_queue(master: Broker) -> JavaQueue:
    """Returns the queue of these tests, as the Java client's class."""
    return JavaQueue(master.spec.name, 0)


def test_we_read_what_the_java_client_sent(
    java: JavaClient, java_queue: JavaQueue, connection: Connection, queue: Queue
) -> None:
    rich = JavaMessage(
        "Köln".encode(), {"stadt": "Köln 😀"}, {"tags": "blue", "keys": ["k1", "k2"], "flag": 9}
    )
    results = java.send(java_queue, [rich, JavaMessage(LARGE)])
    assert [result["status"] for result in results] == ["SEND_OK", "SEND_OK"]
    until_pullable(connection, queue, 1)
    first, large = read_all(connection, queue)
    assert (first.body, first.flag) == (rich.body, 9)
    expected = {
        "TAGS": "blue",
        "KEYS": "k1 k2",
        "stadt": "Köln 😀",
        "UNIQ_KEY": results[0]["msgId"],
    }
    assert expected.items() <= first.properties.items()
    assert len(large.body) < len(LARGE)
    assert body_of(large) == LARGE
    for record, result in zip((first, large), results, strict=True):
        physical_offset = decode_offset_message_id(result["offsetMsgId"])[1]
        assert record.physical_offset == physical_offset
        assert record.queue_offset == result["queueOffset"]


def test_we_read_the_java_clients_batch(
    java: JavaClient, java_queue: JavaQueue, connection: Connection, queue: Queue
) -> None:
    sent = [
        JavaMessage(b"%d" % number, {"number": str(number)}, {"tags": f"t{number}"})
        for number in range(4)
    ]
    assert java.send_batch(java_queue, sent)["status"] == "SEND_OK"
    until_pullable(connection, queue, len(sent) - 1)
    records = read_all(connection, queue)
    assert [record.body for record in records] == [b"0", b"1", b"2", b"3"]
    assert [record.properties["number"] for record in records] == ["0", "1", "2", "3"]
    assert [record.properties["TAGS"] for record in records] == ["t0", "t1", "t2", "t3"]


def test_the_java_client_reads_what_we_sent(
    java: JavaClient, java_queue: JavaQueue, connection: Connection, queue: Queue
) -> None:
    properties = {"TAGS": "blue", "KEYS": "k1 k2", "stadt": "Köln 😀", "UNIQ_KEY": UNIQUE_KEY}
    put(connection, queue, Outgoing("Köln".encode(), properties, flag=9))
    put(connection, queue, Outgoing.compressed(LARGE))
    batch = [
        BatchMessage(b"%d" % number, encode_properties({"TAGS": f"t{number}"}))
        for number in range(3)
    ]
    put_batch(connection, queue, batch)
    first, large, *others = java.pull(java_queue)
    assert (first["body"], first["flag"]) == ("Köln".encode(), 9)
    assert properties.items() <= first["properties"].items()
    assert (first["tags"], first["keys"], first["msgId"]) == ("blue", "k1 k2", UNIQUE_KEY)
    assert large["body"] == LARGE
    assert [(one["body"], one["tags"]) for one in others] == [
        (b"0", "t0"),
        (b"1", "t1"),
        (b"2", "t2"),
    ]
    assert [one["body"] for one in java.pull(java_queue, "t1")] == [b"1"]


def test_delays_are_delivered_from_either_to_the_other(
    java: JavaClient,
    java_queue: JavaQueue,
    connection: Connection,
    queue: Queue,
    master: Broker,
) -> None:
    java.send(java_queue, [JavaMessage(b"by Java", {}, {"delayTimeLevel": 1})])
    send(connection, queue, Outgoing(b"by us", {"DELAY": "1"})).ok()
    until(lambda: len(bodies(connection, queue)) > 1, "delivered", [master])
    for record in read_all(connection, queue):
        assert record.store_timestamp_ms - record.born_timestamp_ms >= 1_000
    expected = [b"by Java", b"by us"]
    assert sorted(bodies(connection, queue)) == expected
    assert sorted(one["body"] for one in java.pull(java_queue)) == expected


def test_transactions_are_seen_by_the_other_once_they_are_committed(
    java: JavaClient, java_queue: JavaQueue, connection: Connection, topic: str, master: Broker
) -> None:
    queues = [Queue(topic, number) for number in range(2)]
    commits, rolls_back = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE"
    # The producer may drop a decision, which is one-way; the check then asks again.
    sent = [
        JavaMessage(b"committed", {"first": commits, "later": commits}),
        JavaMessage(b"rolled back", {"first": rolls_back, "later": rolls_back}),
        JavaMessage(b"asked after", {"first": "UNKNOW", "later": commits}),
    ]
    java.send(java_queue, sent)
    properties = {"TRAN_MSG": "true", "PGROUP": "ours", "UNIQ_KEY": UNIQUE_KEY}
    stored = send(connection, queues[0], Outgoing(b"ours", properties, sys_flag=4)).ok().header
    header = EndTransactionRequest(
        producer_group="ours",
        tran_state_table_offset=stored.queue_offset,
        commit_log_offset=decode_offset_message_id(stored.msg_id)[1],
        commit_or_rollback=COMMIT,
        msg_id=UNIQUE_KEY,
    )
    connection.ask(RequestCode.END_TRANSACTION, header).ok()
    expected = {b"asked after", b"committed", b"ours"}

    def seen_by_us() -> set[bytes]:
        return {body for queue in queues for body in bodies(connection, queue)}

    # A hurried broker may check a transaction twice, and then commits it twice.
    until(lambda: len(seen_by_us()) == len(expected), "committed", [master])
    assert seen_by_us() == expected
    # It may also check a transaction that has just been ended.
    assert "asked after" in java.asked
    java_queues = [JavaQueue(java_queue.broker, queue.queue_id) for queue in queues]
    assert {one["body"] for queue in java_queues for one in java.pull(queue)} == expected


def test_offsets_mean_the_same_to_either(
    java: JavaClient, java_queue: JavaQueue, connection: Connection, queue: Queue, topic: str
) -> None:
    for number in range(3):
        put(connection, queue, Outgoing(b"%d" % number))
    java.pull(java_queue)
    java.commit(java_queue, 2)
    assert committed(connection, topic, queue).ok().header.offset == 2
    commit(connection, topic, queue, 1).ok()
    assert java.committed(java_queue) == 1
    for record in read_all(connection, queue):
        stored_ms = record.store_timestamp_ms
        found = offset_by_time(connection, queue, stored_ms)
        assert java.offset_by_time(java_queue, stored_ms) == found


@pytest.mark.parametrize("version", ENDS)
def test_one_topic_of_brokers_of_both_versions_has_queues_of_the_same_numbers(
    cluster: Cluster, connect_java: ConnectJava, version: str
) -> None:
    topic = f"spread-{version.replace('.', '-')}"
    cluster.create_topic(topic, 1)
    java = connect_java(version, topic)
    for name in (A, OLD):
        java.send(JavaQueue(name, 0), [JavaMessage(name.encode())])
        with Connection(cluster.broker(name).address) as connection:
            until_pullable(connection, Queue(topic), 0)
            assert bodies(connection, Queue(topic)) == [name.encode()]
