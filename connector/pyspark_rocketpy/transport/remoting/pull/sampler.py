"""Samples of a queue's records: their sizes and store times.

RocketMQ's brokers measure no ranges, and older ones find times only approximately. So a bounded
number of records is pulled and examined. Planners start without the record decoder, so the few
fields are read here.

Source: docs/design/storage.md section 2, docs/design/remoting.md section 2.6.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.byte_shares import Measured, shares
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.fan_out import FanOut
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import (
    Pull,
    PullResult,
    PullStatus,
    pull,
    search_offset,
)
from pyspark_rocketpy.transport.remoting.net.calls import Call, outcomes
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.retries import RETRIABLE_ERRORS
from pyspark_rocketpy.transport.values import QueueTime
from rocketpy_proto.remoting import MessageQueue
from rocketpy_proto.remoting.headers.pulls import MASTER_ID

# size, magic, (CRC), queue id, (flag), queue offset, (physical offset), sysFlag, (born time)
_HEAD = struct.Struct(">iI4xi4xq8xi8x")
_STORE_TIME = struct.Struct(">q")
# (attempts, half message), length of the body
_BODY_LENGTH = struct.Struct(">12xi")
_HOST_BYTES, _HOST_V6_BYTES = 8, 20
_BORN_HOST_V6, _STORE_HOST_V6 = 1 << 4, 1 << 5
# With this magic, a topic's length has two bytes.
_MAGIC_V2 = 0xDAA320AB
# Ranges with sampled records; the remaining ones are assumed to be alike.
SAMPLES_MAX = 512
SAMPLED_MESSAGES = 8
# Assumed bytes of a record if there is no sample.
_USUAL_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class _Stored:
    """The first record of an answer."""

    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    store_ms: int


@dataclass(frozen=True, slots=True)
class _Probe:
    """A queue's bounds, and the store time of the first message from an offset on, if any."""

    min_offset: int
    max_offset: int
    store_ms: int | None

    def is_at_least(self, time_ms: int) -> bool:
        """True if there is a message with this store time or a later one."""
        return self.store_ms is not None and self.store_ms >= time_ms


def _probe(queue: MessageQueue, offset: int, call: Call[PullResult]) -> _Probe:
    """Returns the probe of a pull's answer.

    Raises ConnectionFailedError, also for a record that was not requested, BrokerError.
    """
    result = call.answer()
    if result.status is not PullStatus.FOUND:
        return _Probe(result.min_offset, result.max_offset, None)
    first = _first(result.records)
    if (
        first is None
        or (first.topic, first.queue_id) != (queue.topic.encode(), queue.queue_id)
        or not offset <= first.queue_offset < result.next_begin_offset
    ):
        raise call.peer.failed(
            f"answers a pull from offset {offset} of queue {queue.queue_id} of "
            f"topic {queue.topic} with other records; check the broker's store",
            is_lasting=True,
        )
    return _Probe(result.min_offset, result.max_offset, first.store_ms)


