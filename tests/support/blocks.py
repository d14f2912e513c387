"""Blocks of records for tests of store and broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.record import BlockColumns, Host, RecordBlock, encode_block
from rocketpy_proto.record.block.record_block import scatter_headers
from rocketpy_proto.record.sys_flag import COMPRESSED

BORN_HOST = Host.parse("10.0.0.1:54321")
BORN_MS = 1_700_000_000_000


@dataclass(frozen=True)
class WireBlock:
    """A block as a client sends it."""

    records: bytes
    record_sizes: bytes

    def parsed(self) -> RecordBlock:
        """Returns the block in a writable buffer, as the store takes it."""
        sizes = np.frombuffer(self.record_sizes, ">i4").astype(np.int32)
        return RecordBlock.parse(bytearray(self.records), sizes)


def wire_block(
    topic: str,
    bodies: Sequence[bytes],
    *,
    tags: str | None = None,
    keys: Sequence[str] | None = None,
    properties: Mapping[str, Sequence[str]] | None = None,
    queue_ids: Sequence[int] | None = None,
) -> WireBlock:
    """Returns records of one topic; each column but `bodies` has one value a record."""
    encoded = encode_block(
        BlockColumns(
            body=pa.array(bodies, pa.binary()),
            topic=topic,
            queue_id=0 if queue_ids is None else pa.array(queue_ids, pa.int32()),
            tags=None if tags is None else pa.array([tags] * len(bodies), pa.string()),
            keys=None if keys is None else pa.array(keys, pa.string()),
            properties=None,
            extra={
                name: pa.array(values, pa.string()) for name, values in (properties or {}).items()
            },
            born_timestamp_ms=BORN_MS,
            born_host=BORN_HOST,
        )
    )
    return WireBlock(bytes(encoded.data), encoded.sizes.astype(">i4").tobytes())


def compressed(topic: str, stored: bytes) -> WireBlock:
    """Returns a message whose body is marked as compressed."""
    block = wire_block(topic, [stored])
    parsed = block.parsed()
    parsed.header["sys_flag"] = COMPRESSED
    scatter_headers(parsed.data, parsed.positions, parsed.header)
    return WireBlock(parsed.data.tobytes(), block.record_sizes)


def by_queue(queue_id: int, records: bytes, record_sizes: bytes) -> dict[int, WireBlock]:
    """Returns the block by queue; with OWN_QUEUES, splits it into one block of each named queue."""
    if queue_id != OWN_QUEUES:
        return {queue_id: WireBlock(records, record_sizes)}
    sizes = np.frombuffer(record_sizes, ">i4").astype(np.int32)
    queue_ids = RecordBlock.parse(records, sizes).header["queue_id"].tolist()
    ends = np.cumsum(sizes).tolist()
    blocks: dict[int, WireBlock] = {}
    for row, queue in enumerate(queue_ids):
        known = blocks.get(queue, WireBlock(b"", b""))
        record = records[ends[row] - int(sizes[row]) : ends[row]]
        size = record_sizes[4 * row : 4 * row + 4]
        blocks[queue] = WireBlock(known.records + record, known.record_sizes + size)
    return blocks


def bodies_of(records: bytes, sizes: bytes | np.ndarray) -> list[bytes]:
    """Returns the bodies of consecutive records."""
    if isinstance(sizes, bytes):
        sizes = np.frombuffer(sizes, ">i4").astype(np.int32)
    block = RecordBlock.parse(records, np.asarray(sizes, np.int32))
    starts, lengths = block.body_start.tolist(), block.body_length.tolist()
    return [records[start : start + length] for start, length in zip(starts, lengths, strict=True)]
