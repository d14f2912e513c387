"""Reading ranges of queues in a task: pull, cut, check, filter, decode. Holds no state.

Batches are bounded by `fetchBytesMax` and by what their compressed bodies inflate to, so memory
grows neither with the range nor with what a producer wrote. A killed task leaves nothing behind,
and the next attempt yields the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_rocketpy.errors import OffsetError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.source.columns import BROKER_NAME
from pyspark_rocketpy.source.message_filter import MessageFilter
from pyspark_rocketpy.transport.cutting import Piece, cut
from pyspark_rocketpy.transport.values import PullOptions
from rocketpy_proto.record import MalformedRecordError, RecordBlock, to_record_batches
from rocketpy_proto.record.arrays import repeated

if TYPE_CHECKING:
    from pyspark_rocketpy.transport.interface import SourceTransport

# Of what is decoded where the records' own columns are not wanted: it tells how many there are.
_ANY_FIELD = pa.field("queueId", pa.int32())


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """How a task reads, and what it wants; plain values, since they travel to the executors.

    `broker_name` is shown for ranges that do not name their broker.
    """

    transport: SourceTransport
    pull: PullOptions
    wanted: MessageFilter
    broker_name: str = ""


def read_ranges(
    config: ReadConfig, ranges: tuple[QueueRange, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The messages of all ranges, in order. Empty batches are left out.

    Raises DataLossError, ConnectionFailedError, BrokerError, OffsetError.
    """
    for part in ranges:
        reader = _RangeReader(config, part, schema)
        with closing(config.transport.pull(part, config.pull)) as pieces:
            for piece in cut(pieces, config.pull.fetch_bytes_max):
                yield from (batch for batch in reader.batches(piece) if batch.num_rows)


class _RangeReader:
    """Decodes one range; `_offset` is the next one to deliver."""

    def __init__(self, config: ReadConfig, part: QueueRange, schema: pa.Schema) -> None:
        self._wanted = config.wanted
        self._is_gapless = not config.pull.is_filtered
        self._range = part
        self._broker_name = part.broker_name or config.broker_name
        self._schema = schema
        own = [field for field in schema if field.name != BROKER_NAME]
        self._decoded = pa.schema(own or [_ANY_FIELD])
        self._offset = part.begin

    def batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The wanted messages of a piece. Raises OffsetError."""
        self._offset = max(self._offset, piece.begin)
        try:
            block = RecordBlock.parse(piece.records, piece.sizes)
            block.verify_body_crc()
        except MalformedRecordError as error:
            raise OffsetError(
                f"{self._range.rest(self._offset)} hold a record that is damaged ({error}); "
                "check the broker's store, or begin behind it"
            ) from error
        self._check_offsets(block.header["queue_offset"].astype(np.int64), piece)
        batches = to_record_batches(self._wanted.select(block), self._decoded)
        return batches if self._decoded == self._schema else map(self._completed, batches)

    def _completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with what its records do not tell."""
        broker_name = repeated(self._broker_name, len(batch))
        columns = [
            broker_name if name == BROKER_NAME else batch.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _check_offsets(self, offsets: NDArray[np.int64], piece: Piece) -> None:
        """They rise within those asked for, without gaps unless some were to be left out."""
        is_right = offsets[0] >= self._offset and offsets[-1] < piece.end
        is_right &= bool((offsets[1:] > offsets[:-1]).all())
        if self._is_gapless:
            is_right &= len(offsets) == piece.end - piece.begin
        if not is_right:
            raise OffsetError(
                f"{self._range.rest(self._offset)}: the broker sent other offsets than asked "
                "for; restart it to have its consume queues checked"
            )
        self._offset = int(offsets[-1]) + 1
