"""The method for the queues that a push consumer receives from.

Each member of a group gets the same queues: members share a queue by receiving from it. An ordered
group gets every queue, another group one entry for all queues of this broker.
Source: RouteActivity#queryAssignment, docs/design/grpc_v2_semantics.md section 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.apache_v2.endpoints import check_bytes, endpoints_for
from rocketpy_broker.server.apache_v2.handlers import Methods
from rocketpy_broker.server.apache_v2.receives.requests import group_and_topic
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.servicers.route_servicer import QUEUES_A_SLOT, permission
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.receipts.popped import ANY_QUEUE
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.model.configs import Perm


class AssignmentServicer:
    """The method QueryAssignment."""

    def __init__(
        self, topics: TopicConfigManager, groups: SubscriptionGroupManager, config: BrokerConfig
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._config = config

    def methods(self) -> Methods:
        """Returns the function by method name."""
        return {"QueryAssignment": self._assign}

    async def _assign(
        self, request: service_pb2.QueryAssignmentRequest, caller: RequestContext
    ) -> service_pb2.QueryAssignmentResponse:
        caller.check_client_id()
        group, name = group_and_topic(caller, request.group, request.topic)
        topic = self._topics.get(name)
        if not (topic.perm & Perm.READ and topic.readable_queues):
            raise StatusError(
                v2.FORBIDDEN,
                f"topic {name!r} has no readable queue; give it read queues and perm 4 or 6",
            )
        queue = v2.MessageQueue(
            topic=request.topic,
            broker=v2.Broker(
                name=self._config.broker_name,
                id=self._config.replication.broker_id,
                endpoints=endpoints_for(request.endpoints, self._config),
            ),
        )
        config = self._groups.find(group)
        is_ordered = config is not None and config.consume_message_orderly
        queue_ids: Sequence[int] = range(topic.readable_queues) if is_ordered else [ANY_QUEUE]
        check_bytes(queue, len(queue_ids))
        response = service_pb2.QueryAssignmentResponse()
        for number, queue_id in enumerate(queue_ids, 1):
            queue.id = queue_id
            queue.permission = permission(topic, max(queue_id, 0))
            response.assignments.add(message_queue=queue)
            if number % QUEUES_A_SLOT == 0:
                await take_slot("routes")
        return response
