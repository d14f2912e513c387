"""What sink and retries tell a transport, and what it answers with. Plain values, no state.

Apart from the source's, since each of these classes takes a new process most of a millisecond.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

# A record's size, which travels beside it.
SIZE_BYTES = 4
# The `delay` of blocks whose messages wait for times of their own; levels lie below it.
DELAY_TIMED = 255


@dataclass(frozen=True, slots=True)
class Block:
    """Records of one queue, or of their OWN_QUEUES, back to back; sizes are big-endian int32.

    The queue's id counts through all brokers of the topic; see WriteQueues. `delay` is the level by
    which all of them wait; 0 for none, DELAY_TIMED for times. One that `is_movable` may go to
    another queue where its own is away: no row has asked for it.
    """

    topic: str
    queue_id: int
    record_sizes: bytes
    records: bytes
    delay: int = 0
    is_movable: bool = False


@dataclass(frozen=True, slots=True)
class WriteQueues:
    """A topic's queues for writing, in one numbering: each broker's stand behind the last one's.

    `nums` says how many each broker has, by its name, in the order of the names; the one broker
    that needs no name has the name "".
    """

    nums: dict[str, int]

    @property
    def count(self) -> int:
        """How many queues there are."""
        return sum(self.nums.values())

    @property
    def firsts(self) -> dict[str, int]:
        """The number of each broker's queue 0."""
        ends = accumulate(self.nums.values(), initial=0)
        return dict(zip(self.nums, ends, strict=False))

    def at(self, broker_name: str) -> range | None:
        """Returns the numbers of a broker's queues; None where it has none.

        Without a name they are those of the only broker, and None where there are several.
        """
        if not broker_name and len(self.nums) == 1:
            (broker_name,) = self.nums
        if broker_name not in self.nums:
            return None
        first = self.firsts[broker_name]
        return range(first, first + self.nums[broker_name])

    def place(self, number: int) -> tuple[str, int]:
        """Returns the broker that has the queue of this number, and the queue's id there."""
        names, firsts = list(self.nums), list(self.firsts.values())
        index = bisect_right(firsts, number) - 1
        return names[index], number - firsts[index]


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
    """How many messages were sent back; two of them can be added.

    `retries` come again, `dead_letters` were given up, and `dropped` are gone, as the group has no
    retry queues.
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
class CommitTimeouts:
    """How long to wait for the answer to one call, and for a commit that gets no further; in ms."""

    call_ms_max: int
    standstill_ms_max: int
