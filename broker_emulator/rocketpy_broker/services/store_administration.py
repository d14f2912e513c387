"""Questions and orders about what is stored: single messages, counters, cleaning. Holds no state.

Nothing is cleaned here that a restart would not clean, too; topics that nobody configured go only
on request, for a lost `topics.json` must not take the messages with it.
Rows S05, S10, S13, B07.
"""

from __future__ import annotations

from rocketpy_broker.errors import BrokerError, MessageNotExistError, ParameterIllegalError
from rocketpy_broker.services.cleaning import CleaningService
from rocketpy_broker.services.topics import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.statistics import StoreStatistics
from rocketpy_proto.record import decode_offset_message_id

QUERY_COUNT_DEFAULT = 32
QUERY_COUNT_MAX = 64
NO_END_MS = 1 << 60


class StoreAdminService:
    """Looks into the store, and cleans it."""

    def __init__(
        self, store: MessageStore, topics: TopicConfigManager, cleaning: CleaningService
    ) -> None:
        self._store = store
        self._topics = topics
        self._cleaning = cleaning

    @property
    def store(self) -> MessageStore:
        """The store, for its positions."""
        return self._store

    def query_message(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int
    ) -> list[memoryview]:
        """The newest records of `topic` with `key`, oldest first; 0 stands for the defaults.

        Raises TopicNotExistError, ParameterIllegalError.
        """
        self._topics.get(topic)
        if not key:
            raise ParameterIllegalError("key", key, "a key, or the unique id of a message")
        if begin_ms < 0 or end_ms < 0 or (end_ms and end_ms < begin_ms):
            accepted = f"0 for no end, or {begin_ms} and more"
            raise ParameterIllegalError("end_timestamp_ms", end_ms, accepted)
        if count_max < 0:
            raise ParameterIllegalError("count_max", count_max, f"0 to {QUERY_COUNT_MAX}")
        count = min(count_max or QUERY_COUNT_DEFAULT, QUERY_COUNT_MAX)
        return self._store.messages.by_key(topic, key, begin_ms, end_ms or NO_END_MS, count)

    def view_message(self, offset_msg_id: str) -> memoryview:
        """The record with that id. Raises ParameterIllegalError, MessageNotExistError."""
        try:
            _, physical_offset = decode_offset_message_id(offset_msg_id)
        except ValueError as error:
            accepted = "32 or 56 hexadecimal digits"
            raise ParameterIllegalError("offset_msg_id", offset_msg_id, accepted) from error
        found = self._store.messages.at(physical_offset)
        if found is None:
            raise MessageNotExistError(offset_msg_id)
        return found

    def statistics(self) -> StoreStatistics:
        """What the store has counted since it was opened."""
        return self._store.statistics

    async def clean_expired_files(self) -> int:
        """Remove what has expired, whatever the hour; return how many log segments.

        Raises BrokerError.
        """
        try:
            return await self._cleaning.clean(manual=True)
        except OSError as error:
            raise BrokerError(f"cleaning failed ({error.strerror}); try again") from error

    def clean_unused_topics(self) -> list[str]:
        """Remove the queues of topics that are not configured; return their names.

        Raises BrokerError; what was removed until then stays removed.
        """
        stored = {queue.topic for queue in self._store.queues()}
        unused = sorted(topic for topic in stored if not self._topics.exists(topic))
        for topic in unused:
            try:
                self._store.delete_topic(topic)
            except OSError as error:
                raise BrokerError(
                    f"the queues of {topic!r} could not be removed ({error.strerror}); try again"
                ) from error
        return unused
