"""The servicer of administration, a part of rocketpy.v1.Admin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.services.admin.broker_status import BrokerStatusService
from rocketpy_broker.services.admin.store_admin_service import StoreAdminService
from rocketpy_broker.services.admin.topic_admin_service import TopicAdminService
from rocketpy_broker.services.observability.statistics.history import History
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.slave.promotion import PromotionService
from rocketpy_proto.rocketpy.v1 import admin_pb2


class AdminServicer:
    """The methods for topics, single messages, cleaning, statistics and broker information."""

    def __init__(
        self,
        admin: TopicAdminService,
        store_admin: StoreAdminService,
        broker_status: BrokerStatusService,
        statistics: StatisticsService,
        history: History,
        promotion: PromotionService,
    ) -> None:
        self._admin = admin
        self._store_admin = store_admin
        self._status = broker_status
        self._statistics = statistics
        self._history = history
        self._promotion = promotion

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        admin, store_admin, status = self._admin, self._store_admin, self._status
        methods: dict[str, Callable[..., Any]] = {
            "UpdateTopic": admin.update_topic,
            "DeleteTopic": lambda request: admin.delete_topic(request.topic),
            "EmptyTopic": lambda request: admin.empty_topic(request.topic),
            "ListTopics": admin.list_topics,
            "ListTopicGroups": admin.topic_groups,
            "ListTopicQueues": admin.topic_queues,
            "GetBrokerInfo": lambda _request: admin.broker_info(),
            "GetBrokerStatus": lambda _request: status.status(),
            "QueryMessage": store_admin.query_message,
            "ViewMessage": store_admin.view_message,
            "GetStoreStatistics": store_admin.statistics,
            "GetStatistics": self._statistics.page,
            "GetHistory": self._history.get,
            "CleanExpiredFiles": lambda _request: store_admin.clean_expired_files(),
            "CleanUnusedTopics": store_admin.clean_unused_topics,
            "Promote": self._promotion.promote,
        }
        return all_bounded(admin_pb2, methods, bytes_max)
