"""Row S6: a query that is started and stopped while topics, queues and bursts of messages come.

Whatever happens, the rows of all batches are the messages that were sent, each once.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketpy_broker import LocalBroker
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc, broker_pb2_grpc
from tests.faults.clients import append_request
from tests.spark.conftest import Collected

SEEDS_QUICK, SEEDS_TORTURE = 1, 20
ACTIONS = 50
BURST_MAX = 60
QUEUES_MAX = 8
READ_WRITE = 6
# Of a thousand messages in batches of 30.
CATCH_UP_SECONDS_MAX = 300
_names = itertools.count()


class World:
    """What happens around one query, by chance that follows from a seed."""

    def __init__(
        self, seed: int, spark: SparkSession, broker: LocalBroker, collected: Collected
    ) -> None:
        self._chance = random.Random(seed)
        self._prefix = f"stress-{next(_names)}-"
        self._spark = spark
        self._endpoint = broker.endpoint
        self._collected = collected
        self._query: StreamingQuery | None = None
        self._channel = grpc.insecure_channel(broker.endpoint)
        self._admin = admin_pb2_grpc.AdminStub(self._channel)
        self._broker = broker_pb2_grpc.BrokerStub(self._channel)
        self.queues: dict[str, int] = {}
        self.sent: list[str] = []

    def frame(self) -> DataFrame:
        """The stream, each time with another limit."""
        reader = self._spark.readStream.format("rocketpy").option("endpoints", self._endpoint)
        return (
            reader.option("topicPattern", self._prefix + ".*")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self._chance.choice([30, 70, 500, 10_000]))
            .load()
            .select("body")
        )

    def act(self) -> None:
        """One action; bursts are the most frequent."""
        actions: list[Callable[[], None]] = [
            self.add_topic,
            self.add_queues,
            self.turn,
            self.catch_up,
        ]
        self._chance.choice([*actions, *[self.burst] * 8])()

    def add_topic(self) -> None:
        self._set_queues(f"{self._prefix}{len(self.queues)}", self._chance.randrange(1, 4))

    def add_queues(self) -> None:
        topic = self._chance.choice(list(self.queues))
        self._set_queues(topic, min(self.queues[topic] + 1, QUEUES_MAX))

    def _set_queues(self, topic: str, count: int) -> None:
        config = admin_pb2.TopicConfig(
            topic=topic, read_queue_nums=count, write_queue_nums=count, perm=READ_WRITE
        )
        response = self._admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
        assert response.status.code == 0, response.status.remark
        self.queues[topic] = count

    def burst(self) -> None:
        topic = self._chance.choice(list(self.queues))
        queue = QueueKey(topic, self._chance.randrange(self.queues[topic]))
        count = self._chance.randrange(1, BURST_MAX)
        bodies = [f"{len(self.sent) + number:06d}" for number in range(count)]
        request = append_request(queue, [body.encode() for body in bodies])
        (response,) = self._broker.Append(iter([request]))
        assert response.status.code == 0, response.status.remark
        self.sent += bodies

    def turn(self) -> None:
        """Stop the query if it runs, start it if not."""
        if self._query is None:
            self._query = self._collected.start(self.frame(), processingTime="0 seconds")
        else:
            self._query.stop()
            self._query = None

    def catch_up(self) -> None:
        if self._query is not None:
            self._query.processAllAvailable()

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
        pytest.param(SEEDS_QUICK, marks=pytest.mark.timeout(600)),
        pytest.param(SEEDS_TORTURE, marks=(pytest.mark.torture, pytest.mark.timeout(7200))),
    ],
)
def test_s6_whatever_comes_and_goes_each_message_is_read_once(
    count: int, spark: SparkSession, rocketpy_broker: LocalBroker, tmp_path: Path
) -> None:
    for seed in seeds(count):
        collected = Collected(tmp_path)
        world = World(seed, spark, rocketpy_broker, collected)
        world.add_topic()
        world.burst()
        for _ in range(ACTIONS):
            world.act()
        world.finish()
        assert sorted(collected.bodies()) == sorted(world.sent), f"seed {seed}"
