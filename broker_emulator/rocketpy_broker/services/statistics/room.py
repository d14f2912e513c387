"""Builds the room of statistics, and lets the store and lower rooms feed it. Holds no state."""

from __future__ import annotations

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.consuming.service import ConsumeService
from rocketpy_broker.services.delay.room import Delay
from rocketpy_broker.services.groups.room import Groups
from rocketpy_broker.services.retry.room import Retry
from rocketpy_broker.services.statistics.service import StatisticsService
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.tasks import TaskScope


def build(
    ground: Ground,
    topics: TopicConfigManager,
    groups: Groups,
    delay: Delay,
    consuming: ConsumeService,
    retry: Retry,
) -> StatisticsService:
    """Statistics of one broker."""
    counted = ground.store.statistics
    service = StatisticsService(topics, counted, ground.clock, ground.config.cluster_name)
    counted.on_put = service.put
    consuming.on_pulled = service.pulled
    groups.clients.on_registered = service.registered
    for level in delay.levels:
        level.on_delivered = service.delivered
    retry.send_backs.on_sent_back = service.sent_back
    groups.configs.on_deleted = service.forget_group

    async def start(scope: TaskScope) -> None:
        scope.start(service.run())

    ground.lifecycle.starts.append(start)
    return service
