"""Helpers of the suite that every transport passes: the transports and the calls of the tests.

The tests are in `test_contract.py` and, for batches, in `test_contract_batches.py`; the fixture
`setup` gives them each transport in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from pyspark_rocketpy.offsets import BrokerQueue, QueueRange
from pyspark_rocketpy.transport.interface import SinkTransport, SourceTransport
from pyspark_rocketpy.transport.values import PullOptions, Subscription
from pyspark_rocketpy.transport.write_values import (
    Attempt,
    BatchJob,
    BatchName,
    Block,
    CommittedBatch,
)
from tests.support.blocks import bodies_of, wire_block

# Tests of batches and recoveries, which brokers of Apache RocketMQ do not have.
of_rocketpy = pytest.mark.parametrize("setup", ["grpc_v1", "scripted"], indirect=True)
OPTIONS = PullOptions("group", 1 << 20, fail_on_data_loss=True)
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Setup:
    """Both halves of a transport, and functions to create topics at its broker."""

    source: SourceTransport
    sink: SinkTransport
    create_topic: Callable[[str, int], object]
    # Restarts after a crash without losses.
    restart: Callable[[], object]
    # Sets the number of a topic's read queues.
    show_queues: Callable[[str, int], object]
    # The name of the broker in positions; a cluster's queues have it.
    broker_name: str = ""

    def queue(self, queue_id: int) -> BrokerQueue:
        """Returns a queue of the broker, as in positions."""
        return BrokerQueue(self.broker_name, queue_id)

    def part(self, topic: str, begin: int, end: int, queue_id: int = 0) -> QueueRange:
        """Returns a range of a queue."""
        return QueueRange(topic, queue_id, begin, end, broker_name=self.broker_name)

    def topic(self, queues: int = 2) -> str:
        """Creates a new topic."""
        name = f"contract-{next(_numbers)}"
        self.create_topic(name, queues)
        return name

    def send(self, topic: str, *bodies: bytes, queue_id: int = 0, tags: str | None = None) -> None:
        """Sends messages that are visible at once; each body is its key, too."""
        assert self.write(None, block(topic, bodies, queue_id, tags)) == b""

    def write(self, attempt: Attempt | None, *blocks: Block) -> bytes:
        """Writes the blocks of one task; returns its part of the commit."""
        writer = self.sink.block_writer(attempt)
        try:
            for one in blocks:
                writer.send(one)
            return writer.finish()
        finally:
            writer.close()

    def bodies(
        self, topic: str, queue_id: int = 0, begin: int = 0, options: PullOptions = OPTIONS
    ) -> list[bytes]:
        """Returns all bodies of a queue from `begin` on."""
        end = self.end(topic, queue_id)
        return pulled(self.source, self.part(topic, begin, end, queue_id), options)

    def end(self, topic: str, queue_id: int = 0) -> int:
        """Returns the end of a queue."""
        bounds = self.source.offset_queries().bounds(Subscription((topic,), None, ""))
        return bounds[topic][self.queue(queue_id)].max_offset

    def stage(self, job: BatchJob, topic: str, *bodies: bytes, task: int = 0) -> bytes:
        """Stages one block with these bodies as a task; returns its part of the commit."""
        blocks = [block(topic, bodies)] if bodies else []
        return self.write(attempt(job, task), *blocks)

    def commit(self, job: BatchJob, *parts: bytes) -> CommittedBatch:
        """Commits a job's batch from these parts."""
        return self.sink.commit_batch(parts, job.batch.batch_id)


def job_for(topic: str, batch_id: int, token: int = 1) -> BatchJob:
    """Returns a job of the topic's own writer."""
    return BatchJob(BatchName(f"writer of {topic}", batch_id), token)


def attempt(job: BatchJob, task: int = 0) -> Attempt:
    """Returns a new attempt at a task."""
    return Attempt(job, task, next(_numbers))


def block(topic: str, bodies: Sequence[bytes], queue_id: int = 0, tags: str | None = None) -> Block:
    wire = wire_block(topic, bodies, tags=tags, keys=[body.decode() for body in bodies])
    return Block(topic, queue_id, wire.record_sizes, wire.records)


def pulled(source: SourceTransport, part: QueueRange, options: PullOptions) -> list[bytes]:
    """Returns the bodies of a range; asserts that its chunks join."""
    found, offset = [], part.begin
    for chunk in source.pull(part, options):
        assert chunk.begin == offset
        offset = chunk.end
        found += bodies_of(bytes(chunk.records), chunk.sizes)
    assert offset <= part.end
    return found
