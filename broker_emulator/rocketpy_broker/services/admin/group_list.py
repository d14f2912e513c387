"""Consumer groups for an operator: which there are, who is in them, how far they are behind.

A group is one that is configured, or one that has progress all the same, as in tables that come
from elsewhere. It is about the topics in which it has progress or to which it subscribes; a queue
without progress is all ahead of it. Lags take time that grows with queues, so a call works for
about half a second and answers for the first groups or topics, one at least. Holds no state.
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

# Bounds and offsets that are looked at in 2 ms.
QUEUES_A_TURN = 400
TOPICS_SHOWN_MAX = 10
REGISTRATIONS_PER_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """A topic of a group: its queues to read, those with progress, and messages not consumed."""

    topic: str
    is_subscribed: bool
    queue_count: int
    committed_queue_count: int
    lag: int


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group on one line; `clients` is None where it has no members."""

    group: str
    is_configured: bool
    member_count: int
    clients: ConsumerGroup | None
    topics: list[str]
    lag: int


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A group by itself; `config` is None where it is not configured."""

    config: SubscriptionGroupConfig | None
    member_count: int
    retry_message_count: int
    dead_letter_count: int


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """A client, and what is known of it in each of its groups."""

    client_id: str
    registrations: list[tuple[GroupKey, Member]]


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Groups by name; `has_more`: others come behind the last one."""

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
    """Looks at groups, progress and queues."""

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
        # Of all calls together: many groups of a few queues each are as much work as one of many.
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
        """Returns a page of a group's topics. Raises as `get`."""
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
            # It may be gone by now.
            if registrations := clients.registrations(client_id):
                found.append(RegisteredClient(client_id, sorted(registrations, key=_group_of)))
                left -= len(registrations)
            if left <= 0:
                return ClientPage(found, page.has_more or number < len(page.names))
        return ClientPage(found, page.has_more)

    async def _topics_by_group(self, groups: Collection[str]) -> dict[str, list[str]]:
        """Returns the topics in which these groups have progress."""
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
        """How the group is in a topic; None for one that is not there."""
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
        """Before a look at a queue."""
        if not self._left:
            self._left = QUEUES_A_TURN
            await take_slot("offsets")
        self._left = max(self._left - 1, 0)

    def _queues(self, topic: str) -> Iterator[QueueKey]:
        config = self._topics.find(topic)
        for queue_id in range(0 if config is None else config.readable_queues):
            yield QueueKey(topic, queue_id)


def is_own(group: str) -> bool:
    """True if a group is the broker's, and is listed only if asked for."""
    return group in PREDEFINED or group.startswith(SYSTEM_GROUP_PREFIX)


def _group_of(registration: tuple[GroupKey, Member]) -> tuple[str, str]:
    (role, name), _ = registration
    return name, role.value
