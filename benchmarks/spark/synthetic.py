"""A Python data source and sink without work of their own: the cost of Spark itself.

The source yields Arrow batches from a memory-mapped file; the sink drops its rows. Both are
registered under `synthetic`. State lasts for a query at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType


class SyntheticReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader with `tasks` partitions; each yields every batch of the file `repeats` times."""

    def __init__(self, path: str, tasks: int, repeats: int) -> None:
        self.path, self.tasks, self.repeats = path, tasks, repeats

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        return

    def initialOffset(self) -> dict[str, int]:
        return {"end": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"end": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in range(self.tasks)] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self.path) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
            for _ in range(self.repeats):
                yield batch


class SyntheticWriter(DataSourceArrowWriter):
    """A writer that drops every batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class OneByOneReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of one row a micro-batch, `count` in all: a batch of no work."""

    def __init__(self, count: int) -> None:
        self.count = count

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(1)

    def prepareForTriggerAvailableNow(self) -> None:
        return

    def initialOffset(self) -> dict[str, int]:
        return {"end": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"end": min(start["end"] + 1, self.count)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["end"], end["end"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"body": pa.array([b"message"], pa.binary())})


class SyntheticStreamWriter(DataSourceStreamArrowWriter):
    """A streaming writer that drops every batch of every micro-batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        return

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        return


class SyntheticSource(DataSource):
    """A source with options `path`, `tasks`, `repeats`, or `oneByOne`; the schema is the user's."""

    @classmethod
    def name(cls) -> str:
        return "synthetic"

    def streamReader(self, schema: StructType) -> SyntheticReader | OneByOneReader:
        options = self.options
        if "oneByOne" in options:
            return OneByOneReader(int(options["oneByOne"]))
        return SyntheticReader(options["path"], int(options["tasks"]), int(options["repeats"]))

    def writer(self, schema: StructType, overwrite: bool) -> SyntheticWriter:
        return SyntheticWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> SyntheticStreamWriter:
        return SyntheticStreamWriter()


def write_batches(path: Path, batch: pa.RecordBatch) -> None:
    """Writes a batch to the file that the source reads."""
    with pa.ipc.new_file(path, batch.schema) as file:
        file.write_batch(batch)
