"""The broker's cost of a new topic among many topics, against its cost among few.

Costs are processor time of the broker's process, all threads. The broker writes the whole file, so
it passes the bytes of all topics to the disk each time; it should not touch the other topics
otherwise.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.harness import ROUNDS, Result
from benchmarks.protocols.content import prepare
from rocketpy_broker import LocalBroker

FEW, MANY = 10, 10_000
CREATED = 100
RATIO_MAX = 2.0


def create(broker: LocalBroker, prefix: str) -> float:
    """Creates topics one after the other; returns ms of processor time for each."""
    process = psutil.Process(broker.pid)
    before = process.cpu_times()
    for number in range(CREATED):
        broker.create_topic(f"{prefix}-{number}")
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / CREATED * 1000


def run() -> Iterator[Result]:
    """Yields few and many in turns, each in its own broker."""
    costs_ms: dict[int, list[float]] = {FEW: [], MANY: []}
    with ExitStack() as stack:
        brokers = {}
        for count in (FEW, MANY):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
            prepare(Path(folder) / "store", count)
            brokers[count] = stack.enter_context(LocalBroker(Path(folder) / "store"))
        for round_number in range(ROUNDS + 1):
            for count, broker in brokers.items():
                costs_ms[count].append(create(broker, f"round-{round_number}"))
    # The first round encodes the loaded topics.
    few, many = costs_ms[FEW][1:], costs_ms[MANY][1:]
    ratio = statistics.median(dear / cheap for cheap, dear in zip(few, many, strict=True))
    name = f"creating a topic among {MANY:,} / among {FEW}, processor time"
    detail = f"{statistics.median(many):.1f} ms, {statistics.median(few):.1f} ms"
    yield Result(name, ratio, "ratio", RATIO_MAX, at_most=True, detail=detail)
