"""Wiring of the metrics to lower services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketpy_broker.runtime.event_loop import watch_loop
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.wiring import LongPolling
from rocketpy_broker.services.observability.metrics.clients import ClientState
from rocketpy_broker.services.observability.metrics.events import Events
from rocketpy_broker.services.observability.metrics.labels import TopicLabels, node_labels
from rocketpy_broker.services.observability.metrics.lag import GroupLags
from rocketpy_broker.services.observability.metrics.pulled_offsets import PulledOffsets
from rocketpy_broker.services.observability.metrics.safe_listeners import SafeListeners
from rocketpy_broker.services.observability.metrics.service import MetricsService
from rocketpy_broker.services.observability.metrics.storage import StorageState
from rocketpy_broker.services.observability.metrics.traffic import Traffic
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.offsets.wiring import Offsets
from rocketpy_broker.services.pull.consume_service import ConsumeService
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.wiring import Transactions


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of a broker: event metrics, page service and listeners.

    The server calls `on_called` after a call, and `on_appended` after a block of an append stream.
    Arguments are the response code and the latency in ms.
    """

    events: Events
    service: MetricsService
    on_called: Callable[[str, int, float], None]
    on_appended: Callable[[int, float], None]
    topic_changed: Callable[[str, float, bool], None]
    group_changed: Callable[[float, bool], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """The services that the metrics read."""

    topics: TopicConfigManager
    groups: Groups
    flush: FlushServices
    long_polling: LongPolling
    delay: Delay
    offsets: Offsets
    consume: ConsumeService
    transactions: Transactions
    statistics: StatisticsService


def build(context: BrokerContext, services: Measured) -> Metrics:
    """Returns the metrics of one broker; without this call no event is counted."""
    clock, store, config = context.clock, context.store, context.config
    events = Events(services.topics, TopicLabels(services.topics))
    pulled = PulledOffsets()
    service = MetricsService(
        events.registry,
        [
            Traffic(services.statistics, services.topics),
            ClientState(services.topics, services.groups, config.broker_permission),
            GroupLags(store, services.topics, services.offsets.committed, pulled, clock),
            StorageState(store, services.delay, services.transactions.listing, clock),
        ],
        node_labels(config),
        clock,
    )
    held = services.long_polling.calls
    service.watch("rocketpy_held_calls", "Calls that wait for something.", lambda: len(held))
    listeners = SafeListeners(events.registry)
    _listen(context, services, events, pulled, listeners)

    async def start(scope: TaskScope) -> None:
        scope.start(watch_loop(clock, listeners.spared(events.loop_was_late)))

    context.lifecycle.starts.append(start)
    context.lifecycle.closes.append(service.close)
    return Metrics(
        events,
        service,
        listeners.spared(events.called),
        listeners.spared(events.appended),
        listeners.spared(events.topic_changed),
        listeners.spared(events.group_changed),
    )


def _listen(
    context: BrokerContext,
    services: Measured,
    events: Events,
    pulled: PulledOffsets,
    listeners: SafeListeners,
) -> None:
    clock, spared = context.clock, listeners.spared
    released, ended = spared(events.released), spared(events.transaction_ended)
    forget_group = spared(pulled.forget_group)

    async def group_deleted(group: str) -> None:
        forget_group(group)

    context.store.statistics.block_put.add(spared(events.put))
    services.consume.pulled.add(spared(pulled.pulled))
    services.flush.group_commit.flushed.add(spared(events.flushed))
    services.delay.release.released.add(
        lambda topic, waiting: released(topic, waiting, clock.now_ms())
    )
    services.transactions.service.ended.add(
        lambda half, operation: ended(half, operation, clock.now_ms())
    )
    services.statistics.topic_forgotten.add(spared(events.forget_topic))
    services.statistics.topic_forgotten.add(spared(pulled.forget_topic))
    services.groups.configs.deleted.append(group_deleted)
