"""A broker that follows a script: it stores, stages, refuses, breaks off, or stays silent.

It may lose connections and answers at any block and any call about a batch, miscount what it has
staged, and answer falsely about a batch if `states` says so. It never stores half a block, never
answers out of order, never supersedes a job, and keeps everything in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeAlias

import grpc

from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from rocketpy_broker.embedded.process import ReservedPort
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
)
from tests.support.blocks import WireBlock, bodies_of, by_queue

# Events of a block, or of a call about a batch.
STORE, BUSY, FLUSH_TIMEOUT, REFUSE = "store", "busy", "flush timeout", "refuse"
LOSE, LOSE_ANSWER, SILENCE, LASTING = "lose", "lose the answer", "silence", "lasting"
MISCOUNT = "miscount"
CODES = {STORE: 0, BUSY: 2, FLUSH_TIMEOUT: 10, REFUSE: 13, MISCOUNT: 0}
STORING = (STORE, FLUSH_TIMEOUT, LOSE_ANSWER, MISCOUNT)
QUEUES = 4
StagedBlock: TypeAlias = broker_pb2.StageBlocksRequest
BatchCall: TypeAlias = (
    broker_pb2.CommitBatchRequest | broker_pb2.QueryBatchRequest | broker_pb2.AbortBatchRequest
)


def parts_of(block: broker_pb2.AppendRequest | StagedBlock) -> dict[int, WireBlock]:
    """Returns the records of a block, by queue."""
    return by_queue(block.queue_id, block.records, block.record_sizes)


class ScriptedBroker(admin_pb2_grpc.AdminServicer, broker_pb2_grpc.BrokerServicer):
    """A broker that runs from `start` to `stop`; after the end of `script` it stores everything.

    `states` are the answers to commits and queries, one after the other, before the true ones.
    `stored` are the blocks that are stored or staged, `staging` all requests to stage something (at
    the first of which `has_staged` is set). `batch_calls` are all calls about batches, `commits`
    the ones that have decided a batch, `last` the answer about each writer's last batch. Commits
    and queries take as long as their limit allows: see `pass_ms`.
    """

    def __init__(
        self,
        *script: str,
        states: Sequence[broker_pb2.BatchResponse] = (),
        request_bytes_max: int = 32 << 20,
        segment_bytes: int = 0,
    ) -> None:
        self.script = list(script)
        self.states = list(states)
        self.stored: list[broker_pb2.AppendRequest | StagedBlock] = []
        self.staging: list[StagedBlock] = []
        self.batch_calls: list[BatchCall] = []
        self.commits: list[broker_pb2.CommitBatchRequest] = []
        self.last: dict[str, broker_pb2.BatchResponse] = {}
        self.pass_ms: Callable[[int], object] = lambda _wait_ms: None
        self.calls = 0
        self.has_staged = threading.Event()
        self._lock = threading.Lock()
        self._request_bytes_max = request_bytes_max
        self._segment_bytes = segment_bytes
        self._end = 1_000
        self._server: grpc.Server | None = None
        self._reserved_port = ReservedPort()
        self.port = self._reserved_port.number

    def __enter__(self) -> ScriptedBroker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        forget_client(self.config)
        self._reserved_port.close()

    def start(self) -> None:
        """Starts to serve, on the same port each time."""
        # Silent streams occupy a thread each.
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        admin_pb2_grpc.add_AdminServicer_to_server(self, self._server)
        broker_pb2_grpc.add_BrokerServicer_to_server(self, self._server)
        assert self._server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        self._server.start()

    def stop(self) -> None:
        """Stops the server and breaks off every call."""
        if self._server is not None:
            self._server.stop(None).wait()

    @property
    def config(self) -> ClientConfig:
        """Configuration of a client of this broker."""
        return ClientConfig((f"127.0.0.1:{self.port}",), 5_000)

    def bodies(self, queue_id: int | None = None) -> list[bytes]:
        """Returns the stored bodies, also duplicates."""
        return [
            body
            for block in self.stored
            for queue, part in parts_of(block).items()
            if queue_id is None or queue == queue_id
            for body in bodies_of(part.records, part.record_sizes)
        ]

    def _next(self) -> str:
        self.calls += 1
        return self.script.pop(0) if self.script else STORE

    def _break_off(self, event: str, context: grpc.ServicerContext) -> None:
        if event in {LOSE, LOSE_ANSWER}:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the script says so")
        if event == LASTING:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the script says so")
        if event == SILENCE:
            gone = threading.Event()
            context.add_callback(gone.set)
            gone.wait()
            context.abort(grpc.StatusCode.CANCELLED, "nobody listens")

    def GetBrokerInfo(  # noqa: N802 (a method of the contract)
        self, request: admin_pb2.GetBrokerInfoRequest, context: grpc.ServicerContext
    ) -> admin_pb2.GetBrokerInfoResponse:
        return admin_pb2.GetBrokerInfoResponse(
            body_bytes_max=4 << 20,
            request_bytes_max=self._request_bytes_max,
            commit_log_segment_bytes=self._segment_bytes,
        )

    def ListTopics(  # noqa: N802 (a method of the contract)
        self, request: admin_pb2.ListTopicsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.ListTopicsResponse:
        configs = [
            admin_pb2.TopicConfig(topic=topic, write_queue_nums=QUEUES) for topic in request.topics
        ]
        return admin_pb2.ListTopicsResponse(configs=configs)

    def Append(  # noqa: N802 (a method of the contract)
        self, requests: Iterator[broker_pb2.AppendRequest], context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.AppendResponse]:
        for request in requests:
            event = self._next()
            if event in STORING:
                self.stored.append(request)
                self._end += len(request.records)
            self._break_off(event, context)
            yield broker_pb2.AppendResponse(
                status=_status(event),
                queue_id=request.queue_id,
                physical_offset=self._end - len(request.records),
                record_count=record_count(request),
            )

    def StageBlocks(  # noqa: N802 (a method of the contract)
        self, requests: Iterator[StagedBlock], context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.StageBlocksResponse]:
        for request in requests:
            event = self._next()
            # A stream that a client has left may still run beside its next one.
            with self._lock:
                response = self._stage(event, request)
            self._break_off(event, context)
            yield response

    def _stage(self, event: str, request: StagedBlock) -> broker_pb2.StageBlocksResponse:
        self.staging.append(request)
        self.has_staged.set()
        is_committed = self._is_committed(request.job)
        kept = self._kept(request)
        is_next = request.block_number == len(kept) and bool(request.records)
        if event in STORING and is_next and not is_committed:
            self.stored.append(request)
            kept.append(request)
        if request.block_number > len(kept) and not is_committed:
            event = REFUSE
        return broker_pb2.StageBlocksResponse(
            status=_status(event),
            block_count=len(kept),
            record_count=sum(record_count(block) for block in kept) - (event == MISCOUNT),
            bytes=sum(len(block.records) for block in kept),
            is_committed=is_committed,
        )

    def _kept(self, of: StagedBlock) -> list[StagedBlock]:
        """Returns the blocks that an attempt has staged."""
        return [
            block
            for block in self.stored
            if isinstance(block, StagedBlock)
            and (block.job, block.task, block.task_token) == (of.job, of.task, of.task_token)
        ]

    def _is_committed(self, job: broker_pb2.BatchJob) -> bool:
        last = self.last.get(job.writer_id)
        return last is not None and last.batch_id >= job.batch_id

    def CommitBatch(  # noqa: N802 (a method of the contract)
        self, request: broker_pb2.CommitBatchRequest, context: grpc.ServicerContext
    ) -> broker_pb2.BatchResponse:
        event = self._next()
        self.batch_calls.append(request)
        if event in STORING and not self._is_committed(request.job):
            self.commits.append(request)
            count = sum(request.tasks.record_count)
            self.last[request.job.writer_id] = broker_pb2.BatchResponse(
                batch_id=request.job.batch_id, record_count=count, record_count_decided=count
            )
        return self._batch_response(event, request, context)

    def QueryBatch(  # noqa: N802 (a method of the contract)
        self, request: broker_pb2.QueryBatchRequest, context: grpc.ServicerContext
    ) -> broker_pb2.BatchResponse:
        self.batch_calls.append(request)
        return self._batch_response(self._next(), request, context)

    def _batch_response(
        self,
        event: str,
        request: broker_pb2.CommitBatchRequest | broker_pb2.QueryBatchRequest,
        context: grpc.ServicerContext,
    ) -> broker_pb2.BatchResponse:
        self._break_off(event, context)
        response = broker_pb2.BatchResponse()
        if event == STORE:
            response = self.states.pop(0) if self.states else self._truth(request.job)
        self.pass_ms(request.wait_ms_max)
        response.status.CopyFrom(_status(event))
        return response

    def _truth(self, job: broker_pb2.BatchJob) -> broker_pb2.BatchResponse:
        if not self._is_committed(job):
            return broker_pb2.BatchResponse(outcome=broker_pb2.NOT_COMMITTED, batch_id=-1)
        is_own = job in [commit.job for commit in self.commits]
        response = broker_pb2.BatchResponse()
        response.CopyFrom(self.last[job.writer_id])
        is_last = response.batch_id == job.batch_id
        outcome = broker_pb2.COMMITTED if is_own and is_last else broker_pb2.ALREADY_COMMITTED
        response.outcome = outcome
        return response

    def AbortBatch(  # noqa: N802 (a method of the contract)
        self, request: broker_pb2.AbortBatchRequest, context: grpc.ServicerContext
    ) -> broker_pb2.AbortBatchResponse:
        event = self._next()
        self.batch_calls.append(request)
        self._break_off(event, context)
        return broker_pb2.AbortBatchResponse(status=_status(event))


def _status(event: str) -> common_pb2.Status:
    # An event that breaks off a call has no answer.
    return common_pb2.Status(code=CODES.get(event, 0), remark=f"scripted: {event}")


def record_count(block: broker_pb2.AppendRequest | StagedBlock) -> int:
    """Returns the number of records of a block."""
    return len(block.record_sizes) // 4
