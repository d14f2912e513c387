"""Bounds of queues from the answers of brokers, and their comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, QueueBounds
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.fan_out import BrokerAnswer
from pyspark_rocketpy.transport.remoting.net.calls import Call
from pyspark_rocketpy.transport.values import Subscription
from rocketpy_proto.remoting import MessageQueue
from rocketpy_proto.remoting.headers.pulls import MASTER_ID


def ask_each(
    cluster: Cluster,
    question: Callable[[Cluster, MessageQueue, int], Call[int]],
    queues: Sequence[MessageQueue],
    broker_id: int,
) -> list[Call[int]]:
    """Sends a broker one request about each of its queues."""
    return [question(cluster, queue, broker_id) for queue in queues]


def joined_bounds(
    ends: Mapping[MessageQueue, BrokerAnswer[int]],
    begins: Mapping[MessageQueue, BrokerAnswer[int]],
    committed: Mapping[MessageQueue, int],
) -> Bounds:
    """Returns the bounds of the queues with all three answers."""
    found: Bounds = {}
    for queue, end in ends.items():
        if queue in begins and queue in committed:
            its = found.setdefault(queue.topic, {})
            its[BrokerQueue(queue.broker_name, queue.queue_id)] = QueueBounds(
                begins[queue].value,
                max(end.value, begins[queue].value),
                committed[queue],
                is_behind=end.broker_id != MASTER_ID,
            )
    return found


def no_broker_error(subscription: Subscription) -> ConnectionFailedError:
    """Returns the error for topics of which no broker has an address."""
    topics = ", ".join(subscription.named) or str(subscription.topic_pattern)
    return ConnectionFailedError(
        f"no broker that has queues of {topics} has an address at the name servers of option "
        "nameServer; see whether the brokers run"
    )


def has_news(known: Bounds, found: Bounds) -> bool:
    """True if queues were added or removed, or have other messages.

    A broker that is away is no news.
    """
    for topic, queues in found.items():
        told = known.get(topic, {})
        for queue, each in queues.items():
            before = told.get(queue)
            if before is None or each.max_offset > before.max_offset:
                return True
            if each.max_offset < before.max_offset and not each.is_behind:
                return True
        here = {queue.broker_name for queue in queues}
        if any(queue.broker_name in here and queue not in queues for queue in told):
            return True
    return False
