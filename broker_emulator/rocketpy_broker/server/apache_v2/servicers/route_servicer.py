"""The method for the queues of a topic.

Source: RouteActivity#queryRoute, docs/design/grpc_v2_semantics.md section 5.
"""

from __future__ import annotations

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.apache_v2.endpoints import check_bytes, endpoints_for
from rocketpy_broker.server.apache_v2.handlers import Methods
from rocketpy_broker.server.apache_v2.name_rules import check_topic
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.model import (
    DELAY,
    FIFO,
    MESSAGE_TYPE,
    MIXED,
    NORMAL,
    PRIORITY,
    TRANSACTION,
)
from rocketpy_proto.model.configs import QUEUE_NUMS_MAX, Perm, TopicConfig

QUEUES_A_SLOT = 1_000
_MIXED = (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION)
_TYPES: dict[str, tuple[v2.MessageType, ...]] = {
    NORMAL: (v2.NORMAL,),
    FIFO: (v2.FIFO,),
    DELAY: (v2.DELAY,),
    TRANSACTION: (v2.TRANSACTION,),
    PRIORITY: (v2.PRIORITY,),
    "LITE": (v2.LITE,),
    MIXED: _MIXED,
}
_PERMISSIONS = {
    (True, True): v2.READ_WRITE,
    (True, False): v2.READ,
    (False, True): v2.WRITE,
    (False, False): v2.NONE,
}


class RouteServicer:
    """The method QueryRoute."""

    def __init__(self, topics: TopicConfigManager, config: BrokerConfig) -> None:
        self._topics = topics
        self._config = config

    def methods(self) -> Methods:
        """Returns the function by method name."""
        return {"QueryRoute": self._route}

    async def _route(
        self, request: service_pb2.QueryRouteRequest, caller: RequestContext
    ) -> service_pb2.QueryRouteResponse:
        caller.check_client_id()
        name = caller.name_of(request.topic)
        check_topic(name)
        topic = self._topics.get(name)
        queue = v2.MessageQueue(
            topic=request.topic,
            broker=v2.Broker(
                name=self._config.broker_name,
                id=self._config.replication.broker_id,
                endpoints=endpoints_for(request.endpoints, self._config),
            ),
            accept_message_types=accepted_types(topic),
        )
        response = service_pb2.QueryRouteResponse()
        count = min(max(topic.read_queue_nums, topic.write_queue_nums), QUEUE_NUMS_MAX)
        if count < 1:
            # Clients divide by the number of queues.
            raise StatusError(v2.FORBIDDEN, f"topic {name!r} has no queues; add some")
        check_bytes(queue, count)
        for queue_id in range(count):
            queue.id = queue_id
            queue.permission = permission(topic, queue_id)
            response.message_queues.append(queue)
            if not (queue_id + 1) % QUEUES_A_SLOT:
                await take_slot("routes")
        return response


def accepted_types(topic: TopicConfig) -> tuple[v2.MessageType, ...]:
    """Returns the types of messages that a topic accepts; without a type it accepts all.

    These leave out PRIORITY: older SDKs refuse a route that names it.
    """
    return _TYPES.get(topic.attributes.get(MESSAGE_TYPE, ""), _MIXED)


def permission(topic: TopicConfig, queue_id: int) -> v2.Permission:
    """Returns the permission of clients in a queue of a topic."""
    return _PERMISSIONS[
        bool(topic.perm & Perm.READ) and queue_id < topic.read_queue_nums,
        bool(topic.perm & Perm.WRITE) and queue_id < topic.write_queue_nums,
    ]
