"""F16: whole brokers that use the directory in turn, three times, with their own clients.

Ours is a process that is stopped or killed, as RocketMQ's is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.messages.model import Message
from rocketpy_broker.runtime.time_format import EPOCH
from tests.interop.handover.clients import CONSUMERS, QUEUES, TOPIC, RocketMQBroker, check_clean
from tests.interop.rocketmq import V4, V5, V5_3

COUNT = 2 * QUEUES
Records = list[dict[str, Any]]


def as_rocketmq_sees(message: Message) -> dict[str, Any]:
    """Returns a message in the form of `RocketMQStore.dump`, without `flag`, which clients omit."""
    apart = {"TAGS": message.tags, "KEYS": " ".join(message.keys), "UNIQ_KEY": message.msg_id}
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.commit_log_offset,
        "body": message.stored_body,
        "properties": {**message.properties, **{key: apart[key] for key in apart if apart[key]}},
        "sysFlag": message.sys_flag,
        "bornTimestamp": round((message.born_timestamp - EPOCH).total_seconds() * 1000),
        "bornHost": message.born_host,
        "storeTimestamp": round((message.store_timestamp - EPOCH).total_seconds() * 1000),
        "storeHost": message.store_host,
        "offsetMessageId": message.offset_msg_id,
    }


def of_ours(broker: LocalBroker) -> Records:
    """Returns the topic's records at our broker, in the order of the log."""
    found = [as_rocketmq_sees(message) for message in broker.messages(TOPIC)]
    return sorted(found, key=lambda record: int(record["physicalOffset"]))


def of_theirs(broker: RocketMQBroker) -> Records:
    """Returns the topic's records at RocketMQ's broker."""
    return [
        {name: record[name] for name in record if name != "flag"}
        for record in broker.records(TOPIC)
    ]


def bodies(records: Records) -> list[str]:
    return [record["body"].decode() for record in records]


def our_turn(folder: Path, words: list[str], before: Records, how: str) -> Records:
    """Checks the records, sends, and ends our broker; returns the records then."""
    with LocalBroker(folder, commit_log_segment_bytes=1 << 30) as broker:
        if not before:
            broker.create_topic(TOPIC, QUEUES)
        assert of_ours(broker) == before
        for word in words:
            broker.send(TOPIC, word, tags="Tag", keys=["all", word], properties={"stadt": "Köln"})
        after = of_ours(broker)
        if how == "killed":
            broker.kill()
    return after


def their_turn(theirs: RocketMQBroker, words: list[str], before: Records, how: str) -> Records:
    """Checks and sends with RocketMQ's client in the same way; its group consumes new messages."""
    if not before:
        theirs.create_topic()
    assert of_theirs(theirs) == before
    theirs.start_producer()
    for word in words:
        theirs.send(word)
    theirs.start_consumer()
    # All but the group's own messages of the turn before.
    new = [*bodies(before)[-COUNT:], *words]
    theirs.until(lambda: {one.body for one in theirs.consumed} >= set(new))
    theirs.stop_clients()
    if how == "stopped":
        assert sorted(one.body for one in theirs.consumed) == sorted(new)
    after = of_theirs(theirs)
    (RocketMQBroker.stop if how == "stopped" else RocketMQBroker.kill)(theirs)
    return after


# RocketMQ's broker of version 5 takes twenty seconds to stop: see test_transactions for that.
@pytest.mark.parametrize(
    ("version", "first", "how"),
    [
        (V5, "RocketMQ", "killed"),
        (V5_3, "RocketMQ", "killed"),
        (V4, "RocketMQ", "killed"),
        (V4, "we", "killed"),
        (V4, "we", "stopped"),
    ],
)
def test_f16_brokers_have_the_directory_in_turn_and_their_clients_miss_nothing(
    tmp_path: Path, version: str, first: str, how: str
) -> None:
    shown: Records = []
    sent: list[str] = []
    for turn in range(4):
        words = [f"{turn}-{number}" for number in range(COUNT)]
        sent += words
        if (turn % 2 == 0) == (first == "we"):
            shown = our_turn(tmp_path, words, shown, how)
        else:
            with RocketMQBroker(tmp_path, version) as theirs:
                shown = their_turn(theirs, words, shown, how)
        assert bodies(shown) == sent
        check_clean(tmp_path)
    if how == "stopped":
        with LocalBroker(tmp_path, commit_log_segment_bytes=1 << 30) as broker:
            left = [] if first == "we" else words
            assert sorted(message.text for message in broker.pull(TOPIC, CONSUMERS)) == left
