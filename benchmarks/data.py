"""Messages for measurements: bodies of one size, a tag, a key and a unique key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rocketpy_proto.record import BlockColumns, Host, encode_block

TOPIC = "Benchmark"
BORN_HOST = Host.parse("127.0.0.1:50000")
BORN_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """One block as a client sends it."""

    records: bytes
    sizes: np.ndarray
    record_sizes: bytes

    def __len__(self) -> int:
        return len(self.sizes)


def columns(count: int, body_bytes: int, topic: str = TOPIC) -> BlockColumns:
    """Returns `count` messages with random bodies."""
    random = np.random.default_rng(7)
    content = random.integers(0, 256, count * body_bytes, np.uint8).tobytes()
    offsets = np.arange(0, (count + 1) * body_bytes, body_bytes, dtype=np.int32)
    body = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    )
    numbers = range(count)
    return BlockColumns(
        body=body,
        topic=topic,
        queue_id=0,
        tags=pa.array([f"Tag{number % 5}" for number in numbers]),
        keys=pa.array([f"order-{number}" for number in numbers]),
        properties=None,
        extra={"UNIQ_KEY": pa.array([f"7F000001{number:024X}" for number in numbers])},
        born_timestamp_ms=BORN_MS,
        born_host=BORN_HOST,
    )


def block(count: int, body_bytes: int, topic: str = TOPIC) -> Block:
    """Returns `count` messages as one block."""
    encoded = encode_block(columns(count, body_bytes, topic))
    return Block(
        bytes(encoded.data), np.asarray(encoded.sizes), encoded.sizes.astype(">i4").tobytes()
    )


def sink_rows(count: int, body_bytes: int, queues: int, seed: int) -> pa.RecordBatch:
    """Returns an Arrow batch of sink rows: body and queueId, with queues drawn row by row."""
    random = np.random.default_rng(seed)
    octets = pa.py_buffer(random.bytes(count * body_bytes))
    bodies = pa.FixedSizeBinaryArray.from_buffers(pa.binary(body_bytes), count, [None, octets])
    queue_ids = pa.array(random.integers(0, queues, count), pa.int32())
    return pa.record_batch({"body": bodies.cast(pa.binary()), "queueId": queue_ids})
