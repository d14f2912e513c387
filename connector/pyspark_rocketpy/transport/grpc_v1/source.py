"""`GrpcSource`: the source's way to a rocketpy broker. Holds no state.

Apart from the sink's, since planners and reading tasks are new processes that never write.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_rocketpy.transport.grpc_v1.client import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.pulling import RangePuller
from pyspark_rocketpy.transport.grpc_v1.queries import GrpcOffsetQueries
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyspark_rocketpy.offsets import QueueRange
    from pyspark_rocketpy.options.parsing import SourceOptions
    from pyspark_rocketpy.transport.cutting import Piece


@dataclass(frozen=True, slots=True)
class GrpcSource:
    """`rocketpy.v1` over gRPC, for the source."""

    client: ClientConfig
    retries: RetryPolicy

    @classmethod
    def of_source(cls, options: SourceOptions) -> Self:
        """The transport that a source's options name."""
        client = ClientConfig(
            options.endpoints,
            options.connect_timeout_ms,
            options.pull_timeout_ms,
            options.prefetch_bytes_max,
        )
        return cls(client, RetryPolicy(options.retry_times_max, options.retry_backoff_ms))

    def offset_queries(self) -> GrpcOffsetQueries:
        """See SourceTransport."""
        return GrpcOffsetQueries(self.client, self.retries)

    def pull(self, part: QueueRange, options: PullOptions) -> Generator[Piece]:
        """See SourceTransport."""
        return RangePuller(self.client, self.retries, options, part).pieces()
