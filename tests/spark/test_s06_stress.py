"""Starts and stops of a query during changes of topics, queues and messages.

Topics are deleted and recreated, the oldest segments are removed, the broker is restarted and
killed. The rows of all batches must be the messages that were sent, each once. A message may be
missing only if it was removed before the query was known to have read it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketpy_broker import LocalBroker
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc, broker_pb2_grpc
from tests.faults.clients import append_request
from tests.spark.conftest import Collected
from tests.support.store.messages import remove_oldest_segment
from tests.support.store.stores import store_in

SEEDS_QUICK, SEEDS_TORTURE = 1, 20
ACTIONS = 50
BURST_MAX = 60
# A few bursts fill a segment of the log.
SEGMENT_BYTES, QUEUE_FILE_BYTES = 16 << 10, 6_000_000
# Reconnects soon after the broker is back, as the connector does.
OPTIONS = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1_000)]
OPTIONS += [("grpc.use_local_subchannel_pool", 1)]
QUEUES_MAX = 8
READ_WRITE = 6
# For a thousand messages in batches of 30.
CATCH_UP_SECONDS_MAX = 300


class World:
    """The broker, the messages and one query, changed at random from a seed."""

    def __init__(
        self, seed: int, spark: SparkSession, broker: LocalBroker, collected: Collected
    ) -> None:
        self._chance = random.Random(seed)
        self._spark = spark
        self._local = broker
        self._collected = collected
        self._query: StreamingQuery | None = None
        self._connect()
        self.queues: dict[str, int] = {}
        self._topic_count = 0
        # The bodies in each queue by offset, and all that were ever sent.
        self.lying: dict[QueueKey, list[str]] = {}
        self.sent: list[str] = []
        self._read: set[str] = set()
        # Bodies that were removed before they were known to be read.
        self.gone: set[str] = set()
        self.done: Counter[str] = Counter()

    def _connect(self) -> None:
        """Connects to a broker that has just started; an old connection may still look alive."""
        self._channel = grpc.insecure_channel(self._local.endpoint, OPTIONS)
        self._admin = admin_pb2_grpc.AdminStub(self._channel)
        self._broker = broker_pb2_grpc.BrokerStub(self._channel)

    def _start_broker(self) -> None:
        self._channel.close()
        self._local.start()
        self._connect()

    def frame(self) -> DataFrame:
        """Returns the stream, each time with another limit."""
        reader = self._spark.readStream.format("rocketpy")
        return (
            reader.option("endpoints", self._local.endpoint)
            .option("topicPattern", "stress-.*")
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "false")
            .option("maxOffsetsPerTrigger", self._chance.choice([30, 70, 500, 10_000]))
            .load()
            .select("body")
        )

    def act(self) -> None:
        """Runs one action; bursts are the most frequent."""
        actions: list[Callable[[], None]] = [
            self.add_topic,
            self.add_queues,
            self.delete_topic,
            self.make_again,
            self.clean,
            self.restart,
            *[self.turn] * 2,
            *[self.catch_up] * 2,
            *[self.burst] * 12,
        ]
        action = self._chance.choice(actions)
        self.done[action.__name__] += 1
        action()

    def add_topic(self) -> None:
        self._topic_count += 1
        self._set_queues(f"stress-{self._topic_count}", self._chance.randrange(1, 4))

    def add_queues(self) -> None:
        topic = self._chance.choice(list(self.queues))
        self._set_queues(topic, min(self.queues[topic] + 1, QUEUES_MAX))

    def _set_queues(self, topic: str, count: int) -> None:
        config = admin_pb2.TopicConfig(
            topic=topic, read_queue_nums=count, write_queue_nums=count, perm=READ_WRITE
        )
        request = admin_pb2.UpdateTopicRequest(config=config)
        response = self._admin.UpdateTopic(request, wait_for_ready=True)
        assert response.status.code == 0, response.status.remark
        self.queues[topic] = count

    def delete_topic(self) -> None:
        """Deletes a topic, but never the last one: a query needs one to read."""
        if len(self.queues) > 1:
            self._delete(self._chance.choice(list(self.queues)))

    def make_again(self) -> None:
        topic = self._chance.choice(list(self.queues))
        self._delete(topic)
        self._set_queues(topic, self._chance.randrange(1, 4))

    def _delete(self, topic: str) -> None:
        request = admin_pb2.DeleteTopicRequest(topic=topic)
        response = self._admin.DeleteTopic(request, wait_for_ready=True)
        assert response.status.code == 0, response.status.remark
        del self.queues[topic]
        for queue in [queue for queue in self.lying if queue.topic == topic]:
            self.gone.update(set(self.lying.pop(queue)) - self._read)

    def clean(self) -> None:
        """Removes the oldest segments, as the broker would days later; it is stopped meanwhile."""
        self._local.stop()
        store = store_in(
            self._local.data,
            SystemClock(),
            segment_bytes=SEGMENT_BYTES,
            queue_file_bytes=QUEUE_FILE_BYTES,
        )
        store.open()
        for _ in range(self._chance.randrange(len(store._log.files.segments))):
            remove_oldest_segment(store)
        begins = {queue: store.range_of(queue).min_offset for queue in store.queues()}
        store.close()
        for queue, bodies in self.lying.items():
            self.gone.update(set(bodies[: begins[queue]]) - self._read)
        self._start_broker()

    def restart(self) -> None:
        if self._chance.randrange(2):
            self._local.kill()
        else:
            self._local.stop()
        self._start_broker()

    def burst(self) -> None:
        topic = self._chance.choice(list(self.queues))
        queue = QueueKey(topic, self._chance.randrange(self.queues[topic]))
        count = self._chance.randrange(1, BURST_MAX)
        bodies = [f"{len(self.sent) + number:06d}" for number in range(count)]
        request = append_request(queue, [body.encode() for body in bodies])
        (response,) = self._broker.Append(iter([request]), wait_for_ready=True)
        assert response.status.code == 0, response.status.remark
        self.lying.setdefault(queue, []).extend(bodies)
        self.sent += bodies

    def turn(self) -> None:
        """Stops the query if it runs, else starts it."""
        if self._query is None:
            self._query = self._collected.start(self.frame(), processingTime="0 seconds")
        else:
            self._query.stop()
            self._query = None

    def catch_up(self) -> None:
        if self._query is not None:
            self._query.processAllAvailable()
            self._read.update(self._collected.bodies())

    def finish(self) -> None:
        if self._query is not None:
            self._query.stop()
        self._collected.run(self.frame(), CATCH_UP_SECONDS_MAX)
        self._channel.close()


def seeds(count: int) -> list[int]:
    return [random.randrange(1 << 32) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "count",
    [
        SEEDS_QUICK,
        pytest.param(SEEDS_TORTURE, marks=(pytest.mark.torture, pytest.mark.timeout(7200))),
    ],
)
def test_s6_whatever_comes_and_goes_each_message_is_read_once(
    count: int, spark: SparkSession, tmp_path: Path
) -> None:
    for seed in seeds(count):
        collected = Collected(tmp_path)
        with LocalBroker(commit_log_segment_bytes=SEGMENT_BYTES) as broker:
            world = World(seed, spark, broker, collected)
            world.add_topic()
            world.burst()
            for _ in range(ACTIONS):
                world.act()
            world.finish()
        told = f"seed {seed}, {dict(world.done)}"
        read = Counter(collected.bodies())
        assert [body for body, times in read.items() if times > 1] == [], told
        assert set(read) <= set(world.sent), told
        assert set(world.sent) - set(read) <= world.gone, told
