"""Writing rows in a task: check, give each row its queue, encode blocks, and await every answer.

At-least-once: a task ends only when all its blocks are acknowledged, and a task that is run again
writes again. What a killed task has sent stays. Nothing of an Arrow batch with a row that cannot
be sent is sent. Rows P01, P06.
"""

from __future__ import annotations

import ipaddress
import itertools
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_rocketpy import clock
from pyspark_rocketpy.appender import Appender
from pyspark_rocketpy.client import BrokerClient, ClientConfig, client_for
from pyspark_rocketpy.errors import ColumnError, OversizeMessageError
from pyspark_rocketpy.unique_keys import UniqueKeys
from rocketpy_proto.record import (
    BlockColumns,
    Host,
    UnencodableRecordError,
    encode_block,
    java_hashes,
)
from rocketpy_proto.rocketpy.v1 import broker_pb2

SHARDING_KEY, UNIQ_KEY = "__SHARDINGKEY", "UNIQ_KEY"
# A batch is spread over as many queues as it has this many rows.
ROWS_PER_QUEUE_MIN = 5_000
RECORD_OVERHEAD_BYTES = 256
_LOOPBACK = ipaddress.IPv4Address("127.0.0.1")


@dataclass(frozen=True, slots=True)
class WriteConfig:
    """How a task writes; plain values, since it travels to the executors. Sizes in bytes."""

    client: ClientConfig
    topic: str | None
    batch_bytes_max: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one queue."""

    topic: str
    queue_id: int
    batch: pa.RecordBatch


def write_batches(config: WriteConfig, batches: Iterator[pa.RecordBatch], task: int) -> int:
    """Send every row; return how many. `task` varies the queue that a task begins with.

    Raises ColumnError, OversizeMessageError, BrokerError, ConnectionFailedError.
    """
    client = client_for(config.client)
    limit, queue_nums = client.limits.body_bytes_max, _QueueNums(client)
    appender: Appender | None = None
    rows = 0
    try:
        for batch in batches:
            writer = _BatchWriter(config, limit, queue_nums, batch, rows, task)
            requests = writer.requests()
            if requests and appender is None:
                appender = Appender(client, config.client)
            for request in requests:
                assert appender is not None
                appender.send(request)
            rows += batch.num_rows
            task += 1
        if appender is not None:
            appender.finish()
    finally:
        if appender is not None:
            appender.close()
    return rows


class _QueueNums:
    """How many queues topics have for writing; each topic is asked for once a task."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._known: dict[str, int] = {}

    def of(self, topics: Sequence[str]) -> list[int]:
        """Of each topic. Raises BrokerError for one that does not exist."""
        missing = [topic for topic in topics if topic not in self._known]
        if missing:
            self._known |= self._client.write_queue_nums(missing)
        return [self._known[topic] for topic in topics]


