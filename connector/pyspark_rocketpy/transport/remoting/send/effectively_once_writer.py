"""Block writer of an effectively-once attempt, which stores no row twice.

An attempt stores a marker before it sends to a topic. It may find markers of earlier attempts. It
then reads the messages that came into the topic's queues since, and leaves out its rows among them.
A send with an unknown outcome is looked up in the same way before it is repeated.

Sends of a killed attempt may still wait at a broker. So such a search comes a while after the
broker answers again: brokers drop requests that have waited for 200 ms. Two concurrent attempts do
not see each other's sends. All state that survives a crash is in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import max_offset
from pyspark_rocketpy.transport.remoting.send.batches import first_unique_key
from pyspark_rocketpy.transport.remoting.send.block_writer import RemotingBlockWriter
from pyspark_rocketpy.transport.remoting.send.deduplication import StoredRows
from pyspark_rocketpy.transport.remoting.send.markers import ClusterAccess, ControlQueue, Marker
from pyspark_rocketpy.transport.remoting.send.requests import PRODUCER_GROUP, SendBatch, SendResult
from pyspark_rocketpy.transport.retries import retried
from pyspark_rocketpy.transport.write_values import SIZE_BYTES, Attempt, Block, WriteQueues
from rocketpy_proto.model.unique_keys import task_digits
from rocketpy_proto.remoting import MessageQueue

QUEUED_SENDS_MS = 1_000


class Part(msgspec.Struct, frozen=True):
    """A task's part of the batch's commit.

    `begin` is the offset of the first marker of all its attempts; None for a task without rows.
    """

    writer: str
    rows: int
    begin: int | None = None


class EffectivelyOnceWriter(RemotingBlockWriter):
    """BlockWriter of effectively-once delivery."""

    def __init__(
        self, reach: ClusterAccess, control: ControlQueue, attempt: Attempt, floor: int | None
    ) -> None:
        """Sets the attempt; markers start at `floor`, or else at the writer's last note."""
        super().__init__(reach.cluster, reach.policy, reach.timeouts)
        batch = attempt.job.batch
        self._reach = reach
        self._control = control
        self._floor = floor
        self._digits = task_digits((batch.writer_id, batch.batch_id, attempt.task))
        self._stored = StoredRows(self._digits)
        self._part = Part(writer_name(batch.writer_id), 0)
        # The offset after each queue's last acknowledged send batch, or else its end at the start.
        self._ends: dict[MessageQueue, int] = {}

    def write_queues(self, topics: Sequence[str]) -> dict[str, WriteQueues]:
        """Implements BlockWriter."""
        unknown = [topic for topic in topics if topic not in self._queues]
        found = super().write_queues(topics)
        for topic in unknown:
            self._begin(topic, found[topic])
        return found

    def send(self, block: Block) -> None:
        """Implements BlockWriter."""
        if block.delay:
            raise ColumnError(
                "columns delayLevel and deliverAt cannot be used with delivery effectively-once: "
                "the task cannot find messages that wait at a broker; set option delivery to "
                "at-least-once"
            )
        count = len(block.record_sizes) // SIZE_BYTES
        self._part = msgspec.structs.replace(self._part, rows=self._part.rows + count)
        self.write_queues([block.topic])
        left = self._stored.without(block) if len(self._stored) else block
        if left is not None:
            super().send(replace(left, is_movable=False))

    def finish(self) -> bytes:
        """Implements BlockWriter."""
        super().finish()
        return msgspec.json.encode(self._part)

    def _begin(self, topic: str, queues: WriteQueues) -> None:
        """Stores a marker, and finds the rows that attempts with earlier markers have stored."""
        ends = self._ends_of(
            [MessageQueue(name, i, topic) for name, n in queues.nums.items() for i in range(n)]
        )
        self._ends |= ends
        offsets = {
            name: [ends[MessageQueue(name, i, topic)] for i in range(n)]
            for name, n in queues.nums.items()
        }
        own = self._control.leave(self._digits, Marker(topic, offsets))
        floor = self._control.floor(own) if self._floor is None else self._floor
        found = list(self._control.earlier(self._digits, floor, own))
        offsets_found = [own, *(one.offset for one in found)]
        if self._part.begin is not None:
            offsets_found.append(self._part.begin)
        self._part = msgspec.structs.replace(self._part, begin=min(offsets_found))
        earlier = [one.marker for one in found if one.marker.topic == topic]
        if earlier:
            clock.sleep_ms(QUEUED_SENDS_MS)
            since = _earliest(earlier)
            for queue, end in self._ends_of(list(since)).items():
                self._read(queue, since[queue], end, self._stored)

    def _ends_of(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Returns the ends of queues, within the retries."""

        def ask() -> dict[MessageQueue, int]:
            calls = [max_offset(self._reach.cluster, queue) for queue in queues]
            return {q: call.answer() for q, call in zip(queues, calls, strict=True)}

        return retried(self._reach.policy, ask)

    def _read(self, queue: MessageQueue, begin: int, end: int, into: StoredRows) -> None:
        part = QueueRange(queue.topic, queue.queue_id, begin, end, broker_name=queue.broker_name)
        for block in self._reach.records(part, PRODUCER_GROUP):
            into.add(block, queue.topic)

    def _acknowledged(self, queue: MessageQueue, send_batch: SendBatch, result: SendResult) -> None:
        super()._acknowledged(queue, send_batch, result)
        self._ends[queue] = result.queue_offset + send_batch.count

    def _is_stored(self, queue: MessageQueue, send_batch: SendBatch, /) -> bool:
        """True if a send batch without an answer was stored. Raises as `ClusterAccess.records`."""
        end = max_offset(self._reach.cluster, queue).answer()
        clock.sleep_ms(QUEUED_SENDS_MS)
        end = max(end, max_offset(self._reach.cluster, queue).answer())
        found = StoredRows(self._digits)
        self._read(queue, self._ends[queue], end, found)
        return found.has(first_unique_key(send_batch))


def writer_name(writer_id: str) -> str:
    """Returns a writer's name in a form for group names."""
    return task_digits((writer_id, 0, 0))


def _earliest(markers: Iterable[Marker]) -> dict[MessageQueue, int]:
    """Returns the lowest end of each queue in the markers of one topic."""
    offsets: dict[MessageQueue, int] = {}
    for marker in markers:
        for name, ends in marker.offsets.items():
            for queue_id, end in enumerate(ends):
                queue = MessageQueue(name, queue_id, marker.topic)
                offsets[queue] = min(end, offsets.get(queue, end))
    return offsets
