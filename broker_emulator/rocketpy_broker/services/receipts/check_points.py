"""Check points and acknowledgements as messages of the revive topic.

They have RocketMQ's form. A check point names the messages of one pop of a queue. It reaches the
revive topic a second before these messages are visible again; their acknowledgements reach it when
they are visible. The timer keeps both until then. So the store has all state of unacknowledged
messages, and RocketMQ's broker continues with it. Each pop and each acknowledgement costs two
records. Source: PopCheckPoint, AckMsg, BatchAckMsg, docs/design/storage.md section 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, field

from rocketpy_broker.services.receipts.handle import Receipt
from rocketpy_broker.store.values import QueueKey

CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
# A check point precedes its acknowledgements by this time.
AHEAD_MS = 1_000
NO_OFFSET = -1
_JOINT = "@"
# The number of later tries in the check point of a change: RocketMQ reads null and 0 alike.
CHANGED = "0"
# The most messages of a check point; RocketMQ counts them in a byte.
COUNT_MAX = 127
Int64 = Annotated[int, Meta(ge=-1, le=(1 << 62) - 1)]
Offsets = Annotated[tuple[Int64, ...], Meta(max_length=COUNT_MAX)]


class CheckPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Popped messages of one queue; `differences` are their offsets from `start_offset`.

    Without differences they are `count` messages from `start_offset` on. A check point without
    messages only moves the group's offset. A `put_again_count` means that a change or a later try
    wrote it, not a pop.
    """

    bits: int = field(name="bm", default=0)
    broker_name: str | None = field(name="bn", default=None)
    group: str = field(name="c")
    differences: Offsets | None = field(name="d", default=None)
    invisible_ms: Int64 = field(name="it")
    count: Annotated[int, Meta(ge=0, le=COUNT_MAX)] = field(name="n")
    pop_ms: Int64 = field(name="pt")
    queue_id: Int64 = field(name="q")
    revive_ms: int = field(name="reviveTime", default=0)
    revive_offset: int = field(name="ro", default=0)
    start_offset: Int64 = field(name="so")
    topic: str = field(name="t")
    put_again_count: str | None = field(name="rp", default=None)

    @property
    def queue(self) -> QueueKey:
        """The queue of the messages."""
        return QueueKey(self.topic, self.queue_id)

    @property
    def visible_ms(self) -> int:
        """The time at which the messages are visible again, wall time in ms."""
        return self.pop_ms + self.invisible_ms

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of the messages."""
        differences = self.differences or range(self.count)
        return [self.start_offset + each for each in differences]

    @property
    def next_offset(self) -> int:
        """The queue offset after the messages."""
        return max(self.offsets, default=self.start_offset - 1) + 1

    @property
    def key(self) -> Key:
        """The identity, which acknowledgements name."""
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms

    tag = CHECK_POINT_TAG

    @property
    def deliver_ms(self) -> int:
        """The time of its arrival in the revive topic."""
        return self.visible_ms - AHEAD_MS

    @property
    def unique_key(self) -> str:
        """RocketMQ's unique key of the message."""
        parts = self.topic, self.queue_id, self.start_offset, self.group, self.pop_ms
        return _JOINT.join(map(str, (*parts, self.broker_name, CHECK_POINT_TAG)))


Key: TypeAlias = tuple[str, str, int, int, int]


class Ack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Acknowledged messages of one check point: one offset, or several in `offsets`."""

    offset: Int64 = field(name="ao")
    offsets: Offsets = field(name="aol", default=())
    broker_name: str | None = field(name="bn", default=None)
    group: str = field(name="c")
    pop_ms: Int64 = field(name="pt")
    queue_id: Int64 = field(name="q")
    start_offset: Int64 = field(name="so")
    topic: str = field(name="t")

    @property
    def all_offsets(self) -> Sequence[int]:
        """The acknowledged queue offsets."""
        return self.offsets or (self.offset,)

    @property
    def key(self) -> Key:
        """The identity of the check point."""
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms

    @property
    def tag(self) -> str:
        """The tag of the message."""
        return BATCH_ACK_TAG if self.offsets else ACK_TAG

    @property
    def unique_key(self) -> str:
        """RocketMQ's unique key of the message."""
        parts = self.topic, self.queue_id, self.offset, self.group, self.pop_ms
        return _JOINT.join(map(str, (*parts, self.broker_name, ACK_TAG)))


def ack_of(group: str, topic: str, queue_id: int, offsets: Sequence[int], receipt: Receipt) -> Ack:
    """Returns the acknowledgement of messages of the receipt's check point."""
    is_single = len(offsets) == 1
    return Ack(
        offset=offsets[0] if is_single else NO_OFFSET,
        offsets=() if is_single else tuple(offsets),
        broker_name=receipt.broker_name,
        group=group,
        pop_ms=receipt.pop_ms,
        queue_id=queue_id,
        start_offset=receipt.start_offset,
        topic=topic,
    )
