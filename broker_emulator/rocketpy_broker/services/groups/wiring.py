"""Builds the room of groups: configuration, clients, queue locks. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import Ground
from rocketpy_broker.services.groups.client_stream import NoticeStreams
from rocketpy_broker.services.groups.clients.expiry import Housekeeping
from rocketpy_broker.services.groups.clients.members import MemberTable
from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_broker.services.groups.locks import QueueLocks
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.groups.notifier import Announcer
from rocketpy_broker.services.groups.retry_topics import RetryTopics
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Groups:
    """Which groups there are, who is in them, and who consumes which queue in order."""

    configs: SubscriptionGroupManager
    retry_topics: RetryTopics
    clients: ClientService
    locks: QueueLocks


def build(ground: Ground, topics: TopicConfigManager) -> Groups:
    """The groups of one broker."""
    clock, limits = ground.clock, ground.config.limits.clients
    configs = SubscriptionGroupManager(
        ground.config.config_folder,
        clock,
        auto_create_subscription_group=ground.config.auto_create_subscription_group,
        groups_max=limits.groups_max,
    )
    retry_topics = RetryTopics(topics, clock)
    members = MemberTable(clock, limits)
    streams = NoticeStreams(limits)
    announcer = Announcer(members, streams, clock)
    clients = ClientService(configs, retry_topics, members, streams, announcer, limits, clock)
    locks = QueueLocks(clock, limits)
    housekeeping = Housekeeping(clock, members, clients, locks)

    async def start(scope: TaskScope) -> None:
        scope.start(announcer.run())
        scope.start(housekeeping.run())

    ground.lifecycle.loads.append(configs.load)
    ground.lifecycle.tables.append(configs.saver)
    ground.lifecycle.starts.append(start)
    ground.lifecycle.stops.append(streams.stop)
    return Groups(configs, retry_topics, clients, locks)
