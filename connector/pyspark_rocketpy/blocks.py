"""Rows of one queue as blocks of records, none larger than wanted. Holds no state.

Rows are cut by the sizes of their bodies, encoded, and cut again by the sizes of their records
where those are larger than thought.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from pyspark_rocketpy import clock
from pyspark_rocketpy.batches import BatchName
from pyspark_rocketpy.errors import ColumnError, OversizeMessageError
from pyspark_rocketpy.routing import QueueRows
from pyspark_rocketpy.rows import Rows, cuts
from pyspark_rocketpy.unique_keys import UniqueKeys
from rocketpy_proto.record import (
    BlockColumns,
    EncodedBlock,
    Host,
    UnencodableRecordError,
    encode_block,
)
from rocketpy_proto.rocketpy.v1 import broker_pb2

SHARDING_KEY, UNIQ_KEY = "__SHARDINGKEY", "UNIQ_KEY"
# Where a message comes from, on request: the same for a row that is written again.
WRITER, BATCH = "rocketpy_writer", "rocketpy_batch"
PARTITION, SEQUENCE = "rocketpy_partition", "rocketpy_sequence"
RECORD_OVERHEAD_BYTES = 256
# A record's size, which travels beside it.
SIZE_BYTES = 4
_LOOPBACK = ipaddress.IPv4Address("127.0.0.1")
_COLUMNS = {"TAGS": "tags", "KEYS": "keys", SHARDING_KEY: "messageGroup"}


@dataclass(frozen=True, slots=True)
class BlockForm:
    """What is the same for all blocks of a task; sizes in bytes.

    `origin` is told in every message if it is set.
    """

    block_bytes_max: int
    request_bytes_max: int
    prepared_token: int
    origin: BatchName | None

    def requests(self, part: QueueRows) -> Iterator[broker_pb2.AppendRequest]:
        """The rows as blocks. Raises ColumnError, OversizeMessageError."""
        rows, bytes_max = part.rows, min(self.block_bytes_max, self.request_bytes_max)
        bodies = rows.body_bytes()
        beside = (rows.batch.nbytes - int(bodies.sum())) // len(rows) + RECORD_OVERHEAD_BYTES
        for which in cuts(bodies + max(beside, 0), bytes_max):
            cut = rows.part(which)
            block = self._encode(cut, part)
            sizes = block.sizes.astype(np.int64) + SIZE_BYTES
            self._check_sizes(cut, sizes)
            ends = np.cumsum(block.sizes, dtype=np.int64)
            for records in cuts(sizes, bytes_max):
                start = int(ends[records.start] - block.sizes[records.start])
                yield broker_pb2.AppendRequest(
                    topic=part.topic,
                    queue_id=part.queue_id,
                    record_sizes=block.sizes[records].astype(">i4").tobytes(),
                    records=block.data[start : int(ends[records.stop - 1])].to_pybytes(),
                    prepared_token=self.prepared_token,
                )

    def _check_sizes(self, rows: Rows, sizes: np.ndarray) -> None:
        if sizes.max() > self.request_bytes_max:
            row = int(np.argmax(sizes))
            raise OversizeMessageError(
                f"the message of {rows.where(row)} takes {sizes[row]} bytes, the broker takes "
                f"{self.request_bytes_max} in a request; send less in a message"
            )

    def _encode(self, rows: Rows, part: QueueRows) -> EncodedBlock:
        now_ms = clock.now_ms()
        extra = {UNIQ_KEY: _unique_keys().take(len(rows), now_ms), **self._origin(rows)}
        if rows.has("messageGroup"):
            extra[SHARDING_KEY] = rows.text("messageGroup")
        columns = BlockColumns(
            body=rows.column("body"),
            topic=part.topic,
            queue_id=part.queue_id,
            tags=rows.column("tags"),
            keys=rows.column("keys"),
            properties=rows.column("properties"),
            extra=extra,
            born_timestamp_ms=now_ms,
            born_host=_born_host(),
        )
        try:
            return encode_block(columns)
        except UnencodableRecordError as error:
            raise _named(error, rows) from error

    def _origin(self, rows: Rows) -> dict[str, pa.StringArray | str]:
        if self.origin is None:
            return {}
        return {
            WRITER: self.origin.writer_id,
            BATCH: str(self.origin.batch_id),
            PARTITION: str(rows.partition),
            SEQUENCE: pa.array(rows.numbers).cast(pa.string()),
        }


def _named(error: UnencodableRecordError, rows: Rows) -> ColumnError:
    """The encoder's error with the column and row that Spark's user knows."""
    name = error.field.split(" ")[0]
    column = _COLUMNS.get(name, "properties" if name == "property" else name)
    index = error.index or 0
    what = str(error).removeprefix(f"row {error.index}: ")
    return ColumnError(f"column {column} cannot be sent in {rows.where(index)}: {what}")


@cache
def _born_host() -> Host:
    """This machine's address as a record carries it; found once a process."""
    try:
        address = ipaddress.IPv4Address(socket.gethostbyname(socket.gethostname()))
    except (OSError, ValueError):
        address = _LOOPBACK
    return Host(address, 0)


@cache
def _unique_keys() -> UniqueKeys:
    return UniqueKeys(_born_host())
