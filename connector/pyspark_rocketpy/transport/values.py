"""What source, sink and transports tell each other. Plain values, which travel to tasks; no state.

Positions, bounds and ranges of queues are those of `offsets`; pieces of records are in `cutting`.
"""

from __future__ import annotations

from dataclasses import dataclass

# A record's size, which travels beside it.
SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient to be with a broker that is away or busy; the wait doubles with each retry."""

    times_max: int
    backoff_ms: int


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """The largest body and request that a broker takes, and a segment of its log, in bytes.

    No block is larger than a segment; 0 stands for an unknown size.
    """

    body_bytes_max: int
    request_bytes_max: int
    segment_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics of a query, by name or by pattern, and its group."""

    topics: tuple[str, ...]
    topic_pattern: str | None
    consumer_group: str
    # One more, which may be there or not.
    retry_topic: str | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """Every topic that is asked for by its name."""
        return self.topics if self.retry_topic is None else (*self.topics, self.retry_topic)


@dataclass(frozen=True, slots=True)
class QueueTime:
    """A time, ms since 1970, for one queue."""

    topic: str
    queue_id: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PullOptions:
    """How to pull ranges, and what is to be left out at the broker.

    Wanted are messages with one of `tags_codes`, none for all; or those that an SQL92 `expression`
    matches.
    """

    consumer_group: str
    fetch_bytes_max: int
    fail_on_data_loss: bool
    tags_codes: tuple[int, ...] = ()
    expression: str | None = None
    # The store that the ranges are of, and its newest recovery when they were planned; empty: any.
    store_id: str = ""
    recovery_id: str = ""

    @property
    def is_filtered(self) -> bool:
        """Whether something may be left out."""
        return bool(self.tags_codes) or self.expression is not None


@dataclass(frozen=True, slots=True)
class Block:
    """Records of one queue, or of their OWN_QUEUES, back to back; sizes are big-endian int32.

    `delay` is the level by which all of them wait; 0 for none, and the highest for times.
    """

    topic: str
    queue_id: int
    record_sizes: bytes
    records: bytes
    delay: int = 0


@dataclass(frozen=True, slots=True)
class MessageToSendBack:
    """A message that could not be consumed, by its place in the log.

    What lies there must have this topic, now or at first, and this offset id, where they are not
    empty. `delay_level` 0: by the number of its failures; below 0: it is given up.
    """

    commit_log_offset: int
    delay_level: int
    topic: str
    offset_msg_id: str


@dataclass(frozen=True, slots=True)
class SentBack:
    """How many messages come again, were given up, or dropped by a group without retry queues."""

    retries: int = 0
    dead_letters: int = 0
    dropped: int = 0

    def __add__(self, other: SentBack) -> SentBack:
        return SentBack(
            self.retries + other.retries,
            self.dead_letters + other.dead_letters,
            self.dropped + other.dropped,
        )


@dataclass(frozen=True, slots=True)
class BatchName:
    """Who writes, and which of its batches; both the same when the batch is written again."""

    writer_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One run of a job that writes a batch once; its token is never used twice, and never 0.

    `is_single`: the writer writes this one batch, and its id never comes back.
    """

    batch: BatchName
    token: int
    is_single: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task of such a job; its token is never used twice, and never 0."""

    job: BatchJob
    task: int
    token: int


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """The writer's last committed batch, as a commit has found or made it.

    `is_own`: it is the one that was to be committed, and this very job has committed it.
    `record_count` of its `record_count_decided` messages show; fewer, where some were lost.
    """

    batch_id: int
    is_own: bool
    record_count: int
    record_count_decided: int


@dataclass(frozen=True, slots=True)
class CommitPatience:
    """How long to wait for the answer to one call, and for a commit that gets no further; in ms."""

    call_ms_max: int
    standstill_ms_max: int
