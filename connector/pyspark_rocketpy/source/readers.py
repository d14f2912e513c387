"""Streaming reader and batch reader.

The streaming reader plans in one long-lived process, and a copy of it reads in the executors. A
crash loses no state, since Spark's checkpoint has the positions. The reader reports progress to the
broker only for other tools. Source: docs/design/spark_python_datasource.md sections 1 to 5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.offsets import (
    Bounds,
    BrokerQueue,
    Epochs,
    Offset,
    Origin,
    Positions,
    by_broker,
    epochs_in,
    first_offset,
    is_first_offset,
    joined,
    next_offset,
    positions_of,
)
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.plan import boundaries, losses, positions
from pyspark_rocketpy.source.plan.admission import AdmissionControl
from pyspark_rocketpy.source.plan.planner import Planner
from pyspark_rocketpy.source.plan.reconcile import Checkpoint, Reconciled
from pyspark_rocketpy.spark_calls import called_by_spark

if TYPE_CHECKING:
    from pyspark_rocketpy.transport.interface import SourceTransport

logger = logging.getLogger(__name__)
PlannedPartition = InputPartition | None
# The connector applies its own limits, whatever Spark's limit is. Trigger.Once does not pass this
# one.
_OWN_LIMITS = ReadMaxRows((1 << 63) - 1)


@called_by_spark
class RocketpyBatchReader(DataSourceReader):
    """A reader of one batch from startingOffsets to endingOffsets."""

    def __init__(
        self, options: SourceOptions, schema: StructType, transport: SourceTransport
    ) -> None:
        # Only batches take filters.
        from pyspark_rocketpy.source.pushdown import PushedFilters

        self._options = options
        self._planner = Planner(options, schema, transport)
        self._pushed = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the tasks of the batch.

        Raises OffsetError, OptionError, DataLossError, ConnectionFailedError.
        """
        starting = boundaries.starting(self._options, boundaries.EARLIEST_NAME)
        ending = boundaries.ending(self._options)
        bounds = self._planner.existing()
        if not bounds:
            raise OptionError(
                f"option topicPattern is {self._options.topic_pattern!r}, which no topic matches; "
                "correct it, or create a topic first"
            )
        begin = self._planner.resolve(starting, bounds)
        end = boundaries.reaching(self._planner.resolve(ending, bounds), begin, bounds)
        boundaries.require_order(starting, begin, ending, end)
        begin, end = self._pushed.applied(begin, end, bounds, self._planner.queries.search)
        keys: list[Sequence[str]] = [(key,) for key in sorted(self._pushed.keys)]
        if self._options.keys is not None:
            keys.append(self._options.keys)
        origin = self._planner.origin(epochs_in(bounds))
        return self._planner.plan(Checkpoint(end, origin=origin, begin=begin), keys)

    def read(self, partition: PlannedPartition) -> Iterator[pa.RecordBatch]:
        """Returns the rows of one task."""
        return self._planner.read(partition)


@called_by_spark
class RocketpyPushDownReader(RocketpyBatchReader):
    """A batch reader with Spark's filters.

    It is a class of its own, since Spark refuses `pushFilters` while Spark's switch is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Uses filters that narrow the batch; returns all for Spark to evaluate."""
        self._pushed = self._pushed.of(filters)
        self._planner.tags = self._pushed.tags_of(self._options.tags)
        return filters


