"""Consumer groups for operators: names, members and lag.

A group is configured, or it has only committed offsets, as in tables of another broker. Its topics
are the topics with committed offsets and the subscribed topics. The lag of a queue without a
committed offset is all its messages. Lags take time that grows with the queues. So a call works for
about half a second and returns the first groups or topics, at least one.
Source: AdminBrokerProcessor#getConsumeStats, docs/design/broker_behaviour.md section 9.7.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator

from rocketpy_broker.errors import SubscriptionGroupNotExistError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services import caller
from rocketpy_broker.services.admin.pages import page_after, page_count, shown, shown_attributes
from rocketpy_broker.services.groups.clients.members import ClientRole, GroupKey, Member
from rocketpy_broker.services.groups.manager import check_group, is_system_group
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.observability.statistics.history import LagSample
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.micro_batches import MicroBatch
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.work_time import WorkTime
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import dead_letter_topic, retry_topic
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.rocketpy.v1 import groups_pb2

# Queues to look up, or registrations, in one scheduler slot; takes 2 ms.
ENTRIES_A_SLOT = 400
TOPICS_SHOWN_MAX = 10
_HIDDEN = -1
REGISTRATIONS_PER_PAGE = 1_000
# Fields of GroupConfig that have the same names in SubscriptionGroupConfig.
FIELDS = tuple(
    field.name
    for field in groups_pb2.GroupConfig.DESCRIPTOR.fields
    if field.name not in {"consumer_group", "attributes"}
)


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
        self._left = ENTRIES_A_SLOT

    async def groups(self, request: groups_pb2.ListGroupsRequest) -> groups_pb2.ListGroupsResponse:
        """Returns a page of the groups. Raises ParameterIllegalError."""
        count = page_count(request.count_max)
        work = WorkTime(self._clock)
        names = set(self._groups.configs.names())
        async for _, group in self._committed.entries():
            names.add(group)
        wanted = (
            name
            for name in names
            if name.startswith(request.prefix)
            and (request.include_system or not is_system_group(name))
        )
        page = await page_after(wanted, request.after, count)
        progress = await self.topics_by_group(set(page.names))
        response = groups_pb2.ListGroupsResponse()
        for name in page.names:
            if caller.may_see(name):
                response.groups.append(await self._summary(name, progress.get(name, [])))
            else:
                response.groups.append(self._name_only(name))
            if work.is_over:
                break
        response.has_more = page.has_more or len(response.groups) < len(page.names)
        return response

    async def get(self, request: groups_pb2.GetGroupRequest) -> groups_pb2.GetGroupResponse:
        """Returns one group. Raises ParameterIllegalError, SubscriptionGroupNotExistError."""
        group = request.consumer_group
        check_group(group)
        config = self._groups.configs.find(group)
        if config is None and not await self.topics_by_group({group}):
            raise SubscriptionGroupNotExistError(group)
        retries = await self._topic(group, retry_topic(group))
        batch = self._committed.micro_batches.get(group)
        return groups_pb2.GetGroupResponse(
            config=None if config is None else config_message(config),
            member_count=self._groups.clients.member_count(group),
            retry_message_count=0 if retries is None else retries.lag,
            dead_letter_count=await self._message_count(dead_letter_topic(group)),
            micro_batch=None if batch is None else _batch_message(batch),
        )

    async def topics(
        self, request: groups_pb2.ListGroupTopicsRequest
    ) -> groups_pb2.ListGroupTopicsResponse:
        """Returns a page of a group's topics. Raises the same errors as `get`."""
        group = request.consumer_group
        check_group(group)
        count = page_count(request.count_max)
        work = WorkTime(self._clock)
        progress = (await self.topics_by_group({group})).get(group, [])
        if not progress and group not in self._groups.configs:
            raise SubscriptionGroupNotExistError(group)
        named = [*progress, *self.subscribed(group)]
        existing = (name for name in named if name in self._topics)
        page = await page_after(existing, request.after, count)
        response = groups_pb2.ListGroupTopicsResponse(has_more=page.has_more)
        for number, name in enumerate(page.names, 1):
            topic = await self._topic(group, name)
            if topic is not None:
                response.topics.append(topic)
            if response.topics and work.is_over:
                response.has_more |= number < len(page.names)
                break
        return response

    async def clients(
        self, request: groups_pb2.ListClientsRequest
    ) -> groups_pb2.ListClientsResponse:
        """Returns a page of all clients, with their groups. Raises ParameterIllegalError."""
        clients = self._groups.clients
        count = page_count(request.count_max)
        page = await page_after(clients.registered_ids(), request.after, count)
        response = groups_pb2.ListClientsResponse(has_more=page.has_more)
        left = REGISTRATIONS_PER_PAGE
        for number, client_id in enumerate(page.names, 1):
            # The client may have left since.
            if registrations := clients.registrations(client_id):
                found = response.clients.add(client_id=client_id)
                for (role, group), member in sorted(registrations, key=_group_of):
                    found.registrations.add(
                        group=group,
                        is_producer=role is ClientRole.PRODUCER,
                        address=member.address,
                        last_update_ms=member.last_update_ms,
                    )
                left -= len(registrations)
                await self._step(len(registrations))
            if left <= 0:
                response.has_more |= number < len(page.names)
                break
        return response

    async def topics_by_group(self, groups: Collection[str]) -> dict[str, list[str]]:
        """Returns the topics with committed offsets, by group."""
        found: dict[str, list[str]] = {}
        async for topic, group in self._committed.entries():
            if group in groups:
                found.setdefault(group, []).append(topic)
        return found

    def subscribed(self, group: str) -> Collection[str]:
        """Returns the topics that the group's members subscribe to; none without members."""
        clients = self._groups.clients.consumer_group(group)
        return () if clients is None else clients.subscriptions.keys()

    async def lags(self) -> AsyncIterator[LagSample]:
        """Yields the lag and the dead letters of each group that is not the broker's own."""
        progress: dict[str, set[str]] = {}
        async for topic, group in self._committed.entries():
            progress.setdefault(group, set()).add(topic)
        for group in {*progress, *self._groups.configs.names()}:
            if is_system_group(group):
                continue
            lag = retries = 0
            for topic in progress.get(group, set()).union(self.subscribed(group)):
                found = await self._topic(group, topic)
                topic_lag = 0 if found is None else found.lag
                lag += topic_lag
                retries += topic_lag if topic == retry_topic(group) else 0
            dead_letters = await self._message_count(dead_letter_topic(group))
            yield LagSample(shown(group), lag, retries, dead_letters)

    def _name_only(self, group: str) -> groups_pb2.GroupSummary:
        """Returns a group that the user may not see."""
        return groups_pb2.GroupSummary(
            consumer_group=shown(group),
            is_configured=group in self._groups.configs,
            member_count=_HIDDEN,
            topic_count=_HIDDEN,
            lag=_HIDDEN,
        )

    async def _summary(self, group: str, progress: list[str]) -> groups_pb2.GroupSummary:
        topics = sorted({*progress, *self.subscribed(group)})
        lags = [await self._topic(group, topic) for topic in topics]
        found = [each for each in lags if each is not None]
        clients = self._groups.clients.consumer_group(group)
        latest = None if clients is None else clients.latest
        return groups_pb2.GroupSummary(
            consumer_group=shown(group),
            is_configured=group in self._groups.configs,
            member_count=self._groups.clients.member_count(group),
            topic_count=len(found),
            topics=[each.topic for each in found[:TOPICS_SHOWN_MAX]],
            lag=sum(each.lag for each in found),
            consume_type=None if latest is None else latest.consume_type.name,
            message_model=None if latest is None else latest.message_model.name,
        )

    async def _topic(self, group: str, topic: str) -> groups_pb2.GroupTopic | None:
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
        return groups_pb2.GroupTopic(
            topic=shown(topic),
            is_subscribed=topic in self.subscribed(group),
            queue_count=queue_count,
            committed_queue_count=committed_count,
            lag=lag,
            last_commit_timestamp_ms=self._committed.last_commit_ms(group, topic) or 0,
        )

    async def _message_count(self, topic: str) -> int:
        count = 0
        for queue in self._queues(topic):
            await self._step()
            bounds = self._store.range_of(queue)
            count += bounds.max_offset - bounds.min_offset
        return count

    async def _step(self, count: int = 1) -> None:
        """Counts queues or registrations; takes a scheduler slot every ENTRIES_A_SLOT."""
        if not self._left:
            self._left = ENTRIES_A_SLOT
            await take_slot("offsets")
        self._left = max(self._left - count, 0)

    def _queues(self, topic: str) -> Iterator[QueueKey]:
        config = self._topics.find(topic)
        for queue_id in range(0 if config is None else config.readable_queues):
            yield QueueKey(topic, queue_id)


def config_message(config: SubscriptionGroupConfig) -> groups_pb2.GroupConfig:
    """Returns a group's configuration as the contract's message."""
    return groups_pb2.GroupConfig(
        consumer_group=shown(config.group),
        attributes=shown_attributes(config),
        **{name: getattr(config, name) for name in FIELDS},
    )


def _batch_message(batch: MicroBatch) -> groups_pb2.MicroBatch:
    return groups_pb2.MicroBatch(
        driver_host=batch.driver_host,
        commit_timestamp_ms=batch.commit_timestamp_ms,
        message_count=batch.message_count,
        queue_count=batch.queue_count,
    )


def _group_of(registration: tuple[GroupKey, Member]) -> tuple[str, str]:
    (role, name), _ = registration
    return name, role.value
