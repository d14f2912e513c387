"""Writing of rows in a task: check, route, encode, accumulate, send.

A task ends only when all its blocks are acknowledged. Blocks that a killed task has sent stay at
the broker. If they are staged, they never become visible. Otherwise they are visible. If Spark runs
the task again, it sends them again; with effectively-once it sends only missing rows. If a row of
an Arrow batch cannot be sent, no row of that batch is sent.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_rocketpy.sink.block_accumulator import BlockAccumulator, packed
from pyspark_rocketpy.sink.blocks import BlockForm
from pyspark_rocketpy.sink.routes import KnownQueues, Spread, routes_of
from pyspark_rocketpy.sink.rows import Rows
from pyspark_rocketpy.transport.interface import BlockWriter, SinkTransport
from pyspark_rocketpy.transport.values import BrokerLimits
from pyspark_rocketpy.transport.write_values import Attempt, BatchJob, BatchName, Block

# Arrow batches are joined up to this size: each costs some milliseconds, however small.
LOT_BYTES = 3 << 20
# Records that wait for more records of their queue. A task uses up to 100 MiB of other memory.
WAITING_BYTES_MAX = 128 << 20


@dataclass(frozen=True, slots=True)
class WriteConfig:
    """Configuration of a task's writes, sent to executors as plain values; sizes in bytes.

    `columns` are the names of the rows' columns as the sink writes them. `job_token` is 0 for
    messages that are visible at once. `is_single`: see BatchJob.
    """

    transport: SinkTransport
    topic: str | None
    columns: tuple[str, ...]
    batch_bytes_max: int
    job_token: int = 0
    is_single: bool = False
    waiting_bytes_max: int = WAITING_BYTES_MAX
    lot_bytes: int = LOT_BYTES
    has_keys_of_rows: bool = False

    def job_of(self, name: BatchName) -> BatchJob:
        """Returns the job that writes this batch."""
        return BatchJob(name, self.job_token, self.is_single)


@dataclass
class RowsWritten(WriterCommitMessage):
    """The number of rows that a task of a job has stored, and its part of the batch's commit."""

    job: BatchJob
    rows: int
    part: bytes


def write_batches(
    config: WriteConfig, batches: Iterator[pa.RecordBatch], batch_name: BatchName, partition: int
) -> RowsWritten:
    """Sends every row and waits for every acknowledgement.

    Raises ColumnError, OversizeMessageError, CommitError, BrokerError, ConnectionFailedError.
    """
    job = config.job_of(batch_name)
    attempt = Attempt(job, partition, generate_token()) if job.token else None
    with contextlib.closing(config.transport.block_writer(attempt)) as writer:
        task = _Task(config, writer, batch_name, partition)
        for block in task.blocks(batches):
            writer.send(block)
        return RowsWritten(job, task.rows, writer.finish())


def generate_token() -> int:
    """Returns a token for one job or attempt; never 0, and never the same twice."""
    return secrets.randbelow((1 << 63) - 1) + 1


def lots(batches: Iterable[pa.RecordBatch], lot_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in non-empty batches of at least `lot_bytes`, but for the last one."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
        if waiting_bytes >= lot_bytes:
            lot, waiting, waiting_bytes = _joined(waiting), [], 0
            yield lot
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


class _Task:
    """The state of a task: its routes, its waiting blocks, its number of rows."""

    def __init__(
        self, config: WriteConfig, writer: BlockWriter, batch_name: BatchName, partition: int
    ) -> None:
        self._config = config
        self._batch_name = batch_name
        self._partition = partition
        self._queues = KnownQueues(writer)
        self._spread = Spread(batch_name, partition)
        self._accumulator = BlockAccumulator(config.waiting_bytes_max)
        self.rows = 0

    @cached_property
    def _limits(self) -> BrokerLimits:
        return self._config.transport.limits()

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Block]:
        """Yields all rows as blocks; errors in an Arrow batch are found before it is sent."""
        for lot in lots(batches, self._config.lot_bytes):
            gathered = self._accumulator.joined(self._parts(lot), self._form.block_bytes_max)
            yield from packed(gathered, self._form.block_bytes_max)
        if self.rows:
            yield from packed(self._accumulator.rest(), self._form.block_bytes_max)

    @cached_property
    def _form(self) -> BlockForm:
        config = self._config
        return BlockForm.within(
            self._limits,
            config.batch_bytes_max,
            self._batch_name,
            has_keys_of_rows=config.has_keys_of_rows,
        )

    def _parts(self, lot: pa.RecordBatch) -> Iterator[Block]:
        rows = Rows.of(lot, self._config.columns, self.rows, self._partition)
        self.rows += len(rows)
        rows.check_texts()
        rows.check_bodies(self._limits)
        routes = routes_of(rows, self._config.topic, self._queues, self._spread)
        return self._form.blocks(rows, routes)
