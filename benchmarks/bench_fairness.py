"""Waits of a small send and a small pull beside bulk work, against waits alone.

The probe sends single messages on one stream and pulls single messages. Each call follows the
answer of the one before, after a pause. Bulk work of each kind, and all kinds together, run in
separate processes, with one store for each phase. Rounds alone and beside bulk alternate; each
round starts with a synced disk. The figure is the median of the rounds' differences: another
program's burst on disk or processor spoils only one round.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from benchmarks import data
from benchmarks.fairness_load import (
    BLOCKS_EACH,
    BODY_BYTES,
    BULK_TOPIC,
    FULL_BLOCK_MESSAGES,
    FULL_QUEUES,
    WIDE_QUEUES,
    WIDE_TOPIC,
    append_request,
)
from benchmarks.harness import Result
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc

SMALL_TOPIC, SMALL_BODY_BYTES = "Small", 100
PAUSE_SECONDS, WARM_SECONDS, SECONDS = 0.01, 0.5, 4.0
ROUNDS = 5
LISTED_TOPICS = 10_000
GOAL_MS = 50
PHASES = {
    "4 writers of 1 MiB": ["writers-1"],
    "64 writers of 4 MiB": ["writers-4"],
    "8 readers of everything": ["readers"],
    f"offset queries of {WIDE_QUEUES:,} queues": ["offsets"],
    f"lists of {LISTED_TOPICS:,} topics": ["topics"],
    "key queries": ["keys"],
    "all of these": ["writers-4", "readers", "offsets", "topics", "keys"],
}


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of small calls, in ms."""

    sends: list[float] = field(default_factory=list)
    pulls: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Round:
    """Waits alone, then beside bulk."""

    alone: Waits
    beside: Waits

    def differences(self, what: str, share: float) -> tuple[float, float, float]:
        """Returns a percentile alone, beside bulk, and the difference."""
        alone = percentile(getattr(self.alone, what), share)
        beside = percentile(getattr(self.beside, what), share)
        return alone, beside, beside - alone


def percentile(waits: Sequence[float], share: float) -> float:
    """Returns the value at that share of the sorted waits."""
    return sorted(waits)[int(len(waits) * share)]


def prepare(folder: Path, topics: int = LISTED_TOPICS) -> None:
    """Writes a table of `topics` topics, as a broker start finds it."""
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for name in (f"listed-{number:05}" for number in range(topics))
    }
    (folder / "config").mkdir(parents=True)
    content = {"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": table}
    (folder / "config" / "topics.json").write_text(json.dumps(content), encoding="utf-8")


def fill(broker: LocalBroker) -> None:
    """Creates the topics of the probe and of the bulk, with messages in them."""
    broker.create_topic(SMALL_TOPIC, queues=2)
    broker.create_topic(BULK_TOPIC, queues=FULL_QUEUES)
    broker.create_topic(WIDE_TOPIC, queues=WIDE_QUEUES)
    broker.send(SMALL_TOPIC, bytes(SMALL_BODY_BYTES), queue_id=1)
    requests = [
        append_request(number % FULL_QUEUES, FULL_BLOCK_MESSAGES, BODY_BYTES)
        for number in range(FULL_QUEUES * BLOCKS_EACH)
    ]
    with grpc.insecure_channel(broker.endpoint) as channel:
        for response in broker_pb2_grpc.BrokerStub(channel).Append(iter(requests)):
            if response.status.code:
                raise RuntimeError(response.status.remark)


async def probe(endpoint: str, seconds: float) -> Waits:
    """Returns the waits of small sends and small pulls during `seconds`."""
    waits = Waits()
    end = time.perf_counter() + seconds
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub = broker_pb2_grpc.BrokerStub(channel)
        await asyncio.gather(_send(stub, waits.sends, end), _pull(stub, waits.pulls, end))
    return waits


