"""A broker killed with unfinished batches: each message shows exactly once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.faults.histories.clients import CALL_SECONDS_MAX, BatchClient, Block, bodies_in
from tests.faults.kills.test_f01_kill import started

KILLS_QUICK = 6
KILLS_TORTURE = 200
LOAD_SECONDS_MAX = 0.4
# Of every other broker, before its kill may come: there is something to lose at any speed.
BATCHES_BEFORE = 2
QUEUES = 2
TOPIC = "T"

pytestmark = pytest.mark.slow
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@dataclass
class Writer:
    """A writer of batches, like a query; a batch without an answer is written again."""

    plan: random.Random
    batch_id: int = 0
    token: int = 0
    written: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(QUEUES)])
    batch: list[list[bytes]] = field(default_factory=list)

    def write_until_killed(self, endpoint: str) -> None:
        """Writes until the connection breaks."""
        with grpc.insecure_channel(endpoint) as channel, suppress(grpc.RpcError):
            stub = broker_pb2_grpc.BrokerStub(channel)
            while True:
                self.write_one(stub)

    def write_one(self, stub: broker_pb2_grpc.BrokerStub) -> None:
        """Prepares and commits the next batch. Raises grpc.RpcError."""
        self.batch = self.batch or [
            [b"%d-%d-%d" % (self.batch_id, queue_id, n) for n in range(self.plan.randint(1, 200))]
            for queue_id in range(QUEUES)
        ]
        self.token += 1
        job = broker_pb2.BatchJob(writer_id="w", batch_id=self.batch_id, job_token=self.token)
        client = BatchClient(job)
        for queue_id, bodies in enumerate(self.batch):
            client.stage(stub, in_two_blocks(QueueKey(TOPIC, queue_id), bodies))
        answer = stub.CommitBatch(client.commit_request(), timeout=CALL_SECONDS_MAX)
        self.note(answer)

    def note(self, answer: broker_pb2.BatchResponse) -> None:
        """Records a stored batch: by this attempt, or by one without an answer."""
        assert (answer.status.code, answer.batch_id) == (0, self.batch_id), answer
        assert answer.record_count == sum(map(len, self.batch)), answer
        for queue_id, bodies in enumerate(self.batch):
            self.written[queue_id] += bodies
        self.batch_id, self.batch = self.batch_id + 1, []


def in_two_blocks(queue: QueueKey, bodies: list[bytes]) -> list[Block]:
    """Returns messages of a queue in two blocks, or a single message in one."""
    middle = len(bodies) // 2
    return [(queue, part) for part in (bodies[:middle], bodies[middle:]) if part]


@contextmanager
def killed_after(broker: LocalBroker, seconds: float) -> Iterator[None]:
    """Kills the broker after some time, in any state."""
    timer = threading.Timer(seconds, broker.kill)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.parametrize("kills", [KILLS_QUICK, pytest.param(KILLS_TORTURE, marks=torture)])
def test_s03_a_broker_killed_in_a_batch_shows_each_message_once(
    ram_folder: Path, seed: int, kills: int
) -> None:
    plan = random.Random(seed)
    writer = Writer(plan)
    for number in range(kills):
        with started(ram_folder, plan.choice(list(FlushDiskType))) as broker:
            if number == 0:
                broker.create_topic(TOPIC, QUEUES)
            if number % 2:
                with grpc.insecure_channel(broker.endpoint) as channel:
                    for _ in range(BATCHES_BEFORE):
                        writer.write_one(broker_pb2_grpc.BrokerStub(channel))
            with killed_after(broker, plan.uniform(0, LOAD_SECONDS_MAX)):
                writer.write_until_killed(broker.endpoint)
    with (
        started(ram_folder, FlushDiskType.SYNC_FLUSH) as broker,
        grpc.insecure_channel(broker.endpoint) as channel,
    ):
        stub = broker_pb2_grpc.BrokerStub(channel)
        writer.write_one(stub)
        for queue_id in range(QUEUES):
            assert bodies_in(stub, QueueKey(TOPIC, queue_id)) == writer.written[queue_id]
    assert writer.batch_id > kills, "next to nothing was committed"
