"""Reading ranges of queues in a task: pull, check, decode, yield Arrow batches. Holds no state.

One response is one batch, so memory does not grow with the range. A connection that breaks is
opened again behind the last record delivered; a killed task leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import numpy as np
import pyarrow as pa

from pyspark_rocketpy.client import BrokerClient, ClientConfig, check, client_for, forget_client
from pyspark_rocketpy.errors import DataLossError, OffsetError, loss_advice
from pyspark_rocketpy.offsets import QueueRange
from rocketpy_proto.pull_wire import PullResponseParts
from rocketpy_proto.record import MalformedRecordError, RecordBlock, to_record_batch
from rocketpy_proto.rocketpy.v1 import broker_pb2

SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED = 0, 19, 20, 21
# Calls in a row that break without having delivered anything.
FRUITLESS_CALLS_MAX = 3
ANSWERS = (SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED)


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """How a task reads; plain values, since it travels to the executors. Sizes in bytes."""

    client: ClientConfig
    consumer_group: str
    fetch_bytes_max: int
    fail_on_data_loss: bool


def read_ranges(
    config: ReadConfig, ranges: tuple[QueueRange, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The messages of all ranges, in order.

    Raises DataLossError, ConnectionFailedError, BrokerError, OffsetError.
    """
    for part in ranges:
        yield from _RangeReader(config, part, schema).read()


class _RangeReader:
    """Reads one range; `_offset` is the next one to deliver."""

    def __init__(self, config: ReadConfig, part: QueueRange, schema: pa.Schema) -> None:
        self._config = config
        self._range = part
        self._schema = schema
        self._offset = part.begin

    def read(self) -> Iterator[pa.RecordBatch]:
        failures = 0
        while self._offset < self._range.end:
            before = self._offset
            client = client_for(self._config.client)
            try:
                yield from self._pull_once(client)
            except grpc.RpcError as error:
                # The next client waits for the broker to come back, or says that it does not.
                forget_client(self._config.client)
                failures = 1 if self._offset > before else failures + 1
                if failures > FRUITLESS_CALLS_MAX:
                    raise client.failed(error) from error

    def _pull_once(self, client: BrokerClient) -> Iterator[pa.RecordBatch]:
        part = self._range
        call = client.pull(
            broker_pb2.PullRequest(
                topic=part.topic,
                queue_id=part.queue_id,
                offset=self._offset,
                offset_end=part.end,
                response_bytes_max=self._config.fetch_bytes_max,
                consumer_group=self._config.consumer_group,
            )
        )
        try:
            for response in call:
                status = response.head.status
                if status.code not in ANSWERS:
                    check(status)
                if status.code == SUCCESS:
                    yield self._batch(response)
                else:
                    self._skip(response.head)
                    return
        finally:
            call.cancel()

    def _batch(self, response: PullResponseParts) -> pa.RecordBatch:
        sizes = np.frombuffer(response.head.record_sizes, ">i4").astype(np.int32)
        try:
            block = RecordBlock.parse(response.records[0], sizes)
            block.verify_body_crc()
            batch = to_record_batch(block, self._schema)
        except MalformedRecordError as error:
            raise OffsetError(
                f"{self._where()} hold a record that is damaged ({error}); check the broker's "
                "store, or begin behind it"
            ) from error
        expected = np.arange(self._offset, self._offset + len(block))
        if not np.array_equal(block.header["queue_offset"], expected):
            raise OffsetError(
                f"{self._where()}: the broker sent other offsets than asked for; restart it to "
                "have its consume queues checked"
            )
        self._offset += len(block)
        return batch

    def _skip(self, response: broker_pb2.PullResponse) -> None:
        """The next message is gone: fail, or go on behind what is lost."""
        going_on = min(max(response.next_offset, self._offset), self._range.end)
        lost = going_on - self._offset
        if going_on == self._offset:
            # The queue ends before the range does.
            going_on, lost = self._range.end, self._range.end - self._offset
        if self._config.fail_on_data_loss:
            raise DataLossError(
                f"{self._where()}: {lost} messages are gone, the queue now holds "
                f"[{response.min_offset}, {response.max_offset}); {loss_advice()}"
            )
        self._offset = going_on

    def _where(self) -> str:
        part = self._range
        return (
            f"offsets [{self._offset}, {part.end}) of queue {part.queue_id} of topic {part.topic!r}"
        )
