"""Block writer of one task for a cluster; messages show at once.

A topic's queues span all brokers that take messages, in one numbering by the brokers' names. The
numbering is queried once a task and kept, so that a message group keeps its queue. Nothing is kept
that a crash could lose. The messages of a killed task stay, and come again when the task is run
again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_rocketpy.errors import BrokerError
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.net.calls import Call
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.send.batches import send_batches
from pyspark_rocketpy.transport.remoting.send.pipeline import SendPipeline
from pyspark_rocketpy.transport.remoting.send.requests import (
    SendBatch,
    SendResult,
    broker_version,
    send,
)
from pyspark_rocketpy.transport.remoting.send.visibility import Visibility
from pyspark_rocketpy.transport.retries import retried
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import DELAY_TIMED, Block, WriteQueues
from rocketpy_proto.remoting import MessageQueue

# Brokers deliver at a given time since 5.0.0; 4.x would store such a message without a delay.
TIMER_VERSION_MIN = 413


class RemotingBlockWriter:
    """BlockWriter of a cluster."""

    def __init__(self, cluster: Cluster, policy: RetryPolicy, timeouts: Timeouts) -> None:
        self._cluster = cluster
        self._policy = policy
        self._timeouts = timeouts
        self._queues: dict[str, WriteQueues] = {}
        self._timing: set[str] = set()
        self._visibility = Visibility(cluster)
        self._pipeline = SendPipeline(
            self._send, self._elsewhere, self._acknowledged, self._is_stored, policy
        )

    def write_queues(self, topics: Sequence[str]) -> dict[str, WriteQueues]:
        """Implements BlockWriter."""
        for topic in topics:
            if topic not in self._queues:
                self._queues[topic] = self._asked(topic)
        return {topic: self._queues[topic] for topic in topics}

    def _asked(self, topic: str) -> WriteQueues:
        nums = retried(self._policy, lambda: self._cluster.route(topic).write_queue_nums())
        if not sum(nums.values()):
            raise BrokerError(
                f"no broker accepts messages of topic {topic} now: no broker that has the topic "
                "has both a running master and queues with write permission (perm 2)"
            )
        return WriteQueues(dict(sorted(nums.items())))

    def send(self, block: Block) -> None:
        """Implements BlockWriter."""
        queues = self.write_queues([block.topic])[block.topic]
        for number, send_batch in send_batches(block):
            broker_name, queue_id = queues.place(number)
            if block.delay == DELAY_TIMED:
                self._check_timing(block.topic, broker_name)
            self._pipeline.put(MessageQueue(broker_name, queue_id, block.topic), send_batch)

    def finish(self) -> bytes:
        """Implements BlockWriter. Readers see all sent messages then."""
        self._pipeline.finish()
        self._visibility.wait()
        return b""

    def close(self) -> None:
        """Implements BlockWriter. The connection skips later answers."""

    def _send(self, queue: MessageQueue, send_batch: SendBatch) -> Call[SendResult]:
        return send(self._cluster, queue, send_batch, self._timeouts)

    def _acknowledged(self, queue: MessageQueue, send_batch: SendBatch, result: SendResult) -> None:
        if not send_batch.is_delayed:
            self._visibility.stored(queue, result, send_batch.count)

    def _is_stored(self, _queue: MessageQueue, _send_batch: SendBatch, /) -> bool:
        """Returns False: at-least-once delivery repeats a send batch without an answer."""
        return False

    def _elsewhere(self, queue: MessageQueue, away: frozenset[str]) -> MessageQueue | None:
        """Returns the same queue id, modulo the queue count, at the next broker that is not away.

        Returns None if all brokers are away.
        """
        nums = self._queues[queue.topic].nums
        names = [name for name in nums if nums[name] and name not in away]
        if not names:
            return None
        name = next((name for name in names if name > queue.broker_name), names[0])
        return MessageQueue(name, queue.queue_id % nums[name], queue.topic)

    def _check_timing(self, topic: str, broker_name: str) -> None:
        """Raises BrokerError if the broker cannot deliver at a time."""
        if broker_name in self._timing:
            return
        version = retried(
            self._policy, lambda: broker_version(self._cluster, topic, broker_name).answer()
        )
        if version < TIMER_VERSION_MIN:
            raise BrokerError(
                f"column deliverAt is set in rows for topic {topic}, but broker {broker_name} is "
                "older than RocketMQ 5, the first version that delivers at a given time; use "
                "column delayLevel"
            )
        self._timing.add(broker_name)
