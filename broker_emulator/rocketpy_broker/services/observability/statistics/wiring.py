"""Wiring of the counters and statistics to the store and lower services."""

from __future__ import annotations

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.observability.counters.event_counter import EventCounter
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.pull.service import PullService
from rocketpy_broker.services.retry.service import SendBackService
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.wiring import Transactions


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    flush: FlushServices,
    delay: Delay,
    pulls: PullService,
    transactions: Transactions,
    retry: SendBackService,
) -> StatisticsService:
    """Returns the statistics of one broker, and registers the listeners of its counter."""
    counted, clock = context.store.statistics, context.clock
    counter = EventCounter(topics, clock, context.config.cluster_name)
    service = StatisticsService(counter, counted, topics, clock)
    counted.block_put.add(counter.put)
    pulls.pulled.add(counter.pulled)
    flush.group_commit.flushed.add(counter.flushed)
    groups.clients.registered.add(counter.registered)
    for level in delay.levels:
        level.delivered.add(counter.delivered)
    delay.release.released.add(counter.released)
    transactions.service.ended.add(counter.transaction_ended)
    retry.sent_back.add(counter.sent_back)
    groups.configs.deleted.append(service.forget_group)

    async def start(scope: TaskScope) -> None:
        scope.start(service.run())

    context.lifecycle.starts.append(start)
    return service
