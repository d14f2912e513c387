"""Batch writer and streaming writer, for each delivery guarantee.

Exactly-once: tasks stage blocks, and `commit` makes all of them visible at the broker, once for
each (writer, batch). A streaming query's writer is the id in its checkpoint. A batch job's writer
is a new one, or option txnAppId. At-least-once: a task's rows are visible when it stores them, and
`commit` does nothing. Effectively-once: rows are visible at once, too, and `commit` notes where the
batch's markers begin. `abort` removes staged blocks. Blocks that a commit has made visible stay,
since `abort` may follow a commit with a lost answer. Source: docs/design/spark_python_datasource.md
section 6.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_rocketpy.errors import CommitError, OptionError, RocketpyError
from pyspark_rocketpy.options.choices import DeliveryGuarantee
from pyspark_rocketpy.options.values import SinkOptions
from pyspark_rocketpy.sink.columns import SinkColumns
from pyspark_rocketpy.sink.task_writer import (
    RowsWritten,
    WriteConfig,
    generate_token,
    write_batches,
)
from pyspark_rocketpy.spark_calls import called_by_spark
from pyspark_rocketpy.transport.interface import SinkTransport
from pyspark_rocketpy.transport.write_values import BatchJob, BatchName, CommittedBatch
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
Messages: TypeAlias = Sequence[WriterCommitMessage | None]
# Local properties of a streaming query's tasks.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """A checked write, and the transport to the broker."""

    options: SinkOptions
    columns: SinkColumns
    transport: SinkTransport


class _Sink:
    """The common part of both writers; created when a write is planned, and sent to its tasks."""

    def __init__(self, plan: SinkPlan, *, is_single: bool = False) -> None:
        options = plan.options
        self.commits = options.delivery is not DeliveryGuarantee.AT_LEAST_ONCE
        self._transport = plan.transport
        self._fail_on_data_loss = options.fail_on_data_loss
        self._config = WriteConfig(
            plan.transport,
            options.topic,
            plan.columns.names,
            options.batch_bytes_max,
            generate_token() if self.commits else 0,
            is_single,
            has_keys_of_rows=options.delivery is not DeliveryGuarantee.EXACTLY_ONCE,
        )

    def write(self, batches: Iterator[pa.RecordBatch], name: BatchName) -> RowsWritten:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        return write_batches(self._config, batches, name, partition)

    def job_of(self, name: BatchName) -> BatchJob:
        """Returns the job that writes this batch."""
        return self._config.job_of(name)

    def commit(self, messages: Messages, batch_id: int) -> CommittedBatch:
        """Makes the tasks' staged rows visible.

        Raises CommitError if fewer of them are visible and failOnDataLoss is true.
        """
        committed = self._transport.commit_batch(_parts(messages), batch_id)
        if committed.batch_id == batch_id:
            expected = committed.record_count_decided
            if committed.is_own:
                expected = max(expected, rows_of(messages))
            self._compare(committed, expected, messages)
        return committed

    def _compare(self, committed: CommittedBatch, expected: int, messages: Messages) -> None:
        if committed.record_count == expected:
            return
        writers = [m.job.batch.writer_id for m in messages if isinstance(m, RowsWritten)]
        # The driver does not know the topics that rows name.
        topic = f", topic {self._config.topic!r}," if self._config.topic is not None else ""
        text = (
            f"batch {committed.batch_id} of writer {writers[0]!r}{topic} shows "
            f"{committed.record_count} of its {counted(expected, 'message')}: the broker lost the "
            "missing ones after the commit; see the broker's log for the reason"
        )
        if self._fail_on_data_loss:
            raise CommitError(
                f"{text}. Set option failOnDataLoss to false to continue without them"
            )
        logger.warning("%s", text)

    def abort(self, job: BatchJob | None) -> None:
        """Removes staged blocks; if that fails, the broker removes them later."""
        if not self.commits or job is None:
            return
        try:
            self._transport.abort_batch(job)
        except RocketpyError as error:
            logger.warning("the staged blocks of the batch could not be removed: %s", error)


def _parts(messages: Messages) -> list[bytes]:
    return [message.part for message in messages if isinstance(message, RowsWritten)]


def rows_of(messages: Messages) -> int:
    """Returns the number of rows that the tasks have written."""
    return sum(message.rows for message in messages if isinstance(message, RowsWritten))


@called_by_spark
class RocketpyWriter(DataSourceArrowWriter):
    """A writer of a DataFrame, all of it or nothing."""

    def __init__(self, plan: SinkPlan) -> None:
        # Inside foreachBatch tasks know the streaming query's id, but one batch of it may have
        # several saves.
        self._name = BatchName(str(uuid.uuid4()), 0)
        options = plan.options
        self._is_named = options.txn_app_id is not None
        if options.txn_app_id is not None and options.txn_version is not None:
            self._name = BatchName(options.txn_app_id, options.txn_version)
        self._sink = _Sink(plan, is_single=not self._is_named)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Stores a task's rows. Raises the connector's errors; the task has then failed."""
        return self._sink.write(iterator, self._name)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes the rows visible, unless this txnVersion has been committed before.

        Raises CommitError for a version below the last one, and for lost messages; BrokerError,
        ConnectionFailedError.
        """
        if not self._sink.commits:
            return
        committed = self._sink.commit(messages, self._name.batch_id)
        writer_id, version = self._name.writer_id, self._name.batch_id
        if committed.batch_id > version:
            raise CommitError(
                f"txnVersion {version} of txnAppId {writer_id!r} is too low: version "
                f"{committed.batch_id} has been written already, so these {rows_of(messages)} "
                "rows were not; use a higher txnVersion for each save, or another txnAppId, as "
                "with a new checkpoint"
            )
        if not committed.is_own:
            written, rows = committed.record_count_decided, rows_of(messages)
            logger.warning(
                "txnVersion %d of txnAppId %r was written before, with %s: the %s not "
                "written. %s; another save of the same batch needs its own txnAppId, and so does a "
                "new checkpoint",
                version,
                writer_id,
                counted(written, "message"),
                counted(rows, "row of this save was", "rows of this save were"),
                "The batch is a different one"
                if written != rows
                else "The batch may have been saved again",
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 (PySpark's)
        """Removes staged blocks; rows that a commit has made visible stay."""
        self._sink.abort(self._sink.job_of(self._name))


@called_by_spark
class RocketpyStreamWriter(DataSourceStreamArrowWriter):
    """A writer of micro-batches."""

    def __init__(self, plan: SinkPlan) -> None:
        if plan.options.txn_app_id is not None:
            raise OptionError(
                "txnAppId and txnVersion are for batch writes, as in foreachBatch; a streaming "
                "query is identified by its checkpoint: leave them out"
            )
        self._sink = _Sink(plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Stores a task's rows. Raises the connector's errors; the task has then failed."""
        return self._sink.write(iterator, _micro_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Makes the micro-batch visible; a replayed one, committed before, stays unchanged.

        Raises CommitError for a batch before the last one, and for lost messages; BrokerError,
        ConnectionFailedError.
        """
        if not self._sink.commits:
            return
        committed = self._sink.commit(messages, batchId)
        if committed.batch_id > batchId:
            raise CommitError(
                f"this is batch {batchId} of the query, but batch {committed.batch_id} has been "
                "written already: the query's checkpoint is older than the topic, or another "
                "driver runs the query; stop the other driver, or start with a new checkpoint"
            )
        if not committed.is_own and committed.record_count_decided != rows_of(messages):
            logger.warning(
                "batch %d of the query was written before, with %s; now it has %s not "
                "written: the query's input or code has changed since",
                batchId,
                counted(committed.record_count_decided, "message"),
                counted(rows_of(messages), "row, which was", "rows, which were"),
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Removes staged blocks; rows that a commit has made visible stay.

        Only tasks know the query and its job, since Spark creates a new writer to abort. If no task
        has ended, the query's next job removes the blocks.
        """
        jobs = [message.job for message in messages if isinstance(message, RowsWritten)]
        self._sink.abort(next((job for job in jobs if job.batch.batch_id == batchId), None))


def _micro_batch() -> BatchName:
    """Returns the query and batch of the running task. Raises CommitError."""
    context = TaskContext.get()
    assert context is not None, "Spark calls write in tasks only"
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query_id is None or batch_id is None:
        raise CommitError(
            f"Spark gave the task no query and batch (local properties {QUERY_ID} and {BATCH_ID}); "
            "write with df.write in foreachBatch instead"
        )
    return BatchName(query_id, int(batch_id))
