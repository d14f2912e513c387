"""A broker that does what a script says: stores, refuses, breaks off, or says nothing.

It may lose connections and answers at any block and any commit. It never stores half a block, never
answers out of order, and keeps everything in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import grpc

from pyspark_rocketpy.client import ClientConfig, forget_client
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
)
from tests.blocks import bodies_of

# What may happen to a block or a commit.
STORE, BUSY, FLUSH_TIMEOUT, REFUSE = "store", "busy", "flush timeout", "refuse"
LOSE, LOSE_ANSWER, SILENCE, LASTING = "lose", "lose the answer", "silence", "lasting"
CODES = {STORE: 0, BUSY: 2, FLUSH_TIMEOUT: 10, REFUSE: 13}
STORING = (STORE, FLUSH_TIMEOUT, LOSE_ANSWER)
QUEUES = 4


class ScriptedBroker(admin_pb2_grpc.AdminServicer, broker_pb2_grpc.BrokerServicer):
    """Serves from `start` to `stop`; `script` is used up, then everything is stored."""

    def __init__(self, *script: str, request_bytes_max: int = 32 << 20) -> None:
        self.script = list(script)
        self.stored: list[broker_pb2.AppendRequest] = []
        self.commits: list[broker_pb2.CommitBatchRequest] = []
        self.last_batches: dict[str, int] = {}
        self.calls = 0
        self._request_bytes_max = request_bytes_max
        self._end = 1_000
        self._server: grpc.Server | None = None
        self.port = 0

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

    def start(self) -> None:
        """Begin to serve, on the same port as before if there was one."""
        # Streams that are to stay silent hold a thread each.
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        admin_pb2_grpc.add_AdminServicer_to_server(self, self._server)
        broker_pb2_grpc.add_BrokerServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        """Break off every call."""
        if self._server is not None:
            self._server.stop(None).wait()

    @property
    def config(self) -> ClientConfig:
        """For a client of this broker."""
        return ClientConfig((f"127.0.0.1:{self.port}",), 5_000)

    def bodies(self, queue_id: int | None = None) -> list[bytes]:
        """What is stored, also more than once."""
        return [
            body
            for block in self.stored
            if queue_id is None or block.queue_id == queue_id
            for body in bodies_of(block.records, block.record_sizes)
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
            body_bytes_max=4 << 20, request_bytes_max=self._request_bytes_max
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
                status=common_pb2.Status(code=CODES[event], remark=f"scripted: {event}"),
                queue_id=request.queue_id,
                physical_offset=self._end - len(request.records),
                record_count=len(request.record_sizes) // 4,
            )

    def CommitBatch(  # noqa: N802 (a method of the contract)
        self, request: broker_pb2.CommitBatchRequest, context: grpc.ServicerContext
    ) -> broker_pb2.CommitBatchResponse:
        event = self._next()
        last = self.last_batches.get(request.writer_id, -1)
        if event in STORING and request.batch_id > last:
            self.commits.append(request)
            self.last_batches[request.writer_id] = request.batch_id
        self._break_off(event, context)
        late = request.batch_id <= last
        return broker_pb2.CommitBatchResponse(
            status=common_pb2.Status(code=CODES[event], remark=f"scripted: {event}"),
            outcome=broker_pb2.ALREADY_COMMITTED if late else broker_pb2.COMMITTED,
            batch_id=max(last, request.batch_id),
        )
