"""The source: a streaming reader and a batch reader.

The streaming reader plans in one long-lived process, and a copy of it reads in the executors; it
keeps nothing that a crash could lose, for Spark's checkpoint is the truth. What it reports to the
broker is for other tools to see. Source: spec/spark_python_datasource.md sections 1 to 5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_rocketpy import positions
from pyspark_rocketpy.client import Bounds, ClientConfig, client_for
from pyspark_rocketpy.columns import arrow_schema
from pyspark_rocketpy.errors import RocketpyError
from pyspark_rocketpy.message_filter import MessageFilter
from pyspark_rocketpy.offsets import (
    SEPARATOR,
    Offset,
    Positions,
    begin_of,
    first_offset,
    next_offset,
    positions_of,
)
from pyspark_rocketpy.options import SourceOptions
from pyspark_rocketpy.planning import TaskPlan, limit_positions, plan_tasks, ranges_between
from pyspark_rocketpy.pulling import PullConfig
from pyspark_rocketpy.reading import ReadConfig, read_ranges
from pyspark_rocketpy.retrying import RetryPolicy

logger = logging.getLogger(__name__)
PlannedPartition = InputPartition | None


class TaskPartition(InputPartition):
    """What one task reads."""

    def __init__(self, plan: TaskPlan) -> None:
        super().__init__(plan)
        self.plan = plan


class _Planner:
    """What both readers share: options, questions to the broker, and reading."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._client_config = ClientConfig(
            options.endpoints,
            options.connect_timeout_ms,
            options.pull_timeout_ms,
            options.prefetch_bytes_max,
        )
        self.wanted = MessageFilter(options.filter, options.keys)

    def bounds(self) -> Bounds:
        """What the broker has of our topics now."""
        client = client_for(self._client_config)
        return client.query_offsets(self._options.topics, self._options.consumer_group)

    def resolve(self, option: str, text: str) -> Positions:
        """The positions that an option names."""
        bounds = self.bounds()
        positions.require_topics(self._options.topics, bounds)
        return positions.resolve(option, text, bounds)

    def plan(self, begin: Positions, end: Positions) -> list[TaskPartition]:
        """Tasks for the messages between two positions."""
        checked = positions.checked_begin(
            begin, end, self.bounds(), fail_on_data_loss=self._options.fail_on_data_loss
        )
        tasks = plan_tasks(ranges_between(checked, end), self._options.min_partitions)
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: PlannedPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task; Spark gives None for a batch without partitions."""
        if not isinstance(partition, TaskPartition):
            return iter(())
        options = self._options
        pull = PullConfig(
            self._client_config,
            RetryPolicy(options.retry_times_max, options.retry_backoff_ms),
            options.consumer_group,
            options.fetch_bytes_max,
            options.fail_on_data_loss,
            self.wanted.tags_codes,
        )
        config = ReadConfig(pull, self.wanted)
        return read_ranges(config, partition.plan.ranges, arrow_schema(self._schema))

    def commit(self, reached: Positions) -> None:
        """Report progress, as well as possible: the checkpoint is the truth, so never raise."""
        try:
            client = client_for(self._client_config)
            client.commit_offsets(self._options.consumer_group, reached)
        except RocketpyError as error:
            logger.warning("progress could not be reported: %s", error)


class RocketpyBatchReader(DataSourceReader):
    """Reads once from startingOffsets to endingOffsets. Rows K05."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._planner = _Planner(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Raises OffsetError, OptionError, DataLossError, ConnectionFailedError."""
        starting = self._options.starting_offsets or positions.EARLIEST_NAME
        begin = self._planner.resolve("startingOffsets", starting)
        end = self._planner.resolve("endingOffsets", self._options.ending_offsets)
        return self._planner.plan(begin, end)

    def read(self, partition: PlannedPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._planner.read(partition)


class RocketpyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads for as long as the query runs. Rows K01, K04, K05."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._planner = _Planner(options, schema)
        self._first: Offset | None = None
        self._available_now_end: Positions | None = None
        self._reported: Positions = {}
        self._latest: Positions = {}
        self._planned: Positions = {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger, if it is set."""
        count_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if count_max is None else ReadMaxRows(count_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Pin the end: what arrives from now on is for the next run."""
        bounds = self._planner.bounds()
        positions.require_topics(self._options.topics, bounds)
        self._available_now_end = positions.resolve("", positions.LATEST_NAME, bounds)

    def initialOffset(self) -> Offset:
        """The query's first position. Asked twice, and answered alike within one run."""
        if self._first is None:
            starting = self._options.starting_offsets or positions.LATEST_NAME
            first = self._planner.resolve("startingOffsets", starting)
            self._first = first_offset(first, self._options.consumer_group)
        return self._first

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch goes; `start` itself when there is nothing to read.

        Spark has committed everything before `start`, so that is what the broker is told: a
        query that is idle or done then has no lag.
        """
        begin = positions_of(start)
        bounds = self._planner.bounds()
        if not start.get("first"):
            self._report(begin)
        self._latest = positions.latest_positions(
            begin, bounds, fail_on_data_loss=self._options.fail_on_data_loss
        )
        end = self._latest
        if self._available_now_end is not None:
            end = positions.pinned(self._available_now_end, begin, self._latest)
        if isinstance(limit, ReadMaxRows):
            end = limit_positions(positions.completed(begin, end, bounds), end, limit.max_rows)
        self._planned = end
        if end == begin:
            return start
        return next_offset(end, start, self._options.consumer_group)

    def reportLatestOffset(self) -> Offset:
        """The ends of the queues, and how far behind them the next batch leaves the query."""
        lag = {
            topic: {
                str(queue_id): offset - self._planned.get(topic, {}).get(queue_id, 0)
                for queue_id, offset in sorted(queues.items())
            }
            for topic, queues in sorted(self._latest.items())
        }
        group = self._options.consumer_group
        table = {
            topic + SEPARATOR + group: {str(i): offset for i, offset in sorted(queues.items())}
            for topic, queues in sorted(self._latest.items())
        }
        return {"offsetTable": table, "lag": lag}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Tasks of one micro-batch. Raises DataLossError, ConnectionFailedError."""
        return self._planner.plan(begin_of(start, end), positions_of(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._planner.read(partition)

    def commit(self, end: Offset) -> None:
        """Report a batch that Spark has committed; the last one is reported by latestOffset."""
        self._report(positions_of(end))

    def _report(self, reached: Positions) -> None:
        if self._options.commit_offsets and reached != self._reported:
            self._planner.commit(reached)
            self._reported = reached

    def __getstate__(self) -> dict[str, Any]:
        """Executors need no planning results, only what `read` takes."""
        return {**self.__dict__, "_first": None, "_latest": {}, "_planned": {}, "_reported": {}}