def _first(records: memoryview) -> _Stored | None:
    """Returns the first record; None if the bytes are too short for one."""
    try:
        size, magic, queue_id, queue_offset, sys_flag = _HEAD.unpack_from(records)
        place = _HEAD.size + (_HOST_V6_BYTES if sys_flag & _BORN_HOST_V6 else _HOST_BYTES)
        (store_ms,) = _STORE_TIME.unpack_from(records, place)
        place += _STORE_TIME.size
        place += _HOST_V6_BYTES if sys_flag & _STORE_HOST_V6 else _HOST_BYTES
        (body_length,) = _BODY_LENGTH.unpack_from(records, place)
    except struct.error:
        return None
    place += _BODY_LENGTH.size + max(body_length, 0)
    begin = place + (2 if magic == _MAGIC_V2 else 1)
    topic = bytes(records[begin : begin + int.from_bytes(records[place:begin], "big")])
    return _Stored(size, topic, queue_id, queue_offset, store_ms)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Pulls of single records, for a group; `fan_out` chooses the brokers."""

    cluster: Cluster
    fan_out: FanOut
    group: str
    timeouts: Timeouts

    def limit_bytes(self, ranges: Sequence[QueueRange], bytes_max: int) -> list[int]:
        """Implements OffsetQueries by an estimate: a few records at both ends of ranges.

        At most SAMPLES_MAX ranges are sampled. Raises BrokerError.
        """
        measures = self._measured(ranges)
        if sum(each.bytes for each in measures) <= bytes_max:
            return [part.end for part in ranges]
        budgets = shares(measures, bytes_max)
        return [
            part.begin + _count_within(measured, part.count, budget)
            for part, measured, budget in zip(ranges, measures, budgets, strict=True)
        ]

    def _measured(self, ranges: Sequence[QueueRange]) -> list[Measured]:
        step = max(-(-len(ranges) // SAMPLES_MAX), 1)
        asked = [
            partial(self._pull_at, _queue_of(part), max(offset, part.begin), SAMPLED_MESSAGES)
            for part in ranges[::step]
            for offset in (part.begin, part.end - SAMPLED_MESSAGES)
        ]
        found_records = [_records(outcome) for outcome in outcomes(asked)]
        sampled = list(zip(found_records[::2], found_records[1::2], strict=True))
        means = [_mean(records) for records in sampled]
        known = [mean for mean in means if mean is not None]
        usual = sum(known) / len(known) if known else _USUAL_BYTES
        found = []
        for number, part in enumerate(ranges):
            mean = means[number // step] or usual
            first = _first(sampled[number // step][0]) if number % step == 0 else None
            found.append(
                Measured(
                    int(mean * part.count),
                    part.count,
                    first_bytes=int(mean) if first is None else first.size,
                    # Store times alone order the queues of several brokers.
                    first_physical_offset=0 if first is None else first.store_ms,
                )
            )
        return found

    def _pull_at(self, queue: MessageQueue, offset: int, count: int = 1) -> Call[PullResult]:
        broker_id = self.fan_out.broker_id(queue)
        wanted = Pull(
            self.group,
            queue,
            offset,
            count,
            broker_id=MASTER_ID if broker_id is None else broker_id,
        )
        return pull(self.cluster, wanted, self.timeouts)

    def search(self, times: Sequence[QueueTime]) -> list[int | None]:
        """Implements OffsetQueries. Raises ConnectionFailedError, BrokerError."""
        found: list[int | None] = []
        for begin in range(0, len(times), SAMPLES_MAX):
            found += self._search(times[begin : begin + SAMPLES_MAX])
        return found

    def _search(self, times: Sequence[QueueTime]) -> list[int | None]:
        queues = [_queue_of(time) for time in times]
        searches = [
            search_offset(
                self.cluster, queue, time.timestamp_ms, self.fan_out.broker_id(queue) or MASTER_ID
            )
            for queue, time in zip(queues, times, strict=True)
        ]
        offsets = [search.answer() for search in searches]
        # The record found, and the one before it.
        pulls = [
            (self._ask(queue, max(offset - 1, 0)), self._ask(queue, offset))
            for queue, offset in zip(queues, offsets, strict=True)
        ]
        probed = [(before(), there()) for before, there in pulls]
        return [
            self._confirmed(queue, time.timestamp_ms, offset, *around)
            for queue, time, offset, around in zip(queues, times, offsets, probed, strict=True)
        ]

    def _ask(self, queue: MessageQueue, offset: int) -> Callable[[], _Probe]:
        return partial(_probe, queue, offset, self._pull_at(queue, offset))

    def _confirmed(
        self, queue: MessageQueue, time_ms: int, offset: int, before: _Probe, there: _Probe
    ) -> int | None:
        """Returns the broker's offset if the records confirm it; else that of a binary search.

        Returns None if no message is as new.
        """
        low, high = there.min_offset, there.max_offset
        is_first = offset <= low or not before.is_at_least(time_ms)
        if offset == high and is_first:
            return None
        if offset >= low and is_first and there.is_at_least(time_ms):
            return offset
        while low < high:
            middle = (low + high) // 2
            if self._ask(queue, middle)().is_at_least(time_ms):
                high = middle
            else:
                low = middle + 1
        return low if low < there.max_offset else None


def _queue_of(place: QueueRange | QueueTime) -> MessageQueue:
    return MessageQueue(place.broker_name, place.queue_id, place.topic)


def _records(outcome: PullResult | ConnectionFailedError | BrokerError) -> memoryview:
    """Returns the records of a pull; none if the broker is away: the task handles that."""
    if isinstance(outcome, PullResult):
        return outcome.records if outcome.status is PullStatus.FOUND else memoryview(b"")
    if isinstance(outcome, RETRIABLE_ERRORS):
        return memoryview(b"")
    raise outcome


def _mean(samples: tuple[memoryview, memoryview]) -> float | None:
    """Returns the mean bytes of a record; None if there is none."""
    sizes = [size for records in samples for size in _record_sizes(records)]
    return sum(sizes) / len(sizes) if sizes else None


def _record_sizes(records: memoryview) -> list[int]:
    sizes = []
    position = 0
    while position + 4 <= len(records):
        size = int.from_bytes(records[position : position + 4], "big")
        if size <= 0:
            break
        sizes.append(size)
        position += size
    return sizes


def _count_within(measured: Measured, count: int, budget: int) -> int:
    """Returns the number of a range's messages within a byte budget, by the mean size."""
    if budget <= 0:
        return 0
    mean = max(measured.bytes / max(count, 1), 1.0)
    return min(1 + int(max(budget - measured.first_bytes, 0) / mean), count)
