"""Single messages: by physical offset, and by key or tag through the index.

Holds no state. A record is decoded and checked before it is given, so an offset that points into
the middle of one, or a damaged one, is answered with nothing.
Source: DefaultMessageStore#lookMessageByOffset, #queryMessage; docs/design/storage.md sections 5.1 and
7.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rocketpy_broker.store.index.dispatch import IndexDispatch
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

# RocketMQ's maxMsgsNumBatch: more are not looked for.
QUERY_COUNT_MAX = 64
SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message is, in its topic."""

    queue_id: int
    queue_offset: int


class MessageLookup:
    """Looks into one log."""

    def __init__(
        self, log: CommitLog, index: IndexDispatch, deleted_below: Callable[[str], int]
    ) -> None:
        self._log = log
        self._index = index
        self._deleted_below = deleted_below

    def at(self, physical_offset: int) -> memoryview | None:
        """Returns the bytes of the message at `physical_offset`; None where none begins.

        A prepared record is no message yet.
        """
        found = self._decoded(physical_offset)
        return None if found is None else self._log.files.view(physical_offset, found.size)

    def store_timestamp_ms(self, physical_offset: int) -> int | None:
        """When the record at `physical_offset` was stored; None where no whole record begins."""
        found = self._decoded(physical_offset)
        return None if found is None else found.record.store_timestamp_ms

    def _decoded(self, physical_offset: int) -> DecodedRecord | None:
        """Returns the message there."""
        found = self._whole(physical_offset)
        if found is None or is_filler(found.record):
            return None
        return found if has_queue_offset(found.record.sys_flag) else None

    def _whole(self, physical_offset: int) -> DecodedRecord | None:
        """Returns the record there, if it begins there and is as it was written."""
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

        Times are store timestamps in ms, both included. At most 64, as in RocketMQ.
        Raises StoreReadError.
        """
        return self._found(topic, key, lambda one: _has_key(one, key), begin_ms, end_ms, count_max)

    def by_tag(
        self, topic: str, tag: str, begin_ms: int, end_ms: int, count_max: int
    ) -> list[memoryview]:
        """Returns the newest records of `topic` whose TAGS are `tag`; otherwise as `by_key`.

        A record that an older version stored has no entry for its tag, and is not found.
        """
        return self._found(
            topic,
            tag_key(tag),
            lambda record: record.properties.get(TAGS) == tag,
            begin_ms,
            end_ms,
            count_max,
        )

    def _found(
        self,
        topic: str,
        index_key: str,
        is_wanted: Callable[[Record], bool],
        begin_ms: int,
        end_ms: int,
        count_max: int,
    ) -> list[memoryview]:
        found = []
        count_max = min(count_max, QUERY_COUNT_MAX)
        try:
            # A committed message is entered twice: as a prepared record, which is passed over here.
            offsets = self._index.query(topic, index_key, begin_ms, end_ms, 2 * count_max)
        except OSError as error:
            raise StoreReadError("the index", error) from error
        # A topic that was deleted has no messages, also when there is one of its name again.
        for offset in offsets[offsets >= self._deleted_below(topic)].tolist():
            decoded = self._decoded(offset)
            # Keys of the same hash lie together in the index; it knows times by the second, or not.
            if (
                decoded is not None
                and decoded.record.topic == topic
                and is_wanted(decoded.record)
                and begin_ms - SECOND_MS < decoded.record.store_timestamp_ms < end_ms + SECOND_MS
            ):
                found.append(self._log.files.view(offset, decoded.size))
        return found[-count_max:]

    def offsets_by_key(self, topic: str, key: str, count_max: int) -> list[int] | None:
        """Where in the log all messages of `topic` lie that may have `key` in KEYS or as UNIQ_KEY.

        None where that is not known: there are more than `count_max`, or the index lags behind.
        """
        offsets = self._index.query_all(topic, key, count_max)
        return None if offsets is None else offsets[offsets >= self._log.begin].tolist()

    def places(self, topic: str, physical_offsets: Iterable[int]) -> list[Place] | None:
        """Where the messages of `topic` at these offsets are; None if a record is damaged.

        Takes about a tenth of a millisecond for each.
        """
        places = []
        for offset in physical_offsets:
            decoded = self._whole(offset)
            if decoded is None or is_filler(decoded.record):
                return None
            record = decoded.record
            if has_queue_offset(record.sys_flag) and record.topic == topic:
                places.append(Place(record.queue_id, record.queue_offset))
        return places


def _has_key(record: Record, key: str) -> bool:
    keys = record.properties.get(KEYS, "").split(KEY_SEPARATOR)
    return key in keys or record.properties.get(UNIQ_KEY) == key
