"""The servicer of batches, a part of rocketpy.v1.Broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import bounded, decoder_of_large
from rocketpy_broker.services.batches.jobs import JobHold
from rocketpy_broker.services.batches.log import TASKS_MAX, Batch, StagedTask
from rocketpy_broker.services.batches.service import BatchService, BatchState
from rocketpy_broker.services.batches.staging_service import StageCommand, StagingService
from rocketpy_broker.store.staging.area import BatchJob, TaskAttempt
from rocketpy_broker.store.staging.file import StagedCounts
from rocketpy_proto.rocketpy.v1 import broker_pb2

# The longest wait of a call; a client that wants to wait longer calls again.
WAIT_MS_MAX = 60_000
_TASKS_A_TURN = 1_000


class BatchServicer:
    """The methods that stage, commit, query and abort batches."""

    def __init__(
        self,
        staging: StagingService,
        batches: BatchService,
        check_store: Callable[[str], None],
        request_bytes_max: int,
    ) -> None:
        self._staging = staging
        self._batches = batches
        self._check_store = check_store
        self._request_bytes_max = request_bytes_max

    async def stage_blocks(
        self,
        requests: AsyncIterator[broker_pb2.StageBlocksRequest | BrokerError],
        context: status.Context,
    ) -> AsyncIterator[broker_pb2.StageBlocksResponse]:
        """Yields an answer for each block in order; a refused block does not end the stream."""
        scheduler.connection.set(context.peer())
        with self._staging.stream() as stream:
            async for request in requests:
                if isinstance(request, BrokerError):
                    yield broker_pb2.StageBlocksResponse(status=status.failure(request))
                    continue
                yield await self._stage(request, stream)

    async def _stage(
        self, request: broker_pb2.StageBlocksRequest, stream: JobHold
    ) -> broker_pb2.StageBlocksResponse:
        command = StageCommand(
            TaskAttempt(_job(request.job), request.task, request.task_token),
            request.block_number,
            request.topic,
            request.queue_id,
            request.records,
            request.record_sizes,
            request.is_last,
        )
        try:
            self._check_store(request.job.store_id)
            staged = await self._staging.stage(command, stream)
        except BrokerError as error:
            return broker_pb2.StageBlocksResponse(status=status.failure(error))
        return broker_pb2.StageBlocksResponse(
            status=status.success(),
            block_count=staged.counts.block_count,
            record_count=staged.counts.record_count,
            bytes=staged.counts.bytes,
            is_committed=staged.is_committed,
        )

    async def commit_batch(
        self, request: broker_pb2.CommitBatchRequest, _context: status.Context
    ) -> broker_pb2.BatchResponse:
        """Commits a batch; returns when all its messages are visible or the wait has ended."""
        try:
            self._check_store(request.job.store_id)
            batch = Batch(_job(request.job), await _tasks(request.tasks), request.job.is_single)
            state = await self._batches.commit(batch, min(request.wait_ms_max, WAIT_MS_MAX))
        except BrokerError as error:
            return broker_pb2.BatchResponse(status=status.failure(error))
        return _response(state)

    async def query_batch(
        self, request: broker_pb2.QueryBatchRequest, _context: status.Context
    ) -> broker_pb2.BatchResponse:
        """Returns a batch's state when no commit is in progress or the wait has ended."""
        try:
            self._check_store(request.job.store_id)
            wait_ms_max = min(request.wait_ms_max, WAIT_MS_MAX)
            state = await self._batches.query(_job(request.job), wait_ms_max)
        except BrokerError as error:
            return broker_pb2.BatchResponse(status=status.failure(error))
        return _response(state)

    async def abort_batch(
        self, request: broker_pb2.AbortBatchRequest, _context: status.Context
    ) -> broker_pb2.AbortBatchResponse:
        """Aborts a batch; returns when its files are removed."""
        try:
            self._check_store(request.job.store_id)
            count = await self._batches.abort(_job(request.job))
        except BrokerError as error:
            return broker_pb2.AbortBatchResponse(status=status.failure(error))
        return broker_pb2.AbortBatchResponse(status=status.success(), attempt_count=count)

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name; a batch of many tasks has long columns."""
        bytes_max, response = self._request_bytes_max, broker_pb2.BatchResponse
        return {
            "StageBlocks": grpc.stream_stream_rpc_method_handler(
                self.stage_blocks,
                request_deserializer=decoder_of_large(broker_pb2.StageBlocksRequest, bytes_max),
                response_serializer=broker_pb2.StageBlocksResponse.SerializeToString,
            ),
            "CommitBatch": bounded(
                self.commit_batch,
                broker_pb2.CommitBatchRequest,
                response,
                bytes_max,
                decoder_of_large,
            ),
            "QueryBatch": bounded(
                self.query_batch, broker_pb2.QueryBatchRequest, response, bytes_max
            ),
            "AbortBatch": bounded(
                self.abort_batch,
                broker_pb2.AbortBatchRequest,
                broker_pb2.AbortBatchResponse,
                bytes_max,
            ),
        }


def _job(job: broker_pb2.BatchJob) -> BatchJob:
    return BatchJob(job.writer_id, job.batch_id, job.job_token)


async def _tasks(tasks: broker_pb2.StagedTasks) -> tuple[StagedTask, ...]:
    """Returns the tasks of a batch.

    Raises ParameterIllegalError for too many tasks or columns of different lengths.
    """
    columns = tasks.task, tasks.task_token, tasks.block_count, tasks.record_count, tasks.bytes
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ParameterIllegalError("tasks", sorted(lengths), "columns of one length")
    if len(tasks.task) > TASKS_MAX:
        raise ParameterIllegalError("tasks", len(tasks.task), f"{TASKS_MAX} tasks")
    found: list[StagedTask] = []
    for begin in range(0, len(tasks.task), _TASKS_A_TURN):
        part = (column[begin : begin + _TASKS_A_TURN] for column in columns)
        found += (
            StagedTask(task, token, StagedCounts(*counts))
            for task, token, *counts in zip(*part, strict=True)
        )
        await take_slot()
    return tuple(found)


def _response(state: BatchState) -> broker_pb2.BatchResponse:
    return broker_pb2.BatchResponse(
        status=status.success(),
        outcome=cast("broker_pb2.BatchOutcome", state.outcome.value),
        batch_id=state.batch_id,
        record_count=state.record_count,
        record_count_decided=state.record_count_decided,
        hindrance=state.hindrance,
    )
