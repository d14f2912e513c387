"""Look-ups of single messages: by physical offset, key or tag.

Keys and tags are looked up in the index. Each record is decoded and checked first. So an offset
inside a record, or of a damaged one, returns nothing.
Source: DefaultMessageStore#lookMessageByOffset, #queryMessage; docs/design/storage.md sections 5.1
and 7.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rocketpy_broker.store.index.dispatch import IndexDispatch
from rocketpy_broker.store.index.file import LOG_END_MAX
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.filler import is_filler
from rocketpy_broker.store.queues.errors import StoreReadError
from rocketpy_proto.record import (
    DecodedRecord,
    MalformedRecordError,
    Record,
    decode_record,
    has_queue_offset,
)
from rocketpy_proto.record.index_keys import tag_key
from rocketpy_proto.record.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY

# RocketMQ's maxMsgsNumBatch: the limit of a query.
QUERY_COUNT_MAX = 64
SECOND_MS = 1000


@dataclass(slots=True)
class WalkPosition:
    """The position of a look-up in the log: it continues with records below `before`.

    The walk moves it to each candidate, and to None at its end.
    """

    before: int | None = LOG_END_MAX


@dataclass(frozen=True, slots=True)
class MessagePosition:
    """The queue and offset of a message in its topic."""

    queue_id: int
    queue_offset: int


class MessageLookup:
    """Look-ups of messages in one log."""

    def __init__(
        self, log: CommitLog, index: IndexDispatch, gone_below: Callable[[str], int]
    ) -> None:
        self._log = log
        self._index = index
        self._gone_below = gone_below

    def at(self, physical_offset: int) -> memoryview | None:
        """Returns the bytes of the message at `physical_offset`; None if none begins there.

        A prepared record is no message yet.
        """
        found = self._decoded(physical_offset)
        return None if found is None else self._log.files.view(physical_offset, found.size)

    def store_timestamp_ms(self, physical_offset: int) -> int | None:
        """Returns the store time of the message at `physical_offset`; None if none begins there."""
        found = self._decoded(physical_offset)
        return None if found is None else found.record.store_timestamp_ms

    def _decoded(self, physical_offset: int) -> DecodedRecord | None:
        """Returns the message at `physical_offset`; None for a filler or a prepared record."""
        found = self._whole(physical_offset)
        if found is None or is_filler(found.record):
            return None
        return found if has_queue_offset(found.record.sys_flag) else None

    def _whole(self, physical_offset: int) -> DecodedRecord | None:
        """Returns the record that begins at `physical_offset`, if it is undamaged."""
        segment = self._log.files.find(physical_offset)
        if segment is None or physical_offset >= self._log.end:
            return None
        position = physical_offset - segment.base
        try:
            decoded = decode_record(segment.view, position)
        except MalformedRecordError:
            return None
        places, sizes = np.array([position]), np.array([decoded.size], np.int32)
        is_whole = not self._log.compare(segment, places, sizes).damaged.any()
        is_here = decoded.record.physical_offset == physical_offset
        return decoded if is_whole and is_here else None

    def by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int
    ) -> list[memoryview]:
        """Returns the newest records of `topic` with `key` among KEYS or as UNIQ_KEY, oldest first.

        Times are store timestamps in ms, both included. Returns at most QUERY_COUNT_MAX records.
        Raises StoreReadError.
        """
        return _oldest_first(self.walk_key(topic, key, begin_ms, end_ms, count_max))

    def by_tag(
        self, topic: str, tag: str, begin_ms: int, end_ms: int, count_max: int
    ) -> list[memoryview]:
        """Returns the newest records of `topic` with `tag` in TAGS; otherwise as `by_key`."""
        return _oldest_first(self.walk_tag(topic, tag, begin_ms, end_ms, count_max))

    def walk_key(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        count_max: int,
        position: WalkPosition | None = None,
        *,
        is_unique: bool = False,
    ) -> Iterator[memoryview | None]:
        """Yields the records that `by_key` returns, newest first, from `position` on.

        Yields None for a candidate that is not wanted, and for a step within the index. A
        caller may let other tasks run between two items. With `is_unique` the key is a UNIQ_KEY.
        Raises StoreReadError.
        """
        has_key = _has_unique_key if is_unique else _has_key
        times = begin_ms, end_ms

        def is_wanted(record: Record) -> bool:
            return has_key(record, key)

        return self._walk(topic, key, is_wanted, *times, count_max, position or WalkPosition())

    def walk_tag(
        self,
        topic: str,
        tag: str,
        begin_ms: int,
        end_ms: int,
        count_max: int,
        position: WalkPosition | None = None,
    ) -> Iterator[memoryview | None]:
        """Yields records with `tag` in TAGS; otherwise as `walk_key`."""
        return self._walk(
            topic,
            tag_key(tag),
            lambda record: record.properties.get(TAGS) == tag,
            begin_ms,
            end_ms,
            count_max,
            position or WalkPosition(),
        )

    def _walk(
        self,
        topic: str,
        index_key: str,
        is_wanted: Callable[[Record], bool],
        begin_ms: int,
        end_ms: int,
        count_max: int,
        position: WalkPosition,
    ) -> Iterator[memoryview | None]:
        count_left = min(count_max, QUERY_COUNT_MAX)
        before = position.before
        if count_left <= 0 or before is None:
            return
        # Some entries are of other keys with the same hash, or of prepared records.
        candidates_left = 2 * count_left
        for offset in self._offsets(topic, index_key, begin_ms, end_ms, before):
            if offset is None:
                yield None
                continue
            # A deleted topic has no messages, even if it was recreated, nor has an emptied one.
            if offset < max(self._gone_below(topic), self._log.begin):
                break
            if 0 in {count_left, candidates_left}:
                return
            candidates_left -= 1
            position.before = offset
            decoded = self._decoded(offset)
            # The index holds keys of the same hash together; it has times in seconds, or none.
            if (
                decoded is not None
                and decoded.record.topic == topic
                and is_wanted(decoded.record)
                and begin_ms - SECOND_MS < decoded.record.store_timestamp_ms < end_ms + SECOND_MS
            ):
                count_left -= 1
                yield self._log.files.view(offset, decoded.size)
            else:
                yield None
        position.before = None

    def _offsets(
        self, topic: str, index_key: str, begin_ms: int, end_ms: int, before: int
    ) -> Iterator[int | None]:
        """Yields the offsets that the index finds, and None. Raises StoreReadError."""
        try:
            yield from self._index.walk(topic, index_key, begin_ms, end_ms, before)
        except OSError as error:
            raise StoreReadError("the index", error) from error

    def offsets_by_key(self, topic: str, key: str, count_max: int) -> list[int] | None:
        """Returns the physical offsets of all messages that may have `key` in KEYS or as UNIQ_KEY.

        Returns None if there are more than `count_max`, or if the index is incomplete.
        """
        offsets = self._index.query_all(topic, key, count_max)
        return None if offsets is None else offsets[offsets >= self._log.begin].tolist()

    def places(self, topic: str, physical_offsets: Iterable[int]) -> list[MessagePosition] | None:
        """Returns queue and offset of the messages of `topic`; None if a record is damaged.

        Takes about a tenth of a millisecond for each.
        """
        places = []
        for offset in physical_offsets:
            decoded = self._whole(offset)
            if decoded is None or is_filler(decoded.record):
                return None
            record = decoded.record
            if has_queue_offset(record.sys_flag) and record.topic == topic:
                places.append(MessagePosition(record.queue_id, record.queue_offset))
        return places


def _oldest_first(walk: Iterator[memoryview | None]) -> list[memoryview]:
    return [each for each in walk if each is not None][::-1]


def _has_unique_key(record: Record, key: str) -> bool:
    return record.properties.get(UNIQ_KEY) == key


def _has_key(record: Record, key: str) -> bool:
    keys = record.properties.get(KEYS, "").split(KEY_SEPARATOR)
    return key in keys or _has_unique_key(record, key)
