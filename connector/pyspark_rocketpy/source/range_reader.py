"""Reading of queue ranges in a task: pull, cut, check, filter, decode.

`fetchBytesMax` and the inflated size of compressed bodies limit a batch. So memory grows neither
with the range nor with a producer's data. A killed task leaves nothing, and the next attempt yields
the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.source.columns import BROKER_NAME
from pyspark_rocketpy.source.message_filter import MessageFilter
from pyspark_rocketpy.transport.rebatching import RecordChunk, accounted, checked_records, rebatch
from pyspark_rocketpy.transport.values import PullOptions
from rocketpy_proto.record import to_record_batches
from rocketpy_proto.record.block.arrays import repeated

if TYPE_CHECKING:
    from pyspark_rocketpy.transport.interface import SourceTransport

# Decoded if no column of the records is selected, to count them.
_ANY_FIELD = pa.field("queueId", pa.int32())


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """Configuration of a task's reads and its filter, sent to executors as plain values.

    `broker_name` is shown for ranges that do not name their broker.
    """

    transport: SourceTransport
    pull: PullOptions
    wanted: MessageFilter
    broker_name: str = ""


def read_ranges(
    config: ReadConfig, ranges: tuple[QueueRange, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yields the messages of all ranges, in order, without empty batches.

    Raises DataLossError, ConnectionFailedError, BrokerError, OffsetError.
    """
    for part in ranges:
        reader = _RangeReader(config, part, schema)
        with closing(config.transport.pull(part, config.pull)) as pulled:
            chunks = accounted(pulled, part, is_filtered=config.pull.is_filtered)
            for chunk in rebatch(chunks, config.pull.fetch_bytes_max):
                yield from (batch for batch in reader.batches(chunk) if batch.num_rows)


class _RangeReader:
    """A decoder of one range; `_offset` is the next one to deliver."""

    def __init__(self, config: ReadConfig, part: QueueRange, schema: pa.Schema) -> None:
        self._wanted = config.wanted
        self._is_filtered = config.pull.is_filtered
        self._range = part
        self._broker_name = part.broker_name or config.broker_name
        self._schema = schema
        own = [field for field in schema if field.name != BROKER_NAME]
        self._decoded = pa.schema(own or [_ANY_FIELD])
        self._offset = part.begin

    def batches(self, chunk: RecordChunk) -> Iterator[pa.RecordBatch]:
        """Returns the matching messages of a chunk. Raises OffsetError."""
        self._offset = max(self._offset, chunk.begin)
        block = checked_records(chunk, self._range, self._offset, is_filtered=self._is_filtered)
        self._offset = int(block.header["queue_offset"][-1]) + 1
        batches = to_record_batches(self._wanted.select(block), self._decoded)
        return batches if self._decoded == self._schema else map(self._completed, batches)

    def _completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch with the column that its records do not have."""
        broker_name = repeated(self._broker_name, len(batch))
        columns = [
            broker_name if name == BROKER_NAME else batch.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
