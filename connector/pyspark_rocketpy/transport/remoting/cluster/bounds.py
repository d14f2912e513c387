"""Bounds of queues from the answers of brokers, and their comparison.

Source: docs/design/cluster.md sections 2.2 and 2.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark_rocketpy.errors import ConnectionFailedError, TopicNotExistError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, Positions, QueueBounds
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.fan_out import BrokerAnswer, FanOut
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import max_offset, min_offset
from pyspark_rocketpy.transport.values import Subscription
from rocketpy_proto.remoting import MessageQueue
from rocketpy_proto.remoting.headers.pulls import MASTER_ID


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
                is_lagging=end.broker_id != MASTER_ID,
            )
    return found


def hidden_bounds(cluster: Cluster, fan_out: FanOut, queues: Positions) -> Bounds:
    """Returns the bounds of queues that may have left the route, at brokers that answer.

    Raises ConnectionFailedError, BrokerError.
    """
    cluster.prepare(list(queues))
    wanted = [
        MessageQueue(queue.broker_name, queue.queue_id, topic)
        for topic, its in queues.items()
        for queue in its
    ]
    asked = [queue for queue in wanted if fan_out.broker_id(queue) is not None]
    ends = fan_out.ask(asked, max_offset)
    begins = fan_out.ask(ends, min_offset)
    found = joined_bounds(ends, begins, dict.fromkeys(ends, -1))
    return {topic: _by_route(cluster, topic, queues[topic], its) for topic, its in found.items()}


def _by_route(
    cluster: Cluster,
    topic: str,
    places: dict[BrokerQueue, int],
    queues: dict[BrokerQueue, QueueBounds],
) -> dict[BrokerQueue, QueueBounds]:
    """Returns the queues, marked as hidden unless the route has them again.

    The route is queried again if a queue has unread messages: the queue may be back in the route.
    """
    if any(there.max_offset > places[queue] for queue, there in queues.items()):
        cluster.doubt(topic)
    try:
        counts = cluster.route(topic).read_queue_nums()
    except TopicNotExistError:
        counts = {}
    return {
        queue: replace(there, is_hidden=queue.queue_id >= counts.get(queue.broker_name, 0))
        for queue, there in queues.items()
    }


def no_broker_error(subscription: Subscription) -> ConnectionFailedError:
    """Returns the error for topics of which no broker has an address."""
    topics = ", ".join(subscription.named) or str(subscription.topic_pattern)
    return ConnectionFailedError(
        "the name servers of option nameServer have no address of a broker with queues of "
        f"{topics}; check that the brokers run"
    )


def has_news(known: Bounds, found: Bounds) -> bool:
    """True if queues were added or removed, or have other messages.

    A broker that is away is no news.
    """
    for topic, queues in found.items():
        earlier = known.get(topic, {})
        for queue, each in queues.items():
            before = earlier.get(queue)
            if before is None or each.max_offset > before.max_offset:
                return True
            if each.max_offset < before.max_offset and not each.is_lagging:
                return True
        here = {queue.broker_name for queue in queues}
        if any(queue.broker_name in here and queue not in queues for queue in earlier):
            return True
    return False
