"""F16: a directory that RocketMQ's clients filled at our broker, continued by RocketMQ's broker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rocketpy_broker import LocalBroker
from tests.interop.cluster.java_clients import JavaClient, JavaMessage, JavaQueue
from tests.interop.handover.clients import CONSUMERS, PRODUCERS, TOPIC, RocketMQBroker, check_clean
from tests.interop.remoting.clients import Messaging, until_consumed
from tests.interop.rocketmq import ENDS_STORED_AT_ONCE, V5_3, RocketMQStore

MODES = ["sync", "async", "oneway", "batch", "ordered"]
# A busy machine answers a check before the next one: two answers commit twice.
CONF = {
    "transactionTimeOut": 500,
    "transactionCheckInterval": 5_000,
    **ENDS_STORED_AT_ONCE,
}


def use(broker: LocalBroker, java: RocketMQStore) -> tuple[list[str], set[int]]:
    """Uses all kinds of clients.

    Returns the bodies that every group has consumed, and the failed message's redeliveries.
    """
    clients = Messaging(java, broker.name_server, V5_3)
    producer = clients.producer("others")
    read = [f"{mode}-{number}" for mode in MODES for number in range(4)]
    for mode in MODES:
        bodies = [body for body in read if body.startswith(mode)]
        producer.send(TOPIC, bodies, mode, orderKey=1)
    for kind in ("orderly", "pull", "broadcasting"):
        consumer = clients.consumer(TOPIC, kind, group=kind)
        if kind == "broadcasting":
            producer.send(TOPIC, ["broadcast"])
            read.append("broadcast")
        until_consumed([consumer], ["broadcast"] if kind == "broadcasting" else read)
        consumer.stop()
    consumer = clients.consumer(TOPIC, group=CONSUMERS)
    producer.send(TOPIC, ["fail-once"])
    until_consumed([consumer], [*read, "fail-once"])
    # The failed message is sent back meanwhile.
    producer.send(TOPIC, ["last"])
    until_consumed([consumer], ["last"])
    failures = {each.reconsume_times for each in consumer.consumed() if each.body == "fail-once"}
    consumer.stop()
    producer.send(TOPIC, ["later"])
    producer.send(TOPIC, ["delayed"], delayLevel=4)
    producer.send(TOPIC, ["timed"], delayMs="30000")
    clients.stop_all()
    half = JavaMessage(b"half", {"first": "UNKNOW", "later": "COMMIT_MESSAGE"})
    JavaClient(java, broker.name_server, PRODUCERS, TOPIC).send(JavaQueue("broker-a", 0), [half])
    assert len(broker.transactions(PRODUCERS)) == 1
    return read, failures


def test_f16_rocketmq_continues_what_its_clients_left_at_our_broker(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with (
        LocalBroker(folder, commit_log_segment_bytes=1 << 30) as broker,
        RocketMQStore(tmp_path / "java.log", tmp_path, V5_3) as java,
    ):
        broker.create_topic(TOPIC, 4)
        read, failures = use(broker, java)
    check_clean(folder)
    with RocketMQStore(tmp_path / "java.log", tmp_path, V5_3) as java:
        offsets = java.ask("readConfig", folder=str(folder))["offsets"]
    # A retry may be under way when its consumer stops.
    assert (
        len(read) <= sum(offsets[f"{TOPIC}@{CONSUMERS}"].values()) <= len([*read, "fail", "last"])
    )
    for group in ("orderly", "pull"):
        assert sum(offsets[f"{TOPIC}@{group}"].values()) == len(read) - 1
    with RocketMQBroker(folder, V5_3, **CONF) as theirs:
        waiting = {"later", "delayed", "timed", "half"}
        assert {*read, "later"} <= set(theirs.bodies(TOPIC))
        theirs.start_producer()
        theirs.start_consumer()
        theirs.until(lambda: waiting <= {each.body for each in theirs.consumed})
        theirs.until(lambda: failures | retries(theirs) == {0, 1})
        assert {each.body for each in theirs.consumed} <= {*waiting, "fail-once", "last"}
        assert Counter(each.body for each in theirs.consumed if each.body in waiting) == Counter(
            waiting
        )
        theirs.kill()
    check_clean(folder)


def retries(theirs: RocketMQBroker) -> set[int]:
    """Returns the redeliveries of the failed message by RocketMQ."""
    return {each.reconsume_times for each in theirs.consumed if each.body == "fail-once"}
