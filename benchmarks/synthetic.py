"""A Python data source and sink that do nothing of their own: what Spark itself costs.

The source yields Arrow batches that lie ready in a memory-mapped file; the sink drops what it
gets. Both are registered under `synthetic`. Hold no state beyond the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType


class SyntheticReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`tasks` partitions, each of which yields every batch of the file `repeats` times."""

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
    """Drops every batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class SyntheticSource(DataSource):
    """Options `path`, `tasks`, `repeats`; the schema is the user's."""

    @classmethod
    def name(cls) -> str:
        return "synthetic"

    def streamReader(self, schema: StructType) -> SyntheticReader:
        options = self.options
        return SyntheticReader(options["path"], int(options["tasks"]), int(options["repeats"]))

    def writer(self, schema: StructType, overwrite: bool) -> SyntheticWriter:
        return SyntheticWriter()


def write_batches(path: Path, batch: pa.RecordBatch) -> None:
    """Put a batch where the source finds it."""
    with pa.ipc.new_file(path, batch.schema) as file:
        file.write_batch(batch)
