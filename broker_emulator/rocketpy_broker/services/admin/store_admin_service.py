"""Store administration: single messages, counters and cleaning.

Cleaning removes only what a restart would remove, too. Topics without configuration are removed on
request only, since a lost `topics.json` must not cost the messages.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rocketpy_broker.errors import BrokerError, MessageNotExistError, ParameterIllegalError
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.admin.cleaning_service import CleaningService
from rocketpy_broker.services.admin.pages import first_page
from rocketpy_broker.services.admin.topic_contents import TopicContents
from rocketpy_broker.services.flush.large_writes import LargeWrites
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.cleaner import SegmentWait
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.statistics import PutTotal, StoreStatistics
from rocketpy_proto.record import Host, decode_offset_message_id, decode_record
from rocketpy_proto.record.hosts import PORT_MAX
from rocketpy_proto.record.layout import PROPERTIES_BYTES_MAX

logger = logging.getLogger(__name__)
QUERY_COUNT_DEFAULT = 32
QUERY_COUNT_MAX = 64
NO_END_MS = 1 << 60
# Unused topics that the log line names.
UNUSED_NAMED_MAX = 20
# Bytes of records in one response; a client accepts twice as many.
ANSWER_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class PutTotals:
    """Topics with their put counters; `has_more`: topics follow the last one."""

    totals: list[tuple[str, PutTotal]]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The number of removed log segments, and the reasons why segments remain."""

    removed_count: int
    waits: list[SegmentWait]


class StoreAdminService:
    """Message queries, counters and cleaning of one store."""

    def __init__(
        self,
        store: MessageStore,
        contents: TopicContents,
        large_writes: LargeWrites,
        topics: TopicConfigManager,
        cleaning: CleaningService,
        tasks: TaskScope,
    ) -> None:
        self._store = store
        self._contents = contents
        self._large_writes = large_writes
        self._topics = topics
        self._cleaning = cleaning
        self._tasks = tasks

    @property
    def store(self) -> MessageStore:
        """The store, for its positions."""
        return self._store

    def query_message(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int, tag: str
    ) -> list[memoryview]:
        """Returns the newest records of `topic` with `key`, or else with `tag`, oldest first.

        0 selects the defaults of `end_ms` and `count_max`. The result has at most ANSWER_BYTES_MAX
        bytes, but at least one found record. Raises TopicNotExistError, ParameterIllegalError,
        StoreReadError.
        """
        self._topics.get(topic)
        if key and tag:
            raise ParameterIllegalError("tag", tag, "none beside a key")
        if not (key or tag):
            accepted = "a key, or the unique id of a message; or give a tag"
            raise ParameterIllegalError("key", key, accepted)
        for name, value in (("key", key), ("tag", tag)):
            if len(value) > PROPERTIES_BYTES_MAX:
                raise ParameterIllegalError(name, value, f"up to {PROPERTIES_BYTES_MAX} characters")
        if begin_ms < 0 or end_ms < 0 or (end_ms and end_ms < begin_ms):
            accepted = f"0 for no end, or {begin_ms} and more"
            raise ParameterIllegalError("end_timestamp_ms", end_ms, accepted)
        if count_max < 0:
            raise ParameterIllegalError("count_max", count_max, f"0 to {QUERY_COUNT_MAX}")
        count = min(count_max or QUERY_COUNT_DEFAULT, QUERY_COUNT_MAX)
        messages = self._store.messages
        find, wanted = (messages.by_tag, tag) if tag else (messages.by_key, key)
        found = find(topic, wanted, begin_ms, end_ms or NO_END_MS, count)
        room = ANSWER_BYTES_MAX
        for index in range(len(found) - 1, -1, -1):
            room -= len(found[index])
            if room < 0:
                return found[min(index + 1, len(found) - 1) :]
        return found

    def view_message(self, offset_msg_id: str) -> memoryview:
        """Returns the record with that id. Raises ParameterIllegalError, MessageNotExistError.

        RocketMQ checks only the offset in the id, since its client connects to the address in it.
        """
        try:
            host, physical_offset = decode_offset_message_id(offset_msg_id)
        except ValueError as error:
            accepted = "32 or 56 hexadecimal digits"
            raise ParameterIllegalError("offset_msg_id", offset_msg_id, accepted) from error
        found = self._store.messages.at(physical_offset)
        if found is None:
            raise MessageNotExistError(offset_msg_id, _why_nothing(host))
        stored_at = decode_record(found).record.store_host
        if stored_at != host:
            raise MessageNotExistError(offset_msg_id, _why_nothing(host, stored_at))
        return found

    def statistics(self) -> StoreStatistics:
        """Returns the store's counters since it was opened."""
        return self._store.statistics

    def put_totals(self, after: str, *, include_system: bool) -> PutTotals:
        """Returns a page of topics after `after`, by name, with their put counters."""
        puts = self._store.statistics.puts
        wanted = (
            topic
            for topic in puts
            if topic > after and (include_system or not self._topics.is_internal(topic))
        )
        page = first_page(wanted)
        return PutTotals([(topic, puts[topic]) for topic in page.names], page.has_more)

    async def clean_expired_files(self) -> Cleaned:
        """Removes expired log segments at any hour. Raises BrokerError."""
        try:
            removed_count = await self._tasks.finish(self._cleaning.clean(manual=True))
            return Cleaned(removed_count, self._store.segment_waits(manual=True))
        except OSError as error:
            raise BrokerError(f"cleaning failed ({error.strerror}); try again") from error

    def _unused_topics(self) -> list[str]:
        stored = {queue.topic for queue in self._store.queues()}
        return sorted(topic for topic in stored if not self._topics.exists(topic))

    def name_unused_topics(self) -> None:
        """Logs the topics with queues but no entry in topics.json: no client can read them."""
        unused = self._unused_topics()
        if unused:
            names = ", ".join(repr(topic) for topic in unused[:UNUSED_NAMED_MAX])
            more = ", ..." if len(unused) > UNUSED_NAMED_MAX else ""
            logger.warning(
                "%d topics have queues but no entry in topics.json: %s%s; create them to read "
                "their messages, or remove these with `rocketpy clean --unused-topics`",
                len(unused),
                names,
                more,
            )

    async def clean_unused_topics(self) -> list[str]:
        """Removes the queues of topics that are not configured and returns the topic names.

        Raises BrokerError; earlier removals remain.
        """
        return await self._tasks.finish(self._clean_unused_topics())

    async def _clean_unused_topics(self) -> list[str]:
        unused = self._unused_topics()
        for topic in unused:
            await self._large_writes.over()
            try:
                with self._store.deletions.refusing(topic):
                    await self._contents.remove(topic)
            except OSError as error:
                raise BrokerError(
                    f"the queues of {topic!r} could not be removed ({error.strerror}); try again"
                ) from error
        return unused


def _why_nothing(host: Host, stored_at: Host | None = None) -> str:
    """Returns why no message has an id with address `host`.

    `stored_at` is the store host of the message at the id's offset.
    """
    if not 0 < host.port <= PORT_MAX:
        return "it may be a msgId, which a query of its topic finds"
    if stored_at is not None:
        return (
            f"it is of the broker at {host}, and the message at its place here was stored at "
            f"{stored_at}; ask the other broker"
        )
    return f"it names the broker at {host}; the message may be cleaned, or be of another broker"
