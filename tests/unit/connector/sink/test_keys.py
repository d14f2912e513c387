"""Unique keys of rows: drawn again for exactly once, and kept by a row that may be resent."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pyspark_rocketpy.sink.task_writer import WriteConfig, write_batches
from pyspark_rocketpy.transport.write_values import Attempt, BatchName, Block
from rocketpy_proto.record import RecordBlock, property_column
from tests.unit.connector.transport.scripted import (
    MemoryBroker,
    ScriptedBlockWriter,
    ScriptedTransport,
)

NAME = BatchName("query", 5)
MIB = 1 << 20


class RecordingTransport(ScriptedTransport):
    """A transport that keeps the sent blocks and stores none."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.blocks: list[Block] = []

    def block_writer(self, attempt: Attempt | None) -> ScriptedBlockWriter:
        return _RecordingWriter(self, attempt)


class _RecordingWriter(ScriptedBlockWriter):
    def __init__(self, transport: RecordingTransport, attempt: Attempt | None) -> None:
        super().__init__(transport.broker, attempt)
        self._blocks = transport.blocks

    def send(self, block: Block) -> None:
        self._blocks.append(block)


def unique_keys_of(batches: Iterable[pa.RecordBatch], token: int) -> list[str | None]:
    broker = MemoryBroker()
    broker.create_topic("T", 1)
    transport = RecordingTransport(broker)
    config = WriteConfig(transport, "T", ("body",), 2 * MIB, token, has_keys_of_rows=not token)
    write_batches(config, iter(batches), NAME, 3)
    found: list[str | None] = []
    for block in transport.blocks:
        sizes = np.frombuffer(block.record_sizes, ">i4").astype(np.int32)
        records = RecordBlock.parse(block.records, sizes)
        found += property_column(records, "UNIQ_KEY").to_pylist()
    return found


def test_a_row_that_is_written_again_at_least_once_has_the_same_key() -> None:
    rows = pa.record_batch({"body": pa.array([b"a", b"b", b"c"])})
    keys = unique_keys_of([rows, rows], 0)
    assert keys == unique_keys_of([rows.slice(0, 1), rows.slice(1), rows], 0)
    assert len(set(keys)) == 6
    assert set(keys).isdisjoint(unique_keys_of([rows, rows], 9))
