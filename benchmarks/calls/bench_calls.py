"""Small calls: single sends beside a bare echo, and one held pull.

Every server runs in its own process, with ASYNC_FLUSH; all clients are grpc.aio in this one.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc

from benchmarks import data
from benchmarks.calls.bare_server import ECHO_METHOD, bare_server
from benchmarks.harness import Result, compare
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc

IN_FLIGHT, SENDS_EACH, BODY_BYTES = 64, 200, 100
ECHO_MIN = 0.7
PACED_SENDS, PACE_SECONDS = 2_500, 0.002
PULL_P50_MS_MAX, PULL_P99_MS_MAX = 3.0, 15.0
HOLD_MS = 30_000
HOLDING = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)

Call = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]


def raw_request(topic: str, queue_id: int) -> bytes:
    """Returns a send request with one message."""
    block = data.block(1, BODY_BYTES, topic)
    request = broker_pb2.AppendRequest(
        topic=topic, queue_id=queue_id, records=block.records, record_sizes=block.record_sizes
    )
    return request.SerializeToString()


async def one_by_one(call: Call, request: bytes, count: int) -> None:
    """Sends a request, waits for its answer, and sends the next."""
    answered = asyncio.Semaphore(1)

    async def requests() -> AsyncIterator[bytes]:
        for _ in range(count):
            await answered.acquire()
            yield request

    async for _ in call(requests()):
        answered.release()


async def in_flight(endpoint: str, method: str, request: bytes) -> None:
    """Runs IN_FLIGHT senders at once."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        call: Any = channel.stream_stream(method)
        await asyncio.gather(*(one_by_one(call, request, SENDS_EACH) for _ in range(IN_FLIGHT)))


def run_sends(endpoint: str) -> Result:
    """Returns the speed of single sends against an echo of the same bytes."""
    request = raw_request(data.TOPIC, -1)
    append = "/rocketpy.v1.Broker/Append"
    with bare_server() as bare:
        comparison = compare(
            lambda: asyncio.run(in_flight(endpoint, append, request)),
            lambda: asyncio.run(in_flight(bare, ECHO_METHOD, request)),
        )
    count = IN_FLIGHT * SENDS_EACH
    detail = (
        f"{count / comparison.seconds:,.0f} sends/s, "
        f"echo {count / comparison.baseline_seconds:,.0f}"
    )
    name = f"single sends / bare echo, {IN_FLIGHT} in flight"
    return Result(name, comparison.ratio, "ratio", ECHO_MIN, detail=detail)


class Waiter:
    """A client that holds pulls of one queue; `arrived` gets the time of each message."""

    def __init__(self, stub: broker_pb2_grpc.BrokerStub, topic: str, queue_id: int) -> None:
        self._stub = stub
        self._place = topic, queue_id
        self.arrived: asyncio.Queue[float] = asyncio.Queue()

    async def run(self, offset: int = 0) -> None:
        """Pulls until it is cancelled."""
        topic, queue_id = self._place
        while True:
            request = broker_pb2.PullRequest(
                topic=topic, queue_id=queue_id, offset=offset, wait_ms_max=HOLD_MS
            )
            async for response in self._stub.Pull(request):
                assert response.status.code in HOLDING, response.status.remark
                now = time.perf_counter()
                for _ in range(len(response.record_sizes) // 4):
                    self.arrived.put_nowait(now)
                offset = max(offset, response.next_offset)


async def delays_ms(waiter: Waiter, sends: Coroutine[Any, Any, list[float]]) -> list[float]:
    """Returns the delay from each send to its arrival."""
    began = await sends
    return [(await waiter.arrived.get() - begin) * 1000 for begin in began]


async def paced(
    stub: broker_pb2_grpc.BrokerStub, topic: str, pace_seconds: float = PACE_SECONDS
) -> list[float]:
    """Sends at an even pace; returns the time of each send."""
    began: list[float] = []
    request = broker_pb2.AppendRequest.FromString(raw_request(topic, 0))

    async def requests() -> AsyncIterator[broker_pb2.AppendRequest]:
        start = time.perf_counter()
        for number in range(PACED_SENDS):
            await asyncio.sleep(max(start + number * pace_seconds - time.perf_counter(), 0))
            began.append(time.perf_counter())
            yield request

    async for response in stub.Append(requests()):
        assert response.status.code == 0, response.status.remark
    return began


async def run_pull(endpoint: str, topic: str) -> list[Result]:
    """Returns the delay from a send to the pull that waits for it."""
    async with (
        grpc.aio.insecure_channel(endpoint) as sender,
        grpc.aio.insecure_channel(endpoint) as receiver,
    ):
        waiter = Waiter(broker_pb2_grpc.BrokerStub(receiver), topic, 0)
        waiting = asyncio.ensure_future(waiter.run())
        took = await delays_ms(waiter, paced(broker_pb2_grpc.BrokerStub(sender), topic))
        waiting.cancel()
    took = sorted(took[PACED_SENDS // 10 :])
    name = f"send to held pull, {1 / PACE_SECONDS:.0f} messages/s"
    p50, p99 = statistics.median(took), took[len(took) * 99 // 100]
    return [
        Result(f"{name}, p50", p50, "ms", PULL_P50_MS_MAX, at_most=True),
        Result(f"{name}, p99", p99, "ms", PULL_P99_MS_MAX, at_most=True),
    ]


def run() -> list[Result]:
    """Returns all cases."""
    with LocalBroker(flush=FlushDiskType.ASYNC_FLUSH) as broker:
        broker.create_topic(data.TOPIC)
        broker.create_topic("paced", queues=1)
        sends = run_sends(broker.endpoint)
        return [sends, *asyncio.run(run_pull(broker.endpoint, "paced"))]
