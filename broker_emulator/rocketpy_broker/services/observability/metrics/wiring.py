"""Wiring of the metrics page to the services that it shows."""

from __future__ import annotations

from rocketpy_broker.runtime.event_loop import watch_loop
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.wiring import LongPolling
from rocketpy_broker.services.observability.counters.event_counter import EventCounter
from rocketpy_broker.services.observability.metrics.broker_state import BrokerState
from rocketpy_broker.services.observability.metrics.events import EventMetrics
from rocketpy_broker.services.observability.metrics.lag import GroupLags
from rocketpy_broker.services.observability.metrics.service import MetricsService
from rocketpy_broker.services.offsets.wiring import Offsets
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.wiring import Transactions


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    long_polling: LongPolling,
    delay: Delay,
    offsets: Offsets,
    transactions: Transactions,
    counter: EventCounter,
) -> MetricsService:
    """Returns the metrics page of one broker; it has RocketMQ's labels of a node."""
    clock, store, config = context.clock, context.store, context.config
    node = {
        "node_type": "broker",
        "cluster": config.cluster_name,
        "node_id": config.broker_name,
    }
    service = MetricsService(
        [
            EventMetrics(counter, topics),
            BrokerState(context, topics, groups, long_polling, delay, transactions.listing),
            GroupLags(store, topics, offsets.committed, counter, clock),
        ],
        node,
        clock,
    )

    async def start(scope: TaskScope) -> None:
        scope.start(watch_loop(clock, counter.loop_lagged))

    context.lifecycle.starts.append(start)
    return service
