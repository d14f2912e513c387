"""The sink: a batch writer and a streaming writer, exactly-once or at-least-once.

Exactly-once: tasks prepare blocks, and `commit` lets the broker show all of them, once for each
(writer, batch). A streaming query writes as itself, by the id in its checkpoint; a batch job as
somebody new, or as option txnAppId says. At-least-once: a task's rows show when it stores them, and
`commit` has nothing left to do. `abort` never has: what is prepared does not show by itself, and
what a commit has made visible stays, for `abort` may follow a commit whose answer was lost.
Source: spec/spark_python_datasource.md section 6. Rows S2, S7, S8.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_rocketpy.batches import (
    BatchCommitter,
    BatchName,
    PreparedBlocks,
    draw_token,
    joined,
)
from pyspark_rocketpy.client import ClientConfig
from pyspark_rocketpy.errors import CommitError, OptionError
from pyspark_rocketpy.options import Delivery, SinkOptions
from pyspark_rocketpy.retrying import RetryPolicy
from pyspark_rocketpy.sink_columns import SinkColumns
from pyspark_rocketpy.writing import WriteConfig, write_batches

# Local properties of a streaming query's tasks.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class RowsWritten(WriterCommitMessage):
    """How many rows a task has stored, and its part of the batch's commit."""

    rows: int
    part: bytes


class _Sink:
    """What both writers do; made when a write is planned, and sent to its tasks."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        client = ClientConfig(options.endpoints, options.connect_timeout_ms)
        policy = RetryPolicy(options.retry_times_max, options.retry_backoff_ms)
        self.is_exactly_once = options.delivery is Delivery.EXACTLY_ONCE
        self._committer = BatchCommitter(client, policy, options.send_timeout_ms)
        self._config = WriteConfig(
            client,
            policy,
            options.topic,
            columns.names,
            options.batch_bytes_max,
            options.send_timeout_ms,
            draw_token() if self.is_exactly_once else 0,
            options.idempotence_properties,
        )

    def write(self, batches: Iterator[pa.RecordBatch], name: BatchName) -> RowsWritten:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        prepared = PreparedBlocks(name, self._config.prepared_token)
        rows = write_batches(self._config, batches, name, partition, prepared.add)
        return RowsWritten(rows, prepared.to_bytes())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> int:
        """Show what the tasks have prepared; return the writer's last committed batch."""
        parts = [message.part for message in messages if isinstance(message, RowsWritten)]
        request = joined(parts)
        if request.batch_id != batch_id:
            raise CommitError(
                f"batch {batch_id} is to be committed, but its tasks have written batch "
                f"{request.batch_id}; run the batch again"
            )
        return self._committer.commit(request)


class RocketpyWriter(DataSourceArrowWriter):
    """Writes a frame, all of it or nothing."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._sink = _Sink(options, columns)
        # Inside foreachBatch tasks could tell the streaming query's id, but one batch of it may
        # hold several saves.
        self._name = BatchName(str(uuid.uuid4()), 0)
        if options.txn_app_id is not None and options.txn_version is not None:
            self._name = BatchName(options.txn_app_id, options.txn_version)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Store a task's rows. Raises the connector's errors; the task has then failed."""
        return self._sink.write(iterator, self._name)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows visible, unless this txnVersion has been committed before.

        Raises BrokerError, CommitError, ConnectionFailedError.
        """
        if self._sink.is_exactly_once:
            self._sink.commit(messages, self._name.batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do."""


class RocketpyStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        if options.txn_app_id is not None:
            raise OptionError(
                "txnAppId and txnVersion are for batch writes, as in foreachBatch; a streaming "
                "query is told by its checkpoint: leave them out"
            )
        self._sink = _Sink(options, columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Store a task's rows. Raises the connector's errors; the task has then failed."""
        return self._sink.write(iterator, _micro_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the micro-batch visible; a replayed one, committed before, stays as it is.

        Raises CommitError for a batch behind the last one, BrokerError, ConnectionFailedError.
        """
        if not self._sink.is_exactly_once:
            return
        last = self._sink.commit(messages, batchId)
        if last > batchId:
            raise CommitError(
                f"this is batch {batchId} of the query, but batch {last} has been written "
                "already: its checkpoint is older than the topic, or another driver runs it; "
                "stop that one, or start with a new checkpoint"
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do."""


def _micro_batch() -> BatchName:
    """The query and batch that the running task belongs to. Raises CommitError."""
    context = TaskContext.get()
    assert context is not None, "Spark calls write in tasks only"
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query_id is None or batch_id is None:
        raise CommitError("the task does not know its streaming query; write with df.write instead")
    return BatchName(query_id, int(batch_id))
