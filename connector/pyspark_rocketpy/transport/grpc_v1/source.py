"""`GrpcSource`: the source's transport to a rocketpy broker.

It is apart from the sink's transport: planners and reading tasks are new processes that never
write. gRPC is imported at the first call, because some processes with a source make none.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_rocketpy.imports import importing_much
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyspark_rocketpy.offsets import QueueRange
    from pyspark_rocketpy.options.values import SourceOptions
    from pyspark_rocketpy.transport.grpc_v1.queries import GrpcOffsetQueries
    from pyspark_rocketpy.transport.rebatching import RecordChunk


@dataclass(frozen=True, slots=True)
class GrpcSource:
    """`rocketpy.v1` over gRPC, for the source."""

    client: ClientConfig
    retries: RetryPolicy

    @classmethod
    def of_source(cls, options: SourceOptions) -> Self:
        """Returns the transport that a source's options name."""
        client = ClientConfig(
            options.endpoints,
            options.connect_timeout_ms,
            options.pull_timeout_ms,
            options.prefetch_bytes_max,
            options.access_key,
            options.secret_key,
            options.tls,
        )
        return cls(client, RetryPolicy(options.retry_times_max, options.retry_backoff_ms))

    def offset_queries(self) -> GrpcOffsetQueries:
        """Implements SourceTransport."""
        with importing_much():
            from pyspark_rocketpy.transport.grpc_v1.queries import GrpcOffsetQueries
        return GrpcOffsetQueries(self.client, self.retries)

    def pull(self, part: QueueRange, options: PullOptions) -> Generator[RecordChunk]:
        """Implements SourceTransport."""
        with importing_much():
            from pyspark_rocketpy.transport.grpc_v1.range_puller import RangePuller
        return RangePuller(self.client, self.retries, options, part).chunks()
