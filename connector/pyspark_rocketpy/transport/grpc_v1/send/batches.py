"""Batches written once: the parts of the tasks, and their common commit.

The broker keeps staged blocks aside. It shows the blocks of a batch when CommitBatch names their
attempts. The broker carries out a commit by itself; the caller polls it while it makes progress. A
commit never names the staged blocks of a killed task or driver, so they never show.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import CommitError, ConnectionFailedError
from pyspark_rocketpy.transport.grpc_v1.client import GrpcClient
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.retries import retried
from pyspark_rocketpy.transport.retries import backoff_ms
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import (
    Attempt,
    BatchJob,
    CommittedBatch,
    CommitTimeouts,
)
from rocketpy_proto.counts import counted
from rocketpy_proto.rocketpy.v1 import broker_pb2

logger = logging.getLogger(__name__)
# Time for which the broker holds one call, so that progress is seen.
WAIT_MS_MAX = 10_000
PROGRESS_MS = 30_000


def job_of(job: BatchJob) -> broker_pb2.BatchJob:
    """Returns the job as requests name it."""
    return broker_pb2.BatchJob(
        writer_id=job.batch.writer_id,
        batch_id=job.batch.batch_id,
        job_token=job.token,
        is_single=job.is_single,
    )


def part_of(attempt: Attempt, sent: broker_pb2.StageBlocksResponse, store_id: str = "") -> bytes:
    """Returns a task's part of the commit request, as it travels to the driver."""
    part = broker_pb2.CommitBatchRequest(job=job_of(attempt.job))
    part.job.store_id = store_id
    if sent.block_count:
        part.tasks.task.append(attempt.task)
        part.tasks.task_token.append(attempt.token)
        part.tasks.block_count.append(sent.block_count)
        part.tasks.record_count.append(sent.record_count)
        part.tasks.bytes.append(sent.bytes)
    return part.SerializeToString()


def joined(parts: Sequence[bytes], batch_id: int) -> broker_pb2.CommitBatchRequest:
    """Returns the request of all tasks, in their order.

    Raises CommitError if they do not agree, or are of another batch than `batch_id`.
    """
    if not parts:
        raise CommitError("no task has reported what it wrote; run the batch again")
    whole = broker_pb2.CommitBatchRequest()
    whole.job.CopyFrom(_job_of_part(parts[0]))
    for data in parts:
        part = broker_pb2.CommitBatchRequest.FromString(data)
        if part.job.store_id != whole.job.store_id:
            raise CommitError(
                "the tasks of one batch have staged at two brokers, with stores "
                f"{whole.job.store_id} and {part.job.store_id}; nothing is visible: set option "
                "endpoints to addresses of one broker, and run the batch again"
            )
        if part.job != whole.job:
            raise CommitError(
                f"one commit has tasks of different jobs: {_described(whole.job)} and "
                f"{_described(part.job)}; run the batch again"
            )
        # Repeated fields are concatenated.
        whole.tasks.MergeFrom(part.tasks)
    if whole.job.batch_id != batch_id:
        raise CommitError(
            f"batch {batch_id} is to be committed, but its tasks have written batch "
            f"{whole.job.batch_id}; run the batch again"
        )
    return whole


def _job_of_part(part: bytes) -> broker_pb2.BatchJob:
    return broker_pb2.CommitBatchRequest.FromString(part).job


def _described(job: broker_pb2.BatchJob) -> str:
    return f"batch {job.batch_id} of writer {job.writer_id}, job {job.job_token}"


