"""`RemotingSource`: the source's transport to a cluster of Apache RocketMQ.

Planners are new processes, and start without imports that only tasks need. A transport is a plain
value. It connects in the process that uses it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_rocketpy.transport.remoting.cluster.client import cluster_for
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.options import cluster_config
from pyspark_rocketpy.transport.remoting.pull.offset_queries import RemotingOffsetQueries
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyspark_rocketpy.offsets import QueueRange
    from pyspark_rocketpy.options.values import SourceOptions
    from pyspark_rocketpy.transport.rebatching import RecordChunk


@dataclass(frozen=True, slots=True)
class RemotingSource:
    """RocketMQ's remoting protocol, for the source; times in ms."""

    cluster: ClusterConfig
    retries: RetryPolicy
    consumer_group: str
    pull_timeout_ms: int
    pulls_in_flight_max: int
    prefetch_bytes_max: int
    broker_unavailable_timeout_ms: int

    @classmethod
    def of_source(cls, options: SourceOptions) -> Self:
        """Returns the transport that a source's options name."""
        assert options.cluster is not None, "endpoints have another transport"
        return cls(
            cluster_config(options.cluster, options.connect_timeout_ms),
            RetryPolicy(options.retry_times_max, options.retry_backoff_ms),
            options.consumer_group,
            options.pull_timeout_ms,
            options.pulls_in_flight_max,
            options.prefetch_bytes_max,
            options.broker_unavailable_timeout_ms,
        )

    def offset_queries(self) -> RemotingOffsetQueries:
        """Implements SourceTransport."""
        cluster = cluster_for(self.cluster)
        return RemotingOffsetQueries(cluster, self.retries, self.consumer_group, self._timeouts)

    def pull(self, part: QueueRange, options: PullOptions) -> Generator[RecordChunk]:
        """Implements SourceTransport."""
        from pyspark_rocketpy.transport.remoting.pull.range_puller import PullLimits, RangePuller

        limits = PullLimits(
            self.pulls_in_flight_max,
            self.prefetch_bytes_max,
            self._timeouts,
            self.broker_unavailable_timeout_ms,
            self.retries.backoff_ms,
        )
        return RangePuller(cluster_for(self.cluster), limits, options, part).chunks()

    @property
    def _timeouts(self) -> Timeouts:
        return Timeouts(self.pull_timeout_ms, "pullTimeout")
