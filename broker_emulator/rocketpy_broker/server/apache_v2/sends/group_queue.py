"""The queue of a message group.

It stays while the topic keeps its number of queues; with one queue more, few groups move.
RocketMQ's proxy computes the same queue.
Source: SendMessageActivity's queue selector, Guava's Hashing#consistentHash.
"""

from __future__ import annotations

from rocketpy_proto.record import java_hash

_MULTIPLIER = 2_862_933_555_777_941_757
_MASK = (1 << 64) - 1


def queue_of_group(group: str, queue_nums: int) -> int:
    """Returns the queue id of a message group, 0 to `queue_nums` - 1."""
    return consistent_hash(java_hash(group), queue_nums)


def consistent_hash(number: int, buckets: int) -> int:
    """Returns the bucket of a signed 64-bit number, by jumps of a linear congruential generator."""
    state, bucket = number & _MASK, 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        # Java's `(double) ((int) (state >>> 33) + 1) / 2^31`.
        following = int((bucket + 1) / (((state >> 33) + 1) / (1 << 31)))
        if following >= buckets:
            return bucket
        bucket = following
