"""The valid part of a log that another broker has used.

RocketMQ ends its log at the first bad record that its recovery scans, and continues there. It
leaves the following bytes unchanged. So bytes after that position do not count, whatever this
broker's marks contain. Damage before the segment where RocketMQ starts its scan is skipped, because
RocketMQ does not see it. Stale records may even follow the last new one without a gap; lower store
timestamps reveal them. All state is in memory, and a crash does not change the results.

Source: CommitLog#recoverNormally, #recoverAbnormally, docs/design/storage.md sections 2.6 and 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.files.checkpoint import StoreCheckpoint
from rocketpy_broker.store.log.checksums import is_sound
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.scanner import LogSpan, is_blank
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import RecordBlock, decode_record, has_queue_offset

# The margin that StoreCheckpoint#getMinTimestamp subtracts.
CHECKPOINT_MARGIN_MS = 3_000
_ENTRIES_AT_ONCE = 1 << 16


def scan_start(
    log: CommitLog, queues_end: int, checkpoint: StoreCheckpoint, *, abnormal: bool
) -> int:
    """Returns the physical offset at which RocketMQ's next recovery would start.

    `queues_end` is the end of the last record that has a unit, -1 for none. After a crash, RocketMQ
    5.5 uses a position, and older brokers use times. The next broker's version is unknown, so the
    later start counts.
    """
    segments = log.files.segments
    if abnormal:
        logics_ms = checkpoint.logics_msg_timestamp_ms
        on_disk_ms = min(checkpoint.physic_msg_timestamp_ms, logics_ms) - CHECKPOINT_MARGIN_MS
        # 0 means no offset. It may be the first record's; then the log's start is right as well.
        on_disk = checkpoint.logics_physical_offset or -1
        for segment in reversed(segments):
            stored_ms = log.store_timestamp_ms_at(segment.base)
            if stored_ms > 0 and (stored_ms <= on_disk_ms or segment.base <= on_disk):
                return segment.base
        return log.begin
    return max((one.base for one in segments if one.base <= queues_end), default=log.begin)


def unchanged_end(log: CommitLog) -> int:
    """Returns the end of the records that agree with their checksums, without a gap.

    Reads the log up to there. A checksum entry out of order ends them, too.
    """
    for segment in log.files.segments:
        position = _unchanged_in(log, segment)
        if not is_blank(segment, position):
            return segment.base + position
    return log.files.end


def _unchanged_in(log: CommitLog, segment: Segment) -> int:
    checksums = log.checksums.find(segment)
    position = 0
    while checksums is not None:
        entries = checksums.entries_from(position)[:_ENTRIES_AT_ONCE]
        sizes = entries["size"].astype(np.int64)
        positions = position + np.cumsum(sizes) - sizes
        good = is_sound(entries) & (entries["position"] == positions)
        good &= (sizes > 0) & (positions + sizes <= segment.size_bytes)
        count = _leading(good)
        starts, lengths = positions[:count], sizes[:count].astype(np.int32)
        same = _leading(~log.compare(segment, starts, lengths).damaged)
        if same > 0:
            position = int(positions[same - 1] + sizes[same - 1])
        if same < len(entries) or same == 0:
            break
    return position


def _leading(good: NDArray[np.bool_]) -> int:
    return len(good) if good.all() else int(np.argmin(good))


@dataclass(slots=True)
class StaleRecords:
    """A search for the first stale record, before which RocketMQ has cut the log.

    RocketMQ's scan starts at `begin`; earlier records are not stale. A record with a lower store
    timestamp than its predecessor is stale in two cases. Its queue does not continue with it, or a
    cleanly stopped store has no unit for it. A clock that steps back makes no record stale alone.
    """

    begin: int
    queues_end: int
    abnormal: bool
    _last_ms: int = 0

    def candidates(self, span: LogSpan) -> NDArray[np.int64]:
        """Returns the rows of the span with a lower store timestamp than their predecessor."""
        times = span.block.header["store_timestamp"].astype(np.int64)
        before = np.concatenate(([self._last_ms], times[:-1]))
        self._last_ms = int(times[-1])
        offsets = span.block.positions + span.offset
        return np.flatnonzero((times < before) & (offsets >= self.begin))

    def is_stale(self, span: LogSpan, row: int, next_offsets: Mapping[QueueKey, int]) -> bool:
        """True if record `row` is stale; `next_offsets` come from the queues' earlier records."""
        position = int(span.block.positions[row])
        record = decode_record(span.block.data.data, position).record
        if not has_queue_offset(record.sys_flag):
            return False
        if not self.abnormal and span.offset + position == self.queues_end:
            return True
        expected = next_offsets.get(QueueKey(record.topic, record.queue_id))
        # A recreated topic starts at 0.
        return expected is not None and record.queue_offset not in (0, expected)


def part(span: LogSpan, begin: int, end: int) -> LogSpan:
    """Returns the records [begin, end) of a log span, at least one."""
    block = span.block
    first = int(block.positions[begin])
    last = int(block.positions[end - 1] + block.sizes[end - 1])
    data = block.data.data[first:last]
    return LogSpan(span.offset + first, RecordBlock.parse(data, block.sizes[begin:end]))
