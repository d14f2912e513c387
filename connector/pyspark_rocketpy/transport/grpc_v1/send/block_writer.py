"""Block writers of one task: blocks shown at once, or staged.

A staged block carries its number, so that a repeated one counts once. An attempt ends with a
request of its own, and its answer is compared with the sent counts. A commit never names the staged
blocks of a killed task, so they never show.

Every request names the store that answered first. So no block and no commit reaches another store
after a reconnection.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pyspark_rocketpy.errors import CommitError
from pyspark_rocketpy.transport.grpc_v1.answers import check_appended
from pyspark_rocketpy.transport.grpc_v1.client import GrpcClient
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.retries import retried
from pyspark_rocketpy.transport.grpc_v1.send.appender import Appender, StreamForm
from pyspark_rocketpy.transport.grpc_v1.send.batches import job_of, part_of
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import SIZE_BYTES, Attempt, Block, WriteQueues
from rocketpy_proto.counts import counted
from rocketpy_proto.pull_wire import BlockRequest
from rocketpy_proto.rocketpy.v1.broker_pb2 import (
    AppendRequest,
    AppendResponse,
    StageBlocksRequest,
    StageBlocksResponse,
)


class _GrpcWriter:
    """Common part of both writers."""

    def __init__(self, client: ClientConfig, policy: RetryPolicy) -> None:
        self._client = client
        self._policy = policy

    def write_queues(self, topics: Sequence[str]) -> dict[str, WriteQueues]:
        """Implements BlockWriter."""
        nums = retried(self._client, self._policy, lambda client: client.write_queue_nums(topics))
        return {topic: WriteQueues({"": num}) for topic, num in nums.items()}


class GrpcBlockWriter(_GrpcWriter):
    """BlockWriter of blocks that show at once."""

    def __init__(self, client: ClientConfig, policy: RetryPolicy, send_timeout_ms: int) -> None:
        super().__init__(client, policy)
        form = StreamForm(GrpcClient.append, _appended)
        self._appender = Appender(client, policy, send_timeout_ms, form)

    @cached_property
    def _store_id(self) -> str:
        """The store, queried with the first block: a task without rows makes no call."""
        return retried(self._client, self._policy, GrpcClient.store_id)

    def send(self, block: Block) -> None:
        """Implements BlockWriter."""
        head = AppendRequest(
            topic=block.topic,
            queue_id=block.queue_id,
            record_sizes=block.record_sizes,
            store_id=self._store_id,
        )
        self._appender.send(BlockRequest(head, block.records))

    def finish(self) -> bytes:
        """Implements BlockWriter."""
        self._appender.finish()
        return b""

    def close(self) -> None:
        """Implements BlockWriter."""
        self._appender.close()


class GrpcStagingWriter(_GrpcWriter):
    """BlockWriter of an attempt at a task of a batch."""

    def __init__(
        self, client: ClientConfig, policy: RetryPolicy, send_timeout_ms: int, attempt: Attempt
    ) -> None:
        super().__init__(client, policy)
        form = StreamForm(GrpcClient.stage_blocks, self._acknowledged)
        self._appender = Appender(client, policy, send_timeout_ms, form)
        self._attempt = attempt
        self._job = job_of(attempt.job)
        self._job.store_id = retried(client, policy, GrpcClient.store_id)
        self._answer = StageBlocksResponse()
        self._sent = StageBlocksResponse()
        # The broker gets the job before its rows, and answers whether it takes any.
        self._appender.send(BlockRequest(self._request(0), b""))

    def _request(self, block_number: int) -> StageBlocksRequest:
        return StageBlocksRequest(
            job=self._job,
            task=self._attempt.task,
            task_token=self._attempt.token,
            block_number=block_number,
        )

    def _acknowledged(
        self, _: BlockRequest[StageBlocksRequest], response: StageBlocksResponse
    ) -> None:
        self._answer = response

    def send(self, block: Block) -> None:
        """Implements BlockWriter."""
        if self._answer.is_committed:
            return
        request = self._request(self._sent.block_count)
        request.topic, request.queue_id = block.topic, block.queue_id
        request.record_sizes = block.record_sizes
        self._appender.send(BlockRequest(request, block.records))
        self._sent.block_count += 1
        self._sent.record_count += len(block.record_sizes) // SIZE_BYTES
        self._sent.bytes += len(block.records)

    def finish(self) -> bytes:
        """Implements BlockWriter."""
        sent = self._sent
        last = self._request(sent.block_count)
        last.is_last = True
        self._appender.send(BlockRequest(last, b""))
        self._appender.finish()
        kept = self._answer
        if not kept.is_committed and _counts(kept) != _counts(sent):
            raise CommitError(
                f"task {self._attempt.task} has sent {_described(sent)}, but the broker has "
                f"{_described(kept)}; run the task again"
            )
        return part_of(self._attempt, sent, self._job.store_id)

    def close(self) -> None:
        """Implements BlockWriter."""
        self._appender.close()


def _appended(request: BlockRequest[AppendRequest], response: AppendResponse) -> None:
    check_appended(response, len(request.head.record_sizes) // SIZE_BYTES)


def _counts(of: StageBlocksResponse) -> list[int]:
    return [of.block_count, of.record_count, of.bytes]


def _described(of: StageBlocksResponse) -> str:
    blocks, messages = counted(of.block_count, "block"), counted(of.record_count, "message")
    return f"{blocks} of {messages}, {counted(of.bytes, 'byte')}"
