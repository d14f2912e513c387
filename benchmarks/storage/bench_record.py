"""Decodes of a block to Arrow, on one core: every column, and the two most wanted."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from benchmarks import data
from benchmarks.harness import Result, median_seconds
from rocketpy_proto.record import COLUMN_TYPES, RecordBlock, encode_block, to_record_batch

COUNT = 20_000
REPEATS = 5
ALL_COLUMNS_MIN = 1.0


def run() -> list[Result]:
    """Returns million messages a second; body of 100 bytes, three properties."""
    block = data.block(COUNT, 100)
    columns = data.columns(COUNT, 100)
    pa.set_cpu_count(1)
    return [
        _decode("decode to Arrow, all columns", list(COLUMN_TYPES), block, ALL_COLUMNS_MIN),
        _decode("decode to Arrow, body and queueOffset", ["body", "queueOffset"], block, 0),
        Result(
            "encode from Arrow",
            REPEATS * COUNT / median_seconds(lambda: _repeat(lambda: encode_block(columns))) / 1e6,
            "M msgs/s",
            0,
        ),
    ]


def _repeat(work: Callable[[], object]) -> None:
    for _ in range(REPEATS):
        work()


def _decode(name: str, wanted: list[str], block: data.Block, goal: float) -> Result:
    schema = pa.schema([pa.field(column, COLUMN_TYPES[column]) for column in wanted])

    def work() -> None:
        for _ in range(REPEATS):
            parsed = RecordBlock.parse(block.records, block.sizes)
            parsed.verify_body_crc()
            to_record_batch(parsed, schema)

    return Result(name, REPEATS * COUNT / median_seconds(work) / 1e6, "M msgs/s", goal)
