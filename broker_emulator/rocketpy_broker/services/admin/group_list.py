"""Consumer groups for operators: names, members and lag.

A group is configured, or it has only committed offsets, as in tables of another broker. Its topics
are the topics with committed offsets and the subscribed topics. The lag of a queue without a
committed offset is all its messages. Lags take time that grows with the queues. So a call works for
about half a second and returns the first groups or topics, at least one.
Source: AdminBrokerProcessor#getConsumeStats, docs/design/broker_behaviour.md section 9.7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rocketpy_broker.errors import SubscriptionGroupNotExistError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.admin.pages import page_after, page_count
from rocketpy_broker.services.groups.clients.consumers import ConsumerGroup
from rocketpy_broker.services.groups.clients.members import GroupKey, Member
from rocketpy_broker.services.groups.config import SubscriptionGroupConfig
from rocketpy_broker.services.groups.manager import PREDEFINED, check_group
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.scan import SYSTEM_GROUP_PREFIX
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.topics.system import dead_letter_topic, retry_topic
from rocketpy_broker.services.work_time import WorkTime
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey

# Queues to look up in one scheduler slot; takes 2 ms.
QUEUES_A_TURN = 400
TOPICS_SHOWN_MAX = 10
REGISTRATIONS_PER_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """A topic of a group: readable queues, queues with a committed offset, and lag."""

    topic: str
    is_subscribed: bool
    queue_count: int
    committed_queue_count: int
    lag: int


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list; `clients` is None if it has no members."""

    group: str
    is_configured: bool
    member_count: int
    clients: ConsumerGroup | None
    topics: list[str]
    lag: int


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A single group; `config` is None if it is not configured."""

    config: SubscriptionGroupConfig | None
    member_count: int
    retry_message_count: int
    dead_letter_count: int


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """A client and its registrations, one for each of its groups."""

    client_id: str
    registrations: list[tuple[GroupKey, Member]]


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Groups by name; `has_more`: groups follow the last one."""

    groups: list[GroupSummary]
    has_more: bool


@dataclass(frozen=True, slots=True)
class GroupTopicPage:
    """Topics of a group by name; `has_more` as of GroupPage."""

    topics: list[GroupTopic]
    has_more: bool


@dataclass(frozen=True, slots=True)
class ClientPage:
    """Clients by id; `has_more` as of GroupPage."""

    clients: list[RegisteredClient]
    has_more: bool


