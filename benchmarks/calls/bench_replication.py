"""A master and its slave, each in its own process: rates beside one broker, lag, and catching up.

A slave is one of this project. All three processes share the machine's cores with the sender.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc

from benchmarks import data
from benchmarks.calls.bench_calls import (
    IN_FLIGHT,
    PACED_SENDS,
    SENDS_EACH,
    Waiter,
    delays_ms,
    in_flight,
    paced,
    raw_request,
)
from benchmarks.harness import Comparison, Result, compare
from benchmarks.spark.bench_source import fill
from rocketpy_broker import LocalBroker
from rocketpy_broker.client import brokers
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.rocketpy.v1 import broker_pb2_grpc

APPEND = "/rocketpy.v1.Broker/Append"
BODY_BYTES, ROWS = 1024, 100_000
# A difference of 3 % takes more rounds than larger ones.
NO_SLAVES_ROUNDS = 15
REPLICATED_MIN, SYNC_MIN, NO_SLAVES_MIN = 0.8, 0.5, 0.97
PACE_SECONDS, LAG_P99_MS_MAX = 0.001, 50.0
BEHIND_BYTES, CATCH_UP_MB_PER_SECOND_MIN = 1 << 30, 200.0
# Each look costs the master some 1 ms.
PACED, LOOK_SECONDS = "paced", 0.02
FAST: dict[str, Any] = {"flush": FlushDiskType.ASYNC_FLUSH, "commit_log_segment_bytes": 1 << 30}


def slave_of(master: LocalBroker) -> LocalBroker:
    """Returns a slave, not started yet."""
    return LocalBroker(broker_role="SLAVE", master=master.remoting_endpoint, **FAST)


def until_level(master: LocalBroker) -> int:
    """Waits until the slave has the whole log; returns the log's end."""
    with BrokerConnection(master.endpoint) as connection:
        while True:
            slaves = brokers.broker_status(connection).slaves
            if slaves and slaves[0].lag_bytes == 0:
                return int(slaves[0].acknowledged_offset)
            time.sleep(LOOK_SECONDS)


def send(endpoint: str) -> None:
    """Sends IN_FLIGHT * SENDS_EACH single messages."""
    asyncio.run(in_flight(endpoint, APPEND, raw_request(data.TOPIC, -1)))


def append(broker: LocalBroker, topics: Iterator[str]) -> None:
    """Appends blocks to a new topic."""
    fill(broker, next(topics), BODY_BYTES, ROWS)


def replicated(master: LocalBroker, topics: Iterator[str]) -> None:
    """Appends blocks, and waits until the slave has them."""
    append(master, topics)
    until_level(master)


def sends(name: str, done: Comparison, goal: float) -> Result:
    """Returns a ratio of single sends."""
    rates = [IN_FLIGHT * SENDS_EACH / each for each in (done.seconds, done.baseline_seconds)]
    detail = f"{rates[0]:,.0f} sends/s, alone {rates[1]:,.0f}"
    return Result(f"{name}, {IN_FLIGHT} in flight", done.ratio, "ratio", goal, detail=detail)


def run_rates(alone: LocalBroker) -> Iterator[Result]:
    """Yields the rates of appends and sends with a slave, beside a broker alone."""
    with LocalBroker(ha_port=0, **FAST) as master:
        master.create_topic(data.TOPIC)
        ours, other = partial(send, master.endpoint), partial(send, alone.endpoint)
        done = compare(ours, other, NO_SLAVES_ROUNDS)
        yield sends("single sends with a port for slaves / without", done, NO_SLAVES_MIN)
        master.create_topic(PACED, queues=1)
        with slave_of(master) as slave:
            while PACED not in slave.topics():
                time.sleep(LOOK_SECONDS)
            yield asyncio.run(run_lag(master, slave))
            topics = map("blocks-{}".format, itertools.count())
            done = compare(partial(replicated, master, topics), partial(append, alone, topics))
            name = f"append and copy to a slave / append alone, {BODY_BYTES} B"
            detail = f"{ROWS * BODY_BYTES / done.seconds / 1e6:,.0f} MB/s of bodies"
            yield Result(name, done.ratio, "ratio", REPLICATED_MIN, detail=detail)
    sync = LocalBroker(ha_port=0, broker_role="SYNC_MASTER", in_sync_replicas=2, **FAST)
    with sync, slave_of(sync):
        sync.create_topic(data.TOPIC)
        done = compare(partial(send, sync.endpoint), partial(send, alone.endpoint))
        yield sends("single sends, SYNC_MASTER / alone", done, SYNC_MIN)


async def run_lag(master: LocalBroker, slave: LocalBroker) -> Result:
    """Returns the time from a send to its arrival at a pull that waits at the slave."""
    async with (
        grpc.aio.insecure_channel(master.endpoint) as sender,
        grpc.aio.insecure_channel(slave.endpoint) as receiver,
    ):
        waiter = Waiter(broker_pb2_grpc.BrokerStub(receiver), PACED, 0)
        waiting = asyncio.ensure_future(waiter.run())
        sending = paced(broker_pb2_grpc.BrokerStub(sender), PACED, PACE_SECONDS)
        took = sorted((await delays_ms(waiter, sending))[PACED_SENDS // 10 :])
        waiting.cancel()
    p99 = took[len(took) * 99 // 100]
    name = f"send to held pull at a slave, {1 / PACE_SECONDS:.0f} messages/s, p99"
    detail = f"p50 {statistics.median(took):.1f} ms"
    return Result(name, p99, "ms", LAG_P99_MS_MAX, at_most=True, detail=detail)


def run_catch_up() -> Result:
    """Returns the rate at which a slave copies the log that it lacks."""
    with LocalBroker(ha_port=0, **FAST) as master:
        fill(master, "behind", BODY_BYTES, BEHIND_BYTES // BODY_BYTES)
        with slave_of(master):
            begin = time.perf_counter()
            log_bytes = until_level(master)
            seconds = time.perf_counter() - begin
    name = f"a slave copies a log of {BEHIND_BYTES >> 30} GiB of bodies"
    detail = f"{seconds:.1f} s, from its start on"
    rate = log_bytes / seconds / 1e6
    return Result(name, rate, "MB/s", CATCH_UP_MB_PER_SECOND_MIN, detail=detail)


def run() -> Iterator[Result]:
    """Yields all figures."""
    with LocalBroker(**FAST) as alone:
        alone.create_topic(data.TOPIC)
        yield from run_rates(alone)
    yield run_catch_up()
