"""Bounds of hidden queues, which left the route.

Brokers still answer for them. Source: docs/design/cluster.md sections 2.2 and 2.4.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark_rocketpy.errors import TopicNotExistError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, Positions, QueueBounds
from pyspark_rocketpy.transport.remoting.cluster.bounds import ask_each, joined_bounds
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.fan_out import FanOut
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import max_offset, min_offset
from rocketpy_proto.remoting import MessageQueue


def hidden_bounds(cluster: Cluster, fan_out: FanOut, queues: Positions) -> Bounds:
    """Returns the bounds of the queues at brokers that answer.

    Raises ConnectionFailedError, BrokerError.
    """
    cluster.prepare(list(queues))
    wanted = [
        MessageQueue(queue.broker_name, queue.queue_id, topic)
        for topic, its in queues.items()
        for queue in its
    ]
    asked = [queue for queue in wanted if fan_out.broker_id(queue) is not None]
    ends = fan_out.look(asked, partial(ask_each, cluster, max_offset))
    begins = fan_out.look(list(ends), partial(ask_each, cluster, min_offset))
    found = joined_bounds(ends, begins, dict.fromkeys(ends, -1))
    return {topic: _by_route(cluster, topic, queues[topic], its) for topic, its in found.items()}


def _by_route(
    cluster: Cluster,
    topic: str,
    places: dict[BrokerQueue, int],
    queues: dict[BrokerQueue, QueueBounds],
) -> dict[BrokerQueue, QueueBounds]:
    """Returns the queues, marked as hidden unless the route has them again.

    The route is queried again if a queue has unread messages, which may have come meanwhile.
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
