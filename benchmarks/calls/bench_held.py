"""Ten thousand held calls by protocol: their cost, the wake of one, and small calls beside them.

The calls are of a hundred connections and four processes. With `rocketpy.v1` and remoting each
waits for a queue of its own. With `apache.rocketmq.v2` a hundred receives of one group wait for
each topic; that protocol ends a held call after 15 to 20 seconds, so some hundred calls begin each
second. The broker reports the number of held calls. `held:remoting` runs one protocol.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field

import grpc
import psutil

from benchmarks.calls.bench_fairness import percentile
from benchmarks.calls.held_load import CALLS_A_TOPIC, place
from benchmarks.harness import Result
from benchmarks.protocols.content import SMALL_TOPIC
from benchmarks.protocols.interface import Side
from benchmarks.protocols.table import SIDES
from benchmarks.spark.bench_memory import anonymous_mib
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc

HELD, PROCESSES, CONNECTIONS = 10_000, 4, 100
HELD_SHARE_MIN, HELD_KIB_MAX, CPU_PERCENT_MAX = 0.999, 64.0, 5.0
WAKE_UPS, WAKE_PAUSE_SECONDS, WAKE_P99_MS_MAX = 200, 0.03, 50.0
ECHO_RATIO_MAX, MEMORY_RATIO_MAX = 2.0, 1.2
ECHOES, ECHO_PAUSE_SECONDS = 500, 0.005
LATE_SECONDS_MAX = 60
IDLE_SECONDS, ARRIVAL_SECONDS_MAX, DEPARTURE_SECONDS_MAX = 10.0, 120, 60


@dataclass
class Broker:
    """A broker in its process, and the processes that hold calls at it."""

    protocol: str
    local: LocalBroker
    holders: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def side(self) -> Side:
        """The protocol's clients."""
        return SIDES[self.protocol]

    @property
    def address(self) -> str:
        """The broker's address for the protocol."""
        return self.side.address(self.local)

    @property
    def mib(self) -> float:
        """The broker's memory without mapped files."""
        return anonymous_mib(self.local.pid)

    @property
    def held_count(self) -> int:
        """The number of calls that the broker holds."""
        with grpc.insecure_channel(self.local.endpoint) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            status = stub.GetBrokerStatus(admin_pb2.GetBrokerStatusRequest())
        return int(status.held_call_count)

    def count_within(self, low: int, high: int, seconds_max: float) -> int:
        """Returns the number of held calls, once it is in a range or the time is over."""
        end = time.monotonic() + seconds_max
        while not low <= (count := self.held_count) <= high and time.monotonic() < end:
            time.sleep(0.5)
        return count

    @contextmanager
    def holding(self, held: int) -> Iterator[None]:
        """Holds calls while the block runs."""
        share = held // PROCESSES
        pipe = subprocess.PIPE
        with ExitStack() as stack:
            for number in range(PROCESSES):
                program = [sys.executable, "-m", "benchmarks.calls.held_load", self.protocol]
                numbers = (number * share, share, CONNECTIONS // PROCESSES)
                command = [*program, self.address, *map(str, numbers)]
                process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
                stack.enter_context(process)
                stack.callback(process.kill)
                self.holders.append(process)
            yield

    def delays_ms(self) -> list[float]:
        """Returns the delays of the messages since the last call."""
        found = list[float]()
        for process in self.holders:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            found += json.loads(process.stdout.readline())
        return found

    async def echoes_ms(self) -> list[float]:
        """Returns the waits of small calls of one client."""
        took = list[float]()
        async with self.side.connect(self.address) as client:
            await client.echo()
            for _ in range(ECHOES):
                begin = time.perf_counter()
                await client.echo()
                took.append((time.perf_counter() - begin) * 1000)
                await asyncio.sleep(ECHO_PAUSE_SECONDS)
        return took

    async def wake(self, held: int) -> None:
        """Sends messages to one held call after the other."""
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self.side.connect(self.address))
            for number in range(0, held, max(held // WAKE_UPS, 1)):
                body = repr(time.perf_counter()).encode()
                await client.send(*place(number, self.side.held_queues), body)
                await asyncio.sleep(WAKE_PAUSE_SECONDS)

    def cpu_percent(self) -> float:
        """Returns the broker's share of a core over some seconds."""
        process = psutil.Process(self.local.pid)
        process.cpu_percent()
        time.sleep(IDLE_SECONDS)
        return float(process.cpu_percent())


def measure(broker: Broker, held: int) -> Iterator[Result]:
    """Yields the figures of held calls at a broker."""
    name = f"{broker.protocol}: {held:,} held calls"
    asyncio.run(broker.echoes_ms())
    before = broker.mib
    idle = percentile(asyncio.run(broker.echoes_ms()), 0.99)
    with broker.holding(held):
        least = int(held * HELD_SHARE_MIN)
        count = broker.count_within(least, held, ARRIVAL_SECONDS_MAX)
        yield Result(f"{name}, held at once", count, "calls", least)
        kib = (broker.mib - before) * 1024 / max(count, 1)
        yield Result(f"{name}, broker's memory each", kib, "KiB", HELD_KIB_MAX, at_most=True)
        percent = broker.cpu_percent()
        yield Result(f"{name}, share of a core", percent, "%", CPU_PERCENT_MAX, at_most=True)
        yield beside(name, broker, idle)
        yield woken(name, broker, held)
    broker.count_within(0, 0, DEPARTURE_SECONDS_MAX)
    after = broker.mib
    yield Result(
        f"{name}, memory after they left / before",
        after / before,
        "ratio",
        MEMORY_RATIO_MAX,
        at_most=True,
        detail=f"{before:.0f} MiB, then {after:.0f}",
    )


def beside(name: str, broker: Broker, idle_ms: float) -> Result:
    """Returns the wait of small calls beside held calls, against an idle broker."""
    p99 = percentile(asyncio.run(broker.echoes_ms()), 0.99)
    detail = f"{p99:.1f} ms, idle {idle_ms:.1f}"
    ratio = p99 / idle_ms
    name = f"{name}, an echo beside / idle, p99"
    return Result(name, ratio, "ratio", ECHO_RATIO_MAX, at_most=True, detail=detail)


def woken(name: str, broker: Broker, held: int) -> Result:
    """Returns the time from a send to its client, each message to another held call."""
    broker.delays_ms()
    asyncio.run(broker.wake(held))
    took, end = broker.delays_ms(), time.monotonic() + LATE_SECONDS_MAX
    while len(took) < WAKE_UPS and time.monotonic() < end:
        time.sleep(1)
        took += broker.delays_ms()
    assert len(took) >= WAKE_UPS, f"{len(took)} of {WAKE_UPS} messages came"
    detail = f"p50 {statistics.median(took):.1f} ms, {len(took)} messages"
    p99 = percentile(took, 0.99)
    name = f"{name}, wake-up p99"
    return Result(name, p99, "ms", WAKE_P99_MS_MAX, at_most=True, detail=detail)


def run(protocol: str = "", held: int = HELD) -> Iterator[Result]:
    """Yields the figures of one protocol, or of all."""
    for each in [protocol] if protocol else SIDES:
        with LocalBroker(flush=FlushDiskType.ASYNC_FLUSH) as local:
            local.create_topic(SMALL_TOPIC, queues=2)
            for number in range(held // CALLS_A_TOPIC):
                local.create_topic(f"held-{number}", queues=SIDES[each].held_queues)
            yield from measure(Broker(each, local), held)
