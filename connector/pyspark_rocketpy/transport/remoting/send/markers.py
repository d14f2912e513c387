"""Markers: what a task leaves in the control topic before it sends, and finds when it runs again.

    control topic, queue 0   marker | marker | marker ...   tag: the task; body: topic, offsets

A marker says where a topic's queues ended when an attempt began: whatever that attempt has stored
lies after it. The order in the one queue is the order of the attempts. The driver notes at each
commit, as a consumer offset, where the batch's own markers begin: Spark runs a committed batch
again when the driver ends before Spark's own commit. A broker keeps a note in memory for 5 s; a
note that is lost makes the look longer and not wrong. Nothing else is kept.
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
from pyspark_rocketpy.transport.remoting.send.requests import Message, send
from pyspark_rocketpy.transport.retries import retried
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy
from rocketpy_proto.record import Record, RecordBlock, decode_record
from rocketpy_proto.record.properties import encode_properties
from rocketpy_proto.remoting import MessageQueue, ResponseCode
from rocketpy_proto.remoting.json_text import DECLARED_BY_PARSERS

logger = logging.getLogger(__name__)
PRODUCER_GROUP = "rocketpy-sink"
FETCH_BYTES_MAX = 4 << 20


class Marker(msgspec.Struct, frozen=True):
    """Where the queues of a topic ended, by broker and queue id."""

    topic: str
    offsets: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class FoundMarker:
    """A marker and its offset in the control queue."""

    offset: int
    marker: Marker


@dataclass(frozen=True, slots=True)
class Reach:
    """A cluster, and how patiently it is asked."""

    cluster: Cluster
    policy: RetryPolicy
    patience: Timeouts
    limits: PullLimits

    def records(
        self, part: QueueRange, group: str, tag: str | None = None
    ) -> Iterator[RecordBlock]:
        """What a range holds, or what of it may have the tag.

        Raises DataLossError, OffsetError, ConnectionFailedError, BrokerError.
        """
        options = PullOptions(
            group,
            FETCH_BYTES_MAX,
            fail_on_data_loss=True,
            tags=() if tag is None else (tag,),
        )
        is_filtered = tag is not None
        pulled = RangePuller(self.cluster, self.limits, options, part).pieces()
        for piece in accounted(pulled, part, is_filtered=is_filtered):
            if len(piece.sizes):
                yield checked_records(piece, part, piece.begin, is_filtered=is_filtered)


class ControlQueue:
    """Queue 0 of the control topic, which one broker has."""

    def __init__(self, reach: Reach, topic: str, writer: str) -> None:
        """`writer` is a name for whose notes they are, as groups may have them."""
        self._reach = reach
        self._topic = topic
        self._group = f"rocketpy-{writer}"

    def queue(self) -> MessageQueue:
        """Raises TopicNotExistError, ConnectionFailedError, BrokerError."""
        names = [*self._reach.cluster.route(self._topic).read_queue_nums()]
        if len(names) != 1:
            raise BrokerError(
                f"option controlTopic is {self._topic!r}, which lies at {len(names)} brokers "
                f"({', '.join(names)}); a task must find what an earlier one has left: create it "
                "at one broker alone"
            )
        return MessageQueue(names[0], 0, self._topic)

    def end(self) -> int:
        """Where the next marker will be. Raises ConnectionFailedError, BrokerError."""
        cluster = self._reach.cluster
        return retried(self._reach.policy, lambda: max_offset(cluster, self.queue()).answer())

    def floor(self, own: int) -> int:
        """Returns the offset from which on markers of the writer's present batch can be.

        `own` is the offset of a marker that was stored just now. A note beyond it is of a control
        topic that was deleted, and counts for nothing.
        """

        def ask() -> int:
            cluster, queue = self._reach.cluster, self.queue()
            noted = consumer_offset(cluster, self._group, queue).answer()
            if noted is None or noted > own:
                noted = 0
            return max(noted, min_offset(cluster, queue).answer())

        return retried(self._reach.policy, ask)

    def leave(self, tag: str, marker: Marker) -> int:
        """Stores a marker; its offset."""
        properties = encode_properties({"TAGS": tag}).decode()
        message = Message(msgspec.json.encode(marker), properties)
        cluster, patience = self._reach.cluster, self._reach.patience
        sent = retried(
            self._reach.policy,
            lambda: send(cluster, PRODUCER_GROUP, self.queue(), message, patience).answer(),
        )
        return sent.queue_offset

    def earlier(self, tag: str, begin: int, end: int) -> Iterator[FoundMarker]:
        """Yields the markers with a tag in a range."""
        queue = self.queue()
        part = QueueRange(self._topic, 0, begin, end, broker_name=queue.broker_name)
        for block in self._reach.records(part, self._group, tag):
            for position in block.positions.tolist():
                record = decode_record(bytes(block.data), position).record
                if record.properties.get("TAGS") == tag:
                    yield FoundMarker(record.queue_offset, self._marker(record))

    def _marker(self, record: Record) -> Marker:
        """Returns the marker in a record. Raises BrokerError."""
        try:
            return msgspec.json.decode(record.body, type=Marker)
        except DECLARED_BY_PARSERS as error:
            raise BrokerError(
                f"control topic {self._topic} holds no marker at offset {record.queue_offset}: "
                f"{error}; let no other client write to it"
            ) from error

    def note(self, begin: int) -> None:
        """Lets the writer's next batch look from `begin` on. A failure costs time only."""
        cluster = self._reach.cluster
        try:
            queue = self.queue()
            try:
                update_consumer_offset(cluster, self._group, queue, begin).answer()
            except BrokerError as error:
                if error.response_code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                # A pull makes the group.
                pull(cluster, Pull(self._group, queue, begin), self._reach.patience).answer()
                update_consumer_offset(cluster, self._group, queue, begin).answer()
        except (ConnectionFailedError, BrokerError) as error:
            logger.warning("the next batch looks further back in %s: %s", self._topic, error)
