"""The index: what a key costs as a share of appending its message, and how fast one is found.

`indexing / append`: keys of a block and their entry, against the broker's whole path from received
bytes to log and consume queue, which reads the tags codes. The tags codes' scan of the properties
is shared, so what indexing adds is `tags_codes_and_index_keys` less `tags_codes`, and `put`. The
first round, which gives the files their pages, does not count. Nothing is flushed. Files lie in a
temporary directory.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.bench_store import open_service
from benchmarks.harness import Result, median_seconds, seconds_of
from rocketpy_broker import process
from rocketpy_broker.clock import SystemClock
from rocketpy_broker.store.index_service import IndexService
from rocketpy_proto.record import IndexKeys, RecordBlock, tags_codes_and_index_keys

BODY_BYTES = 100
BLOCK_BYTES = 1 << 20
BLOCKS = 64
ROUNDS = 11
SHARE_MAX = 0.3
QUERY_ENTRIES = 1_000_000
QUERIES = 1_000
QUERY_MS_MAX = 1.0


@dataclass
class Position:
    """Where the next block would lie in the log."""

    offset: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds that indexing adds, and seconds of appending the same messages."""

    added: float
    append: float


def index_block(service: IndexService, block: RecordBlock, keys: IndexKeys, at: Position) -> None:
    """Enter the keys of a block that lies at `at`, and move on."""
    times = np.full(len(block), data.BORN_MS)
    service.put(keys, block.positions + at.offset, times)
    at.offset += len(block.data)


def run_share() -> Iterator[Result]:
    """Seconds of indexing as a share of those of appending."""
    count = BLOCK_BYTES // (BODY_BYTES + 180)
    sent = data.block(count, BODY_BYTES)
    block = RecordBlock.parse(sent.records, sent.sizes)
    at = Position()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        store, appending = open_service(Path(name) / "store")
        index = IndexService(Path(name) / "index", SystemClock())

        def ours() -> None:
            for number in range(BLOCKS):
                # Another topic each time, so that other slots are hit.
                values = tags_codes_and_index_keys(block, f"{data.TOPIC}{number}")
                index_block(index, block, values.index_keys, at)

        def baseline() -> None:
            for _ in range(BLOCKS):
                appending.append(data.TOPIC, 0, sent.records, sent.record_sizes)

        def tags_only() -> None:
            for _ in range(BLOCKS):
                block.tags_codes()

        rounds = [
            Round(seconds_of(ours) - seconds_of(tags_only), seconds_of(baseline))
            for _ in range(ROUNDS + 1)
        ][1:]
        index.close()
        store.close()
    added = statistics.median(one.added for one in rounds)
    share = statistics.median(one.added / one.append for one in rounds)
    per_message = added / BLOCKS / count * 1e6
    detail = f"{per_message:.2f} microseconds per message with 2 keys"
    yield Result("indexing / append, 100 B", share, "ratio", SHARE_MAX, at_most=True, detail=detail)


def run_query() -> Iterator[Result]:
    """Time of a query in a file with a million entries, in the page cache."""
    count = QUERY_ENTRIES // 2
    sent = data.block(count, 1)
    block = RecordBlock.parse(sent.records, sent.sizes)
    keys = tags_codes_and_index_keys(block, data.TOPIC).index_keys
    wanted = [f"order-{number}" for number in range(0, count, count // QUERIES)]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        index = IndexService(Path(name), SystemClock())
        index_block(index, block, keys, Position())

        def query() -> None:
            for key in wanted:
                found = index.query(data.TOPIC, key, 0, data.BORN_MS, 64)
                assert len(found) > 0

        seconds = median_seconds(query) / len(wanted)
        index.close()
    detail = f"{len(keys):,} entries"
    yield Result("query by key", seconds * 1e3, "ms", QUERY_MS_MAX, at_most=True, detail=detail)


def run() -> list[Result]:
    """Both, in a process that is set as the broker's."""
    process.keep_freed_memory()
    return [*run_share(), *run_query()]
