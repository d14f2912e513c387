"""`RemotingTransport`: the sink's transport to a cluster of Apache RocketMQ.

Messages show as soon as they are stored: a cluster has no batches that show as one. All threads of
a process share its connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from pyspark_rocketpy.errors import BrokerBusyError
from pyspark_rocketpy.options.values import SinkOptions
from pyspark_rocketpy.transport.interface import BlockWriter
from pyspark_rocketpy.transport.remoting.cluster.client import cluster_for
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.options import cluster_config
from pyspark_rocketpy.transport.remoting.pull.range_puller import PullLimits
from pyspark_rocketpy.transport.remoting.send.block_writer import RemotingBlockWriter
from pyspark_rocketpy.transport.remoting.send.effectively_once_writer import (
    EffectivelyOnceWriter,
    Part,
    writer_name,
)
from pyspark_rocketpy.transport.remoting.send.markers import ClusterAccess, ControlQueue
from pyspark_rocketpy.transport.retries import retried
from pyspark_rocketpy.transport.values import BrokerLimits, RetryPolicy
from pyspark_rocketpy.transport.write_values import (
    SIZE_BYTES,
    Attempt,
    BatchJob,
    CommittedBatch,
)
from rocketpy_proto.record.layout import FIXED_BYTES, PROPERTIES_BYTES_MAX, TOPIC_UNITS_MAX_V1
from rocketpy_proto.struct_types import prepared

SEND_TIMEOUT_MS = 30_000
# Limits of the pulls of a queue that find the messages stored by earlier attempts.
PULLS_MAX, PULL_BYTES_MAX = 16, 8 << 20
SEND_TIMEOUT_OPTION = "sendTimeout"
# Brokers' default limits. A broker with a lower limit refuses the message with a reason. 5.3 fails
# at empty bodies; 4.9 stores them.
BODY_BYTES_MIN, BODY_BYTES_MAX = 1, 4 << 20
# Size of the largest record; blocks are cut to what brokers take.
_BLOCK_BYTES_MAX = (
    BODY_BYTES_MAX + FIXED_BYTES + TOPIC_UNITS_MAX_V1 + PROPERTIES_BYTES_MAX + SIZE_BYTES
)


@dataclass(frozen=True, slots=True)
class RemotingTransport:
    """SinkTransport of a cluster; times in ms."""

    cluster: ClusterConfig
    retries: RetryPolicy
    send_timeout_ms: int = SEND_TIMEOUT_MS
    # For effectively-once delivery. Markers start at `control_floor`, if it is known.
    control_topic: str | None = None
    control_floor: int | None = None

    @classmethod
    def of_sink(cls, options: SinkOptions) -> RemotingTransport:
        """Returns the transport of a sink's options, which name a cluster."""
        assert options.cluster is not None
        return cls(
            cluster_config(options.cluster, options.connect_timeout_ms),
            RetryPolicy(options.retry_times_max, options.retry_backoff_ms),
            options.send_timeout_ms,
            options.control_topic,
        )

    def prepared(self, topic: str | None, *, is_single: bool) -> RemotingTransport:
        """Returns the transport for a new job; `is_single` if the job writes only one batch.

        Queries the topic's route, or the brokers, and the control topic. A busy server is asked
        again. An address without a server is an error at once. Raises TopicNotExistError,
        ConnectionFailedError, BrokerError.
        """
        cluster = cluster_for(self.cluster)
        ask = cluster.masters if topic is None else partial(cluster.route, topic)
        retried(self.retries, ask, (BrokerBusyError,))
        if self.control_topic is None:
            return self
        end = self._control("").end()
        return replace(self, control_floor=end if is_single else None)

    def limits(self) -> BrokerLimits:
        """Implements SinkTransport. Brokers do not report limits; these are their defaults."""
        return BrokerLimits(BODY_BYTES_MAX, _BLOCK_BYTES_MAX, body_bytes_min=BODY_BYTES_MIN)

    def block_writer(self, attempt: Attempt | None) -> BlockWriter:
        """Implements SinkTransport."""
        reach = self._reach
        if attempt is None:
            return RemotingBlockWriter(reach.cluster, reach.policy, reach.timeouts)
        control = self._control(writer_name(attempt.job.batch.writer_id))
        return EffectivelyOnceWriter(reach, control, attempt, self.control_floor)

    @property
    def _reach(self) -> ClusterAccess:
        timeouts = Timeouts(self.send_timeout_ms, SEND_TIMEOUT_OPTION)
        limits = PullLimits(
            PULLS_MAX, PULL_BYTES_MAX, timeouts, self.send_timeout_ms, self.retries.backoff_ms
        )
        return ClusterAccess(cluster_for(self.cluster), self.retries, timeouts, limits)

    def _control(self, writer: str) -> ControlQueue:
        assert self.control_topic is not None, (
            "the options of delivery effectively-once name a control topic"
        )
        return ControlQueue(self._reach, self.control_topic, writer)

    def commit_batch(self, parts: Sequence[bytes], batch_id: int) -> CommittedBatch:
        """Implements SinkTransport. All messages show already.

        The note is for the writer's next batch. It is the first marker of this batch, which Spark
        may run again.
        """
        decoded = [msgspec.json.decode(part, type=prepared(Part)) for part in parts]
        begins: dict[str, int] = {}
        for part in decoded:
            if part.begin is not None:
                begins[part.writer] = min(part.begin, begins.get(part.writer, part.begin))
        if self.control_floor is None:
            for writer, begin in begins.items():
                self._control(writer).note(begin)
        rows = sum(part.rows for part in decoded)
        return CommittedBatch(batch_id, True, rows, rows)

    def abort_batch(self, job: BatchJob) -> None:
        """Implements SinkTransport by doing nothing.

        Stored messages stay. The next run of the batch does not send them again.
        """
