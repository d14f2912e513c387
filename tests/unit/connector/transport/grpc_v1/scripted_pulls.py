"""A gRPC server that answers pulls as a test says: any records, any statuses, endlessly.

It never checks a request, stores nothing, and breaks off a call only if the test says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import numpy as np

from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from rocketpy_proto.record import Host, RecordBlock
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
)
from tests.support.blocks import wire_block

STORE_HOST = Host.parse("127.0.0.1:10911")
Answers = Callable[
    [broker_pb2.PullRequest, grpc.ServicerContext], Iterator[broker_pb2.PullResponse]
]


def stored(offset: int, bodies: Sequence[bytes], *, tags: str | None = None) -> RecordBlock:
    """Returns records as a broker stores them in queue 0 of topic T, from `offset` on."""
    block = wire_block("T", bodies, tags=tags).parsed()
    block.patch_stored(
        queue_offset_first=offset,
        physical_offset_first=1000 * offset,
        store_timestamp_ms=1_700_000_000_000 + offset,
        store_host=STORE_HOST,
        queue_id=0,
    )
    return block


def response(*blocks: RecordBlock, next_offset: int) -> broker_pb2.PullResponse:
    """Returns an answer with these records."""
    sizes = np.concatenate([block.sizes for block in blocks]).astype(">i4")
    return broker_pb2.PullResponse(
        pull_status=broker_pb2.FOUND,
        next_offset=next_offset,
        record_sizes=sizes.tobytes(),
        records=b"".join(block.data.tobytes() for block in blocks),
    )


def status(
    code: int, pull_status: broker_pb2.PullStatus, next_offset: int
) -> broker_pb2.PullResponse:
    """Returns a response without records."""
    return broker_pb2.PullResponse(
        status=common_pb2.Status(code=code), pull_status=pull_status, next_offset=next_offset
    )


@dataclass
class ScriptedBroker(broker_pb2_grpc.BrokerServicer, admin_pb2_grpc.AdminServicer):
    """A server with its received requests; `calls_ended` is released at the end of each call."""

    answers: Answers
    port: int = 0
    requests: list[broker_pb2.PullRequest] = field(default_factory=list)
    calls_ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def config(self) -> ClientConfig:
        """Configuration of a client of this server."""
        return ClientConfig((f"127.0.0.1:{self.port}",), 5_000)

    def GetBrokerInfo(  # noqa: N802 (a name of the contract)
        self, _request: admin_pb2.GetBrokerInfoRequest, _context: grpc.ServicerContext
    ) -> admin_pb2.GetBrokerInfoResponse:
        return admin_pb2.GetBrokerInfoResponse(body_bytes_max=1 << 22, request_bytes_max=1 << 25)

    def Pull(  # noqa: N802 (a name of the contract)
        self, request: broker_pb2.PullRequest, context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.PullResponse]:
        self.requests.append(request)
        context.add_callback(self.calls_ended.release)
        return self.answers(request, context)


@contextmanager
def scripted_broker(answers: Answers) -> Iterator[ScriptedBroker]:
    """Starts a server on a free port; its clients are forgotten at the end."""
    broker = ScriptedBroker(answers)
    server = grpc.server(ThreadPoolExecutor(4))
    broker_pb2_grpc.add_BrokerServicer_to_server(broker, server)
    admin_pb2_grpc.add_AdminServicer_to_server(broker, server)
    broker.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield broker
    finally:
        forget_client(broker.config)
        server.stop(None).wait()
