"""Builds the room of metrics, and lets lower rooms feed it. Holds no state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.consuming.service import ConsumeService
from rocketpy_broker.services.delay.room import Delay
from rocketpy_broker.services.flushing.room import Flushing
from rocketpy_broker.services.groups.room import Groups
from rocketpy_broker.services.holding.room import Holding
from rocketpy_broker.services.metrics.clients import ClientState
from rocketpy_broker.services.metrics.events import Events
from rocketpy_broker.services.metrics.labels import TopicLabels, node_labels
from rocketpy_broker.services.metrics.lag import GroupLags
from rocketpy_broker.services.metrics.listeners import Listeners
from rocketpy_broker.services.metrics.loop_watch import watch_loop
from rocketpy_broker.services.metrics.pulled_offsets import PulledOffsets
from rocketpy_broker.services.metrics.service import MetricsService
from rocketpy_broker.services.metrics.storage import StorageState
from rocketpy_broker.services.metrics.traffic import Traffic
from rocketpy_broker.services.offsets.room import Offsets
from rocketpy_broker.services.operations.room import Operations
from rocketpy_broker.services.statistics.service import StatisticsService
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.room import Transactions
from rocketpy_broker.tasks import TaskScope

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a broker measures: the events that it is told of, and everything as a text.

    Calls, and blocks of streams of appends, are told of by the server: code and ms.
    """

    events: Events
    service: MetricsService
    on_called: Callable[[str, int, float], None]
    on_appended: Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """The rooms that are measured."""

    topics: TopicConfigManager
    groups: Groups
    flushing: Flushing
    holding: Holding
    delay: Delay
    offsets: Offsets
    consuming: ConsumeService
    transactions: Transactions
    statistics: StatisticsService
    operations: Operations


def build(ground: Ground, rooms: Measured) -> Metrics:
    """The metrics of one broker. Only who wants them pays for them: nothing is told before."""
    clock, store, config = ground.clock, ground.store, ground.config
    events = Events(rooms.topics, TopicLabels(rooms.topics))
    pulled = PulledOffsets()
    service = MetricsService(
        events.registry,
        [
            Traffic(rooms.statistics, rooms.topics),
            ClientState(rooms.topics, rooms.groups, config.broker_permission),
            GroupLags(store, rooms.topics, rooms.offsets.committed, pulled, clock),
            StorageState(store, rooms.delay, rooms.transactions.listing, clock),
        ],
        node_labels(config),
        clock,
    )
    held = rooms.holding.calls
    service.watch("rocketpy_held_calls", "Calls that wait for something.", lambda: len(held))
    listeners = Listeners(events.registry)
    _listen(ground, rooms, events, pulled, listeners)

    async def start(scope: TaskScope) -> None:
        scope.start(watch_loop(clock, listeners.spared(events.loop_was_late)))

    ground.lifecycle.starts.append(start)
    ground.lifecycle.closes.append(service.close)
    return Metrics(
        events, service, listeners.spared(events.called), listeners.spared(events.appended)
    )


def _listen(
    ground: Ground, rooms: Measured, events: Events, pulled: PulledOffsets, listeners: Listeners
) -> None:
    clock, counted, spared = ground.clock, ground.store.statistics, listeners.spared
    released, ended = spared(events.released), spared(events.transaction_ended)
    counted.on_put = _also(counted.on_put, spared(events.put))
    rooms.consuming.on_pulled = _also(rooms.consuming.on_pulled, spared(pulled.pulled))
    rooms.flushing.group_commit.on_flushed = spared(events.flushed)
    rooms.delay.releasing.on_released = lambda topic, waiting: released(
        topic, waiting, clock.now_ms()
    )
    rooms.transactions.service.on_ended = lambda half, operation: ended(
        half, operation, clock.now_ms()
    )
    rooms.statistics.on_topic_forgotten = _also(
        spared(events.forget_topic), spared(pulled.forget_topic)
    )
    rooms.groups.configs.on_deleted = _also(
        spared(pulled.forget_group), rooms.groups.configs.on_deleted
    )
    rooms.operations.admin.on_topic_changed = spared(events.topic_changed)
    rooms.operations.groups.on_group_changed = spared(events.group_changed)


def _also(first: Callable[P, None], then: Callable[P, T]) -> Callable[P, T]:
    """Calls both, and returns what the second does."""

    def both(*args: P.args, **kwargs: P.kwargs) -> T:
        first(*args, **kwargs)
        return then(*args, **kwargs)

    return both
