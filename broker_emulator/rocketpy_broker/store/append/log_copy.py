"""A slave's copy of a master's log, byte for byte.

Bytes are written as they come, after the log's end. They become part of the log as whole records
that pass RocketMQ's check at their own physical offset. Each record then gets its checksum, its
unit and its index entries. So readers see only checked records. A crash leaves received bytes after
the log's end, which recovery cuts. Bytes below the log's end are compared: a master with another
log is detected.

A queue whose offsets begin again belongs to a topic that was deleted and recreated. Used on the
store's thread, by one connection at a time.
Source: DefaultHAClient#dispatchReadRequest, docs/design/cluster.md section 4.1. The checks are
ours: RocketMQ's slave appends what it gets.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import StoreError
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.dispatcher import Dispatcher
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.property_crc import wrong_property_crcs
from rocketpy_broker.store.log.scanner import walk
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.queues.allocator import QueueAllocator
from rocketpy_broker.store.queues.dispatch import DispatchRequest, requests_of, topics_of
from rocketpy_broker.store.queues.slices import QueueSlice
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.queues.units import NO_UNITS
from rocketpy_broker.store.times import StoreTimes
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import (
    BLANK_BYTES,
    END_OF_SEGMENT_MAGIC,
    RECORD_MAGICS,
    MalformedRecordError,
    RecordBlock,
)
from rocketpy_proto.record.index_keys import tags_codes_and_index_keys

# Records of one step take some 10 ms.
STEP_BYTES, ROWS_MAX = 1 << 20, 4096
# A new queue takes some 0.2 ms.
STEP_QUEUES_MAX = 64
# Limit of received bytes after the log's end; no record is larger.
AHEAD_BYTES_MAX = 64 << 20
# Limit of missing units in a queue; each takes 20 bytes of its file.
GAP_UNITS_MAX = 100_000
QUEUE_IDS_MAX = 1 << 16
QUEUE_OFFSET_MAX = 1 << 55
TOPIC_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_SIZE_AND_MAGIC = struct.Struct(">iI")


class LogCopyError(StoreError):
    """Bytes of a master that cannot be a part of this log."""

    def __init__(self, offset: int, fault: str) -> None:
        super().__init__(f"the master's log at offset {offset}: {fault}")
        self.offset = offset


class LogDivergedError(StoreError):
    """A master whose log differs from this one, below this one's end."""

    def __init__(self, offset: int) -> None:
        super().__init__(
            f"the logs of master and slave differ at offset {offset}, or before it: they have got "
            "different messages. Stop the slave and run `rocketpy store align`"
        )
        self.offset = offset


class QueueRestartedError(StoreError):
    """The next record begins its queue again: call `LogCopy.restart`, then `store_some` again.

    `below` is the end of the queue's last record: its topic was deleted there or later.
    """

    def __init__(self, queue: QueueKey, below: int) -> None:
        super().__init__(f"topic {queue.topic!r} was deleted and recreated")
        self.queue = queue
        self.below = below


class _Tail(NamedTuple):
    """The end of a queue: its next offset, and the end of its last record in the log."""

    next_offset: int
    physical_end: int


NEW = _Tail(0, -1)
NO_REQUEST = DispatchRequest(QueueKey("", 0), 0, NO_UNITS)


