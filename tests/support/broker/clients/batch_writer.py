"""A writer of batches that acts as the sink does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import WireBlock, bodies_of, wire_block
from tests.support.broker.running_broker import RunningBroker

WRITER = "a query"
WAIT_MS_MAX = 60_000
# The key of a message is its body up to here.
KEY_BYTES_MAX = 10_000
# A staged frame has at most half a segment of this size.
SMALL_SEGMENT_BYTES = 8_192


@dataclass
class Job:
    """One job for a batch; `staged` has the attempts that count."""

    running: RunningBroker
    batch_id: int = 0
    token: int = -77
    writer_id: str = WRITER
    topic: str = "T"
    # Of every message, beside its tag and key.
    properties: dict[str, str] = field(default_factory=dict)
    staged: list[Task] = field(default_factory=list)

    @property
    def name(self) -> broker_pb2.BatchJob:
        return broker_pb2.BatchJob(
            writer_id=self.writer_id, batch_id=self.batch_id, job_token=self.token
        )

    async def stage(self, *blocks: tuple[int, Sequence[bytes]], token: int | None = None) -> Task:
        """Stages these blocks, by queue, as one ended attempt; returns it."""
        task = Task(self, len(self.staged), len(self.staged) + 1 if token is None else token)
        for queue_id, bodies in blocks:
            answer = await task.send(queue_id, *bodies)
            assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark
        answer = await task.end()
        assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark
        self.staged.append(task)
        return task

    def request(self, wait_ms_max: int = WAIT_MS_MAX) -> broker_pb2.CommitBatchRequest:
        """Returns a request that commits all staged attempts."""
        tasks = broker_pb2.StagedTasks()
        for task in self.staged:
            tasks.task.append(task.number)
            tasks.task_token.append(task.token)
            tasks.block_count.append(task.block_count)
            tasks.record_count.append(task.record_count)
            tasks.bytes.append(task.record_bytes)
        return broker_pb2.CommitBatchRequest(job=self.name, tasks=tasks, wait_ms_max=wait_ms_max)

    async def commit(self, wait_ms_max: int = WAIT_MS_MAX) -> broker_pb2.BatchResponse:
        """Sends CommitBatch; returns the response."""
        response: broker_pb2.BatchResponse = await self.running.data.CommitBatch(
            self.request(wait_ms_max)
        )
        return response

    async def query(self, wait_ms_max: int = WAIT_MS_MAX) -> broker_pb2.BatchResponse:
        """Sends QueryBatch; returns the response."""
        request = broker_pb2.QueryBatchRequest(job=self.name, wait_ms_max=wait_ms_max)
        response: broker_pb2.BatchResponse = await self.running.data.QueryBatch(request)
        return response

    async def abort(self) -> int:
        """Aborts the batch; returns the number of removed attempts."""
        request = broker_pb2.AbortBatchRequest(job=self.name)
        response: broker_pb2.AbortBatchResponse = await self.running.data.AbortBatch(request)
        assert response.status.code == ResponseCode.SUCCESS, response.status.remark
        return response.attempt_count


@dataclass
class Task:
    """One attempt at a task, and what it has staged."""

    job: Job
    number: int
    token: int
    block_count: int = 0
    record_count: int = 0
    record_bytes: int = 0

    def block(
        self, queue_id: int, *bodies: bytes, block_number: int | None = None
    ) -> broker_pb2.StageBlocksRequest:
        """Returns a request for the next block, or for the block `block_number`."""
        keys = [body[:KEY_BYTES_MAX].decode() for body in bodies]
        properties = {name: [value] * len(bodies) for name, value in self.job.properties.items()}
        block = wire_block(self.job.topic, bodies, tags="tag", keys=keys, properties=properties)
        return broker_pb2.StageBlocksRequest(
            job=self.job.name,
            task=self.number,
            task_token=self.token,
            block_number=self.block_count if block_number is None else block_number,
            topic=self.job.topic,
            queue_id=queue_id,
            records=block.records,
            record_sizes=block.record_sizes,
        )

    async def send(self, queue_id: int, *bodies: bytes) -> broker_pb2.StageBlocksResponse:
        """Sends the next block."""
        return await self._send(self.block(queue_id, *bodies))

    async def send_block(self, queue_id: int, block: WireBlock) -> broker_pb2.StageBlocksResponse:
        """Sends this block as the next one, unchanged."""
        request = self.block(queue_id, b"")
        request.records, request.record_sizes = block.records, block.record_sizes
        return await self._send(request)

    async def _send(self, request: broker_pb2.StageBlocksRequest) -> broker_pb2.StageBlocksResponse:
        answer = await self.ask(request)
        if answer.status.code == ResponseCode.SUCCESS:
            self.block_count += 1
            self.record_count += len(request.record_sizes) // 4
            self.record_bytes += len(request.records)
        return answer

    async def end(self) -> broker_pb2.StageBlocksResponse:
        """Sends the end of the attempt."""
        return await self.ask(
            broker_pb2.StageBlocksRequest(
                job=self.job.name,
                task=self.number,
                task_token=self.token,
                block_number=self.block_count,
                is_last=True,
            )
        )

    async def ask(self, request: broker_pb2.StageBlocksRequest) -> broker_pb2.StageBlocksResponse:
        """Sends one request on a stream of its own."""
        answer: broker_pb2.StageBlocksResponse = await self.job.running.data.StageBlocks(
            iter([request])
        ).read()
        return answer


def wide(name: bytes) -> bytes:
    """Returns a body that starts with `name`; no frame of a small segment has two such messages."""
    return name.ljust(SMALL_SEGMENT_BYTES // 6, b".")


async def hindered(job: Job) -> broker_pb2.BatchResponse:
    """Commits, and waits until something hinders the batch."""
    answer = await job.commit(wait_ms_max=0)
    while answer.outcome == broker_pb2.IN_PROGRESS and not answer.hindrance:
        answer = await job.query(wait_ms_max=0)
    return answer


async def bodies(running: RunningBroker, queue_id: int = 0, topic: str = "T") -> list[bytes]:
    """Returns the body of every message of a queue."""
    found: list[bytes] = []
    for response in await running.pull(topic=topic, queue_id=queue_id):
        found += bodies_of(response.records, response.record_sizes)
    return found


def staging_files(running: RunningBroker) -> list[str]:
    """Returns the names of the files in the staging area."""
    return sorted(path.name for path in running.broker.store.staging.folder.iterdir())


def disk_bytes(running: RunningBroker) -> int:
    """Returns the bytes that the staging area's files take on the disk."""
    folder = running.broker.store.staging.folder
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())
