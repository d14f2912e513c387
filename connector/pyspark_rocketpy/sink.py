"""The sink: a batch writer and a streaming writer, both at-least-once.

A task's rows are stored when the task ends; `commit` and `abort` have nothing left to do, since
nothing can be taken back. A batch that Spark runs again is written again.
Source: spec/spark_python_datasource.md section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_rocketpy.client import ClientConfig
from pyspark_rocketpy.options import SinkOptions
from pyspark_rocketpy.sink_columns import SinkColumns
from pyspark_rocketpy.writing import WriteConfig, write_batches


@dataclass
class RowsWritten(WriterCommitMessage):
    """How many rows a task has stored."""

    rows: int


class _TaskWriter:
    """What a task of either writer does."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        client = ClientConfig(options.endpoints, options.connect_timeout_ms)
        self._config = WriteConfig(client, options.topic, options.batch_bytes_max)
        self._columns = columns

    def write(self, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        return RowsWritten(write_batches(self._config, batches, task))


class RocketpyWriter(DataSourceArrowWriter):
    """Writes a frame once."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._task = _TaskWriter(options, columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Store a task's rows. Raises the connector's errors; the task has then failed."""
        return self._task.write(iterator)


class RocketpyStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._task = _TaskWriter(options, columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Store a task's rows. Raises the connector's errors; the task has then failed."""
        return self._task.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: each task has had its rows acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: what is stored stays, as at-least-once allows."""
