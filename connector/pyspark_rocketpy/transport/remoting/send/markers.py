"""Markers in the control topic: queue ends before a task sends.

    control topic, queue 0   marker | marker | marker ...   tag: the task; body: topic, offsets

A marker holds the ends of a topic's queues at the start of an attempt. All messages stored by that
attempt come after them. The order in the one queue is the order of the attempts. The driver commits
the offset of the batch's first marker at each commit, as a consumer offset (the note). Spark runs a
committed batch again if the driver ends before Spark's own commit. A broker saves consumer offsets
every 5 s. A lost note makes the search longer, but not wrong. Nothing else is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.rebatching import accounted, checked_records
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import (
    Pull,
    consumer_offset,
    max_offset,
    min_offset,
    pull,
    update_consumer_offset,
)
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.pull.range_puller import PullLimits, RangePuller
from pyspark_rocketpy.transport.remoting.send.requests import SendBatch, send
from pyspark_rocketpy.transport.retries import retried
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy
from rocketpy_proto.record import Record, RecordBlock, decode_record
from rocketpy_proto.record.properties import TAGS, encode_properties
from rocketpy_proto.remoting import MessageQueue, ResponseCode
from rocketpy_proto.remoting.json_text import DECLARED_BY_PARSERS
from rocketpy_proto.struct_types import prepared

logger = logging.getLogger(__name__)
FETCH_BYTES_MAX = 4 << 20


class Marker(msgspec.Struct, frozen=True):
    """Ends of the queues of a topic, by broker and queue id."""

    topic: str
    offsets: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class FoundMarker:
    """A marker and its offset in the control queue."""

    offset: int
    marker: Marker


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """A cluster, with retry policy, timeouts and pull limits."""

    cluster: Cluster
    policy: RetryPolicy
    timeouts: Timeouts
    limits: PullLimits

    def records(
        self, part: QueueRange, group: str, tag: str | None = None
    ) -> Iterator[RecordBlock]:
        """Yields the records of a range, or of the part that may have the tag.

        Raises DataLossError, OffsetError, ConnectionFailedError, BrokerError.
        """
        options = PullOptions(
            group,
            FETCH_BYTES_MAX,
            fail_on_data_loss=True,
            tags=() if tag is None else (tag,),
        )
        is_filtered = tag is not None
        pulled = RangePuller(self.cluster, self.limits, options, part).chunks()
        for chunk in accounted(pulled, part, is_filtered=is_filtered):
            if len(chunk.sizes):
                yield checked_records(chunk, part, chunk.begin, is_filtered=is_filtered)


class ControlQueue:
    """Queue 0 of the control topic, which one broker has."""

    def __init__(self, reach: ClusterAccess, topic: str, writer: str) -> None:
        """Sets the queue; `writer` is the notes' owner, in a form for group names."""
        self._reach = reach
        self._topic = topic
        self._group = f"rocketpy-{writer}"

    def queue(self) -> MessageQueue:
        """Returns the queue. Raises TopicNotExistError, ConnectionFailedError, BrokerError."""
        names = [*self._reach.cluster.route(self._topic).read_queue_nums()]
        if len(names) != 1:
            raise BrokerError(
                f"option controlTopic is {self._topic!r}, which is at {len(names)} brokers "
                f"({', '.join(names)}), but must be at one; a task must find the markers of "
                "earlier tasks: create the topic at one broker only"
            )
        return MessageQueue(names[0], 0, self._topic)

    def end(self) -> int:
        """Returns the offset of the next marker. Raises ConnectionFailedError, BrokerError."""
        cluster = self._reach.cluster
        return retried(self._reach.policy, lambda: max_offset(cluster, self.queue()).answer())

    def floor(self, own: int) -> int:
        """Returns the least offset that a marker of the writer's present batch can have.

        `own` is the offset of a marker that was stored just now. A note beyond it is of a deleted
        control topic, and is ignored.
        """

        def ask() -> int:
            cluster, queue = self._reach.cluster, self.queue()
            noted = consumer_offset(cluster, self._group, queue).answer()
            if noted is None or noted > own:
                noted = 0
            return max(noted, min_offset(cluster, queue).answer())

        return retried(self._reach.policy, ask)

    def leave(self, tag: str, marker: Marker) -> int:
        """Stores a marker; returns its offset."""
        properties = encode_properties({TAGS: tag}).decode()
        message = SendBatch(msgspec.json.encode(marker), 1, properties)
        cluster, timeouts = self._reach.cluster, self._reach.timeouts
        sent = retried(
            self._reach.policy,
            lambda: send(cluster, self.queue(), message, timeouts).answer(),
        )
        return sent.queue_offset

    def earlier(self, tag: str, begin: int, end: int) -> Iterator[FoundMarker]:
        """Yields the markers with a tag in a range."""
        queue = self.queue()
        part = QueueRange(self._topic, 0, begin, end, broker_name=queue.broker_name)
        for block in self._reach.records(part, self._group, tag):
            for position in block.positions.tolist():
                record = decode_record(bytes(block.data), position).record
                if record.properties.get(TAGS) == tag:
                    yield FoundMarker(record.queue_offset, self._marker(record))

    def _marker(self, record: Record) -> Marker:
        """Returns the marker in a record. Raises BrokerError."""
        try:
            return msgspec.json.decode(record.body, type=prepared(Marker))
        except DECLARED_BY_PARSERS as error:
            raise BrokerError(
                f"control topic {self._topic} holds no marker at offset {record.queue_offset}: "
                f"{error}; let no other client write to it"
            ) from error

    def note(self, begin: int) -> None:
        """Notes the offset at which the writer's next batch starts its search; logs a failure."""
        cluster = self._reach.cluster
        try:
            queue = self.queue()
            try:
                update_consumer_offset(cluster, self._group, queue, begin).answer()
            except BrokerError as error:
                if error.response_code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                # A pull creates the group.
                pull(cluster, Pull(self._group, queue, begin), self._reach.timeouts).answer()
                update_consumer_offset(cluster, self._group, queue, begin).answer()
        except (ConnectionFailedError, BrokerError) as error:
            logger.warning(
                "the offset at which the next batch starts to search control topic %s was not "
                "stored; that batch will read more of the topic: %s",
                self._topic,
                error,
            )
