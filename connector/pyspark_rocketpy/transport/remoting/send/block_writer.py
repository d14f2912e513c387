"""The blocks of one task on their way to a cluster, where they show at once.

A topic's queues are those of all brokers that take messages, in one numbering by the brokers'
names. It is asked for once a task and kept for its time, so that a message group keeps its queue.
Nothing is kept that a crash could lose: what a killed task has sent stays, and comes again when the
task is run again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_rocketpy.errors import BrokerError
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.topics import broker_version
from pyspark_rocketpy.transport.remoting.net.calls import Call
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.send.batches import SendBatch, parcels
from pyspark_rocketpy.transport.remoting.send.pipeline import SendPipeline
from pyspark_rocketpy.transport.remoting.send.requests import (
    Message,
    SendResult,
    send,
    send_encoded_batch,
)
from pyspark_rocketpy.transport.remoting.send.visibility import Visibility
from pyspark_rocketpy.transport.retries import retried
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import DELAY_TIMED, Block, WriteQueues
from rocketpy_proto.remoting import MessageQueue

# Who sends, by RocketMQ's books; nobody asks after this group's transactions, for it has none.
PRODUCER_GROUP = "rocketpy-sink"
# From 5.0.0 on brokers deliver at a time; 4.x would store such a message as one that does not wait.
TIMER_VERSION_MIN = 413


class RemotingBlockWriter:
    """See BlockWriter."""

    def __init__(self, cluster: Cluster, policy: RetryPolicy, patience: Timeouts) -> None:
        self._cluster = cluster
        self._policy = policy
        self._patience = patience
        self._queues: dict[str, WriteQueues] = {}
        self._timing: set[str] = set()
        self._showing = Visibility(cluster)
        self._lanes = SendPipeline(self._send, self._elsewhere, self._acknowledged, policy)

    def write_queues(self, topics: Sequence[str]) -> dict[str, WriteQueues]:
        """See BlockWriter."""
        for topic in topics:
            if topic not in self._queues:
                self._queues[topic] = self._asked(topic)
        return {topic: self._queues[topic] for topic in topics}

    def _asked(self, topic: str) -> WriteQueues:
        nums = retried(self._policy, lambda: self._cluster.route(topic).write_queue_nums())
        if not sum(nums.values()):
            raise BrokerError(
                f"no broker takes messages of topic {topic} just now: of those that have it, none "
                "has both a master that runs and queues with the permission to write (perm 2)"
            )
        return WriteQueues(dict(sorted(nums.items())))

    def send(self, block: Block) -> None:
        """See BlockWriter."""
        queues = self.write_queues([block.topic])[block.topic]
        for number, parcel in parcels(block):
            broker_name, queue_id = queues.place(number)
            if block.delay == DELAY_TIMED:
                self._check_timing(block.topic, broker_name)
            self._lanes.put(MessageQueue(broker_name, queue_id, block.topic), parcel)

    def finish(self) -> bytes:
        """See BlockWriter. What was sent can be read then."""
        self._lanes.finish()
        self._showing.wait()
        return b""

    def close(self) -> None:
        """See BlockWriter. Answers that nobody waits for any longer are passed over."""

    def _send(self, queue: MessageQueue, parcel: SendBatch) -> Call[SendResult]:
        if parcel.properties is None:
            body = parcel.body
            return send_encoded_batch(self._cluster, PRODUCER_GROUP, queue, body, self._patience)
        message = Message(parcel.body, parcel.properties, parcel.flag)
        return send(self._cluster, PRODUCER_GROUP, queue, message, self._patience)

    def _acknowledged(self, queue: MessageQueue, parcel: SendBatch, result: SendResult) -> None:
        if not parcel.is_delayed:
            self._showing.stored(queue, result, parcel.count)

    def _elsewhere(self, queue: MessageQueue, away: frozenset[str]) -> MessageQueue | None:
        """Returns the same queue of the next broker that is not away, counted around its queues."""
        nums = self._queues[queue.topic].nums
        names = [name for name in nums if nums[name] and name not in away]
        if not names:
            return None
        name = next((name for name in names if name > queue.broker_name), names[0])
        return MessageQueue(name, queue.queue_id % nums[name], queue.topic)

    def _check_timing(self, topic: str, broker_name: str) -> None:
        """Raises BrokerError where the broker would not wait."""
        if broker_name in self._timing:
            return
        version = retried(
            self._policy, lambda: broker_version(self._cluster, topic, broker_name).answer()
        )
        if version < TIMER_VERSION_MIN:
            raise BrokerError(
                f"column deliverAt is set in rows for topic {topic}, but broker {broker_name} is "
                "older than RocketMQ 5, which was the first to deliver at a time; use column "
                "delayLevel"
            )
        self._timing.add(broker_name)