@dataclass(frozen=True, slots=True)
class BatchCommitter:
    """Commits of batches, and their cancellation."""

    client: ClientConfig
    policy: RetryPolicy
    timeouts: CommitTimeouts

    def commit(self, request: broker_pb2.CommitBatchRequest) -> CommittedBatch:
        """Shows the batch, and waits until it shows; see SinkTransport.commit_batch.

        Raises BrokerError, CommitError, ConnectionFailedError.
        """
        try:
            return self._commit(request)
        except ConnectionFailedError as error:
            way_on = _CHECK_FIRST if request.job.is_single else "run the batch again"
            raise ConnectionFailedError(
                f"{error}; the batch may have been committed: {way_on}",
                is_lasting=error.is_lasting,
            ) from error

    def _commit(self, request: broker_pb2.CommitBatchRequest) -> CommittedBatch:
        response = self._begin(request)
        progress = _CommitProgress(request, self.timeouts.standstill_ms_max, self.policy.backoff_ms)
        while response.outcome not in _ENDS:
            progress.wait(response)
            # The previous batch may not be stored yet. A broker that was restarted with ASYNC_FLUSH
            # may have lost the decision.
            is_decided = response.batch_id == request.job.batch_id
            response = self._query(request.job) if is_decided else self._begin(request)
        return CommittedBatch(
            response.batch_id,
            response.outcome != broker_pb2.ALREADY_COMMITTED,
            response.record_count,
            response.record_count_decided,
        )

    def abort(self, job: broker_pb2.BatchJob) -> None:
        """Removes the staged blocks of a job. Raises BrokerError, ConnectionFailedError.

        Makes one attempt: a failed query waits for it, and the broker later removes the blocks.
        """
        request = broker_pb2.AbortBatchRequest(job=job)
        timeout_ms = self.timeouts.call_ms_max
        once = RetryPolicy(0, self.policy.backoff_ms)
        retried(self.client, once, lambda client: client.abort_batch(request, timeout_ms))

    def _begin(self, request: broker_pb2.CommitBatchRequest) -> broker_pb2.BatchResponse:
        request.wait_ms_max = self._wait_ms_max

        def call(client: GrpcClient) -> broker_pb2.BatchResponse:
            size, size_max = request.ByteSize(), client.limits.request_bytes_max
            if size > size_max:
                raise CommitError(
                    f"the list of the batch's {len(request.tasks.task)} tasks has {size} bytes, "
                    f"limit {size_max}; write with fewer tasks, for example with coalesce"
                )
            return client.commit_batch(request, self.timeouts.call_ms_max)

        return retried(self.client, self.policy, call)

    def _query(self, job: broker_pb2.BatchJob) -> broker_pb2.BatchResponse:
        request = broker_pb2.QueryBatchRequest(job=job, wait_ms_max=self._wait_ms_max)
        timeout_ms = self.timeouts.call_ms_max
        return retried(
            self.client, self.policy, lambda client: client.query_batch(request, timeout_ms)
        )

    @property
    def _wait_ms_max(self) -> int:
        return min(self.timeouts.call_ms_max // 2, WAIT_MS_MAX)


_RUN_AGAIN = "run the batch again to wait for it, or set option commitTimeout higher"
_SAVED_AGAIN = (
    "if it is saved again, its messages are stored twice; next time set option commitTimeout higher"
)
_CHECK_FIRST = "check the topic before you save again, or the messages may be stored twice"
_ENDS = (broker_pb2.COMMITTED, broker_pb2.ALREADY_COMMITTED, broker_pb2.INCOMPLETE)


class _CommitProgress:
    """The progress of a commit, and its log lines."""

    def __init__(
        self, request: broker_pb2.CommitBatchRequest, standstill_ms_max: int, backoff_ms: int
    ) -> None:
        self._job = request.job
        self._standstill_ms_max = standstill_ms_max
        self._backoff_ms = backoff_ms
        self._moved_ms = self._logged_ms = self._asked_ms = clock.monotonic_ms()
        # The furthest progress so far: a broker that goes back and forth makes none.
        self._furthest = -1, -1
        self._standing = 0

    def wait(self, response: broker_pb2.BatchResponse) -> None:
        """Waits after an early answer without progress, so that the broker is not polled in a loop.

        Raises CommitError after too long a time without progress.
        """
        now_ms = clock.monotonic_ms()
        reached = response.batch_id, response.record_count
        is_new = reached > self._furthest
        if is_new:
            self._furthest, self._moved_ms, self._standing = reached, now_ms, 0
        self._log_progress(response, now_ms)
        if not is_new:
            wait_ms = self._asked_ms + backoff_ms(self._backoff_ms, self._standing) - now_ms
            self._standing += 1
            if wait_ms > 0:
                clock.sleep_ms(wait_ms)
        self._asked_ms = clock.monotonic_ms()

    def _log_progress(self, response: broker_pb2.BatchResponse, now_ms: int) -> None:
        how_far = (
            f"{response.record_count} of {counted(response.record_count_decided, 'message')} of "
            f"batch {response.batch_id} of writer {self._job.writer_id} are stored"
        )
        state = "the batch is decided, and the broker stores the rest as soon as it can"
        if response.outcome == broker_pb2.NOT_COMMITTED:
            how_far = f"batch {self._job.batch_id} of writer {self._job.writer_id} is not committed"
            state = "nothing of it shows"
        if now_ms - self._moved_ms >= self._standstill_ms_max:
            reason = f" ({response.hindrance})" if response.hindrance else ""
            way_on = _SAVED_AGAIN if self._job.is_single else _RUN_AGAIN
            raise CommitError(
                f"{how_far}, without progress for {now_ms - self._moved_ms} ms{reason}, limit "
                f"{self._standstill_ms_max} ms; {state}: {way_on}"
            )
        if now_ms - self._logged_ms >= PROGRESS_MS:
            self._logged_ms = now_ms
            logger.warning("%s", how_far)
