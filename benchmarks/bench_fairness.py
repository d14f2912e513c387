"""How long a small send and a small pull wait beside bulk, against how long alone.

The probe sends single messages on one stream and pulls single messages, each when the one before
is answered and a moment is over. Bulk of each kind, and all kinds together, run in processes of
their own, one store for each phase. What counts is the difference of two figures of one run.
"""

from __future__ import annotations

import asyncio
import json
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
    """How long small calls took, in ms."""

    sends: list[float] = field(default_factory=list)
    pulls: list[float] = field(default_factory=list)


def percentile(waits: Sequence[float], share: float) -> float:
    """The value below which that share lies."""
    return sorted(waits)[int(len(waits) * share)]


def prepare(folder: Path) -> None:
    """A table of many topics, as a start finds it."""
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for name in (f"listed-{number:05}" for number in range(LISTED_TOPICS))
    }
    (folder / "config").mkdir(parents=True)
    content = {"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": table}
    (folder / "config" / "topics.json").write_text(json.dumps(content), encoding="utf-8")


def fill(broker: LocalBroker) -> None:
    """Topics of the probe and of the bulk, with something to read in them."""
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
    """Small sends and small pulls, for some time."""
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
    """Bulk of a kind, until the block ends; then how much of it was done."""
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
            done[kind] = int(process.stdout.readline() or 0)
        finally:
            process.kill()


def run_phase(
    name: str, kinds: Sequence[str], flush: FlushDiskType, seconds: float = SECONDS
) -> list[Result]:
    """Alone, then beside; one broker with a store of its own."""
    done: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        store = Path(folder) / "store"
        prepare(store)
        with LocalBroker(store, flush=flush, commit_log_segment_bytes=1 << 28) as broker:
            fill(broker)
            asyncio.run(probe(broker.endpoint, WARM_SECONDS))
            alone = asyncio.run(probe(broker.endpoint, seconds / 2))
            with ExitStack() as stack:
                for kind in kinds:
                    stack.enter_context(load(kind, broker.endpoint, done))
                beside = asyncio.run(probe(broker.endpoint, seconds))
    return [
        result(f"small {what} beside {name}", getattr(alone, what), getattr(beside, what), done)
        for what in ("sends", "pulls")
    ]


def result(
    name: str, alone: Sequence[float], beside: Sequence[float], done: dict[str, int]
) -> Result:
    """The difference of the 99th percentiles."""
    figures = [percentile(alone, 0.99), percentile(beside, 0.99)]
    medians = [percentile(alone, 0.5), percentile(beside, 0.5)]
    bulk = ", ".join(f"{count:,} {kind}" for kind, count in done.items())
    detail = (
        f"p50 {medians[0]:.1f} → {medians[1]:.1f} ms, p99 {figures[0]:.1f} → {figures[1]:.1f} ms, "
        f"longest {max(beside):.0f} ms; meanwhile {bulk}"
    )
    return Result(f"{name}, p99", figures[1] - figures[0], "ms", GOAL_MS, True, detail)


def run() -> Iterator[Result]:
    """Each kind of bulk, and all together."""
    for name, kinds in PHASES.items():
        yield from run_phase(name, kinds, FlushDiskType.SYNC_FLUSH)