class LogCopy:
    """The appender of a slave's log."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueueTable,
        queue_allocator: QueueAllocator,
        dispatcher: Dispatcher,
        times: StoreTimes,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._queue_allocator = queue_allocator
        self._dispatcher = dispatcher
        self._times = times
        # The end of the bytes that are written; less than the log's end if there are none after it.
        self._written_end = 0
        self._tails: dict[QueueKey, _Tail] = {}
        self._rows_max = ROWS_MAX

    @property
    def received_end(self) -> int:
        """The physical offset of the next byte that this log needs."""
        return max(self._written_end, self._log.end)

    @property
    def last_record_begin(self) -> int:
        """The physical offset of the log's last record; its segment's start if that is unknown."""
        segment = self._log.files.find(self._log.end - 1)
        if segment is None:
            return self._log.begin
        checksums = self._log.checksums.find(segment)
        position = None if checksums is None else checksums.last_position
        return segment.base + (position or 0)

    @property
    def is_far_ahead(self) -> bool:
        """True if no more bytes are to be received before `store_some`."""
        return self.received_end - self._log.end > AHEAD_BYTES_MAX // 2

    def begin(self, offset: int) -> None:
        """Begins an empty log at `offset`, the start of a segment. Raises LogCopyError, OSError."""
        if self._log.end != self._log.begin:
            raise LogCopyError(offset, f"this log has records up to {self._log.end}")
        if offset % self._config.commit_log_segment_bytes:
            raise LogCopyError(offset, self._other_segments())
        self._log.files.remove_from(0)
        self._log.files.grow(offset)
        self._log.end = self._log.flushed = offset
        self._dispatcher.started(offset, 0)
        # The first byte of a record's size is 0, so a master is asked from the second byte on.
        self._written_end = offset + 1

    def _other_segments(self) -> str:
        own = self._config.commit_log_segment_bytes
        return (
            f"it has segments of another size than {own} bytes. Start the slave with the master's "
            "--commit-log-segment-bytes"
        )

    # --- Bytes ---

    def receive(self, offset: int, data: memoryview) -> None:
        """Takes in bytes from `offset` on, which is at most `received_end`.

        Raises LogDivergedError, LogCopyError, OSError.
        """
        assert offset <= self.received_end
        while len(data) > 0:
            segment = self._segment(offset)
            part = data[: segment.end - offset]
            position = offset - segment.base
            known = min(max(self.received_end - offset, 0), len(part))
            if known and segment.view[position : position + known] != part[:known]:
                raise LogDivergedError(offset)
            segment.write(position + known, part[known:])
            offset += len(part)
            self._written_end = max(offset, self._written_end)
            data = data[len(part) :]

    def _segment(self, offset: int) -> Segment:
        if offset >= self._log.end + AHEAD_BYTES_MAX:
            raise LogCopyError(self._log.end, f"a record has more than {AHEAD_BYTES_MAX} bytes")
        return self._log.files.grow(offset)

    def drop_received(self) -> None:
        """Removes the bytes after the log's end. Raises OSError."""
        if self._written_end > self._log.end:
            self._written_end = 0
            for segment in self._log.files.dirty_segments(self._log.end, self._log.files.end):
                segment.clear_from(max(self._log.end - segment.base, 0))

    # --- Records ---

    def store_some(self) -> bool:
        """Adds the next whole records, or a segment's blank rest, to the log.

        Returns False if none has been received.
        Raises LogCopyError, QueueGrowthError, QueueRestartedError, OSError: the log then ends
        before the first record that is not added.
        """
        log = self._log
        segment = log.files.find(log.end)
        if segment is None or self._written_end <= log.end:
            return False
        position = log.end - segment.base
        stop = min(self._written_end, segment.end) - segment.base
        sizes = walk(segment, position, STEP_BYTES, self._rows_max, stop)
        if len(sizes) == 0:
            return self._pass_blank(segment, position, stop)
        self._store(segment, position, sizes)
        return True

    def _pass_blank(self, segment: Segment, position: int, stop: int) -> bool:
        """Passes the rest of a segment; False if that or the next record is not whole yet."""
        left = segment.size_bytes - position
        if left >= BLANK_BYTES:
            if stop - position < BLANK_BYTES:
                return False
            size, magic = _SIZE_AND_MAGIC.unpack_from(segment.view, position)
            is_blank = magic == END_OF_SEGMENT_MAGIC
            if not is_blank and (magic not in RECORD_MAGICS or size <= 0):
                raise LogCopyError(self._log.end, "no record starts here")
            if size > left or (is_blank and size != left):
                raise LogCopyError(self._log.end, self._other_segments())
            if not is_blank:
                return False
        if stop < segment.size_bytes:
            return False
        begin, self._log.end = self._log.end, segment.end
        self._dispatch([NO_REQUEST], begin)
        return True

    def _store(self, segment: Segment, position: int, sizes: NDArray[np.int32]) -> None:
        log, begin = self._log, self._log.end
        block, requests = self._requests(segment, position, sizes)
        for each in requests[:-1]:
            if each.queue not in self._tails and self._queues.get(each.queue) is None:
                # The master has no older messages of this queue.
                self._queues.grown(each.queue).begin_at(each.queue_offset)
        slices = [QueueSlice(r.queue, 0, len(r.units), r.queue_offset) for r in requests[:-1]]
        self._queue_allocator.reserve(slices)
        log.checksums.of(segment).reserve(len(block))
        log.complete_checksums(begin, block)
        times_ms = block.header["store_timestamp"].astype(np.int64)
        self._times.copied(times_ms, block.positions + begin)
        log.advance(block)
        for request in requests[:-1]:
            last = request.units[-1]
            self._tails[request.queue] = _Tail(
                request.queue_offset + len(request.units),
                int(last["physical_offset"]) + int(last["size"]),
            )
        self._dispatch(requests, begin)

    def _dispatch(self, requests: list[DispatchRequest], begin: int) -> None:
        self._dispatcher.add_span(requests, begin, self._log.end, self._times.last_ms)
        if self._config.flush_disk_type is FlushDiskType.ASYNC_FLUSH:
            self._dispatcher.dispatch(self._log.end)

    def _requests(
        self, segment: Segment, position: int, sizes: NDArray[np.int32]
    ) -> tuple[RecordBlock, list[DispatchRequest]]:
        """Returns the leading records that are whole and of few queues, and their requests."""
        while True:
            block = self._whole(segment, position, sizes)
            requests = self._requests_of(block)
            restart = self._first_restart(requests)
            if restart is not None and restart > self._log.end:
                # The records before it are added first.
                places = block.positions + self._log.end
                sizes = sizes[: int(np.searchsorted(places, restart))]
            elif len(requests) > STEP_QUEUES_MAX and len(block) > 1:
                self._rows_max = max(len(block) // 4, 1)
                sizes = sizes[: self._rows_max]
            else:
                self._rows_max = min(2 * self._rows_max, ROWS_MAX)
                return block, requests

    def _whole(self, segment: Segment, position: int, sizes: NDArray[np.int32]) -> RecordBlock:
        """Returns the leading whole records, at least one. Raises LogCopyError."""
        while True:
            view = segment.view[position : position + int(sizes.sum())]
            try:
                block = RecordBlock.parse(view, sizes)
                block.verify_body_crc()
                places = block.positions + segment.base + position
                wrong = wrong_property_crcs(block) | (block.header["physical_offset"] != places)
                if not wrong.any():
                    return block
                row, fault = int(np.argmax(wrong)), "the record is damaged, or names another offset"
            except MalformedRecordError as error:
                row, fault = error.index or 0, f"the record {error.reason}"
            if row == 0:
                raise LogCopyError(self._log.end, fault)
            sizes = sizes[:row]

    def _requests_of(self, block: RecordBlock) -> list[DispatchRequest]:
        """Returns a request for each queue, and a last one with all keys. Raises LogCopyError."""
        begin, topics = self._log.end, topics_of(block)
        found = tags_codes_and_index_keys(block, block.single_topic() or topics)
        levels = self._config.delay_levels
        requests = []
        for each in requests_of(block, topics, found.tags_codes, begin, levels):
            _check(each)
            alive = each.from_place(self._queues.deleted_below(each.queue.topic))
            if alive is not None:
                requests.append(alive)
        places = block.positions + begin
        times_ms = block.header["store_timestamp"].astype(np.int64)
        last = DispatchRequest(QueueKey("", 0), 0, NO_UNITS, found.index_keys, places, times_ms)
        return [*requests, last]

    def _first_restart(self, requests: list[DispatchRequest]) -> int | None:
        """Returns the physical offset of the first record that begins its queue again.

        Raises QueueRestartedError if that is the next record, and LogCopyError for a gap.
        """
        tails: dict[QueueKey, _Tail] = {}
        restarts: list[int] = []
        for request in requests[:-1]:
            tail = tails.get(request.queue) or self._tail(request.queue)
            place = int(request.units["physical_offset"][0])
            if request.queue_offset < tail.next_offset:
                if place == self._log.end:
                    raise QueueRestartedError(request.queue, tail.physical_end)
                restarts.append(place)
            elif tail.next_offset and request.queue_offset - tail.next_offset > GAP_UNITS_MAX:
                gap = request.queue_offset - tail.next_offset
                raise LogCopyError(place, f"{gap} messages are missing before it in its queue")
            tails[request.queue] = _Tail(request.queue_offset + len(request.units), place)
        return min(restarts, default=None)

    def _tail(self, key: QueueKey) -> _Tail:
        known = self._tails.get(key)
        if known is not None:
            return known
        queue = self._queues.get(key)
        return NEW if queue is None else _Tail(queue.max_offset, queue.physical_end)

    # --- Deleted and emptied topics ---

    def restart(self, queue: QueueKey, below: int) -> None:
        """Drops a queue of a recreated topic, and all of that topic below the log offset `below`.

        Blocks. Raises OSError. Nothing may build a manifest at the same time.
        """
        deleted = {queue.topic: below}
        self.save_marks(deleted, {})
        for _ in self.apply_marks(deleted, {}):
            pass
        self._queues.drop(queue)
        self._tails.pop(queue, None)

    def has_marks(self, deleted: Mapping[str, int], emptied: Mapping[str, int]) -> bool:
        """True if this store has these marks already, or higher ones."""
        own_deleted, own_emptied = self._queues.marks
        return all(
            own.get(topic, -1) >= mark
            for own, marks in ((own_deleted, deleted), (own_emptied, emptied))
            for topic, mark in marks.items()
        )

    def save_marks(self, deleted: Mapping[str, int], emptied: Mapping[str, int]) -> None:
        """Saves marks of topics; records below them that follow are left out. Blocks. Any thread.

        `apply_marks` follows. Raises OSError.
        """
        self._queues.raise_marks(deleted, emptied)

    def apply_marks(self, deleted: Mapping[str, int], emptied: Mapping[str, int]) -> Iterator[None]:
        """Drops the queues of deleted topics, and hides emptied messages.

        Yields after each few milliseconds of work. Raises OSError. Nothing may build a manifest
        until the end.
        """
        self._dispatcher.dispatch(self._log.end)
        for key in self._queues.marked({*deleted, *emptied}):
            if self._queues.apply_mark(key):
                self._tails.pop(key, None)
            yield


def _check(request: DispatchRequest) -> None:
    """Raises LogCopyError for a queue that no broker has."""
    queue, offset = request.queue, request.queue_offset
    place = int(request.units["physical_offset"][0])
    if TOPIC_PATTERN.fullmatch(queue.topic) is None:
        raise LogCopyError(place, f"the record has the illegal topic {queue.topic!r:.300}")
    if not 0 <= queue.queue_id < QUEUE_IDS_MAX:
        raise LogCopyError(place, f"the record has the illegal queue id {queue.queue_id}")
    if not 0 <= offset <= QUEUE_OFFSET_MAX:
        raise LogCopyError(place, f"the record has the illegal queue offset {offset}")