async def _send(stub: broker_pb2_grpc.BrokerStub, waits: list[float], end: float) -> None:
    block = data.block(1, SMALL_BODY_BYTES, SMALL_TOPIC)
    request = broker_pb2.AppendRequest(
        topic=SMALL_TOPIC, queue_id=0, records=block.records, record_sizes=block.record_sizes
    )
    begin = 0.0

    async def requests() -> AsyncIterator[broker_pb2.AppendRequest]:
        nonlocal begin
        while time.perf_counter() < end:
            begin = time.perf_counter()
            yield request
            await answered.acquire()
            await asyncio.sleep(PAUSE_SECONDS)

    answered = asyncio.Semaphore(0)
    async for response in stub.Append(requests()):
        assert response.status.code == 0, response.status.remark
        waits.append((time.perf_counter() - begin) * 1000)
        answered.release()


async def _pull(stub: broker_pb2_grpc.BrokerStub, waits: list[float], end: float) -> None:
    request = broker_pb2.PullRequest(topic=SMALL_TOPIC, queue_id=1, offset=0, offset_end=1)
    while time.perf_counter() < end:
        begin = time.perf_counter()
        count = len([one async for one in stub.Pull(request)])
        waits.append((time.perf_counter() - begin) * 1000)
        assert count == 1
        await asyncio.sleep(PAUSE_SECONDS)


@contextmanager
def load(kind: str, endpoint: str, done: dict[str, int]) -> Iterator[None]:
    """Runs bulk of a kind until the block ends; adds its amount to `done`."""
    command = [sys.executable, "-m", "benchmarks.fairness_load", kind, endpoint]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield
            process.stdin.write("\n")
            process.stdin.flush()
            done[kind] = done.get(kind, 0) + int(process.stdout.readline() or 0)
        finally:
            process.kill()


def run_round(endpoint: str, kinds: Sequence[str], seconds: float, done: dict[str, int]) -> Round:
    """Returns the probe's waits alone, then beside all kinds of bulk, from a synced disk."""
    os.sync()
    alone = asyncio.run(probe(endpoint, seconds / 2))
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(load(kind, endpoint, done))
        beside = asyncio.run(probe(endpoint, seconds))
    return Round(alone, beside)


def run_phase(
    name: str,
    kinds: Sequence[str],
    flush: FlushDiskType,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
) -> list[Result]:
    """Returns the results of one broker with its own store."""
    done: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        store = Path(folder) / "store"
        prepare(store)
        with LocalBroker(store, flush=flush, commit_log_segment_bytes=1 << 28) as broker:
            fill(broker)
            asyncio.run(probe(broker.endpoint, WARM_SECONDS))
            found = [run_round(broker.endpoint, kinds, seconds, done) for _ in range(rounds)]
    return [result(f"small {what} beside {name}", what, found, done) for what in ("sends", "pulls")]


def result(name: str, what: str, rounds: Sequence[Round], done: dict[str, int]) -> Result:
    """Returns the median over the rounds of the 99th percentile's difference."""

    def median_of(share: float) -> list[float]:
        figures = zip(*(each.differences(what, share) for each in rounds), strict=True)
        return [statistics.median(figure) for figure in figures]

    p50, p99 = median_of(0.5), median_of(0.99)
    longest = max(max(getattr(each.beside, what)) for each in rounds)
    bulk = ", ".join(f"{count:,} {kind}" for kind, count in done.items())
    by_round = ", ".join(f"{each.differences(what, 0.99)[2]:.0f}" for each in rounds)
    detail = (
        f"p50 {p50[0]:.1f} → {p50[1]:.1f} ms, p99 {p99[0]:.1f} → {p99[1]:.1f} ms, by round "
        f"{by_round}, longest {longest:.0f} ms; meanwhile {bulk}"
    )
    return Result(f"{name}, p99", p99[2], "ms", GOAL_MS, True, detail)


def run() -> Iterator[Result]:
    """Yields the results of each kind of bulk, and of all together."""
    for name, kinds in PHASES.items():
        yield from run_phase(name, kinds, FlushDiskType.SYNC_FLUSH)