class _BatchWriter:
    """Turns one Arrow batch into requests; `first_row` is its first row's number in the task."""

    def __init__(
        self,
        config: WriteConfig,
        body_bytes_max: int,
        queue_nums: _QueueNums,
        batch: pa.RecordBatch,
        first_row: int,
        turn: int,
    ) -> None:
        self._config = config
        self._body_bytes_max = body_bytes_max
        self._queue_nums = queue_nums
        self._first_row = first_row
        self._turn = turn
        self._batch = batch
        self._names = frozenset(batch.schema.names)

    def requests(self) -> list[broker_pb2.AppendRequest]:
        """All blocks of the batch: whatever is wrong with a row is found before any is sent."""
        if self._batch.num_rows == 0:
            return []
        self._check_bodies()
        return [request for rows in self._by_queue() for request in self._blocks(rows)]

    def _check_bodies(self) -> None:
        body = self._batch.column("body")
        if body.null_count:
            row = int(np.argmax(body.is_null().to_numpy(zero_copy_only=False)))
            raise ColumnError(f"column body is null in row {self._first_row + row} of its task")
        lengths = pc.binary_length(body).to_numpy(zero_copy_only=False)
        limit = self._body_bytes_max
        if lengths.max() > limit:
            row = int(np.argmax(lengths > limit))
            raise OversizeMessageError(
                f"the body in row {self._first_row + row} of its task has {lengths[row]} bytes, "
                f"the broker takes {limit}; send less in a message"
            )

    def _by_queue(self) -> Iterator[_Rows]:
        """The batch in parts, each of one topic and queue."""
        if not self._names & {"topic", "queueId", "messageGroup"}:
            assert self._config.topic is not None
            yield from self._spread(self._config.topic, self._batch)
            return
        topics = self._topics().dictionary_encode()
        names = topics.dictionary.to_pylist()
        codes = topics.indices.to_numpy().astype(np.int64)
        nums = self._queue_nums.of(names)
        queue_ids = self._queue_ids(np.array(nums, np.int64)[codes])
        keys = (codes << 32) | queue_ids
        order = np.argsort(keys, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            topic = names[codes[part[0]]]
            yield _Rows(topic, int(queue_ids[part[0]]), self._batch.take(pa.array(part)))

    def _spread(self, topic: str, batch: pa.RecordBatch) -> Iterator[_Rows]:
        """Slices of rows, each to the next queue."""
        (nums,) = self._queue_nums.of([topic])
        slices = max(1, min(nums, batch.num_rows // ROWS_PER_QUEUE_MIN))
        bounds = [batch.num_rows * number // slices for number in range(slices + 1)]
        for number, (low, high) in enumerate(itertools.pairwise(bounds)):
            queue_id = (self._turn * slices + number) % nums
            yield _Rows(topic, queue_id, batch.slice(low, high - low))

    def _topics(self) -> pa.StringArray:
        if "topic" not in self._names:
            return pa.repeat(self._config.topic, self._batch.num_rows)
        topics = self._batch.column("topic").cast(pa.string())
        if self._config.topic is not None:
            topics = topics.fill_null(self._config.topic)
        if topics.null_count:
            row = int(np.argmax(topics.is_null().to_numpy(zero_copy_only=False)))
            raise ColumnError(
                f"column topic is null in row {self._first_row + row} of its task; "
                "fill it, or set option topic"
            )
        return topics

    def _queue_ids(self, nums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of each row: its queueId, else its messageGroup's queue, else the next in turn."""
        count = self._batch.num_rows
        spread = np.arange(count) * (count // ROWS_PER_QUEUE_MIN + 1) // count
        queue_ids = (self._turn + spread) % nums
        if "messageGroup" in self._names:
            groups = self._batch.column("messageGroup").cast(pa.string())
            grouped = groups.is_valid().to_numpy(zero_copy_only=False)
            hashes = np.abs(java_hashes(groups).astype(np.int64))
            queue_ids = np.where(grouped, hashes % nums, queue_ids)
        if "queueId" in self._names:
            given = self._batch.column("queueId").fill_null(-1).to_numpy(zero_copy_only=False)
            wrong = (given < -1) | (given >= nums)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise ColumnError(
                    f"column queueId is {given[row]} in row {self._first_row + row} of its task; "
                    f"its topic has queues 0 to {nums[row] - 1}"
                )
            queue_ids = np.where(given >= 0, given, queue_ids)
        chosen: NDArray[np.int64] = queue_ids.astype(np.int64)
        return chosen

    def _blocks(self, rows: _Rows) -> Iterator[broker_pb2.AppendRequest]:
        """Blocks of about batchBytesMax; a single message may be larger."""
        size = rows.batch.nbytes // rows.batch.num_rows + RECORD_OVERHEAD_BYTES
        step = max(1, self._config.batch_bytes_max // size)
        for start in range(0, rows.batch.num_rows, step):
            yield self._block(rows, rows.batch.slice(start, step))

    def _block(self, rows: _Rows, batch: pa.RecordBatch) -> broker_pb2.AppendRequest:
        now_ms = clock.now_ms()
        extra = {UNIQ_KEY: _unique_keys().take(batch.num_rows, now_ms)}
        if "messageGroup" in self._names:
            extra[SHARDING_KEY] = batch.column("messageGroup").cast(pa.string())
        try:
            block = encode_block(
                BlockColumns(
                    body=batch.column("body"),
                    topic=rows.topic,
                    queue_id=rows.queue_id,
                    tags=self._optional(batch, "tags"),
                    keys=self._optional(batch, "keys"),
                    properties=self._optional(batch, "properties"),
                    extra=extra,
                    born_timestamp_ms=now_ms,
                    born_host=_born_host(),
                )
            )
        except UnencodableRecordError as error:
            raise ColumnError(f"a message cannot be sent: {error}") from error
        return broker_pb2.AppendRequest(
            topic=rows.topic,
            queue_id=rows.queue_id,
            record_sizes=block.sizes.astype(">i4").tobytes(),
            records=block.data.to_pybytes(),
        )

    def _optional(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        return batch.column(name) if name in self._names else None


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
