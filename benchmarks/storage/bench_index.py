"""The index: its cost in appends of keyed messages, and the time of a query by key.

Appends with the index against the same appends without it, each message with a unique key and one
more. Nothing is flushed. Files are in a temporary directory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.harness import Result, compare, median_seconds
from benchmarks.storage.bench_store import open_service
from rocketpy_broker.runtime import process_tuning
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.store.index.service import IndexService
from rocketpy_proto.record import IndexKeys

BODY_BYTES = 100
BLOCK_BYTES = 1 << 20
BLOCKS = 64
ROUNDS = 11
ADDED_MAX = 0.3
QUERY_ENTRIES = 1_000_000
QUERIES = 1_000
QUERY_MS_MAX = 5.0


def run_added() -> Result:
    """Returns the time that the index adds, as a share of appends without it."""
    count = BLOCK_BYTES // (BODY_BYTES + 180)
    block = data.block(count, BODY_BYTES)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        store, service = open_service(Path(name) / "with")
        plain_store, plain_service = open_service(Path(name) / "without", index_enable=False)

        def append_with() -> None:
            for _ in range(BLOCKS):
                service.append_now(data.TOPIC, 0, block.records, block.record_sizes)
            store.dispatch()

        def append_without() -> None:
            for _ in range(BLOCKS):
                plain_service.append_now(data.TOPIC, 0, block.records, block.record_sizes)

        comparison = compare(append_with, append_without, ROUNDS)
        store.close()
        plain_store.close()
    added = 1 / comparison.ratio - 1
    each_us = comparison.seconds / BLOCKS / count * 1e6
    detail = f"{each_us:.2f} microseconds a message with 2 keys"
    return Result(
        "time that the index adds", added, "ratio", ADDED_MAX, at_most=True, detail=detail
    )


def run_query() -> Result:
    """Returns the milliseconds of a query of one key among many, all in memory."""
    random = np.random.default_rng(7)
    hashes = random.integers(0, 1 << 31, QUERY_ENTRIES, np.int64).astype(np.int32)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        service = IndexService(Path(name) / "index", SystemClock())
        rows = np.arange(QUERY_ENTRIES)
        service.put(IndexKeys(hashes, rows), rows * 100, np.full(QUERY_ENTRIES, data.BORN_MS))

        def query() -> None:
            for number in range(QUERIES):
                service.query(data.TOPIC, f"order-{number}", 0, 1 << 60, 32)

        seconds = median_seconds(query)
        service.close()
    detail = f"{QUERY_ENTRIES:,} entries"
    milliseconds = seconds / QUERIES * 1e3
    return Result("query by key", milliseconds, "ms", QUERY_MS_MAX, at_most=True, detail=detail)


def run() -> Iterator[Result]:
    """Yields both figures, in a process that is set as the broker's."""
    process_tuning.keep_freed_memory()
    yield run_added()
    yield run_query()
