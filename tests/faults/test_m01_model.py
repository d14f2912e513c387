"""A store and a plain list with the same steps: they never differ.

The store's disk is a simulated one. A kill loses no written byte. A power cut may lose any
unflushed page; then the log ends at some record after the last flush.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.log.flush import FlushPlan
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.readers.lookup import StoredAt
from rocketpy_broker.store.values import GetMessageStatus, QueueBounds, QueueKey, ReadLimits
from rocketpy_proto.record import decode_record
from tests.faults.disks.simulated_disk import SimulatedDisk
from tests.faults.images import block_of, bodies_in
from tests.support.store.messages import NO_END, delete_topic, remove_oldest_segment
from tests.support.store.stores import SMALL_INDEX, store_in

EXAMPLES_QUICK = 150
STEPS_QUICK = 50
EXAMPLES_TORTURE = 20_000
STEPS_TORTURE = 200
# Two pages a log segment, so that a power cut can take either.
SIZES = {"segment_bytes": 8192, "queue_file_bytes": 100}
QUEUES = [QueueKey("TopicA", 0), QueueKey("TopicA", 3), QueueKey("TopicB", 0)]
# Always cleans, and never calls the disk full.
EAGER = CleanPolicy(
    clean_file_forcibly_enable=True, clean_forcibly_ratio=-1.0, warning_level_ratio=2.0
)
FAR_MS = 1 << 50
HOUR_MS = 3_600_000
# The clock is set, wrong by days, and corrected.
JUMPS_MS = [-HOUR_MS, HOUR_MS, -72 * HOUR_MS, 2400 * HOUR_MS, -2400 * HOUR_MS]

queues = st.sampled_from(QUEUES)
topics = st.sampled_from(sorted({queue.topic for queue in QUEUES}))
modes = st.sampled_from(FlushDiskType)


@dataclass(frozen=True)
class AppendHints:
    """A record of the model; begin and end are physical offsets."""

    queue: QueueKey
    queue_offset: int
    body: bytes
    begin: int
    end: int
    time_ms: int


class StoreAndList(RuleBasedStateMachine):
    """The store, and the list of all records of existing topics."""

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()
        in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        folder = self.exits.enter_context(tempfile.TemporaryDirectory(dir=in_memory))
        self.folder = Path(folder)
        self.disk = SimulatedDisk(self.folder)
        self.exits.enter_context(self.disk.watched())
        self.clock = ManualClock()
        self.mode = FlushDiskType.ASYNC_FLUSH
        self.known: list[AppendHints] = []
        self.emptied: set[AppendHints] = set()
        self.flushed = 0
        self.plan: FlushPlan | None = None
        self.sent = 0
        self.store: MessageStore | None = None

    def teardown(self) -> None:
        if self.store is not None:
            self.store._release()
        self.exits.close()

    # --- Starting and stopping ---

    @initialize(mode=modes)
    def begin(self, mode: FlushDiskType) -> None:
        self.start(mode)

    def start(self, mode: FlushDiskType) -> int:
        """Opens the store again; returns the end of its log."""
        self.mode, self.plan = mode, None
        self.store = store_in(
            self.folder, self.clock, mode, clean_policy=EAGER, **SIZES, **SMALL_INDEX
        )
        result = self.store.open()
        assert result.damages == []
        self.flushed = result.end
        return result.end

    def live(self) -> MessageStore:
        assert self.store is not None
        return self.store

    @rule(mode=modes)
    def restart(self, mode: FlushDiskType) -> None:
        end = self.live()._log.end
        self.live().close()
        assert self.start(mode) == end

    @rule(mode=modes)
    def kill(self, mode: FlushDiskType) -> None:
        end = self.live()._log.end
        self.live()._release()
        assert self.start(mode) == end

    @rule(mode=modes, seed=st.integers(0, 1 << 32))
    def cut_power(self, mode: FlushDiskType, seed: int) -> None:
        flushed, before = self.flushed, self.live()._log.end
        self.live()._release()
        self.disk.cut_power(random.Random(seed))
        end = self.start(mode)
        assert flushed <= end <= before
        self.known = [record for record in self.known if record.end <= end]

    # --- Writing ---

    @rule(queue=queues, count=st.integers(1, 3), length=st.integers(0, 700))
    def append(self, queue: QueueKey, count: int, length: int) -> None:
        self.clock.advance(700)
        bodies = [b"%d-" % (self.sent + number) + b"x" * length for number in range(count)]
        self.sent += count
        block = block_of(queue.topic, bodies)
        begins, sizes = block.positions.tolist(), block.sizes.tolist()
        expected = self.next_offset(queue)
        result = self.live().append(queue, block)
        assert (result.queue_offset, result.record_count) == (expected, count)
        for number, body in enumerate(bodies):
            begin = result.physical_offset + begins[number]
            end = begin + sizes[number]
            place = expected + number
            self.known.append(
                AppendHints(queue, place, body, begin, end, result.store_timestamp_ms)
            )

    @rule(delta_ms=st.sampled_from(JUMPS_MS), then_ms=st.sampled_from([0, 60_000]))
    def set_clock(self, delta_ms: int, then_ms: int) -> None:
        """Sets the clock and reads it, as each message does."""
        self.clock.jump(delta_ms)
        self.live()._appender.times.next_ms()
        self.clock.advance(then_ms)

    @rule()
    def plan_flush(self) -> None:
        self.plan = self.live().plan_flush()

    @precondition(lambda self: self.plan is not None)
    @rule()
    def run_flush(self) -> None:
        assert self.plan is not None
        self.plan.run()
        self.live().flushed(self.plan)
        self.flushed, self.plan = max(self.flushed, self.plan.end), None

    @rule()
    def flush_derived(self) -> None:
        self.live().flush_derived()

    @rule()
    def clean(self) -> None:
        """Cleans as the broker does, after a flush of the queues."""
        self.live().flush_derived()
        for _ in range(self.live().expired_segment_count(manual=False)):
            remove_oldest_segment(self.live())

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        delete_topic(self.live(), topic)
        self.known = [record for record in self.known if record.queue.topic != topic]

    @rule(topic=topics, is_killed=st.booleans())
    def empty_topic(self, topic: str, *, is_killed: bool) -> None:
        """Empties a topic; a kill between the mark and the end changes nothing."""
        emptying = self.live().plan_emptying(topic)
        for queue in QUEUES:
            if queue.topic == topic:
                self.emptied.update(self.visible(queue))
        emptying.run()
        if is_killed:
            self.kill(self.mode)
        else:
            emptying.finish()

    # --- Reading ---

    def next_offset(self, queue: QueueKey) -> int:
        offsets = [record.queue_offset for record in self.known if record.queue == queue]
        return max(offsets, default=-1) + 1

    def visible(self, queue: QueueKey) -> list[AppendHints]:
        """Returns the records that a reader of the queue may see, cleaned or not."""
        end = self.flushed if self.mode is FlushDiskType.SYNC_FLUSH else NO_END
        return [record for record in self.known if record.queue == queue and record.end <= end]

    def there(self, queue: QueueKey) -> list[AppendHints]:
        """Returns the records that a reader of the queue sees."""
        begin = self.live()._log.begin
        records = self.visible(queue)
        return [part for part in records if part.begin >= begin and part not in self.emptied]

    @invariant()
    def ranges_are_those_of_the_list(self) -> None:
        for queue in QUEUES if self.store is not None else []:
            assert self.live().range_of(queue) == self.range_of(queue), queue

    def range_of(self, queue: QueueKey) -> QueueBounds:
        records = self.visible(queue)
        stop = records[-1].queue_offset + 1 if records else 0
        left = self.there(queue)
        return QueueBounds(left[0].queue_offset if left else stop, stop)

    @rule(
        queue=queues,
        place=st.integers(-2, 60),
        count_max=st.integers(1, 40),
        bytes_max=st.integers(0, 20_000),
    )
    def pull(self, queue: QueueKey, place: int, count_max: int, bytes_max: int) -> None:
        bounds = self.range_of(queue)
        limits = ReadLimits(count_max, bytes_max, count_max, bytes_max)
        result = self.live().get_message(queue, place, NO_END, limits)
        if queue not in self.live().queues():
            assert result.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
            assert bounds == QueueBounds(0, 0)
        elif result.status is GetMessageStatus.FOUND:
            assert bounds.min_offset <= place < bounds.max_offset
            sizes = result.sizes.tolist()
            assert 1 <= len(sizes) <= count_max
            assert len(sizes) == 1 or sum(sizes) <= bytes_max
            assert result.next_offset == place + len(sizes)
            data = b"".join(bytes(part) for part in result.parts)
            offsets = range(place, result.next_offset)
            expected = [part.body for part in self.visible(queue) if part.queue_offset in offsets]
            assert bodies_in(data, sizes, queue, place) == expected
        else:
            assert (result.status, result.next_offset) == outside(bounds, place)

    @precondition(lambda self: self.known)
    @rule(place=st.integers(0, 200))
    def find_by_key(self, place: int) -> None:
        """Checks a record's key: its body, which no other record has."""
        record = self.known[place % len(self.known)]
        is_there = record in self.there(record.queue)
        key, topic = record.body.decode(), record.queue.topic
        found = self.live().messages.by_key(topic, key, 0, FAR_MS, 64)
        bodies = [decode_record(view).record.body for view in found]
        assert bodies == ([record.body] if is_there else [])

    @precondition(lambda self: self.known)
    @rule(place=st.integers(0, 200), delta_ms=st.sampled_from([-1, 0, 1]))
    def find_by_time(self, place: int, delta_ms: int) -> None:
        """Checks a time: the found record is after the last one from before that time."""
        asked = self.known[place % len(self.known)]
        time_ms, there = asked.time_ms + delta_ms, self.there(asked.queue)
        before = [number for number, part in enumerate(there, 1) if part.time_ms < time_ms]
        later = there[max(before, default=0) :]
        expected = StoredAt(later[0].queue_offset, later[0].time_ms) if later else None
        assert self.live().queue_lookup.first_since(asked.queue, time_ms) == expected

    @rule()
    def read_everything(self) -> None:
        for queue in QUEUES:
            bounds = self.range_of(queue)
            offset = bounds.min_offset
            while offset < bounds.max_offset:
                self.pull(queue, offset, 1000, 1 << 20)
                offset = (
                    self.live()
                    .get_message(queue, offset, NO_END, ReadLimits.of_bytes(1 << 20))
                    .next_offset
                )


def outside(bounds: QueueBounds, place: int) -> tuple[GetMessageStatus, int]:
    """Returns status and next offset of a read at `place`, which is outside these bounds."""
    low, high = bounds.min_offset, bounds.max_offset
    assert not low <= place < high
    if high == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if place < low:
        return GetMessageStatus.OFFSET_TOO_SMALL, low
    if place == high:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, high
    return GetMessageStatus.OFFSET_OVERFLOW_BADLY, high


@pytest.mark.parametrize(
    ("examples", "steps"),
    [
        (EXAMPLES_QUICK, STEPS_QUICK),
        pytest.param(
            EXAMPLES_TORTURE,
            STEPS_TORTURE,
            marks=(pytest.mark.torture, pytest.mark.timeout(24 * 3600)),
        ),
    ],
)
def test_m01_store_and_list_never_differ(examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(StoreAndList, settings=chosen)
