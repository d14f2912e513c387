"""Encoding of rows as blocks of one queue and limited size.

All rows are checked before the first is encoded. So an unsendable row is found before any row is
sent. Rows of many queues are encoded together, in their order, and sorted as records.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ColumnError, OversizeMessageError
from pyspark_rocketpy.sink.delays import waiting_properties
from pyspark_rocketpy.sink.routes import RowRoutes
from pyspark_rocketpy.sink.rows import Rows, cuts
from pyspark_rocketpy.transport.values import BrokerLimits
from pyspark_rocketpy.transport.write_values import SIZE_BYTES, BatchName, Block
from rocketpy_proto.model.unique_keys import born_host, row_keys, unique_keys
from rocketpy_proto.record import BLANK_BYTES, BlockColumns, CheckedBlock, UnencodableRecordError
from rocketpy_proto.record.properties import (
    DELAY,
    KEYS,
    NOT_COPIED_NAMES,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)

GROUP = "messageGroup"
# Rows that are encoded together. A record is estimated to take RECORD_OVERHEAD_BYTES more than its
# row in Arrow.
ENCODED_BYTES = 8 << 20
RECORD_OVERHEAD_BYTES = 160
# With fewer adjacent rows per queue than this, records are sorted by queue.
NEIGHBOURS_MIN = 64
_COLUMNS = {
    TAGS: "tags",
    KEYS: "keys",
    SHARDING_KEY: GROUP,
    DELAY: "delayLevel",
    TIMER_DELIVER_MS: "deliverAt",
}


@dataclass(frozen=True, slots=True)
class BlockForm:
    """The common form of all blocks of a task; sizes in bytes.

    A message larger than a block gets a block of its own. None is larger than `message_bytes_max`.
    Each message has a new UNIQ_KEY. With `has_keys_of_rows` the key depends on the row instead, so
    a row that is written again has the same one.
    """

    block_bytes_max: int
    message_bytes_max: int
    origin: BatchName
    has_keys_of_rows: bool
    encoded_bytes: int = ENCODED_BYTES

    @classmethod
    def within(
        cls,
        limits: BrokerLimits,
        block_bytes_max: int,
        origin: BatchName,
        *,
        has_keys_of_rows: bool = False,
    ) -> BlockForm:
        """Returns the form within the broker's limits of a request and of a log segment."""
        bytes_max = limits.request_bytes_max - SIZE_BYTES
        block_bytes = min(block_bytes_max, bytes_max)
        if limits.segment_bytes:
            bytes_max = min(bytes_max, limits.segment_bytes - BLANK_BYTES)
            # A delayed record grows while it waits, to less than twice its size.
            block_bytes = min(block_bytes, bytes_max // 2)
        return cls(block_bytes, bytes_max, origin, has_keys_of_rows)

    def blocks(self, rows: Rows, routes: RowRoutes) -> Iterator[Block]:
        """Yields the rows as blocks; the rows of a queue keep their order.

        Raises ColumnError, OversizeMessageError before the first block.
        """
        bodies = rows.body_bytes()
        beside = max(rows.batch.nbytes - int(bodies.sum()), 0) // len(rows) + RECORD_OVERHEAD_BYTES
        parts = [
            self._checked(rows.part(which), routes.part(which))
            for which in cuts(bodies + beside, self.encoded_bytes)
        ]
        for part in parts:
            yield from part.blocks(self.block_bytes_max)

    def _checked(self, rows: Rows, routes: RowRoutes) -> _Part:
        now_ms = clock.now_ms()
        extra = {UNIQ_KEY: self._unique_keys(rows, now_ms)}
        extra |= waiting_properties(rows)
        if rows.has(GROUP):
            extra[SHARDING_KEY] = rows.text(GROUP)
        columns = BlockColumns(
            body=rows.column("body"),
            topic=routes.topic,
            queue_id=pa.array(routes.queue_ids),
            tags=rows.column("tags"),
            keys=rows.column("keys"),
            properties=rows.column("properties"),
            extra=extra,
            left_out=NOT_COPIED_NAMES,
            born_timestamp_ms=now_ms,
            born_host=born_host(),
        )
        try:
            checked = CheckedBlock(columns)
        except UnencodableRecordError as error:
            raise _named(error, rows) from error
        self._check_sizes(rows, checked.sizes)
        return _Part(routes, checked, is_movable=not (rows.has("queueId") or rows.has(GROUP)))

    def _check_sizes(self, rows: Rows, sizes: NDArray[np.int32]) -> None:
        too_large = sizes > self.message_bytes_max
        if too_large.any():
            row = int(np.argmax(too_large))
            raise OversizeMessageError(
                f"the message of {rows.where(row)} takes {sizes[row]} bytes, limit "
                f"{self.message_bytes_max}; send smaller messages"
            )

    def _unique_keys(self, rows: Rows, now_ms: int) -> pa.StringArray:
        if not self.has_keys_of_rows:
            return unique_keys().take(len(rows), now_ms)
        origin = self.origin
        return row_keys((origin.writer_id, origin.batch_id, rows.partition), rows.numbers)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows that are encoded together."""

    routes: RowRoutes
    checked: CheckedBlock
    is_movable: bool

    def blocks(self, bytes_max: int) -> Iterator[Block]:
        """Yields the records, cut at each change of queue and at `bytes_max`.

        The loop is over queues, some 2 microseconds each.
        """
        routes, encoded = self.routes, self.checked.encode()
        if np.count_nonzero(np.diff(routes.keys)) * NEIGHBOURS_MIN > len(encoded.sizes):
            order = np.argsort(routes.keys, kind="stable")
            routes, encoded = routes.part(order), encoded.take(order)
        bounds = _bounds(routes, encoded.sizes, bytes_max)
        starts = routes.part(bounds[:-1])
        places = np.concatenate(([0], np.cumsum(encoded.sizes, dtype=np.int64)))[bounds]
        records, record_sizes = memoryview(encoded.data), encoded.sizes.astype(">i4").tobytes()
        for code, queue_id, delay, record_bounds, size_bounds in zip(
            starts.codes.tolist(),
            starts.queue_ids.tolist(),
            starts.delays.tolist(),
            itertools.pairwise(places.tolist()),
            itertools.pairwise((bounds * SIZE_BYTES).tolist()),
            strict=True,
        ):
            yield Block(
                topic=routes.topics[code],
                queue_id=queue_id,
                record_sizes=record_sizes[slice(*size_bounds)],
                records=bytes(records[slice(*record_bounds)]),
                delay=delay,
                is_movable=self.is_movable,
            )


def _bounds(routes: RowRoutes, sizes: NDArray[np.int32], bytes_max: int) -> NDArray[np.int64]:
    """Returns the starts of the blocks, and the end of the last one."""
    changes = np.flatnonzero(np.diff(routes.keys)) + 1
    stops = [which.stop for which in cuts(sizes.astype(np.int64) + SIZE_BYTES, bytes_max)]
    bounds: NDArray[np.int64] = np.union1d(changes, [0, *stops]).astype(np.int64)
    return bounds


def _named(error: UnencodableRecordError, rows: Rows) -> ColumnError:
    """Returns the encoder's error with the column and row that Spark's user knows."""
    name = error.field.split(" ")[0]
    column = _COLUMNS.get(name, "properties" if name == "property" else name)
    index = error.index or 0
    what = str(error).removeprefix(f"row {error.index}: ")
    return ColumnError(f"column {column} cannot be sent in {rows.where(index)}: {what}")
