"""Administration: topics, and what broker this is. Holds no state of its own. Row N03 (part).

What a crash leaves of a deleted topic is an empty one, to be deleted again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from rocketpy_broker.clock import Clock, give_way
from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.services.flushing.large_writes import LargeWrites
from rocketpy_broker.services.flushing.store_files import StoreFiles
from rocketpy_broker.services.offsets.committed import SEPARATOR, ConsumerOffsetManager
from rocketpy_broker.services.operations.pages import Page, first_page, page_count
from rocketpy_broker.services.pulling.work_time import check_count
from rocketpy_broker.services.statistics.service import StatisticsService
from rocketpy_broker.services.topics.changes import TopicChange
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.tasks import TaskScope
from rocketpy_proto.call_limits import OFFSET_QUERY_ENTRIES_MAX

DISTRIBUTION = "pyspark-rocketpy"
# Looked at in one turn.
KEYS_A_TURN = 5_000


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """What a client may want to know before it sends; sizes in bytes."""

    version: str
    cluster_name: str
    broker_name: str
    body_bytes_max: int
    request_bytes_max: int
    flush_disk_type: str
    refusal: str
    commit_log_segment_bytes: int
    store_id: str


class AdminService:
    """Changes topics and tells about the broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        store_files: StoreFiles,
        large_writes: LargeWrites,
        topics: TopicConfigManager,
        consumers: ConsumerOffsetManager,
        statistics: StatisticsService,
        tasks: TaskScope,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._store_files = store_files
        self._large_writes = large_writes
        self._topics = topics
        self._consumers = consumers
        self._statistics = statistics
        self._tasks = tasks
        self._clock = clock
        # Told of a topic that was to be changed, how many ms that took, and whether it is.
        self.on_topic_changed: Callable[[str, float, bool], None] = lambda *_: None

    async def update_topic(self, change: TopicChange, *, create_only: bool) -> None:
        """Create or change a topic; durable on return.

        Raises TopicIllegalError, TopicAttributeError, BrokerError.
        """
        begin_ms, is_success = self._clock.monotonic_ms(), False
        try:
            await self._topics.alter(change, create_only=create_only)
            is_success = True
        except OSError as error:
            raise _not_saved(change.topic, error) from error
        finally:
            latency_ms = self._clock.monotonic_ms() - begin_ms
            self.on_topic_changed(change.topic, latency_ms, is_success)

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic, its queues, and every group's progress in it.

        Nothing is sent to it meanwhile. It goes on when the caller is cancelled.
        Raises TopicNotExistError, TopicIllegalError, StoreClosedError, BrokerError.
        """
        await self._tasks.finish(self._delete_topic(topic))

    async def _delete_topic(self, topic: str) -> None:
        # A deletion takes along what is under way.
        await self._large_writes.over()
        self._topics.check_deletable(topic)
        try:
            with self._store.deletions.refusing(topic):
                # The messages go first: a crash in between leaves an empty topic.
                await self._store_files.delete_topic(topic)
                await self._topics.delete(topic)
        except OSError as error:
            raise _not_saved(topic, error) from error
        self._consumers.delete_topic(topic)
        await self._statistics.forget_topic(topic)

    def list_topics(self, names: list[str], *, include_system: bool) -> list[TopicConfig]:
        """The named topics, each once, or all.

        Raises TopicNotExistError for a name that is not there, ParameterIllegalError for too many.
        """
        if names:
            check_count("topics", names, OFFSET_QUERY_ENTRIES_MAX)
            return [self._topics.get(name) for name in dict.fromkeys(names)]
        return self._topics.list(include_system=include_system)

    async def topic_groups(self, topic: str, after: str, count_max: int) -> Page:
        """Groups with progress in a topic, by name, behind `after`; others have turns in between.

        Raises TopicNotExistError, ParameterIllegalError.
        """
        self._topics.get(topic)
        count = page_count(count_max)
        found: list[str] = []
        for index, key in enumerate(self._consumers.entry_keys()):
            if index % KEYS_A_TURN == 0:
                await give_way()
            of_topic, _, group = key.rpartition(SEPARATOR)
            if of_topic == topic and group > after:
                found.append(group)
        return first_page(found, count)

    @property
    def refusal(self) -> str:
        """Why the store takes no messages; empty while it does."""
        return self._store.refusal or self._store.growth.refusal or ""

    def broker_info(self) -> BrokerInfo:
        """Version, names and limits of this broker."""
        config = self._config
        return BrokerInfo(
            version(DISTRIBUTION),
            config.cluster_name,
            config.broker_name,
            config.limits.body_bytes_max,
            config.limits.request_bytes_max,
            config.flush_disk_type.value,
            self.refusal,
            config.commit_log_segment_bytes,
            self._store.store_id,
        )


def _not_saved(topic: str, error: OSError) -> BrokerError:
    return BrokerError(
        f"the change of topic {topic!r} could not be saved ({error.strerror}); "
        "see to the broker's disk and try again"
    )
