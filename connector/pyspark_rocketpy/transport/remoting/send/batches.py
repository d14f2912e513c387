"""Send batches: records that one request stores in one queue.

    stored record   fixed part | body | topic length, topic | properties length, properties
    entry of a batch   its head | body |                      properties length, properties

An entry is its record without the topic. In a copy of the block, the entry's head overwrites the
last bytes of the fixed part. So one step cuts out all entries, without a loop. Delayed messages are
sent one by one: brokers take no delay in a batch. Source: docs/design/remoting.md section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_rocketpy.transport.remoting.send.requests import BATCH_MESSAGES_MAX, SendBatch
from pyspark_rocketpy.transport.write_values import Block
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.record import RecordBlock
from rocketpy_proto.record.block.ranges import binary_ranges
from rocketpy_proto.record.layout import HEADER_BYTES, PROPERTIES_LENGTH_BYTES
from rocketpy_proto.record.properties import UNIQ_KEY, decode_properties
from rocketpy_proto.remoting.batches import BATCH_BYTES_MAX

_HEAD = np.dtype(
    [
        ("size", ">i4"),  # of the whole entry
        ("magic", ">i4"),  # 0
        ("crc", ">i4"),  # 0: the broker computes it
        ("flag", ">i4"),  # the application's
        ("body_length", ">i4"),
    ]
)
assert _HEAD.itemsize < HEADER_BYTES, "a head has room where its record's fixed part was"
# Bytes that a broker adds to a message: CLUSTER, MSG_REGION, TRACE_ON, the longer form of its
# hosts. 4.9 limits the bytes of all records of a batch as it limits one body.
ADDED_BYTES_MAX = 256


def first_unique_key(send_batch: SendBatch) -> str:
    """Returns the unique key of the first message; the sink gives each message one."""
    if send_batch.properties is not None:
        return decode_properties(send_batch.properties.encode())[UNIQ_KEY]
    head = np.frombuffer(send_batch.body, _HEAD, 1)[0]
    end = int(head["size"])
    begin = _HEAD.itemsize + int(head["body_length"]) + PROPERTIES_LENGTH_BYTES
    return decode_properties(bytes(memoryview(send_batch.body)[begin:end]))[UNIQ_KEY]


def send_batches(block: Block) -> Iterator[tuple[int, SendBatch]]:
    """Yields the block's send batches in order, each with the number of its queue.

    The loop is over send batches; single messages cost some 10 microseconds each.
    """
    sizes = np.frombuffer(block.record_sizes, ">i4").astype(np.int32)
    records = RecordBlock.parse(block.records, sizes)
    if block.queue_id == OWN_QUEUES:
        queue_ids = records.header["queue_id"].astype(np.int64)
    else:
        queue_ids = np.full(len(records), block.queue_id, np.int64)
    entries = None if block.delay else _Entries.of(records)
    for run in _runs(records.sizes, queue_ids, 1 if entries is None else BATCH_MESSAGES_MAX):
        count = run.stop - run.start
        if entries is None or count == 1:
            send_batch = _single(records, run.start, block)
        else:
            send_batch = SendBatch(entries.of_run(run), count, is_movable=block.is_movable)
        yield int(queue_ids[run.start]), send_batch


@dataclass(frozen=True, slots=True)
class _Entries:
    """All records as entries of a batch: entry i is [bounds[i], bounds[i + 1]) of `data`."""

    data: memoryview
    bounds: NDArray[np.int64]

    @classmethod
    def of(cls, records: RecordBlock) -> _Entries:
        heads = np.zeros(len(records), _HEAD)
        tail_starts = records.properties_start - PROPERTIES_LENGTH_BYTES
        tail_ends = records.properties_start + records.properties_length
        body_ends = records.body_start + records.body_length
        sizes = _HEAD.itemsize + records.body_length + tail_ends - tail_starts
        heads["size"], heads["body_length"] = sizes, records.body_length
        heads["flag"] = records.header["flag"]
        data = records.data.copy()
        starts = records.body_start - _HEAD.itemsize
        items = np.ndarray((len(data) - _HEAD.itemsize + 1,), "V20", data, strides=(1,))
        items[starts] = heads.view("V20")
        joined = binary_ranges(
            data, _alternating(starts, tail_starts), _alternating(body_ends, tail_ends)
        )
        bounds = np.concatenate(([0], np.cumsum(sizes)))
        return cls(memoryview(joined.buffers()[2] or b""), bounds)

    def of_run(self, run: slice) -> memoryview:
        return self.data[self.bounds[run.start] : self.bounds[run.stop]]


def _alternating(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the items of both arrays in turn."""
    return np.stack((first, second), axis=1).reshape(-1)


def _runs(
    sizes: NDArray[np.int32], queue_ids: NDArray[np.int64], count_max: int
) -> Iterator[slice]:
    """Yields adjacent records of one queue that fit in one request."""
    ends = np.cumsum(sizes.astype(np.int64) + ADDED_BYTES_MAX)
    changes = [*(np.flatnonzero(np.diff(queue_ids)) + 1).tolist(), len(sizes)]
    start, before = 0, 0
    for change in changes:
        while start < change:
            fitting = int(np.searchsorted(ends, before + BATCH_BYTES_MAX, "right"))
            stop = min(max(fitting, start + 1), start + count_max, change)
            yield slice(start, stop)
            start, before = stop, int(ends[stop - 1])


def _single(records: RecordBlock, index: int, block: Block) -> SendBatch:
    body_start, properties_start = records.body_start[index], records.properties_start[index]
    body = records.data[body_start : body_start + records.body_length[index]]
    properties = records.data[
        properties_start : properties_start + records.properties_length[index]
    ]
    flag = int(records.header["flag"][index])
    text = properties.tobytes().decode()
    return SendBatch(body.tobytes(), 1, text, flag, block.is_movable, is_delayed=block.delay > 0)
