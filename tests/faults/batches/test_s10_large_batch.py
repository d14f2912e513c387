"""A batch of many small blocks with a commit longer than every deadline."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.faults.batches.test_s03_killed_broker import killed_after
from tests.faults.histories.clients import BatchClient, Block, bodies_in
from tests.faults.kills.test_f01_kill import started

TOPIC = "T"
DEADLINE_SECONDS_MAX = 0.03
ON_ITS_WAY = (broker_pb2.NOT_COMMITTED, broker_pb2.IN_PROGRESS)

pytestmark = pytest.mark.slow
Ask = Callable[[float], broker_pb2.BatchResponse]
torture = (pytest.mark.torture, pytest.mark.timeout(3600))


@dataclass(frozen=True)
class Size:
    """The size of a batch, and the kills of its broker while it is stored."""

    tasks: int
    blocks_per_task: int
    queues: int
    kills: int
    kill_seconds_max: float


QUICK = Size(tasks=4, blocks_per_task=500, queues=200, kills=1, kill_seconds_max=0.5)
TORTURE = Size(tasks=20, blocks_per_task=5_000, queues=1_000, kills=10, kill_seconds_max=4)


@dataclass
class Staged:
    """A job with all tasks staged, and its expected messages."""

    client: BatchClient
    expected: dict[QueueKey, list[bytes]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class Served:
    """A broker and its stub."""

    broker: LocalBroker
    stub: broker_pb2_grpc.BrokerStub


@dataclass
class Timeouts:
    """A client that commits and queries a batch repeatedly; each call ends at its deadline."""

    client: BatchClient
    dice: random.Random
    cut_off_count: int = 0

    def ask_until_ended(self, stub: broker_pb2_grpc.BrokerStub) -> broker_pb2.BatchResponse:
        """Returns the final answer. Raises grpc.RpcError if the broker is gone."""
        commit = self.client.commit_request()
        while True:
            for ask in (
                lambda seconds: stub.CommitBatch(commit, timeout=seconds),
                lambda seconds: stub.QueryBatch(self.query(60_000), timeout=seconds),
            ):
                answer = self._answer(ask)
                if answer is not None and answer.outcome not in ON_ITS_WAY:
                    return answer

    def ask_until_killed(self, served: Served, seconds_max: float) -> None:
        """Asks until the broker is killed at a random moment."""
        killing = killed_after(served.broker, self.dice.uniform(0, seconds_max))
        with killing, suppress(grpc.RpcError):
            self.ask_until_ended(served.stub)

    def query(self, wait_ms_max: int) -> broker_pb2.QueryBatchRequest:
        """Returns the query for the batch."""
        return broker_pb2.QueryBatchRequest(job=self.client.job, wait_ms_max=wait_ms_max)

    def _answer(self, ask: Ask) -> broker_pb2.BatchResponse | None:
        try:
            return ask(self.dice.uniform(0, DEADLINE_SECONDS_MAX))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            self.cut_off_count += 1
            return None


def staged(stub: broker_pb2_grpc.BrokerStub, size: Size, dice: random.Random) -> Staged:
    """Stages a batch of small blocks for random queues."""
    job = broker_pb2.BatchJob(writer_id="w", batch_id=0, job_token=7)
    batch = Staged(BatchClient(job))
    for task in range(size.tasks):
        blocks: list[Block] = []
        for number in range(size.blocks_per_task):
            queue = QueueKey(TOPIC, dice.randrange(size.queues))
            bodies = [b"%d-%d-%d" % (task, number, n) for n in range(dice.randint(1, 3))]
            blocks.append((queue, bodies))
            batch.expected[queue] += bodies
        batch.client.stage(stub, blocks)
    return batch


@contextmanager
def served(folder: Path, flush: FlushDiskType) -> Iterator[Served]:
    """Yields a broker and its stub."""
    with started(folder, flush) as broker, grpc.insecure_channel(broker.endpoint) as channel:
        yield Served(broker, broker_pb2_grpc.BrokerStub(channel))


@pytest.mark.parametrize("size", [QUICK, pytest.param(TORTURE, marks=torture)])
def test_s10_a_commit_longer_than_every_deadline_shows_each_message_once(
    ram_folder: Path, seed: int, size: Size
) -> None:
    dice = random.Random(seed)
    flush = dice.choice(list(FlushDiskType))
    with served(ram_folder, flush) as first:
        first.broker.create_topic(TOPIC, size.queues)
        batch = staged(first.stub, size, dice)
        timeouts = Timeouts(batch.client, dice)
        # Before the decision, no staging file of this run has to be read.
        timeouts.ask_until_killed(first, size.kill_seconds_max)
    stored: list[int] = []
    for _ in range(size.kills - 1):
        with served(ram_folder, flush) as now:
            stored.append(now.stub.QueryBatch(timeouts.query(0)).record_count)
            timeouts.ask_until_killed(now, size.kill_seconds_max)
    with served(ram_folder, flush) as last:
        stored.append(last.stub.QueryBatch(timeouts.query(0)).record_count)
        answer = timeouts.ask_until_ended(last.stub)
        count = sum(map(len, batch.expected.values()))
        assert (answer.outcome, answer.record_count) == (broker_pb2.COMMITTED, count)
        for queue_id in range(size.queues):
            queue = QueueKey(TOPIC, queue_id)
            assert bodies_in(last.stub, queue) == batch.expected[queue], queue
        assert last.stub.CommitBatch(batch.client.commit_request()) == answer
    assert timeouts.cut_off_count > 0
    assert stored == sorted(stored), "a start has lost what was stored"
    if size is TORTURE:
        assert any(0 < number < count for number in stored), "no kill came while it was stored"
