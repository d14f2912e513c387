"""Stored form of messages with a delay level or a delivery time.

A block of them goes to SCHEDULE_TOPIC_XXXX, queue level - 1, or to the timer topic. REAL_TOPIC and
REAL_QID hold the real topic and queue. That is RocketMQ's own form, so its broker delivers the
messages, too.
Source: docs/design/storage.md sections 13.2 and 13.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_broker.errors import (
    PermissionDeniedError,
    RecordIllegalError,
)
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.time_format import duration_of_ms, time_of_ms
from rocketpy_broker.services import caller
from rocketpy_broker.services.delay.errors import TimerFullError, TimerNotEnabledError
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.record import (
    BLANK_BYTES,
    Record,
    RecordBlock,
    UnencodableRecordError,
    encode_record,
    properties_strings,
    property_column,
    rewritten,
    with_property,
    without_properties,
)
from rocketpy_proto.record.properties import (
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)

TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
# The separator of topic and unique key in TIMER_DEL_UNIQKEY.
KEY_JOINT = "+"
TIMER_DIGITS_MAX = 15
TIMER_NAMES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
# The unit of RocketMQ's timer; TIMER_OUT_MS is up to one unit before the delivery time.
PRECISION_MS = 1_000
# A delivered record gains its topic, TIMER_DEQUEUE_MS and a count of rolls.
DELIVERED_BYTES = 64
_NO_TIME = -1
T = TypeVar("T", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class TimerLimits:
    """Limits for messages with a delivery time: the longest delay, and how many may wait.

    `waiting_count` returns how many wait; it does not count appends in progress.
    """

    is_enabled: bool
    delay_ms_max: int
    pending_max: int
    waiting_count: Callable[[], int]


class DelaySchedule:
    """A converter of blocks to their waiting form."""

    def __init__(
        self, levels: DelayLevels, clock: Clock, timer: TimerLimits, segment_bytes: int
    ) -> None:
        self._levels = levels
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._timer = timer

    def redirect(
        self,
        queue: QueueKey,
        block: RecordBlock,
        *,
        is_accepted: bool = False,
        is_ack: bool = False,
    ) -> tuple[QueueKey, RecordBlock]:
        """Returns the queue and form in which the block waits; the block itself if it does not.

        All records of a block wait alike: for one level, or for times. `is_accepted` marks a block
        that was accepted before; special rules hold for it:

        - A cancel record that is too late goes to the timer, which ignores it.
        - Times may be too far ahead, for example after the clock was set back.
        - The block needs space for one message only.
        - Without a timer it waits for a start that has one.

        `is_ack` doubles the limit of waiting messages for acknowledgements of popped messages: a
        full timer must not redeliver them. Raises RecordIllegalError, TimerRefusedError,
        PermissionDeniedError.
        """
        levels = self._levels.of(block)
        level = int(levels[0])
        if (levels != level).any():
            if not is_accepted:
                raise RecordIllegalError(
                    "a block holds messages of several delay levels; send a block for each level"
                )
            # The broker had fewer levels when it accepted the block: these all meant the highest.
            level = self._levels.longest(levels)
        try:
            if level > 0:
                place, waiting = self._of_level(queue, block, level)
            else:
                place, waiting = self._of_times(
                    queue, block, is_accepted=is_accepted, is_ack=is_ack
                )
        except UnencodableRecordError as error:
            raise RecordIllegalError(f"with its real topic and queue, {error}") from error
        if waiting is not block and not is_accepted:
            self._check_fits(queue.topic, waiting)
        return place, waiting

    def redirect_records(
        self, queue: QueueKey, records: Sequence[Record], *, is_ack: bool = False
    ) -> tuple[QueueKey, RecordBlock]:
        """Returns what `redirect` returns for the block of a few records of the broker's own.

        Their only property that delays or cancels is TIMER_DELIVER_MS. Arrays would take twenty
        times as long for one record. Raises as `redirect` does, and UnencodableRecordError.
        """
        times_ms = [int(each.properties[TIMER_DELIVER_MS]) for each in records]
        is_waiting = self._is_later(max(times_ms), self._clock.now_ms(), is_accepted=False)
        place = TIMER_QUEUE if is_waiting else queue
        if is_waiting:
            self._check_space(len(records), is_accepted=False, is_ack=is_ack)
            records = [
                _waiting(each, queue, time_ms)
                for each, time_ms in zip(records, times_ms, strict=True)
            ]
        block = RecordBlock.parse(bytearray(b"".join(map(encode_record, records))))
        if is_waiting:
            self._check_fits(queue.topic, block)
        return place, block

    def _check_fits(self, topic: str, waiting: RecordBlock) -> None:
        """Raises RecordIllegalError for a record that would not fit the log on delivery."""
        largest = int(waiting.sizes.max()) + len(topic) + DELIVERED_BYTES
        if largest + BLANK_BYTES > self._segment_bytes:
            raise RecordIllegalError(
                f"a record of {largest} bytes, with its delay's properties, does not fit a "
                f"commit log segment of {self._segment_bytes} bytes. Send less in a message"
            )

    def _of_level(
        self, queue: QueueKey, block: RecordBlock, level: int
    ) -> tuple[QueueKey, RecordBlock]:
        strings = without_properties(properties_strings(block), TIMER_NAMES)
        strings = with_real_queue(with_property(strings, DELAY, str(level)), queue, block)
        return QueueKey(SCHEDULE_TOPIC, level - 1), rewritten(block, SCHEDULE_TOPIC, strings)

    def _of_times(
        self, queue: QueueKey, block: RecordBlock, *, is_accepted: bool, is_ack: bool
    ) -> tuple[QueueKey, RecordBlock]:
        now_ms = self._clock.now_ms()
        deliver_ms = _delivery_times(block, now_ms)
        given = deliver_ms != _NO_TIME
        if not given.any():
            return queue, block
        if not given.all():
            raise RecordIllegalError(
                "a block holds messages with and without a delivery time; send them in blocks of "
                "their own"
            )
        _check_cancelled(queue, block)
        latest_ms = int(deliver_ms.max())
        if not self._is_later(latest_ms, now_ms, is_accepted=is_accepted):
            if not _cancels(block):
                return queue, block
            if not is_accepted:
                raise RecordIllegalError(
                    f"the message to cancel was due at {time_of_ms(latest_ms)}, which is past; it "
                    "may have been delivered. Nothing was stored"
                )
        self._check_space(len(block), is_accepted=is_accepted, is_ack=is_ack)
        texts = pa.array(_out_ms(deliver_ms)).cast(pa.string())
        strings = with_property(properties_strings(block), TIMER_OUT_MS, texts)
        strings = with_real_queue(strings, queue, block)
        return TIMER_QUEUE, rewritten(block, TIMER_QUEUE.topic, strings)

    def _is_later(self, latest_ms: int, now_ms: int, *, is_accepted: bool) -> bool:
        """True if messages up to this delivery time wait for it.

        Raises TimerNotEnabledError, RecordIllegalError for a time that is too far ahead.
        """
        if not is_accepted and not self._timer.is_enabled:
            raise TimerNotEnabledError
        delay_ms_max = self._timer.delay_ms_max
        if latest_ms - now_ms > delay_ms_max and not is_accepted:
            raise RecordIllegalError(
                f"a message is to be delivered at {time_of_ms(latest_ms)}, accepted is up to "
                f"{duration_of_ms(delay_ms_max)} from now (--timer-delay-max-hours of the broker)"
            )
        return latest_ms > now_ms

    def _check_space(self, count: int, *, is_accepted: bool, is_ack: bool) -> None:
        """Raises TimerFullError if too many messages wait; an accepted block counts as one."""
        waiting_count = self._timer.waiting_count()
        count_max = self._timer.pending_max * (2 if is_ack else 1)
        if waiting_count + (1 if is_accepted else count) > count_max:
            raise TimerFullError(waiting_count, count, count_max)


def _out_ms(deliver_ms: T) -> T:
    """Returns TIMER_OUT_MS of a delivery time, or of each of n: the unit that ends before it."""
    return (deliver_ms - 1) // PRECISION_MS * PRECISION_MS


def _waiting(record: Record, queue: QueueKey, deliver_ms: int) -> Record:
    """Returns the form in which a record waits for its delivery time."""
    properties = {
        **record.properties,
        TIMER_OUT_MS: str(_out_ms(deliver_ms)),
        REAL_TOPIC: queue.topic,
        REAL_QUEUE_ID: str(queue.queue_id),
    }
    return replace(record, topic=TIMER_QUEUE.topic, properties=properties)


def _cancels(block: RecordBlock) -> bool:
    """True if a record cancels another one."""
    return bool(property_column(block, TIMER_DEL_UNIQKEY).null_count < len(block))


def _check_cancelled(queue: QueueKey, block: RecordBlock) -> None:
    """Raises PermissionDeniedError if a user's record cancels a message of another topic."""
    if caller.current.get() is None or not _cancels(block):
        return
    own = pc.starts_with(property_column(block, TIMER_DEL_UNIQKEY), queue.topic + KEY_JOINT)
    if not pc.all(own.fill_null(True)).as_py():
        raise PermissionDeniedError(
            f"{TIMER_DEL_UNIQKEY} names no message of topic {queue.topic!r}; "
            f"begin it with {queue.topic + KEY_JOINT!r}"
        )


