"""A wall clock that is wrong, stands still, or goes back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock, sleep
from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey, ReadLimits
from rocketpy_proto.record import decode_record
from tests.faults.images import read_bodies, send, workshop
from tests.support.store.messages import NO_END, OTHER, QUEUE, flush_log, remove_oldest_segment
from tests.support.store.stores import (
    SMALL_INDEX,
    opened,
    store_in,
)

SECOND_MS = 1000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ROUNDS = 40
# Cleans at any hour, and never for want of space, whatever the test's disk is.
POLICY = CleanPolicy(
    delete_when_hours=frozenset(range(24)),
    used_ratio_max=2.0,
    clean_forcibly_ratio=2.0,
    warning_level_ratio=2.0,
)

Step = Callable[[ManualClock, int], None]


def jump_once(delta_ms: int) -> Step:
    def step(clock: ManualClock, number: int) -> None:
        clock.advance(SECOND_MS)
        if number == ROUNDS // 2:
            clock.jump(delta_ms)

    return step


def frozen(clock: ManualClock, number: int) -> None:
    """Advances the monotonic time, not the wall time."""
    clock.advance(SECOND_MS)
    clock.jump(-SECOND_MS)


def stepping_back(clock: ManualClock, number: int) -> None:
    clock.advance(SECOND_MS)
    clock.jump(-2 * SECOND_MS)


CLOCKS: dict[str, Step] = {
    "an hour back": jump_once(-HOUR_MS),
    "three days back": jump_once(-3 * DAY_MS),
    "a hundred days on": jump_once(100 * DAY_MS),
    "frozen": frozen,
    "stepping back each second": stepping_back,
}


def store_times_ms(store: MessageStore, queue: QueueKey) -> list[int]:
    times = []
    for offset in range(store.range_of(queue).max_offset):
        result = store.get_message(queue, offset, NO_END, ReadLimits(1, 1, 1, 1))
        times.append(decode_record(bytes(result.parts[0])).record.store_timestamp_ms)
    return times


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
@pytest.mark.parametrize("name", CLOCKS)
def test_f11_store_times_never_fall_within_a_queue(name: str, restart: str) -> None:
    clock = ManualClock()
    with workshop() as folder:
        store = store_in(folder, clock, **SMALL_INDEX)
        store.open()
        for number in range(ROUNDS):
            CLOCKS[name](clock, number)
            send(store, [b"%d" % number], QUEUE if number % 2 else OTHER)
            if number % 4 == 3 and restart != "none":
                (store.close if restart == "clean" else store._release)()
                store = store_in(folder, clock, **SMALL_INDEX)
                store.open()
        for queue in (QUEUE, OTHER):
            times = store_times_ms(store, queue)
            assert len(times) == ROUNDS // 2
            assert times == sorted(times)
        store.close()


@pytest.mark.parametrize("name", CLOCKS)
def test_f11_messages_are_found_by_key_whatever_the_clock_did(name: str) -> None:
    clock = ManualClock()
    with workshop() as folder, opened(folder, clock=clock) as store:
        for number in range(ROUNDS):
            CLOCKS[name](clock, number)
            send(store, [b"%d" % number])
        for number in range(ROUNDS):
            found = store.messages.by_key(QUEUE.topic, str(number), 0, NO_END, 64)
            assert [decode_record(view).record.body for view in found] == [b"%d" % number]


def cleaning_store(folder: Path, clock: ManualClock) -> MessageStore:
    """Returns an open store with POLICY."""
    sync = FlushDiskType.SYNC_FLUSH
    store = store_in(folder, clock, sync, clean_policy=POLICY, **SMALL_INDEX)
    store.open()
    return store


def store_with_old_segments(folder: Path, clock: ManualClock) -> MessageStore:
    """Returns a store with five or more segments, last written now by the injected clock."""
    store = cleaning_store(folder, clock)
    for number in range(ROUNDS):
        send(store, [b"%d" % number + b"x" * 500])
    flush_log(store)
    for segment in store._log.files.segments:
        os.utime(segment.path, (clock.now_ms() / 1000,) * 2)
    assert len(store._log.files.segments) >= 5
    return store


def clean(store: MessageStore) -> int:
    """Runs one pass as the broker does; returns the number of removed segments."""
    count = store.expired_segment_count(manual=False)
    for _ in range(count):
        remove_oldest_segment(store)
    return count


def test_f11_a_clock_set_on_by_100_days_deletes_nothing_before_a_second_reading() -> None:
    clock = ManualClock()
    with workshop() as folder:
        store = store_with_old_segments(folder, clock)
        everything = read_bodies(store)
        assert clean(store) == 0
        clock.jump(100 * DAY_MS)
        assert clean(store) == 0
        clock.advance(POLICY.confirm_ms - 1)
        assert clean(store) == 0
        assert read_bodies(store) == everything
        clock.advance(1)
        assert clean(store) >= 4
        assert read_bodies(store) == everything[-len(read_bodies(store)) :]
        store.close()


def test_f11_a_clock_set_on_and_back_again_deletes_nothing_at_all() -> None:
    clock = ManualClock()
    with workshop() as folder:
        store = store_with_old_segments(folder, clock)
        everything = read_bodies(store)
        for _ in range(50):
            clock.jump(100 * DAY_MS)
            assert clean(store) == 0
            clock.advance(POLICY.confirm_ms // 2)
            assert clean(store) == 0
            clock.jump(-100 * DAY_MS)
            clock.advance(SECOND_MS)
            assert clean(store) == 0
        assert read_bodies(store) == everything
        store.close()


def test_f11_a_restart_under_a_wrong_clock_deletes_nothing_at_once() -> None:
    clock = ManualClock()
    with workshop() as folder:
        store_with_old_segments(folder, clock).close()
        for segment in (folder / "commitlog").iterdir():
            os.utime(segment, (clock.now_ms() / 1000,) * 2)
        clock.jump(100 * DAY_MS)
        again = cleaning_store(folder, clock)
        assert clean(again) == 0
        clock.advance(POLICY.confirm_ms)
        assert clean(again) >= 4
        again.close()


def test_f11_what_has_really_expired_goes_at_the_second_reading() -> None:
    clock = ManualClock()
    with workshop() as folder:
        store = store_with_old_segments(folder, clock)
        assert clean(store) == 0
        clock.advance(POLICY.reserved_ms - HOUR_MS)
        assert clean(store) == 0
        clock.advance(HOUR_MS)
        assert clean(store) >= 4
        store.close()


async def test_f11_waits_do_not_notice_a_jump_of_the_clock() -> None:
    clock = ManualClock()
    waiting = asyncio.gather(sleep(clock, 500))
    await asyncio.sleep(0)
    for delta_ms in (100 * DAY_MS, -103 * DAY_MS):
        clock.jump(delta_ms)
        clock.advance(249)
        await asyncio.sleep(0)
        assert not waiting.done()
    clock.advance(2)
    await waiting
