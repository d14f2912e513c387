"""Wiring of consumer groups: configuration, clients, queue locks."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.groups.client_stream import ClientStreams
from rocketpy_broker.services.groups.clients.expiry import ClientExpiry
from rocketpy_broker.services.groups.clients.members import MemberTable
from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_broker.services.groups.locks import QueueLocks
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.groups.notifier import Notifier
from rocketpy_broker.services.groups.retry_topics import RetryTopics
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Groups:
    """The consumer groups of one broker, their clients and their queue locks."""

    configs: SubscriptionGroupManager
    retry_topics: RetryTopics
    clients: ClientService
    locks: QueueLocks


def build(context: BrokerContext, topics: TopicConfigManager) -> Groups:
    """Returns the groups of one broker."""
    clock, limits = context.clock, context.config.limits.clients
    configs = SubscriptionGroupManager(
        context.config.config_folder,
        clock,
        auto_create_subscription_group=context.config.auto_create_subscription_group,
        groups_max=limits.groups_max,
    )
    retry_topics = RetryTopics(topics, clock)
    members = MemberTable(clock, limits)
    streams = ClientStreams(limits)
    notifier = Notifier(members, streams, clock)
    clients = ClientService(configs, retry_topics, members, streams, notifier, limits, clock)
    locks = QueueLocks(clock, limits)
    housekeeping = ClientExpiry(clock, members, clients, locks)

    def configure(config: BrokerConfig) -> None:
        configs.auto_create_subscription_group = config.auto_create_subscription_group

    async def start(scope: TaskScope) -> None:
        scope.start(notifier.run())
        scope.start(housekeeping.run())

    context.config_changed.add(configure)
    context.lifecycle.loads.append(configs.load)
    context.lifecycle.tables.append(configs.saver)
    context.lifecycle.starts.append(start)
    context.lifecycle.stops.append(streams.stop)
    return Groups(configs, retry_topics, clients, locks)
