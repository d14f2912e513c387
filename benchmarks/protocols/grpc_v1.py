"""Our own protocol, `rocketpy.v1`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import pyarrow as pa

from benchmarks import data
from benchmarks.protocols.content import (
    BULK_TOPIC,
    FULL_BLOCK_MESSAGES,
    FULL_QUEUES,
    KIB,
    LISTED_TOPICS,
    MIB,
    SMALL_TOPIC,
    WIDE_QUEUES,
    WIDE_TOPIC,
    append_request,
)
from benchmarks.protocols.interface import Bulk, Side, Work
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import BlockColumns, RecordBlock, decode_record, encode_block
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc

if TYPE_CHECKING:
    Stream: TypeAlias = grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
    Unary: TypeAlias = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
HOLD_MS = 60_000
HOLDING = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)
# The broker refuses a connection with more than 64 MiB of requests, so each writer has its own.
WRITERS, READERS, ASKERS, CONNECTIONS = 64, 8, 2, 8


class GrpcClient:
    """A channel. Sends use one stream."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.stub: Any = broker_pb2_grpc.BrokerStub(channel)
        self.admin: Any = admin_pb2_grpc.AdminStub(channel)
        self._sends: Any = None

    async def send(self, topic: str, queue_id: int, body: bytes) -> None:
        """Sends one message on the stream of sends."""
        self._sends = self._sends or self.stub.Append()
        await self._sends.write(_request(topic, queue_id, body))
        response = await self._sends.read()
        assert response.status.code == 0, response.status.remark

    async def pull(self) -> None:
        """Pulls the small message."""
        request = broker_pb2.PullRequest(topic=SMALL_TOPIC, queue_id=1, offset=0, offset_end=1)
        assert len([one async for one in self.stub.Pull(request)]) == 1

    async def echo(self) -> None:
        """Asks for the broker's name and limits."""
        await self.admin.GetBrokerInfo(admin_pb2.GetBrokerInfoRequest())

    async def hold(self, topic: str, queue_id: int, offset: int) -> list[bytes]:
        """Pulls from a queue's end."""
        request = broker_pb2.PullRequest(
            topic=topic, queue_id=queue_id, offset=offset, wait_ms_max=HOLD_MS
        )
        bodies = list[bytes]()
        async for response in self.stub.Pull(request):
            assert response.status.code in HOLDING, response.status.remark
            if response.records:
                block = RecordBlock.parse(response.records)
                bodies += [
                    bytes(decode_record(response.records, int(at)).record.body)
                    for at in block.positions
                ]
        return bodies


@asynccontextmanager
async def connect(endpoint: str) -> AsyncIterator[GrpcClient]:
    """Yields a client with a connection of its own."""
    async with grpc.aio.insecure_channel(endpoint, OPTIONS) as channel:
        yield GrpcClient(channel)


def _request(topic: str, queue_id: int, body: bytes) -> broker_pb2.AppendRequest:
    block = encode_block(
        BlockColumns(pa.array([body], pa.binary()), topic, 0, born_host=data.BORN_HOST)
    )
    return broker_pb2.AppendRequest(
        topic=topic,
        queue_id=queue_id,
        records=bytes(block.data),
        record_sizes=block.sizes.astype(">i4").tobytes(),
    )


def writer(block_bytes: int) -> Work:
    """Returns work that sends a block, waits for its acknowledgement, and sends the next."""
    requests = {
        queue_id: append_request(BULK_TOPIC, queue_id, block_bytes // (16 * KIB), 16 * KIB - 512)
        for queue_id in range(FULL_QUEUES)
    }

    async def work(client: GrpcClient, number: int, count: Callable[[], None]) -> None:
        stream: Any = client.stub.Append()
        while True:
            await stream.write(requests[number % FULL_QUEUES])
            response = await stream.read()
            assert response.status.code == 0, response.status.remark
            count()

    return work


async def reader(client: GrpcClient, number: int, count: Callable[[], None]) -> None:
    """Pulls a queue from start to end repeatedly; ignores the content."""
    pull: Stream = client.channel.unary_stream("/rocketpy.v1.Broker/Pull")
    request = broker_pb2.PullRequest(
        topic=BULK_TOPIC, queue_id=number % FULL_QUEUES, response_bytes_max=8 * MIB
    )
    while True:
        async for _ in pull(request.SerializeToString()):
            count()


async def offset_asker(client: GrpcClient, _number: int, count: Callable[[], None]) -> None:
    """Queries the offsets of a topic with many queues."""
    query: Unary = client.channel.unary_unary("/rocketpy.v1.Broker/QueryOffsets")
    request = broker_pb2.QueryOffsetsRequest(topics=[WIDE_TOPIC], consumer_group="group")
    while True:
        await query(request.SerializeToString())
        count()


async def topic_lister(client: GrpcClient, _number: int, count: Callable[[], None]) -> None:
    """Lists all topics."""
    list_topics: Unary = client.channel.unary_unary("/rocketpy.v1.Admin/ListTopics")
    request = admin_pb2.ListTopicsRequest()
    while True:
        await list_topics(request.SerializeToString())
        count()


async def key_asker(client: GrpcClient, number: int, count: Callable[[], None]) -> None:
    """Queries messages by key, and the offsets of messages with a thousand keys."""
    ranges = [
        broker_pb2.OffsetRange(topic=BULK_TOPIC, queue_id=queue_id, begin=0, end=1 << 40)
        for queue_id in range(FULL_QUEUES)
    ]
    keys = [f"order-{number}" for number in range(FULL_BLOCK_MESSAGES)]
    query = admin_pb2.QueryMessageRequest(topic=BULK_TOPIC, key=f"order-{number}", count_max=64)
    while True:
        await client.admin.QueryMessage(query)
        await client.stub.FindKeys(broker_pb2.FindKeysRequest(ranges=ranges, keys=keys))
        count()


def _writers(count: int, block_bytes: int) -> Callable[[], list[Work]]:
    return lambda: [writer(block_bytes)] * count


BULK = {
    "writers-1": Bulk(_writers(4, MIB), CONNECTIONS),
    "writers-4": Bulk(_writers(WRITERS, 4 * MIB - 64 * KIB), WRITERS),
    "readers": Bulk(lambda: [reader] * READERS, CONNECTIONS),
    "offsets": Bulk(lambda: [offset_asker] * ASKERS, CONNECTIONS),
    "topics": Bulk(lambda: [topic_lister] * ASKERS, CONNECTIONS),
    "keys": Bulk(lambda: [key_asker] * ASKERS, CONNECTIONS),
}
PHASES = {
    "4 writers of 1 MiB": ["writers-1"],
    "64 writers of 4 MiB": ["writers-4"],
    "8 readers of everything": ["readers"],
    f"offset queries of {WIDE_QUEUES:,} queues": ["offsets"],
    f"lists of {LISTED_TOPICS:,} topics": ["topics"],
    "key queries": ["keys"],
    "all of these": ["writers-4", "readers", "offsets", "topics", "keys"],
}
SIDE = Side(connect, BULK, PHASES, held_queues=100)
