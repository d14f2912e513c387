"""Common part of both readers: options, broker answers, tasks, reading.

A copy of the planner is sent to the executors. A crash loses no state. Source:
docs/design/spark_python_datasource.md sections 1 to 5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketpy.errors import RocketpyError
from pyspark_rocketpy.imports import importing_much
from pyspark_rocketpy.offsets import (
    Bounds,
    Epochs,
    Origin,
    Positions,
    joined,
)
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source import brokers
from pyspark_rocketpy.source.columns import BROKER_NAME, arrow_schema
from pyspark_rocketpy.source.plan import allocation, boundaries, losses, positions
from pyspark_rocketpy.source.plan.boundaries import Boundary
from pyspark_rocketpy.source.plan.reconcile import Checkpoint, Reconciled, reconcile
from pyspark_rocketpy.source.plan.task_plan import TaskPlan, TaskRules, plan_tasks, ranges_between
from pyspark_rocketpy.transport.values import PullOptions, Subscription

if TYPE_CHECKING:
    from pyspark_rocketpy.transport.interface import OffsetQueries, SourceTransport

logger = logging.getLogger(__name__)


class TaskPartition(InputPartition):
    """The partition of one task."""

    def __init__(
        self, plan: TaskPlan, store_id: str, recovery_id: str = "", broker_name: str = ""
    ) -> None:
        super().__init__(plan)
        self.plan = plan
        self.broker_name = broker_name
        self.store_id = store_id
        self.recovery_id = recovery_id


class Planner:
    """The common part of both readers: options, offset queries, and reading."""

    def __init__(
        self, options: SourceOptions, schema: StructType, transport: SourceTransport
    ) -> None:
        self._options = options
        self._schema = schema
        self._transport = transport
        self.tags = options.tags
        self._subscription = Subscription(
            options.topics, options.topic_pattern, options.consumer_group, options.retry_topic
        )
        self._queries: OffsetQueries | None = None
        self._is_cluster = options.cluster is not None
        self._outages = brokers.BrokerOutages(
            options.broker_unavailable_timeout_ms, is_fatal=options.fail_on_data_loss
        )

    @property
    def queries(self) -> OffsetQueries:
        """This process's queries; they are not pickled."""
        if self._queries is None:
            self._queries = self._transport.offset_queries()
        return self._queries

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_queries": None}

    def bounds(self) -> Bounds:
        """Returns the broker's bounds of the query's topics."""
        return self.queries.bounds(self._subscription)

    def existing(self) -> Bounds:
        """Returns the bounds of all existing queues; each named topic has to exist.

        Raises OptionError, and ConnectionFailedError or BrokerError for a broker that does not
        answer. A query that started without that broker's queues would miss messages, or read too
        many.
        """
        named = self._options.starting_offsets or ""
        wants_committed = named.lower() == boundaries.COMMITTED_NAME
        subscription = replace(self._subscription, wants_committed=wants_committed)
        bounds = self.queries.bounds(subscription)
        positions.require_topics(self._subscription, bounds)
        if self.queries.unanswered is not None:
            raise self.queries.unanswered
        return bounds

    def resolve(self, boundary: Boundary, bounds: Bounds) -> Positions:
        """Returns the positions that options name."""
        return boundaries.resolve(boundary, bounds, self.queries.search)

    def origin(self, epochs: Epochs) -> Origin:
        """Returns the origin of positions in topics with these epochs."""
        return Origin(self.queries.store_id, epochs, self.queries.recovery_id)

    def reconciled(
        self, checkpoint: Checkpoint, seen: Bounds | None = None, hold_ms: int = 0
    ) -> tuple[Reconciled, Bounds]:
        """Returns the checkpoint's reconciled positions, and the broker's answer.

        The broker may hold its answer up to `hold_ms`, until it differs from `seen`. Raises
        OffsetError for positions of other topics than the query's. Raises ConnectionFailedError,
        also for a broker that is absent for too long; OtherStoreError, BrokerError.
        """
        origin, queries = checkpoint.origin, self.queries
        queries.require_store(origin.store_id)
        positions.require_same_topics(
            self._subscription,
            checkpoint.listed,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        answer = queries.bounds(self._subscription, seen, hold_ms, origin.recovery_id)
        checkpoint = brokers.with_broker_names(checkpoint, answer)
        is_planned = checkpoint.begin is not None
        # All that was planned is read, also of topics that the query has left out since.
        reads = checkpoint.listed if is_planned else self._subscription.reads(checkpoint.positions)
        read = answer.keys() | reads
        bounds = self._outages.filled(answer, checkpoint, read) if self._is_cluster else answer
        # A recovery may have cut queues of any topic; the broker reports it only once.
        asks_all = is_planned or origin.recovery_id != queries.recovery_id
        asked = checkpoint.unlisted(bounds, checkpoint.positions if asks_all else bounds)
        hidden = queries.hidden_bounds(asked, origin.recovery_id) if asked else {}
        return reconcile(checkpoint, joined(hidden, bounds), read, seen), answer

    def plan(
        self, checkpoint: Checkpoint, keys: Iterable[Sequence[str]] = ()
    ) -> list[TaskPartition]:
        """Returns tasks for the messages of a planned batch.

        A message must have a key of each sequence in `keys`; the broker's index leaves out most of
        the rest. If a power cut took planned messages, the messages stored in their place are left
        out as well. Planned queues are read even if they are not listed now. Brokers of a cluster
        refuse hidden queues.
        """
        options = self._options
        found, answer = self.reconciled(checkpoint)
        losses.raise_or_log(found.lost, fail_on_data_loss=options.fail_on_data_loss)
        if self._is_cluster or options.fail_on_data_loss:
            losses.refuse(found.hidden)
        known = brokers.with_broker_names(checkpoint, answer).begin or {}
        self._check_allocation(found.end, known)
        ranges = ranges_between(found.begin, found.end)
        for wanted in keys:
            ranges = self.queries.find_keys(ranges, wanted)
        ranges = [replace(part, topic_epoch=found.epochs.get(part.topic, 0)) for part in ranges]
        answering = self.queries.store_id, self.queries.recovery_id, self._broker_name()
        rules = TaskRules.of(options)
        return [TaskPartition(task, *answering) for task in plan_tasks(ranges, rules)]

    def _check_allocation(self, end: Positions, known: Positions) -> None:
        options = self._options
        if options.allocation_config is not None:
            allocation.require_named(options.allocation_config, end, known)
        if options.machine_rooms is not None:
            for name in self._broker_names(end):
                allocation.require_room(options.machine_rooms, name)

    def _broker_name(self) -> str:
        """Returns the broker for column brokerName; "" without it, or if queues name brokers."""
        is_shown = BROKER_NAME in self._schema.names and not self._is_cluster
        return self.queries.broker_name() if is_shown else ""

    def _broker_names(self, positions: Positions) -> list[str]:
        """Returns the brokers of the queues; if queues name none, the answering broker."""
        names = {queue.broker_name for queues in positions.values() for queue in queues}
        return sorted(names - {""}) or [self.queries.broker_name()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Returns the messages of one task; Spark passes None for a batch without partitions."""
        if not isinstance(partition, TaskPartition):
            return iter(())
        # The decoder is slow to import, and only tasks need it.
        with importing_much():
            from pyspark_rocketpy.source.message_filter import MessageFilter
            from pyspark_rocketpy.source.range_reader import ReadConfig, read_ranges

        options = self._options
        wanted = MessageFilter(self.tags, options.keys, options.expression)
        pull = PullOptions(
            options.consumer_group,
            options.fetch_bytes_max,
            options.fail_on_data_loss,
            wanted.tags_codes,
            wanted.expression,
            partition.store_id,
            partition.recovery_id,
            () if wanted.expression is not None else wanted.tags or (),
        )
        config = ReadConfig(self._transport, pull, wanted, partition.broker_name)
        return read_ranges(config, partition.plan.ranges, arrow_schema(self._schema))

    def commit(self, positions: Positions, epochs: Epochs) -> bool:
        """Reports progress if possible; never raises, since the checkpoint has the positions."""
        try:
            self.queries.commit(self._options.consumer_group, positions, epochs)
        except RocketpyError as error:
            logger.warning("progress could not be reported: %s", error)
            return False
        return True
