"""Topic administration and broker information.

After a crash, a topic that was being deleted may remain without messages; delete it again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.admin.change_outcome import saving, timing
from rocketpy_broker.services.admin.pages import Page, first_page, page_count
from rocketpy_broker.services.admin.topic_contents import TopicContents
from rocketpy_broker.services.flush.large_writes import LargeWrites
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.changes import TopicChange
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.topics.system import CHECK_MAX_TIME_TOPIC
from rocketpy_broker.services.work_time import WorkTime, check_count
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.call_limits import OFFSET_QUERY_ENTRIES_MAX

DISTRIBUTION = "pyspark-rocketpy"
# Queues to look up the last message of in one scheduler slot; takes some ms.
LOOKUPS_A_TURN = 50
INT_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """Version, names and limits of a broker, for clients; sizes in bytes."""

    version: str
    cluster_name: str
    broker_name: str
    body_bytes_max: int
    request_bytes_max: int
    flush_disk_type: str
    refusal: str
    commit_log_segment_bytes: int
    store_id: str


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Topics by name; `has_more`: topics follow the last one."""

    configs: Iterator[TopicConfig]
    has_more: bool


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """A queue, and the store time of its last message in ms since 1970; -1: none."""

    queue_id: int
    min_offset: int
    max_offset: int
    last_store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TopicQueuePage:
    """Queues of a topic by id; `has_more` as of TopicPage."""

    queues: Sequence[TopicQueue]
    has_more: bool


class TopicAdminService:
    """Changes to the topics of one broker, and its information."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        contents: TopicContents,
        large_writes: LargeWrites,
        topics: TopicConfigManager,
        consumers: ConsumerOffsetManager,
        statistics: StatisticsService,
        tasks: TaskScope,
        clock: Clock,
    ) -> None:
        # Read from a file of the package now, in case the disk fails later.
        self._version = version(DISTRIBUTION)
        self._config = config
        self._store = store
        self._contents = contents
        self._large_writes = large_writes
        self._topics = topics
        self._consumers = consumers
        self._statistics = statistics
        self._tasks = tasks
        self._clock = clock
        # Notified after each attempt to change a topic: its name, ms taken, and success.
        self.topic_changed = Listeners[[str, float, bool]]()

    async def update_topic(self, change: TopicChange, *, create_only: bool) -> None:
        """Creates or changes a topic; durable on return.

        Raises TopicIllegalError, TopicAttributeError, BrokerError.
        """
        tell = partial(self.topic_changed, change.topic)
        with timing(self._clock, tell), saving(f"topic {change.topic!r}"):
            await self._topics.alter(change, create_only=create_only)

    async def delete_topic(self, topic: str) -> None:
        """Removes a topic, its queues, and the committed offsets of all groups in it.

        Sends to it are refused meanwhile. It continues when the caller is cancelled.
        Raises TopicNotExistError, TopicIllegalError, StoreClosedError, BrokerError.
        """
        await self._tasks.finish(self._delete_topic(topic))

    async def _delete_topic(self, topic: str) -> None:
        # Lets a large write under way end first, so that the deletion includes it.
        await self._large_writes.over()
        self._topics.check_deletable(topic)
        with saving(f"topic {topic!r}"), self._store.deletions.refusing(topic):
            await self._contents.remove(topic)
            await self._topics.delete(topic)
        await self._statistics.forget_topic(topic)

    async def remove_given_up(self) -> None:
        """Removes the half messages of abandoned transactions. Raises BrokerError."""
        await self._tasks.finish(self._remove_given_up())

    async def _remove_given_up(self) -> None:
        topic = CHECK_MAX_TIME_TOPIC
        await self._large_writes.over()
        with saving(f"topic {topic!r}"), self._store.deletions.refusing(topic):
            await self._contents.remove(topic)

    def list_topics(
        self, names: list[str], after: str = "", count_max: int = 0, *, include_system: bool
    ) -> TopicPage:
        """Returns the named topics, each once, or topics after `after`: all, or `count_max`.

        Raises TopicNotExistError for a missing topic, ParameterIllegalError for too many names.
        """
        if names:
            check_count("topics", names, OFFSET_QUERY_ENTRIES_MAX)
            found = [self._topics.get(name) for name in dict.fromkeys(names)]
            return TopicPage(iter(found), has_more=False)
        if not 0 <= count_max <= INT_MAX:
            raise ParameterIllegalError("count_max", count_max, "0 or more")
        listed = self._topics.names(include_system=include_system)
        begin = bisect_right(listed, after) if after else 0
        end = begin + count_max if count_max else len(listed)
        return TopicPage(self._topics.configs(listed[begin:end]), has_more=end < len(listed))

    async def topic_queues(self, topic: str, first: int, count_max: int) -> TopicQueuePage:
        """Returns readable queues from `first` on: as many as fit the work time, at least one.

        Raises TopicNotExistError, ParameterIllegalError.
        """
        count = page_count(count_max)
        queue_nums = self._topics.get(topic).readable_queues
        if not 0 <= first < max(queue_nums, 1):
            raise ParameterIllegalError("queue_id", first, f"0 to {max(queue_nums, 1) - 1}")
        work = WorkTime(self._clock)
        found: list[TopicQueue] = []
        for queue_id in range(first, min(first + count, queue_nums)):
            queue = QueueKey(topic, queue_id)
            bounds, last = self._store.range_of(queue), self._store.queue_lookup.last(queue)
            stored_ms = -1 if last is None else last.timestamp_ms
            found.append(TopicQueue(queue_id, bounds.min_offset, bounds.max_offset, stored_ms))
            if len(found) % LOOKUPS_A_TURN == 0:
                await take_slot("offsets")
                if work.is_over:
                    break
        return TopicQueuePage(found, has_more=first + len(found) < queue_nums)

    async def topic_groups(self, topic: str, after: str, count_max: int) -> Page:
        """Returns groups with committed offsets in a topic, by name, after `after`.

        It takes scheduler slots in between. Raises TopicNotExistError, ParameterIllegalError.
        """
        self._topics.get(topic)
        count = page_count(count_max)
        found: list[str] = []
        async for of_topic, group in self._consumers.entries():
            if of_topic == topic and group > after:
                found.append(group)
        return first_page(found, count)

    @property
    def refusal(self) -> str:
        """The reason why the store refuses messages; empty while it accepts them."""
        return self._store.refusal or self._store.growth.refusal or ""

    def broker_info(self) -> BrokerInfo:
        """Returns version, names and limits of this broker."""
        config = self._config
        return BrokerInfo(
            self._version,
            config.cluster_name,
            config.broker_name,
            config.limits.body_bytes_max,
            config.limits.request_bytes_max,
            config.flush_disk_type.value,
            self.refusal,
            config.commit_log_segment_bytes,
            self._store.store_id,
        )
