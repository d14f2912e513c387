"""Values that the sink and `send_back` exchange with a transport.

They are apart from the source's: each class costs a new process almost a millisecond.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

# Bytes of a record's size, which travels beside the record.
SIZE_BYTES = 4
# The `delay` of blocks with a delivery time for each message; delay levels are below it.
DELAY_TIMED = 255


@dataclass(frozen=True, slots=True)
class Block:
    """Records of one queue, back to back; sizes are big-endian int32.

    The queue id counts through all brokers of the topic; see WriteQueues. With OWN_QUEUES as the
    queue id, each record has its own. `delay` is the delay level of all records; 0 is no delay,
    DELAY_TIMED a time for each. A block that `is_movable` may go to another queue while its own is
    away: no row has asked for the queue.
    """

    topic: str
    queue_id: int
    record_sizes: bytes
    records: bytes
    delay: int = 0
    is_movable: bool = False


@dataclass(frozen=True, slots=True)
class WriteQueues:
    """A topic's queues for writing, numbered broker after broker.

    `nums` has the number of queues of each broker by name, in the order of the names. A single
    broker without a name has the name "".
    """

    nums: dict[str, int]

    @property
    def count(self) -> int:
        """The number of queues."""
        return sum(self.nums.values())

    @property
    def firsts(self) -> dict[str, int]:
        """The number of each broker's queue 0."""
        ends = accumulate(self.nums.values(), initial=0)
        return dict(zip(self.nums, ends, strict=False))

    def at(self, broker_name: str) -> range | None:
        """Returns the numbers of a broker's queues; None if it has none.

        An empty name means the only broker; None if there are several.
        """
        if not broker_name and len(self.nums) == 1:
            (broker_name,) = self.nums
        if broker_name not in self.nums:
            return None
        first = self.firsts[broker_name]
        return range(first, first + self.nums[broker_name])

    def place(self, number: int) -> tuple[str, int]:
        """Returns the broker of the queue with this number, and the queue's id there."""
        names, firsts = list(self.nums), list(self.firsts.values())
        index = bisect_right(firsts, number) - 1
        return names[index], number - firsts[index]


@dataclass(frozen=True, slots=True)
class MessageToSendBack:
    """A message that could not be consumed, by its log offset.

    The message there must have this topic, now or originally, and this offset id, unless these are
    empty. With a `delay_level` of 0, the delay depends on the number of failures. Below 0, the
    message becomes a dead letter.
    """

    commit_log_offset: int
    delay_level: int
    topic: str
    offset_msg_id: str


@dataclass(frozen=True, slots=True)
class SentBack:
    """Counts of messages that were sent back; two of these can be added.

    `retries` are delivered again, and `dead_letters` are given up. `dropped` are gone: the group
    has no retry queues.
    """

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
    """A writer and the id of a batch; both stay the same when the batch is written again."""

    writer_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One run of a job that writes a batch once; its token is never used twice, and never 0.

    A job that `is_single` has a writer with this one batch, and the writer's id is never used
    again.
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
    """The writer's last committed batch after a commit.

    `is_own`: it is the batch of this commit, committed by this job. `record_count` of its
    `record_count_decided` messages show; there are fewer if some were lost.
    """

    batch_id: int
    is_own: bool
    record_count: int
    record_count_decided: int


@dataclass(frozen=True, slots=True)
class CommitTimeouts:
    """Timeouts in ms: for the answer to one call, and for a commit without progress."""

    call_ms_max: int
    standstill_ms_max: int
