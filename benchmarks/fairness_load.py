"""The bulk work of bench_fairness: one kind, in its own process.

`python -m benchmarks.fairness_load KIND ENDPOINT`. It writes a line after its first answers, and
ends after a line of input.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import grpc

from benchmarks import data
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc

KIB, MIB = 1 << 10, 1 << 20
BULK_TOPIC, WIDE_TOPIC, WIDE_QUEUES = "Bulk", "Wide", 4096
# Queues with messages, and the size of each.
FULL_QUEUES, BLOCKS_EACH, FULL_BLOCK_MESSAGES, BODY_BYTES = 8, 8, 1000, KIB
READERS, ASKERS, CONNECTIONS = 8, 2, 8
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
if TYPE_CHECKING:
    Stream: TypeAlias = grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
    Unary: TypeAlias = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
Work = Callable[[grpc.aio.Channel, int], Awaitable[None]]


def append_request(queue_id: int, count: int, body_bytes: int) -> broker_pb2.AppendRequest:
    """Returns a block of `count` messages."""
    block = data.block(count, body_bytes, BULK_TOPIC)
    return broker_pb2.AppendRequest(
        topic=BULK_TOPIC,
        queue_id=queue_id,
        records=block.records,
        record_sizes=block.record_sizes,
    )


def writer(block_bytes: int) -> Work:
    """Returns work that sends a block, waits for its acknowledgement, and sends the next."""
    requests = {
        queue_id: append_request(queue_id, block_bytes // (16 * KIB), 16 * KIB - 512)
        for queue_id in range(FULL_QUEUES)
    }

    async def work(channel: grpc.aio.Channel, number: int) -> None:
        answered = asyncio.Semaphore(1)

        async def blocks() -> AsyncIterator[broker_pb2.AppendRequest]:
            while True:
                await answered.acquire()
                yield requests[number % FULL_QUEUES]

        async for response in broker_pb2_grpc.BrokerStub(channel).Append(blocks()):
            assert response.status.code == 0, response.status.remark
            answered.release()
            _count()

    return work


async def reader(channel: grpc.aio.Channel, number: int) -> None:
    """Pulls a queue from start to end repeatedly; ignores the content."""
    pull: Stream = channel.unary_stream("/rocketpy.v1.Broker/Pull")
    request = broker_pb2.PullRequest(
        topic=BULK_TOPIC, queue_id=number % FULL_QUEUES, response_bytes_max=8 * MIB
    )
    while True:
        async for _ in pull(request.SerializeToString()):
            _count()


async def offset_asker(channel: grpc.aio.Channel, _number: int) -> None:
    """Queries the offsets of a topic with many queues."""
    query: Unary = channel.unary_unary("/rocketpy.v1.Broker/QueryOffsets")
    request = broker_pb2.QueryOffsetsRequest(topics=[WIDE_TOPIC], consumer_group="group")
    while True:
        await query(request.SerializeToString())
        _count()


async def topic_lister(channel: grpc.aio.Channel, _number: int) -> None:
    """Lists all topics."""
    list_topics: Unary = channel.unary_unary("/rocketpy.v1.Admin/ListTopics")
    request = admin_pb2.ListTopicsRequest()
    while True:
        await list_topics(request.SerializeToString())
        _count()


async def key_asker(channel: grpc.aio.Channel, number: int) -> None:
    """Queries messages by key, and the offsets of messages with a thousand keys."""
    admin, broker = admin_pb2_grpc.AdminStub(channel), broker_pb2_grpc.BrokerStub(channel)
    ranges = [
        broker_pb2.OffsetRange(topic=BULK_TOPIC, queue_id=queue_id, begin=0, end=1 << 40)
        for queue_id in range(FULL_QUEUES)
    ]
    keys = [f"order-{number}" for number in range(FULL_BLOCK_MESSAGES)]
    while True:
        await admin.QueryMessage(
            admin_pb2.QueryMessageRequest(topic=BULK_TOPIC, key=f"order-{number}", count_max=64)
        )
        await broker.FindKeys(broker_pb2.FindKeysRequest(ranges=ranges, keys=keys))
        _count()


_done = 0


def _count() -> None:
    global _done  # noqa: PLW0603 (a program of one module)
    _done += 1


async def run(works: list[Work], endpoint: str) -> None:
    """Runs all works over a few connections until the input ends; then writes their count."""
    channels = [grpc.aio.insecure_channel(endpoint, OPTIONS) for _ in range(CONNECTIONS)]
    running = [
        asyncio.ensure_future(work(channels[number % CONNECTIONS], number))
        for number, work in enumerate(works)
    ]
    while not _done:
        await asyncio.wait(running, timeout=0.02, return_when=asyncio.FIRST_EXCEPTION)
        for one in running:
            if one.done():
                one.result()
    sys.stdout.write("\n")
    sys.stdout.flush()
    before = _done
    await asyncio.to_thread(sys.stdin.readline)
    sys.stdout.write(f"{_done - before}\n")
    sys.stdout.flush()
    # Abandons the outstanding calls.
    os._exit(0)


def works_of(kind: str) -> list[Work]:
    """Returns the works of a kind of bulk."""
    if kind == "writers-1":
        return [writer(MIB)] * 4
    if kind == "writers-4":
        return [writer(4 * MIB - 64 * KIB)] * 64
    askers = {"offsets": offset_asker, "topics": topic_lister, "keys": key_asker}
    return [reader] * READERS if kind == "readers" else [askers[kind]] * ASKERS


if __name__ == "__main__":
    asyncio.run(run(works_of(sys.argv[1]), sys.argv[2]))
