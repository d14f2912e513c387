"""`GrpcTransport`: the way to a rocketpy broker. Holds no state; clients belong to the process."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.options.parsing import SinkOptions, SourceOptions
from pyspark_rocketpy.options.retrying import RetryOptions
from pyspark_rocketpy.transport.cutting import Piece
from pyspark_rocketpy.transport.grpc_v1.batches import BatchCommitter, job_of, joined
from pyspark_rocketpy.transport.grpc_v1.client import ClientConfig, client_for
from pyspark_rocketpy.transport.grpc_v1.pulling import RangePuller
from pyspark_rocketpy.transport.grpc_v1.queries import GrpcOffsetQueries
from pyspark_rocketpy.transport.grpc_v1.retrying import retried
from pyspark_rocketpy.transport.grpc_v1.sending_back import BackSender
from pyspark_rocketpy.transport.grpc_v1.writing import GrpcBlockWriter, GrpcStagingWriter
from pyspark_rocketpy.transport.interface import BlockWriter
from pyspark_rocketpy.transport.values import (
    Attempt,
    BatchJob,
    BrokerLimits,
    CommitPatience,
    CommittedBatch,
    MessageToSendBack,
    PullOptions,
    RetryPolicy,
    SentBack,
)

SEND_TIMEOUT_MS = 30_000
COMMIT_TIMEOUT_MS = 600_000


@dataclass(frozen=True, slots=True)
class GrpcTransport:
    """`rocketpy.v1` over gRPC, for source and sink; times in ms."""

    client: ClientConfig
    retries: RetryPolicy
    send_timeout_ms: int = SEND_TIMEOUT_MS
    commit_timeout_ms: int = COMMIT_TIMEOUT_MS

    @classmethod
    def of_source(cls, options: SourceOptions) -> GrpcTransport:
        """The transport that a source's options name."""
        client = ClientConfig(
            options.endpoints,
            options.connect_timeout_ms,
            options.pull_timeout_ms,
            options.prefetch_bytes_max,
        )
        return cls(client, RetryPolicy(options.retry_times_max, options.retry_backoff_ms))

    @classmethod
    def of_sink(cls, options: SinkOptions) -> GrpcTransport:
        """The transport that a sink's options name."""
        return cls(
            ClientConfig(options.endpoints, options.connect_timeout_ms),
            RetryPolicy(options.retry_times_max, options.retry_backoff_ms),
            options.send_timeout_ms,
            options.commit_timeout_ms,
        )

    @classmethod
    def of_retry(cls, options: RetryOptions) -> GrpcTransport:
        """The transport that the options of `send_back` name."""
        return cls(
            ClientConfig(options.endpoints, options.connect_timeout_ms),
            RetryPolicy(options.retry_times_max, options.retry_backoff_ms),
            options.send_timeout_ms,
        )

    def offset_queries(self) -> GrpcOffsetQueries:
        """See SourceTransport."""
        return GrpcOffsetQueries(self.client, self.retries)

    def pull(self, part: QueueRange, options: PullOptions) -> Generator[Piece]:
        """See SourceTransport."""
        return RangePuller(self.client, self.retries, options, part).pieces()

    def limits(self) -> BrokerLimits:
        """See SinkTransport."""
        return client_for(self.client).limits

    def write_queue_nums(self, topics: Sequence[str]) -> dict[str, int]:
        """See SinkTransport."""
        return retried(self.client, self.retries, lambda client: client.write_queue_nums(topics))

    def block_writer(self, attempt: Attempt | None) -> BlockWriter:
        """See SinkTransport."""
        if attempt is None:
            return GrpcBlockWriter(self.client, self.retries, self.send_timeout_ms)
        return GrpcStagingWriter(self.client, self.retries, self.send_timeout_ms, attempt)

    def commit_batch(self, parts: Sequence[bytes], batch_id: int) -> CommittedBatch:
        """See SinkTransport."""
        return self._committer().commit(joined(parts, batch_id))

    def abort_batch(self, job: BatchJob) -> None:
        """See SinkTransport."""
        self._committer().abort(job_of(job))

    def send_back(
        self, group: str, messages: Sequence[MessageToSendBack], reconsume_times_max: int | None
    ) -> SentBack:
        """See RetryTransport."""
        sender = BackSender(
            self.client, self.retries, self.send_timeout_ms, group, reconsume_times_max
        )
        return sender.send(messages)

    def _committer(self) -> BatchCommitter:
        patience = CommitPatience(self.send_timeout_ms, self.commit_timeout_ms)
        return BatchCommitter(self.client, self.retries, patience)
