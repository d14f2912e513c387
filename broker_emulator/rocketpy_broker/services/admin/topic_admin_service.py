"""Topic administration and broker information.

After a crash, a topic that was being deleted may remain without messages; delete it again.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing
from functools import cache, partial
from importlib.metadata import version
from itertools import islice

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.admin.change_outcome import saving, timing
from rocketpy_broker.services.admin.pages import first_page, page_count, shown, shown_attributes
from rocketpy_broker.services.admin.topic_contents import TopicContents
from rocketpy_broker.services.flush.admission import Admission
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.receipts.handle import pop_retry_topic
from rocketpy_broker.services.topics.changes import FIELDS, TopicChange
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.work_time import WorkTime, check_count
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.call_limits import OFFSET_QUERY_ENTRIES_MAX
from rocketpy_proto.model import CHECK_MAX_TIME_TOPIC
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.rocketpy.v1 import admin_pb2

DISTRIBUTION = "pyspark-rocketpy"
# Queues to look up the last message of in one scheduler slot; takes some ms.
LOOKUPS_A_SLOT = 50
# Topics that an error about a change names.
NAMES_SHOWN_MAX = 3
# Topics of an answer per scheduler slot; they take about 2 ms.
ENTRIES_A_SLOT = 500


@cache
def _installed_version() -> str:
    """Returns the version of the package; reading it from a file takes 3 ms."""
    return version(DISTRIBUTION)


class TopicAdminService:
    """Changes to the topics of one broker, and its information."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        contents: TopicContents,
        admission: Admission,
        topics: TopicConfigManager,
        consumers: ConsumerOffsetManager,
        statistics: StatisticsService,
        tasks: TaskScope,
        clock: Clock,
    ) -> None:
        # Read from a file of the package now, in case the disk fails later.
        self._version = _installed_version()
        self._config = config
        self._store = store
        self._contents = contents
        self._admission = admission
        self._topics = topics
        self._consumers = consumers
        self._statistics = statistics
        self._tasks = tasks
        self._clock = clock
        # Notified after each attempt to change a topic: its name, ms taken, and success.
        self.topic_changed = Listeners[[str, float, bool]]()
        # The port of the console; 0 without one.
        self.console_port = 0

    async def update_topic(self, request: admin_pb2.UpdateTopicRequest) -> None:
        """Creates or changes a topic; durable on return.

        Raises TopicIllegalError, TopicAttributeError, BrokerError.
        """
        config = request.config
        given = {name: getattr(config, name) for name in FIELDS if config.HasField(name)}
        change = TopicChange(config.topic, attributes=dict(config.attributes), **given)
        await self.alter([change], create_only=request.create_only)

    async def alter(self, changes: Sequence[TopicChange], *, create_only: bool = False) -> None:
        """Creates or changes topics as TopicConfigManager does. Raises BrokerError."""
        names = ", ".join(repr(each.topic) for each in changes[:NAMES_SHOWN_MAX])
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(timing(self._clock, partial(self.topic_changed, change.topic)))
            stack.enter_context(saving(f"topics {names}" if changes[1:] else f"topic {names}"))
            await self._topics.alter(changes, create_only=create_only)

    async def delete_topic(self, topic: str) -> None:
        """Removes a topic with its queues, pop retry topics, and the offsets of all groups in it.

        Sends to it are refused meanwhile. It continues when the caller is cancelled.
        Raises TopicNotExistError, TopicIllegalError, StoreClosedError, BrokerError.
        """
        await self._tasks.finish(self._delete_topic(topic))

    async def _delete_topic(self, topic: str) -> None:
        # Lets a large write under way end first, so that the deletion includes it.
        await self._admission.write_over()
        self._topics.check_deletable(topic)
        retries = await self._pop_retry_topics(topic)
        # Retry topics go before the topic: after a crash, a repeated call still finds it. They go
        # again after it: until then, a redelivery may have copied its messages to them.
        for each in [*retries, topic, *retries]:
            if each not in self._topics:
                continue
            with saving(f"topic {each!r}"), self._store.deletions.refusing(each):
                await self._contents.remove(each)
                await self._topics.delete(each)
            await self._statistics.forget_topic(each)

    async def empty_topic(self, topic: str) -> None:
        """Removes the messages of a topic and of its pop retry topics; durable on return.

        Configuration, offsets of queues and committed offsets stay. It continues when the caller is
        cancelled. Raises TopicNotExistError, TopicIllegalError, StoreClosedError,
        FlushTimeoutError, BrokerError.
        """
        await self._tasks.finish(self._empty_topic(topic))

    async def _empty_topic(self, topic: str) -> None:
        # Lets a large write under way end first, so that its messages go, too.
        await self._admission.write_over()
        self._topics.check_deletable(topic)
        await self._empty(topic)
        # Only now: a redelivery copies no message of an emptied topic.
        for each in await self._pop_retry_topics(topic):
            if each in self._topics:
                await self._empty(each)

    async def _empty(self, topic: str) -> None:
        with saving(f"topic {topic!r}"), self._store.deletions.emptying(topic):
            # Messages that readers do not see yet go, too.
            await self._admission.appends_over()
            self._store.deletions.check(topic)
            await self._contents.empty(topic)

    async def _pop_retry_topics(self, topic: str) -> list[str]:
        """Returns the topics for redeliveries of the topic's messages to groups that may pop them.

        %RETRY%a_b_c of group a_b and topic c is left out if group a has read topic b_c. It may have
        messages of that topic.
        """
        own: set[str] = set()
        others: set[str] = set()
        async for of, group in self._consumers.entries():
            name = pop_retry_topic(group, of)
            if name.endswith(f"_{topic}"):
                (own if of == topic else others).add(name)
        return sorted(own - others)

    async def remove_given_up(self) -> None:
        """Removes the half messages of abandoned transactions. Raises BrokerError."""
        await self._tasks.finish(self._remove_given_up())

    async def _remove_given_up(self) -> None:
        topic = CHECK_MAX_TIME_TOPIC
        await self._admission.write_over()
        with saving(f"topic {topic!r}"), self._store.deletions.refusing(topic):
            await self._contents.remove(topic)

    async def list_topics(
        self, request: admin_pb2.ListTopicsRequest
    ) -> admin_pb2.ListTopicsResponse:
        """Returns the named topics, each once, or else a page of topics after `after`.

        A page has up to `count_max` topics whose names start with `prefix`; 0 is no limit.

        It takes scheduler slots in between. Raises TopicNotExistError for a missing topic,
        ParameterIllegalError for too many names.
        """
        await take_slot("admin")
        response = admin_pb2.ListTopicsResponse()
        if request.topics:
            check_count("topics", request.topics, OFFSET_QUERY_ENTRIES_MAX)
            found = [self._topics.get(name) for name in dict.fromkeys(request.topics)]
            configs = iter(found)
        else:
            after, count_max = request.after, request.count_max
            if count_max < 0:
                raise ParameterIllegalError("count_max", count_max, "0 or more")
            listed = self._topics.names(include_system=request.include_system)
            prefix = request.prefix
            begin = bisect_right(listed, after) if after > prefix else bisect_left(listed, prefix)
            # No name continues with a later character than this one.
            end = bisect_left(listed, prefix + chr(sys.maxunicode)) if prefix else len(listed)
            page_end = min(begin + count_max, end) if count_max else end
            configs = self._topics.configs(listed[begin:page_end])
            response.has_more = page_end < end
        while part := list(islice(configs, ENTRIES_A_SLOT)):
            await take_slot("admin")
            response.configs.extend(map(_message, part))
        return response

    async def topic_queues(
        self, request: admin_pb2.ListTopicQueuesRequest
    ) -> admin_pb2.ListTopicQueuesResponse:
        """Returns readable queues from `queue_id` on: as many as fit the work time, at least one.

        Raises TopicNotExistError, ParameterIllegalError.
        """
        count, first = page_count(request.count_max), request.queue_id
        queue_nums = self._topics.get(request.topic).readable_queues
        if not 0 <= first < max(queue_nums, 1):
            raise ParameterIllegalError("queue_id", first, f"0 to {max(queue_nums, 1) - 1}")
        work = WorkTime(self._clock)
        response = admin_pb2.ListTopicQueuesResponse()
        queue_ids = range(first, min(first + count, queue_nums))
        async with aclosing(self.queue_statuses(request.topic, queue_ids)) as parts:
            async for part in parts:
                response.queues.extend(part)
                if work.is_over:
                    break
        response.has_more = first + len(response.queues) < queue_nums
        return response

    async def queue_statuses(
        self, topic: str, queue_ids: Sequence[int]
    ) -> AsyncGenerator[list[admin_pb2.TopicQueueStatus], None]:
        """Yields the states of queues in parts, with a scheduler slot in between."""
        for begin in range(0, len(queue_ids), LOOKUPS_A_SLOT):
            if begin:
                await take_slot("offsets")
            part = queue_ids[begin : begin + LOOKUPS_A_SLOT]
            yield [self._queue_status(QueueKey(topic, queue_id)) for queue_id in part]

    def _queue_status(self, queue: QueueKey) -> admin_pb2.TopicQueueStatus:
        bounds, last = self._store.range_of(queue), self._store.queue_lookup.last(queue)
        return admin_pb2.TopicQueueStatus(
            queue_id=queue.queue_id,
            min_offset=bounds.min_offset,
            max_offset=bounds.max_offset,
            last_store_timestamp_ms=-1 if last is None else last.timestamp_ms,
        )

    async def topic_groups(
        self, request: admin_pb2.ListTopicGroupsRequest
    ) -> admin_pb2.ListTopicGroupsResponse:
        """Returns a page of the groups after `after` that have committed offsets in a topic.

        It takes scheduler slots in between. Raises TopicNotExistError, ParameterIllegalError.
        """
        self._topics.get(request.topic)
        count = page_count(request.count_max)
        found: list[str] = []
        async for topic, group in self._consumers.entries():
            if topic == request.topic and group > request.after:
                found.append(group)
        page = first_page(found, count)
        return admin_pb2.ListTopicGroupsResponse(groups=page.names, has_more=page.has_more)

    @property
    def refusal(self) -> str:
        """The reason why the store refuses messages; empty while it accepts them, and at a slave.

        A slave refuses messages for as long as it is one, which is no fault.
        """
        store = self._store
        if store.slave_refusal is not None and store.refusal == store.slave_refusal:
            return ""
        return store.refusal or store.queue_allocator.refusal or ""

    async def broker_info(self) -> admin_pb2.GetBrokerInfoResponse:
        """Returns version, names and limits of this broker, for clients."""
        config = self._config
        return admin_pb2.GetBrokerInfoResponse(
            version=self._version,
            cluster_name=config.cluster_name,
            broker_name=config.broker_name,
            body_bytes_max=config.limits.body_bytes_max,
            request_bytes_max=config.limits.request_bytes_max,
            flush_disk_type=config.flush_disk_type.value,
            refusal=self.refusal,
            commit_log_segment_bytes=config.commit_log_segment_bytes,
            store_id=self._store.store_id,
            delay_levels_ms=config.delay_levels.delays_ms,
            console_port=self.console_port,
        )


def _message(config: TopicConfig) -> admin_pb2.TopicConfig:
    return admin_pb2.TopicConfig(
        topic=shown(config.topic),
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        attributes=shown_attributes(config),
        order=config.order,
        topic_filter_type=shown(config.topic_filter_type),
        topic_sys_flag=config.topic_sys_flag,
    )