class GroupListing:
    """A reader of groups, committed offsets and queues."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: Groups,
        committed: ConsumerOffsetManager,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._committed = committed
        self._clock = clock
        # Shared by all calls: many groups of few queues are as much work as one of many queues.
        self._left = QUEUES_A_TURN

    async def groups(self, after: str, count_max: int, *, include_system: bool) -> GroupPage:
        """Returns a page of the groups. Raises ParameterIllegalError."""
        count = page_count(count_max)
        work = WorkTime(self._clock)
        names = set(self._groups.configs.names())
        async for _, group in self._committed.entries():
            names.add(group)
        wanted = (name for name in names if include_system or not is_own(name))
        page = await page_after(wanted, after, count)
        progress = await self._topics_by_group(set(page.names))
        found: list[GroupSummary] = []
        for name in page.names:
            found.append(await self._summary(name, progress.get(name, [])))
            if work.is_over:
                break
        return GroupPage(found, page.has_more or len(found) < len(page.names))

    async def get(self, group: str) -> GroupDetails:
        """Returns one group. Raises ParameterIllegalError, SubscriptionGroupNotExistError."""
        check_group(group)
        config = self._groups.configs.find(group)
        if config is None and not await self._topics_by_group({group}):
            raise SubscriptionGroupNotExistError(group)
        retries = await self._topic(group, retry_topic(group))
        return GroupDetails(
            config,
            self._groups.clients.member_count(group),
            0 if retries is None else retries.lag,
            await self._message_count(dead_letter_topic(group)),
        )

    async def topics(self, group: str, after: str, count_max: int) -> GroupTopicPage:
        """Returns a page of a group's topics. Raises the same errors as `get`."""
        check_group(group)
        count = page_count(count_max)
        work = WorkTime(self._clock)
        progress = (await self._topics_by_group({group})).get(group, [])
        if not progress and group not in self._groups.configs:
            raise SubscriptionGroupNotExistError(group)
        named = [*progress, *self._subscribed(group)]
        page = await page_after((name for name in named if name in self._topics), after, count)
        found: list[GroupTopic] = []
        for number, name in enumerate(page.names, 1):
            topic = await self._topic(group, name)
            if topic is not None:
                found.append(topic)
            if found and work.is_over:
                return GroupTopicPage(found, page.has_more or number < len(page.names))
        return GroupTopicPage(found, page.has_more)

    async def clients(self, after: str, count_max: int) -> ClientPage:
        """Returns a page of all clients, with their groups. Raises ParameterIllegalError."""
        clients = self._groups.clients
        page = await page_after(clients.registered_ids(), after, page_count(count_max))
        found: list[RegisteredClient] = []
        left = REGISTRATIONS_PER_PAGE
        for number, client_id in enumerate(page.names, 1):
            # The client may have left since.
            if registrations := clients.registrations(client_id):
                found.append(RegisteredClient(client_id, sorted(registrations, key=_group_of)))
                left -= len(registrations)
            if left <= 0:
                return ClientPage(found, page.has_more or number < len(page.names))
        return ClientPage(found, page.has_more)

    async def _topics_by_group(self, groups: Collection[str]) -> dict[str, list[str]]:
        """Returns the topics with committed offsets, by group."""
        found: dict[str, list[str]] = {}
        async for topic, group in self._committed.entries():
            if group in groups:
                found.setdefault(group, []).append(topic)
        return found

    def _subscribed(self, group: str) -> Collection[str]:
        clients = self._groups.clients.consumer_group(group)
        return () if clients is None else clients.subscriptions.keys()

    async def _summary(self, group: str, progress: list[str]) -> GroupSummary:
        topics = sorted({*progress, *self._subscribed(group)})
        lags = [await self._topic(group, topic) for topic in topics]
        found = [each for each in lags if each is not None]
        return GroupSummary(
            group,
            group in self._groups.configs,
            self._groups.clients.member_count(group),
            self._groups.clients.consumer_group(group),
            [each.topic for each in found],
            sum(each.lag for each in found),
        )

    async def _topic(self, group: str, topic: str) -> GroupTopic | None:
        """Returns the group's state in a topic; None for a missing topic."""
        await self._step()
        committed_count = lag = queue_count = 0
        for queue in self._queues(topic):
            await self._step()
            queue_count += 1
            bounds = self._store.range_of(queue)
            offset = self._committed.query(group, *queue)
            committed_count += offset >= 0
            lag += max(bounds.max_offset - max(offset, bounds.min_offset), 0)
        if topic not in self._topics:
            return None
        is_subscribed = topic in self._subscribed(group)
        return GroupTopic(topic, is_subscribed, queue_count, committed_count, lag)

    async def _message_count(self, topic: str) -> int:
        count = 0
        for queue in self._queues(topic):
            await self._step()
            bounds = self._store.range_of(queue)
            count += bounds.max_offset - bounds.min_offset
        return count

    async def _step(self) -> None:
        """Counts one queue; takes a scheduler slot every QUEUES_A_TURN queues."""
        if not self._left:
            self._left = QUEUES_A_TURN
            await take_slot("offsets")
        self._left = max(self._left - 1, 0)

    def _queues(self, topic: str) -> Iterator[QueueKey]:
        config = self._topics.find(topic)
        for queue_id in range(0 if config is None else config.readable_queues):
            yield QueueKey(topic, queue_id)


def is_own(group: str) -> bool:
    """True if a group is the broker's own, which a list shows on request only."""
    return group in PREDEFINED or group.startswith(SYSTEM_GROUP_PREFIX)


def _group_of(registration: tuple[GroupKey, Member]) -> tuple[str, str]:
    (role, name), _ = registration
    return name, role.value
