"""The servicer of batches, a part of rocketpy.v1.Broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded, decoder_of_large
from rocketpy_broker.services.batches.jobs import JobHold
from rocketpy_broker.services.batches.log import TASKS_MAX, Batch, StagedTask
from rocketpy_broker.services.batches.outcome import BatchState
from rocketpy_broker.services.batches.service import BatchService
from rocketpy_broker.services.batches.staging_service import StageCommand, StagingService
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.staging.area import BatchJob, TaskAttempt
from rocketpy_broker.store.staging.file import StagedCounts
from rocketpy_proto.rocketpy.v1 import broker_pb2

# The longest wait of a call; a client that wants to wait longer calls again.
WAIT_MS_MAX = 60_000
_TASKS_A_SLOT = 1_000


class BatchServicer:
    """The methods that stage, commit, query and abort batches."""

    def __init__(self, store: MessageStore, staging: StagingService, batches: BatchService) -> None:
        self._store = store
        self._staging = staging
        self._batches = batches

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
            self._store.check_id(request.job.store_id)
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
        self, request: broker_pb2.CommitBatchRequest
    ) -> broker_pb2.BatchResponse:
        """Commits a batch; returns when all its messages are visible or the wait has ended."""
        self._store.check_id(request.job.store_id)
        batch = Batch(_job(request.job), await _tasks(request.tasks), request.job.is_single)
        state = await self._batches.commit(batch, min(request.wait_ms_max, WAIT_MS_MAX))
        return _response(state)

    async def query_batch(self, request: broker_pb2.QueryBatchRequest) -> broker_pb2.BatchResponse:
        """Returns a batch's state when no commit is in progress or the wait has ended."""
        self._store.check_id(request.job.store_id)
        wait_ms_max = min(request.wait_ms_max, WAIT_MS_MAX)
        state = await self._batches.query(_job(request.job), wait_ms_max)
        return _response(state)

    async def abort_batch(
        self, request: broker_pb2.AbortBatchRequest
    ) -> broker_pb2.AbortBatchResponse:
        """Aborts a batch; returns when its files are removed."""
        self._store.check_id(request.job.store_id)
        count = await self._batches.abort(_job(request.job))
        return broker_pb2.AbortBatchResponse(attempt_count=count)

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name; a batch of many tasks has long columns."""
        methods: dict[str, Callable[..., Any]] = {
            "QueryBatch": self.query_batch,
            "AbortBatch": self.abort_batch,
        }
        return {
            "StageBlocks": grpc.stream_stream_rpc_method_handler(
                self.stage_blocks,
                request_deserializer=decoder_of_large(broker_pb2.StageBlocksRequest, bytes_max),
                response_serializer=broker_pb2.StageBlocksResponse.SerializeToString,
            ),
            **all_bounded(
                broker_pb2, {"CommitBatch": self.commit_batch}, bytes_max, decoder_of_large
            ),
            **all_bounded(broker_pb2, methods, bytes_max),
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
        raise ParameterIllegalError("length of the task columns", sorted(lengths), "one length")
    if len(tasks.task) > TASKS_MAX:
        raise ParameterIllegalError("number of tasks", len(tasks.task), f"{TASKS_MAX} or fewer")
    found: list[StagedTask] = []
    for begin in range(0, len(tasks.task), _TASKS_A_SLOT):
        part = (column[begin : begin + _TASKS_A_SLOT] for column in columns)
        found += (
            StagedTask(task, token, StagedCounts(*counts))
            for task, token, *counts in zip(*part, strict=True)
        )
        await take_slot()
    return tuple(found)


def _response(state: BatchState) -> broker_pb2.BatchResponse:
    return broker_pb2.BatchResponse(
        outcome=cast("broker_pb2.BatchOutcome", state.outcome.value),
        batch_id=state.batch_id,
        record_count=state.record_count,
        record_count_decided=state.record_count_decided,
        hindrance=state.hindrance,
    )
