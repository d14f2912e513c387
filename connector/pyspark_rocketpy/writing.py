"""Writing rows in a task: check, give each row its queue, encode blocks, and await every answer.

A task ends only when all its blocks are acknowledged. What a killed task has sent stays: prepared
blocks never show, others do, and come again when the task is run again. Nothing of an Arrow batch
with a row that cannot be sent is sent. Rows P01, P06.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from pyspark_rocketpy.appender import Acknowledge, Appender
from pyspark_rocketpy.batches import BatchName
from pyspark_rocketpy.blocks import BlockForm
from pyspark_rocketpy.client import BrokerLimits, ClientConfig, client_for
from pyspark_rocketpy.retrying import RetryPolicy
from pyspark_rocketpy.routing import QueueNums, by_queue
from pyspark_rocketpy.rows import Rows
from rocketpy_proto.rocketpy.v1 import broker_pb2


@dataclass(frozen=True, slots=True)
class WriteConfig:
    """How a task writes; plain values, since it travels to the executors. Bytes and ms.

    `columns` are the names of the rows' columns as the sink writes them; `prepared_token` is 0 for
    messages that are visible at once.
    """

    client: ClientConfig
    policy: RetryPolicy
    topic: str | None
    columns: tuple[str, ...]
    batch_bytes_max: int
    send_timeout_ms: int
    prepared_token: int = 0
    idempotence_properties: bool = False


def write_batches(
    config: WriteConfig,
    batches: Iterator[pa.RecordBatch],
    batch_name: BatchName,
    partition: int,
    acknowledge: Acknowledge,
) -> int:
    """Send every row and wait for every acknowledgement; return how many rows there were.

    Raises ColumnError, OversizeMessageError, BrokerError, ConnectionFailedError.
    """
    appender = Appender(config.client, config.policy, config.send_timeout_ms, acknowledge)
    task = _Task(config, batch_name, partition)
    with contextlib.closing(appender):
        for batch in batches:
            if batch.num_rows:
                for request in task.requests(batch):
                    appender.send(request)
        appender.finish()
    return task.rows


class _Task:
    """What a task knows of the rows it has had so far."""

    def __init__(self, config: WriteConfig, batch_name: BatchName, partition: int) -> None:
        self._config = config
        self._origin = batch_name if config.idempotence_properties else None
        self._partition = partition
        self._queue_nums = QueueNums(config.client, config.policy)
        self._turn = partition
        self.rows = 0

    def requests(self, batch: pa.RecordBatch) -> list[broker_pb2.AppendRequest]:
        """All blocks of a batch: whatever is wrong with a row is found before any is sent."""
        config, limits = self._config, client_for(self._config.client).limits
        rows = Rows.of(batch, config.columns, self.rows, self._partition)
        rows.check_bodies(limits.body_bytes_max)
        parts = by_queue(rows, config.topic, self._queue_nums, self._turn)
        form = self._form(limits)
        requests = [request for part in parts for request in form.requests(part)]
        self.rows += len(rows)
        self._turn += 1
        return requests

    def _form(self, limits: BrokerLimits) -> BlockForm:
        return BlockForm(
            self._config.batch_bytes_max,
            limits.request_bytes_max,
            self._config.prepared_token,
            self._origin,
        )
