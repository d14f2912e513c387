"""The topics of small calls and of bulk work, with messages in them."""

from __future__ import annotations

import json
from pathlib import Path

import grpc

from benchmarks import data
from rocketpy_broker import LocalBroker
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc

KIB, MIB = 1 << 10, 1 << 20
SMALL_TOPIC, SMALL_BODY_BYTES = "Small", 100
# Queues with messages, and the blocks of each: many small messages, and few large ones.
BULK_TOPIC, LARGE_TOPIC, FULL_QUEUES = "Bulk", "Large", 8
BLOCKS_EACH, FULL_BLOCK_MESSAGES, BODY_BYTES = 8, 1000, KIB
LARGE_BLOCK_MESSAGES, LARGE_BODY_BYTES = 30, 128 * KIB
# Its messages are consumed as they come.
PASSED_TOPIC = "Passed"
WIDE_TOPIC, WIDE_QUEUES = "Wide", 4096
LISTED_TOPICS = 10_000


def prepare(folder: Path, topics: int = LISTED_TOPICS) -> None:
    """Writes a table of `topics` topics, as a broker start finds it."""
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for name in (f"listed-{number:05}" for number in range(topics))
    }
    (folder / "config").mkdir(parents=True)
    content = {"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": table}
    (folder / "config" / "topics.json").write_text(json.dumps(content), encoding="utf-8")


def fill(broker: LocalBroker) -> None:
    """Creates the topics of small calls and of bulk work, with messages in them."""
    broker.create_topic(SMALL_TOPIC, queues=2)
    broker.create_topic(WIDE_TOPIC, queues=WIDE_QUEUES)
    for topic in (BULK_TOPIC, LARGE_TOPIC, PASSED_TOPIC):
        broker.create_topic(topic, queues=FULL_QUEUES)
    broker.send(SMALL_TOPIC, bytes(SMALL_BODY_BYTES), queue_id=1)
    requests = [
        append_request(BULK_TOPIC, number % FULL_QUEUES, FULL_BLOCK_MESSAGES, BODY_BYTES)
        for number in range(FULL_QUEUES * BLOCKS_EACH)
    ]
    requests += [
        append_request(LARGE_TOPIC, queue_id, LARGE_BLOCK_MESSAGES, LARGE_BODY_BYTES)
        for queue_id in range(FULL_QUEUES)
    ]
    with grpc.insecure_channel(broker.endpoint) as channel:
        for response in broker_pb2_grpc.BrokerStub(channel).Append(iter(requests)):
            if response.status.code:
                raise RuntimeError(response.status.remark)


def append_request(
    topic: str, queue_id: int, count: int, body_bytes: int
) -> broker_pb2.AppendRequest:
    """Returns a block of `count` messages."""
    block = data.block(count, body_bytes, topic)
    return broker_pb2.AppendRequest(
        topic=topic, queue_id=queue_id, records=block.records, record_sizes=block.record_sizes
    )
