"""Single sends that wait for the disk: 64 concurrent senders share their flushes.

Each sender sends one message, waits for its acknowledgement, and sends the next, on its own stream.
The detail is the disk's rate for one writer alone: a write and an fdatasync at a time. The store is
in a temporary directory, on that directory's disk.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc

from benchmarks import data
from benchmarks.harness import Result, seconds_of
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc

SENDERS = 64
SENDS_EACH = 150
BODY_BYTES = 100
ACKNOWLEDGED_PER_SECOND_MIN = 1000
RAW_FLUSHES = 200


async def send_all(endpoint: str) -> None:
    """Runs all senders at once."""
    block = data.block(1, BODY_BYTES)
    request = broker_pb2.AppendRequest(
        topic=data.TOPIC, queue_id=-1, records=block.records, record_sizes=block.record_sizes
    )
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub = broker_pb2_grpc.BrokerStub(channel)
        await asyncio.gather(*(send_some(stub, request) for _ in range(SENDERS)))


async def send_some(stub: broker_pb2_grpc.BrokerStub, request: broker_pb2.AppendRequest) -> None:
    """Sends one message after the other, each acknowledged before the next."""
    answered = asyncio.Semaphore(1)

    async def requests() -> AsyncIterator[broker_pb2.AppendRequest]:
        for _ in range(SENDS_EACH):
            await answered.acquire()
            yield request

    async for response in stub.Append(requests()):
        assert response.status.code == 0, response.status.remark
        answered.release()


def raw_flushes_per_second(folder: Path) -> float:
    """Returns the rate of small writes to an allocated file, each followed by an fdatasync."""
    descriptor = os.open(folder / "raw", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, 1 << 20)

    def work() -> None:
        for number in range(RAW_FLUSHES):
            os.pwrite(descriptor, bytes(300), number * 300)
            os.fdatasync(descriptor)

    work()
    seconds = seconds_of(work)
    os.close(descriptor)
    return RAW_FLUSHES / seconds


def run() -> Iterator[Result]:
    """Yields the acknowledged sends a second."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        raw = raw_flushes_per_second(Path(name))
        with LocalBroker(Path(name) / "store", flush=FlushDiskType.SYNC_FLUSH) as broker:
            broker.create_topic(data.TOPIC)
            asyncio.run(send_all(broker.endpoint))
            seconds = seconds_of(lambda: asyncio.run(send_all(broker.endpoint)))
    rate = SENDERS * SENDS_EACH / seconds
    detail = f"{SENDERS} senders; the disk alone does {raw:,.0f} flushes a second"
    goal = ACKNOWLEDGED_PER_SECOND_MIN
    yield Result("acknowledged single sends, SYNC_FLUSH", rate, "sends/s", goal, detail=detail)
