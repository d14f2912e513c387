"""Wiring of the statistics to the store and lower services."""

from __future__ import annotations

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.pull.consume_service import ConsumeService
from rocketpy_broker.services.retry.wiring import Retry
from rocketpy_broker.services.topics.manager import TopicConfigManager


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    delay: Delay,
    consume: ConsumeService,
    retry: Retry,
) -> StatisticsService:
    """Returns the statistics of one broker, and registers its listeners."""
    counted = context.store.statistics
    service = StatisticsService(topics, counted, context.clock, context.config.cluster_name)
    counted.block_put.add(service.put)
    consume.pulled.add(service.pulled)
    groups.clients.registered.add(service.registered)
    for level in delay.levels:
        level.delivered.add(service.delivered)
    retry.send_backs.sent_back.add(service.sent_back)
    groups.configs.deleted.append(service.forget_group)

    async def start(scope: TaskScope) -> None:
        scope.start(service.run())

    context.lifecycle.starts.append(start)
    return service