def with_real_queue(strings: pa.BinaryArray, queue: QueueKey, block: RecordBlock) -> pa.BinaryArray:
    """Returns the properties with the real topic and queue of the block's messages."""
    strings = with_property(strings, REAL_TOPIC, queue.topic)
    if queue.queue_id != OWN_QUEUES:
        return with_property(strings, REAL_QUEUE_ID, str(queue.queue_id))
    own = pa.array(block.header["queue_id"].astype(np.int32)).cast(pa.string())
    return with_property(strings, REAL_QUEUE_ID, own)


def _delivery_times(block: RecordBlock, now_ms: int) -> NDArray[np.int64]:
    """Returns each record's delivery time, wall time in ms; _NO_TIME if it does not wait.

    A record with TIMER_OUT_MS has waited before and does not wait again.

    Raises RecordIllegalError for a time that is not a number.
    """
    seconds, delays, times = (number_column(block, name, TIMER_DIGITS_MAX) for name in TIMER_NAMES)
    after_seconds = pc.add(pc.multiply(seconds, 1_000), now_ms)
    chosen = pc.coalesce(after_seconds, pc.add(delays, now_ms), times, pa.scalar(_NO_TIME))
    has_waited = property_column(block, TIMER_OUT_MS).is_valid()
    chosen = pc.if_else(has_waited, pa.scalar(_NO_TIME), chosen)
    found: NDArray[np.int64] = chosen.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def number_column(block: RecordBlock, name: str, digits_max: int) -> pa.Int64Array:
    """Returns a property of each record as a number; null without it. Raises RecordIllegalError."""
    texts = property_column(block, name)
    is_number = pc.match_substring_regex(texts, f"^[0-9]{{1,{digits_max}}}$")
    if pc.all(is_number).as_py() is False:
        wrong = texts.filter(pc.invert(is_number))[0].as_py()
        raise RecordIllegalError(
            f"property {name} is {wrong!r}; accepted is a number of 1 to {digits_max} digits"
        )
    return texts.cast(pa.int64())
