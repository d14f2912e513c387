"""`GrpcTransport`: the transport to a rocketpy broker.

A process has one client for each configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark_rocketpy.options.retry_options import RetryOptions
from pyspark_rocketpy.options.values import SinkOptions
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.retries import retried
from pyspark_rocketpy.transport.grpc_v1.send.batches import BatchCommitter, job_of, joined
from pyspark_rocketpy.transport.grpc_v1.send.block_writer import GrpcBlockWriter, GrpcStagingWriter
from pyspark_rocketpy.transport.grpc_v1.send_back import SendBackClient
from pyspark_rocketpy.transport.grpc_v1.source import GrpcSource
from pyspark_rocketpy.transport.interface import BlockWriter
from pyspark_rocketpy.transport.values import BrokerLimits, RetryPolicy
from pyspark_rocketpy.transport.write_values import (
    Attempt,
    BatchJob,
    CommittedBatch,
    CommitTimeouts,
    MessageToSendBack,
    SentBack,
)

SEND_TIMEOUT_MS = 30_000
COMMIT_TIMEOUT_MS = 600_000


@dataclass(frozen=True, slots=True)
class GrpcTransport(GrpcSource):
    """`rocketpy.v1` over gRPC, for source and sink; times in ms."""

    send_timeout_ms: int = SEND_TIMEOUT_MS
    commit_timeout_ms: int = COMMIT_TIMEOUT_MS

    @classmethod
    def of_sink(cls, options: SinkOptions) -> GrpcTransport:
        """Returns the transport that a sink's options name."""
        return replace(cls.of_retry(options), commit_timeout_ms=options.commit_timeout_ms)

    @classmethod
    def of_retry(cls, options: RetryOptions | SinkOptions) -> GrpcTransport:
        """Returns the transport that the options of `send_back` name."""
        return cls(
            ClientConfig(
                options.endpoints,
                options.connect_timeout_ms,
                access_key=options.access_key,
                secret_key=options.secret_key,
                tls=options.tls,
            ),
            RetryPolicy(options.retry_times_max, options.retry_backoff_ms),
            options.send_timeout_ms,
        )

    def limits(self) -> BrokerLimits:
        """Implements SinkTransport."""
        return retried(self.client, self.retries, lambda client: client.limits)

    def block_writer(self, attempt: Attempt | None) -> BlockWriter:
        """Implements SinkTransport."""
        if attempt is None:
            return GrpcBlockWriter(self.client, self.retries, self.send_timeout_ms)
        return GrpcStagingWriter(self.client, self.retries, self.send_timeout_ms, attempt)

    def commit_batch(self, parts: Sequence[bytes], batch_id: int) -> CommittedBatch:
        """Implements SinkTransport."""
        return self._committer().commit(joined(parts, batch_id))

    def abort_batch(self, job: BatchJob) -> None:
        """Implements SinkTransport."""
        self._committer().abort(job_of(job))

    def send_back(
        self, group: str, messages: Sequence[MessageToSendBack], reconsume_times_max: int | None
    ) -> SentBack:
        """Implements RetryTransport."""
        sender = SendBackClient(
            self.client, self.retries, self.send_timeout_ms, group, reconsume_times_max
        )
        return sender.send(messages)

    def _committer(self) -> BatchCommitter:
        timeouts = CommitTimeouts(self.send_timeout_ms, self.commit_timeout_ms)
        return BatchCommitter(self.client, self.retries, timeouts)
