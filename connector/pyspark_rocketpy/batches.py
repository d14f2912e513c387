"""Batches that are written once: what a task has prepared, and the commit of all tasks together.

A prepared block is stored and invisible; the broker shows the blocks of a batch when CommitBatch
names them. Holds no state on disk: what a killed task or driver has prepared is never named, and so
never shows. Rows S2, S7, S8.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_rocketpy.client import BrokerClient, ClientConfig
from pyspark_rocketpy.errors import CommitError
from pyspark_rocketpy.retrying import RetryPolicy, retried
from rocketpy_proto.rocketpy.v1 import broker_pb2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchName:
    """Who writes, and which of its batches; both the same when the batch is written again."""

    writer_id: str
    batch_id: int


def draw_token() -> int:
    """A token for one attempt at a batch; never 0, and never the same twice."""
    return secrets.randbelow((1 << 63) - 1) + 1


class PreparedBlocks:
    """What a task has prepared, as its part of the request that commits the batch."""

    def __init__(self, batch: BatchName, token: int) -> None:
        self._part = broker_pb2.CommitBatchRequest(
            writer_id=batch.writer_id, batch_id=batch.batch_id, prepared_token=token
        )

    def add(self, block: broker_pb2.AppendRequest, answer: broker_pb2.AppendResponse) -> None:
        """Note an acknowledged block; one that lies right behind its forerunner joins it."""
        ranges, length = self._part.ranges, len(block.records)
        if ranges:
            last = ranges[-1]
            is_next = last.physical_offset + last.length == answer.physical_offset
            if is_next and (last.topic, last.queue_id) == (block.topic, answer.queue_id):
                last.length += length
                last.record_count += answer.record_count
                return
        ranges.add(
            topic=block.topic,
            queue_id=answer.queue_id,
            physical_offset=answer.physical_offset,
            length=length,
            record_count=answer.record_count,
        )

    def to_bytes(self) -> bytes:
        """The part as it travels to the driver."""
        return self._part.SerializeToString()


def joined(parts: Sequence[bytes]) -> broker_pb2.CommitBatchRequest:
    """The request of all tasks, in their order. Raises CommitError where they do not agree."""
    if not parts:
        raise CommitError("no task has told what it wrote; run the batch again")
    whole = broker_pb2.CommitBatchRequest.FromString(parts[0])
    for data in parts[1:]:
        part = broker_pb2.CommitBatchRequest.FromString(data)
        if _attempt(part) != _attempt(whole):
            raise CommitError(
                f"tasks of different attempts meet in one commit: {_attempt(whole)} and "
                f"{_attempt(part)}; run the batch again"
            )
        whole.ranges.extend(part.ranges)
    return whole


def _attempt(request: broker_pb2.CommitBatchRequest) -> str:
    return f"batch {request.batch_id} of writer {request.writer_id}, token {request.prepared_token}"


@dataclass(frozen=True, slots=True)
class BatchCommitter:
    """Commits batches; times in ms."""

    client: ClientConfig
    policy: RetryPolicy
    timeout_ms: int

    def commit(self, request: broker_pb2.CommitBatchRequest) -> int:
        """Make the batch visible; return the writer's last committed batch.

        That is this one, or a later one if this batch was committed before: then nothing new shows.
        A repetition with the same token is harmless. Raises BrokerError, CommitError,
        ConnectionFailedError.
        """

        def call(client: BrokerClient) -> broker_pb2.CommitBatchResponse:
            size, size_max = request.ByteSize(), client.limits.request_bytes_max
            if size > size_max:
                raise CommitError(
                    f"the {len(request.ranges)} blocks of the batch take {size} bytes to name, the "
                    f"broker takes {size_max}; make batches smaller, or batchBytesMax larger"
                )
            return client.commit_batch(request, self.timeout_ms)

        response = retried(self.client, self.policy, call)
        if response.outcome == broker_pb2.ALREADY_COMMITTED:
            logger.info(
                "batch %d of writer %s was committed before (the last one is %d)",
                request.batch_id,
                request.writer_id,
                response.batch_id,
            )
        return response.batch_id