@called_by_spark
class RocketpyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader for as long as the query runs."""

    def __init__(
        self, options: SourceOptions, schema: StructType, transport: SourceTransport
    ) -> None:
        self._options = options
        self._planner = Planner(options, schema, transport)
        self._admission = AdmissionControl(options)
        self._first: Offset | None = None
        self._pinned_end: Positions | None = None
        # The broker's last answer, and whether it gave no reason for a batch.
        self._seen: Bounds | None = None
        self._idle = False
        self._reported: Positions = {}
        self._planned: Positions = {}
        # A start that no recovery up to this one has cut.
        self._uncut: tuple[Offset | None, str] = (None, "")
        # Queues with messages out of reach that a warning has named.
        self._hidden: set[tuple[str, BrokerQueue]] = set()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns a limit that marks all triggers but Trigger.Once, which has no limits."""
        return _OWN_LIMITS

    def prepareForTriggerAvailableNow(self) -> None:
        """Pins the end: later messages are for the next run."""
        self._pinned_end = positions.latest_positions(self._planner.bounds())

    def initialOffset(self) -> Offset:
        """Returns the query's first position; a repeated call within one run returns the same."""
        if self._first is None:
            starting = boundaries.starting(self._options, boundaries.LATEST_NAME)
            bounds = self._planner.existing()
            first = self._planner.resolve(starting, bounds)
            origin = self._planner.origin(epochs_in(bounds))
            self._first = first_offset(first, self._options.consumer_group, origin)
        return self._first

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Returns the end of the next batch; `start` itself if there is nothing to read.

        Spark has committed everything before `start`, so `start` is reported to the broker as
        progress. An idle or finished query then has no lag. While a query has nothing to read, the
        broker holds its request until something changes.
        """
        checkpoint = self._checkpoint_of(start)
        runs_on = limit == _OWN_LIMITS and self._pinned_end is None
        hold_ms = self._admission.hold_ms() if runs_on and self._idle else 0
        found, answer = self._planner.reconciled(checkpoint, self._seen, hold_ms)
        self._report_losses(found)
        if not is_first_offset(start):
            # After a cut, so that the group's progress excludes messages that are not read yet.
            self._report(found.positions, found.epochs)
        if not found.is_cut:
            self._uncut = start, self._planner.queries.recovery_id
        self._seen, self._planned = answer, found.begin
        can_wait = runs_on and not found.lost
        if can_wait and self._admission.put_off(found.begin, found.end):
            self._idle = True
            return start
        end = self._end_of(found, limited=limit == _OWN_LIMITS)
        new = found.new_in(end)
        is_same = joined(end, found.kept) == checkpoint.positions
        # A position may have the same number in a recreated topic.
        self._idle = is_same and not found.lost and not new
        if self._idle:
            return start
        self._planned = end
        self._admission.admitted()
        origin = self._planner.origin(found.epochs)
        group = self._options.consumer_group
        return next_offset(end, start, group, new, origin, found.kept)

    def _report_losses(self, found: Reconciled) -> None:
        """Raises DataLossError, or logs lost messages; logs messages out of reach once."""
        known, self._hidden = self._hidden, {(loss.topic, loss.queue) for loss in found.hidden}
        fails = self._options.fail_on_data_loss
        news = [loss for loss in found.hidden if fails or (loss.topic, loss.queue) not in known]
        losses.raise_or_log([*found.lost, *news], fail_on_data_loss=fails)

    def _checkpoint_of(self, start: Offset) -> Checkpoint:
        """Returns the checkpoint, with the newest recovery that is known not to have cut it."""
        checkpoint, (uncut, recovery_id) = Checkpoint.of(start), self._uncut
        if start != uncut:
            return checkpoint
        return replace(checkpoint, origin=replace(checkpoint.origin, recovery_id=recovery_id))

    def _end_of(self, found: Reconciled, *, limited: bool) -> Positions:
        """Returns the end of the next batch."""
        begin, end = found.begin, found.end
        if self._pinned_end is not None:
            end = positions.pinned_end(self._pinned_end, found.positions, begin, end)
        if not limited:
            return end
        return self._admission.limited(begin, end, self._planner.queries.limit_bytes)

    def reportLatestOffset(self) -> Offset:
        """Returns the ends of the queues, and the query's lag after the next batch."""
        seen, group = self._seen or {}, self._options.consumer_group
        latest = first_offset(positions.latest_positions(seen), group)
        lag = {
            topic: by_broker(
                {
                    queue: there.max_offset
                    - self._planned.get(topic, {}).get(queue, there.min_offset)
                    for queue, there in queues.items()
                }
            )
            for topic, queues in sorted(seen.items())
        }
        return {"offsetTable": latest["offsetTable"], "lag": lag}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Returns the tasks of one micro-batch.

        Raises OffsetError, DataLossError, OtherStoreError, ConnectionFailedError.
        """
        return self._planner.plan(Checkpoint.of_batch(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Returns the rows of one task."""
        return self._planner.read(partition)

    def commit(self, end: Offset) -> None:
        """Reports a batch that Spark has committed; latestOffset reports the last one."""
        self._report(positions_of(end), Origin.of(end).epochs)

    def _report(self, committed: Positions, epochs: Epochs) -> None:
        due = self._options.commit_offsets and committed != self._reported
        if due and self._planner.commit(committed, epochs):
            self._reported = committed

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state that `read` needs, without planning results."""
        planning: dict[str, Any] = {"_first": None, "_seen": None, "_planned": {}, "_reported": {}}
        return {**self.__dict__, **planning, "_uncut": (None, ""), "_hidden": set()}
