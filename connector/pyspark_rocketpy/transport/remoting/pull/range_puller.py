"""Pulls of one range of a cluster's queue, many at once.

State is the next offset to deliver. An answer of RocketMQ's brokers has at most 32 messages or 256
KiB, of ours 512 KiB on request. So the next offsets are predicted (`pipeline`) and pulled ahead, as
far as `congestion_window` allows. Answers that are there together are checked together and joined
to one chunk. The planner has seen every offset of the range: an offset that the master lacks is a
loss.

The master is asked first. A slave of the route is asked if the master is away or does not answer.
The master's turn comes again after the slaves. A slave that lacks an offset may lag, and is waited
for. After a retriable error the pull is repeated, for up to `brokerUnavailableTimeout`. A killed
task leaves no state.

Source: docs/design/remoting.md sections 2.5 and 6.7, docs/design/cluster.md sections 2.2 to 2.5.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import (
    OUT_OF_REACH,
    BrokerBusyError,
    BrokerError,
    ConnectionFailedError,
    DataLossError,
)
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.rebatching import RecordChunk, lost_end
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.congestion_window import PullWindow
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import (
    PULLED_MESSAGES_MAX,
    Pull,
    PullResult,
    PullStatus,
    pull_all,
)
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.net.responses import (
    is_hidden_queue,
    is_retriable,
    with_advice,
)
from pyspark_rocketpy.transport.remoting.pull.pipeline import (
    FILTERED_PIPELINE_COUNT,
    NOTHING,
    Answer,
    Asked,
    PullPipeline,
)
from pyspark_rocketpy.transport.remoting.pull.response_assembler import ResponseAssembler
from pyspark_rocketpy.transport.retries import Outage
from pyspark_rocketpy.transport.values import PullOptions
from rocketpy_proto.model import EVERYTHING, OR, SQL92, TAG
from rocketpy_proto.remoting import MessageQueue
from rocketpy_proto.remoting.headers.pulls import MASTER_ID

logger = logging.getLogger(__name__)
# More than brokers give: the first answer shows the limit of this one.
_FIRST_COUNT = 1_024
# The wanted size of an answer of rocketpy's broker.
_ANSWER_BYTES = 512 << 10
# The log files with these messages are gone, though the queue still has them.
_BEING_REMOVED = "MESSAGE_WAS_REMOVING"


@dataclass(frozen=True, slots=True)
class PullLimits:
    """Limits of pulls under way, and timeouts for the broker."""

    pulls_max: int
    bytes_max: int
    timeouts: Timeouts
    outage_ms_max: int
    backoff_ms: int


class RangePuller:
    """The pull of one range."""

    def __init__(
        self, cluster: Cluster, limits: PullLimits, options: PullOptions, part: QueueRange
    ) -> None:
        self._cluster = cluster
        self._limits = limits
        self._options = options
        self._range = part
        self._queue = MessageQueue(part.broker_name, part.queue_id, part.topic)
        self._type, self._expression = _expression_of(options)
        self._is_filtered = self._expression != EVERYTHING
        self._assembler = ResponseAssembler(
            part,
            is_filtered=self._is_filtered,
            fails_on_loss=options.fail_on_data_loss,
        )
        self._pipelines: deque[PullPipeline] = deque()
        # Start of the next pipeline; the first one finds out the length of pipelines.
        self._pipelines_end = part.begin
        self._is_first = True
        self._window = PullWindow(limits.pulls_max, bytes_max=limits.bytes_max)
        self._outage = Outage(limits.outage_ms_max, limits.backoff_ms, self._place)
        # Index of the next broker id among the route's, master first.
        self._turn = 0
        self._broker_id = MASTER_ID

    def chunks(self) -> Generator[RecordChunk]:
        """Yields the range's records as they come.

        Raises DataLossError, ConnectionFailedError, BrokerError.
        """
        try:
            while self._assembler.offset < self._range.end:
                try:
                    self._ask()
                    answers = self._next_answers()
                except (ConnectionFailedError, BrokerError) as error:
                    self._handle_failure(error)
                    continue
                self._outage.succeeded()
                self._ask_ahead()
                yield from self._assembler.chunks(answers)
        finally:
            self._drop_pipelines()

    # Asking.

    def _ask(self) -> None:
        """Sends as many pulls as may be under way. Raises ConnectionFailedError, BrokerError."""
        pulls_max = 1 if self._is_first else self._window.pulls
        idle = [
            pipeline
            for pipeline in itertools.islice(self._pipelines, pulls_max)
            if pipeline.asked is None and not pipeline.is_done and self._has_space(pipeline)
        ]
        while len(self._pipelines) < pulls_max and self._pipelines_end < self._range.end:
            pipeline = self._new_pipeline()
            if not self._has_space(pipeline):
                break
            self._pipelines.append(pipeline)
            self._pipelines_end = pipeline.end
            idle.append(pipeline)
        if idle:
            self._ask_for(idle)

    def _ask_ahead(self) -> None:
        """Sends pulls before the delivered answers are decoded.

        A failure is handled when the answer is needed.
        """
        if self._assembler.offset < self._range.end:
            try:
                self._ask()
            except (ConnectionFailedError, BrokerError) as error:
                logger.debug("a pull ahead failed: %s", error)

    def _new_pipeline(self) -> PullPipeline:
        begin = self._pipelines_end
        if self._is_filtered:
            count = FILTERED_PIPELINE_COUNT
        elif self._is_first:
            count = _FIRST_COUNT
        else:
            count = self._window.count
        return PullPipeline(begin, min(begin + count, self._range.end))

    def _has_space(self, pipeline: PullPipeline) -> bool:
        """True if more bytes may be kept for a pipeline; always for the head."""
        if not self._is_filtered or not self._pipelines or pipeline is self._pipelines[0]:
            return True
        kept = sum(len(answer.records) for other in self._pipelines for answer in other.answers)
        return kept < self._limits.bytes_max

    def _ask_for(self, pipelines: list[PullPipeline]) -> None:
        broker_id = self._broker_id = self._next_broker_id()
        wanted = [self._pull_for(pipeline, broker_id) for pipeline in pipelines]
        since_ms = clock.monotonic_ms()
        calls = pull_all(self._cluster, wanted, self._limits.timeouts)
        for pipeline, call in zip(pipelines, calls, strict=True):
            pipeline.asked = Asked(call, since_ms, broker_id)

    def _pull_for(self, pipeline: PullPipeline, broker_id: int) -> Pull:
        count = pipeline.end - pipeline.position
        return Pull(
            self._options.consumer_group,
            self._queue,
            pipeline.position,
            min(count, PULLED_MESSAGES_MAX) if self._is_filtered else count,
            self._expression,
            self._type,
            broker_id=broker_id,
            bytes_max=None if self._is_filtered else _ANSWER_BYTES,
        )

    def _next_broker_id(self) -> int:
        """Returns the master, or after failures the next broker id of the route.

        Raises ConnectionFailedError, BrokerError.
        """
        ids = self._cluster.route(self._range.topic).broker_ids(self._range.broker_name)
        return ids[self._turn % len(ids)] if ids else MASTER_ID

    # Answers.

    def _next_answers(self) -> list[Answer]:
        """Returns the next answers, at least one. Raises ConnectionFailedError, BrokerError."""
        head = self._pipelines[0]
        if not head.answers:
            self._wait_for(head)
        for pipeline in list(self._pipelines):
            while pipeline.is_answered:
                self._process(pipeline)
            if not (self._is_filtered or pipeline.is_done):
                break
        found: list[Answer] = []
        size = 0
        while self._pipelines and size < self._options.fetch_bytes_max:
            answers = self._pipelines[0].delivered()
            size += sum(len(answer.records) for answer in answers)
            found += answers
            if not self._pipelines[0].is_done:
                break
            self._pipelines.popleft()
        return found

    def _wait_for(self, head: PullPipeline) -> None:
        """Waits for an answer for the head, which is delivered next."""
        asked = head.asked
        assert asked is not None, "the first pipeline is always asked for"
        was_there = asked.call.is_answered
        result = asked.call.answer()
        waited_ms = None if was_there else clock.monotonic_ms() - asked.since_ms
        self._window.answered(len(result.records), waited_ms)
        if self._brings_more(head, result):
            self._take(head, result)
        else:
            self._handle_unexpected(head, asked, result)

    def _process(self, pipeline: PullPipeline) -> None:
        """Processes an answer that is there.

        An answer without progress is left until the pipeline is the head.
        """
        assert pipeline.asked is not None
        try:
            result = pipeline.asked.call.answer()
        except (ConnectionFailedError, BrokerError):
            pipeline.is_stuck = True
            return
        if self._brings_more(pipeline, result):
            self._window.answered(len(result.records), None)
            self._take(pipeline, result)
        else:
            pipeline.is_stuck = True

    def _brings_more(self, pipeline: PullPipeline, result: PullResult) -> bool:
        if result.status is PullStatus.FOUND:
            return True
        return (
            self._is_filtered
            and result.status is PullStatus.NO_MATCHED_MESSAGE
            and result.remark != _BEING_REMOVED
            and result.next_begin_offset > pipeline.position
        )

    def _take(self, pipeline: PullPipeline, result: PullResult) -> None:
        end = min(result.next_begin_offset, pipeline.end)
        if not self._is_filtered:
            count = end - pipeline.position
            if self._is_first and pipeline.end < self._range.end:
                self._window.first(count)
            elif end < pipeline.end:
                self._window.short(count)
            else:
                self._window.full()
            if self._is_first:
                pipeline.end = self._pipelines_end = end
        self._is_first = False
        is_found = result.status is PullStatus.FOUND
        pipeline.take(end, result.records if is_found else NOTHING)

    def _handle_unexpected(self, head: PullPipeline, asked: Asked, result: PullResult) -> None:
        """Handles an answer without the expected messages.

        Raises ConnectionFailedError if a later answer may differ.
        """
        offset, end = head.position, self._range.end
        has = f"the queue now holds [{result.min_offset}, {result.max_offset})"
        if asked.broker_id != MASTER_ID:
            raise asked.call.peer.failed(
                f"is a slave, and does not have offset {offset} of {self._range.rest(offset)}: "
                f"there {has}"
            )
        lost = lost_end(
            offset,
            end,
            next_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            # For example after an operator has reset the group's offsets, which do not matter here.
            is_moved=result.status is PullStatus.OFFSET_ILLEGAL,
        )
        if lost is None:
            raise asked.call.peer.failed(
                f"answers a pull from offset {offset} with {result.status.name}, though {has}"
            )
        self._lose(offset, lost, f"{has} ({result.remark or result.status.name})")

    def _lose(self, offset: int, end: int, reason: str) -> None:
        """Marks the offsets [offset, end) as lost."""
        self._drop_pipelines()
        pipeline = PullPipeline(offset, end)
        pipeline.take(end, NOTHING, reason)
        self._pipelines.append(pipeline)
        self._pipelines_end = end
        self._is_first = False

    # Failures.

    def _handle_failure(self, error: ConnectionFailedError | BrokerError) -> None:
        """Waits, and prepares the next try. Raises the error if no retry helps."""
        head = self._pipelines[0] if self._pipelines else None
        if is_hidden_queue(error):
            raise DataLossError(f"{self._place()} are {OUT_OF_REACH} ({error})") from error
        if not is_retriable(error, is_slave=self._broker_id != MASTER_ID):
            raise with_advice(error, is_sql=self._options.expression is not None) from error
        if isinstance(error, BrokerBusyError) and self._broker_id == MASTER_ID:
            self._window.halve()
        else:
            self._turn += 1
        for pipeline in self._pipelines:
            if pipeline.is_stuck or pipeline is head or isinstance(error, ConnectionFailedError):
                pipeline.stop()
        self._outage.pause(error)

    def _place(self) -> str:
        return self._range.rest(self._assembler.offset)

    def _drop_pipelines(self) -> None:
        for pipeline in self._pipelines:
            pipeline.stop()
        self._pipelines.clear()


def _expression_of(options: PullOptions) -> tuple[str, str]:
    """Returns the type of the subscription's expression, tags or SQL92, and its text.

    An expression of tags has no quotes. If it cannot name a tag, the pull requests all messages:
    the task compares tags anyway.
    """
    if options.expression is not None:
        return SQL92, options.expression
    if not options.tags or not all(map(_can_be_named, options.tags)):
        return TAG, EVERYTHING
    return TAG, f" {OR} ".join(options.tags)


def _can_be_named(tag: str) -> bool:
    return bool(tag) and tag == tag.strip() and OR not in tag and tag != EVERYTHING
