"""Row S3 at the broker: killed with batches on their way, it shows each message exactly once."""

from __future__ import annotations

import itertools
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
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.blocks import bodies_of, wire_block
from tests.faults.clients import CALL_SECONDS_MAX
from tests.faults.test_f01_kill import started

KILLS_QUICK = 6
KILLS_TORTURE = 200
LOAD_SECONDS_MAX = 0.4
QUEUES = 2
TOPIC = "T"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@dataclass
class Writer:
    """Writes batch after batch, as a query does; one without an answer is written again."""

    plan: random.Random
    batch_id: int = 0
    token: int = 0
    written: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(QUEUES)])
    batch: list[list[bytes]] = field(default_factory=list)

    def write_until_killed(self, endpoint: str) -> None:
        """Go on until the connection breaks."""
        with grpc.insecure_channel(endpoint) as channel, suppress(grpc.RpcError):
            stub = broker_pb2_grpc.BrokerStub(channel)
            while True:
                self.write_one(stub)

    def write_one(self, stub: broker_pb2_grpc.BrokerStub) -> None:
        """Prepare and commit the batch that is due. Raises grpc.RpcError."""
        self.batch = self.batch or [
            [b"%d-%d-%d" % (self.batch_id, queue_id, n) for n in range(self.plan.randint(1, 200))]
            for queue_id in range(QUEUES)
        ]
        self.token += 1
        tasks = broker_pb2.StagedTasks()
        for queue_id in range(QUEUES):
            *_, answer = stub.StageBlocks(self._requests(queue_id), timeout=CALL_SECONDS_MAX)
            assert answer.status.code == 0, answer.status.remark
            tasks.task.append(queue_id)
            tasks.task_token.append(self.token)
            tasks.block_count.append(answer.block_count)
            tasks.record_count.append(answer.record_count)
            tasks.bytes.append(answer.bytes)
        request = broker_pb2.CommitBatchRequest(job=self.job, tasks=tasks, wait_ms_max=60_000)
        answer = stub.CommitBatch(request, timeout=CALL_SECONDS_MAX)
        self.note(answer)

    def note(self, answer: broker_pb2.BatchResponse) -> None:
        """The batch is there: by this attempt, or by one whose answer was lost."""
        assert (answer.status.code, answer.batch_id) == (0, self.batch_id), answer
        assert answer.record_count == sum(map(len, self.batch)), answer
        for queue_id, bodies in enumerate(self.batch):
            self.written[queue_id] += bodies
        self.batch_id, self.batch = self.batch_id + 1, []

    @property
    def job(self) -> broker_pb2.BatchJob:
        return broker_pb2.BatchJob(writer_id="w", batch_id=self.batch_id, job_token=self.token)

    def _requests(self, queue_id: int) -> Iterator[broker_pb2.StageBlocksRequest]:
        """The batch's messages of a queue in two blocks, and the end."""
        bodies = self.batch[queue_id]
        cuts = [0, len(bodies) // 2, len(bodies)]
        parts = [bodies[begin:end] for begin, end in itertools.pairwise(cuts) if begin < end]
        for number, part in enumerate([*parts, []]):
            request = broker_pb2.StageBlocksRequest(
                job=self.job, task=queue_id, task_token=self.token, block_number=number
            )
            if part:
                block = wire_block(TOPIC, part)
                request.topic, request.queue_id = TOPIC, queue_id
                request.records, request.record_sizes = block.records, block.record_sizes
            request.is_last = not part
            yield request


@contextmanager
def killed_after(broker: LocalBroker, seconds: float) -> Iterator[None]:
    """Kill the broker whatever it does then."""
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
            with killed_after(broker, plan.uniform(0, LOAD_SECONDS_MAX)):
                writer.write_until_killed(broker.endpoint)
    with (
        started(ram_folder, FlushDiskType.SYNC_FLUSH) as broker,
        grpc.insecure_channel(broker.endpoint) as channel,
    ):
        stub = broker_pb2_grpc.BrokerStub(channel)
        writer.write_one(stub)
        for queue_id in range(QUEUES):
            found: list[bytes] = []
            request = broker_pb2.PullRequest(topic=TOPIC, queue_id=queue_id)
            for response in stub.Pull(request, timeout=CALL_SECONDS_MAX):
                found += bodies_of(response.records, response.record_sizes)
            assert found == writer.written[queue_id]
    assert writer.batch_id > kills, "next to nothing was committed"
