"""A wall clock that is far ahead, shortly or for long, and is corrected."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker.broker import Broker
from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.clock import Clock, ManualClock
from rocketpy_broker.runtime.guarded_clock import AHEAD_MS_MAX, CONFIRM_MS, GuardedClock
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import StoreCheck
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.times import FALLS_MAX
from tests.faults.images import read_bodies, send, workshop
from tests.faults.test_f11_clock import DAY_MS, SECOND_MS, store_times_ms
from tests.support.store.messages import NO_END, OTHER, QUEUE, flush_log, remove_oldest_segment
from tests.support.store.stores import QUEUE_FILE_BYTES, SEGMENT_BYTES, store_in

FAR_MS = 100 * DAY_MS
RESTARTS = ["none", "clean", "crash", "files of RocketMQ"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with workshop() as folder:
        yield folder


def store_at(folder: Path, clock: Clock) -> MessageStore:
    """Returns an open store with small files."""
    store = store_in(folder, clock, index_slot_count=8, index_entry_count_max=64)
    store.open()
    return store


def restarted(store: MessageStore, clock: Clock, how: str) -> MessageStore:
    """Returns the store after a restart, or the same one."""
    if how == "none":
        return store
    (store._release if how == "crash" else store.close)()
    if how == "files of RocketMQ":
        for name in ("manifest.json", "flushed"):
            (store.config.folder / "rocketpy" / name).unlink()
    return store_at(store.config.folder, clock)


def send_some(store: MessageStore, clock: ManualClock, count: int = 5) -> list[int]:
    """Sends one message a second; returns their store times."""
    times_ms = []
    for _ in range(count):
        clock.advance(SECOND_MS)
        send(store, [b"%d" % store.next_offset(QUEUE)])
        send(store, [b"other"], OTHER)
        times_ms.append(store_times_ms(store, QUEUE)[-1])
    return times_ms


def see_clock(store: MessageStore) -> None:
    """Reads the clock once, as the store does for each message."""
    store._appender.times.next_ms()


def since(store: MessageStore, timestamp_ms: int) -> int | None:
    found = store.queue_lookup.first_since(QUEUE, timestamp_ms)
    return None if found is None else found.offset


# --- Accepted readings ---


def test_f11_one_reading_far_ahead_is_not_believed() -> None:
    inner = ManualClock()
    clock = GuardedClock(inner)
    for _ in range(100):
        before_ms = clock.now_ms()
        inner.jump(FAR_MS)
        assert clock.now_ms() == before_ms
        inner.jump(-FAR_MS)
        inner.advance(SECOND_MS)
        assert clock.now_ms() == inner.now_ms() == before_ms + SECOND_MS


def test_f11_a_clock_far_ahead_is_believed_when_it_has_agreed_for_long() -> None:
    inner = ManualClock()
    clock = GuardedClock(inner)
    begin_ms = clock.now_ms()
    inner.jump(FAR_MS)
    assert clock.now_ms() == begin_ms
    inner.advance(CONFIRM_MS - 1)
    assert clock.now_ms() == begin_ms + CONFIRM_MS - 1
    inner.advance(1)
    assert clock.now_ms() == inner.now_ms() == begin_ms + FAR_MS + CONFIRM_MS


def test_f11_readings_far_ahead_that_differ_are_never_believed() -> None:
    inner = ManualClock()
    clock = GuardedClock(inner)
    begin_ms = clock.now_ms()
    for number in range(1, 20):
        inner.jump(FAR_MS)
        inner.advance(CONFIRM_MS // 2)
        assert clock.now_ms() == begin_ms + number * CONFIRM_MS // 2


def test_f11_a_clock_that_is_set_by_an_hour_is_believed_at_once() -> None:
    inner = ManualClock()
    clock = GuardedClock(inner)
    for delta_ms in (AHEAD_MS_MAX, -AHEAD_MS_MAX, -3 * DAY_MS):
        clock.now_ms()
        inner.jump(delta_ms)
        assert clock.now_ms() == inner.now_ms()


def test_f11_a_clock_that_jumps_all_the_time_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = ManualClock()
    clock = GuardedClock(inner)
    clock.now_ms()
    for _ in range(300):
        inner.jump(FAR_MS)
        clock.now_ms()
        inner.advance(SECOND_MS)
    assert len(caplog.records) == 300 * SECOND_MS // CONFIRM_MS


def test_f11_a_broker_believes_the_machines_clock_no_further(tmp_path: Path) -> None:
    assert isinstance(Broker(BrokerConfig(tmp_path))._clock, GuardedClock)


# --- Store times ---


@pytest.mark.parametrize("restart", RESTARTS)
def test_f11_a_clock_far_ahead_for_a_moment_leaves_no_store_time_far_ahead(
    restart: str, folder: Path
) -> None:
    inner = ManualClock()
    store = store_at(folder, GuardedClock(inner))
    send_some(store, inner)
    inner.jump(FAR_MS)
    send_some(store, inner)
    inner.jump(-FAR_MS)
    store = restarted(store, GuardedClock(inner), restart)
    send_some(store, inner)
    begin_ms = ManualClock().now_ms()
    expected = [begin_ms + number * SECOND_MS for number in range(1, 16)]
    assert store_times_ms(store, QUEUE) == expected
    store.close()


@pytest.mark.parametrize("restart", RESTARTS)
def test_f11_store_times_are_right_again_a_minute_after_the_clock_is(
    restart: str, folder: Path
) -> None:
    clock = ManualClock()
    store = store_at(folder, clock)
    send_some(store, clock)
    clock.jump(FAR_MS)
    far_ms = send_some(store, clock)[-1]
    clock.jump(-FAR_MS)
    store = restarted(store, clock, restart)
    assert set(send_some(store, clock)) == {far_ms}
    clock.advance(CONFIRM_MS)
    for _ in range(3):
        first_ms = clock.now_ms() + SECOND_MS
        assert send_some(store, clock) == [first_ms + n * SECOND_MS for n in range(5)]
        store = restarted(store, clock, restart)
    store.close()


@pytest.mark.parametrize("back_ms", [AHEAD_MS_MAX, 3 * DAY_MS])
def test_f11_store_times_do_not_fall_where_the_clock_is_not_sure(
    back_ms: int, folder: Path
) -> None:
    clock = ManualClock()
    store = store_at(folder, clock)
    last_ms = send_some(store, clock)[-1]
    for _ in range(20):
        clock.jump(-back_ms)
        assert set(send_some(store, clock)) == {last_ms}
        clock.jump(back_ms)
        last_ms = send_some(store, clock)[-1]
    store.close()


def test_f11_store_times_far_ahead_are_told_once_and_that_they_fell(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = store_at(folder, clock)
    clock.jump(FAR_MS)
    send_some(store, clock)
    clock.jump(-FAR_MS)
    caplog.set_level(logging.WARNING)
    send_some(store, clock, 200)
    store.close()
    waits, falls = (
        sum(text in record.getMessage() for record in caplog.records)
        for text in ("ahead of the clock", "store times fall")
    )
    assert (waits, falls) == (1, 1)


# --- Searches by time and by key ---


def with_far_messages(folder: Path, clock: ManualClock) -> tuple[MessageStore, list[int]]:
    """Returns a store with 5 messages, 5 far ahead, and 5 of the corrected clock; and all times."""
    store = store_at(folder, clock)
    send_some(store, clock)
    clock.jump(FAR_MS)
    send_some(store, clock)
    clock.jump(-FAR_MS)
    see_clock(store)
    clock.advance(CONFIRM_MS)
    send_some(store, clock)
    return store, store_times_ms(store, QUEUE)


@pytest.mark.parametrize("restart", RESTARTS)
def test_f11_a_search_by_time_finds_what_the_mended_clock_has_stored(
    restart: str, folder: Path
) -> None:
    clock = ManualClock()
    store, times_ms = with_far_messages(folder, clock)
    store = restarted(store, clock, restart)
    for offset in (*range(5), *range(11, 15)):
        assert since(store, times_ms[offset]) == offset
        assert since(store, times_ms[offset] - SECOND_MS + 1) == offset
    # The messages far ahead were stored before later ones, whatever their store times are.
    assert since(store, times_ms[4] + 1) == 5
    assert since(store, times_ms[10]) == 5
    for time_ms in (times_ms[14] + 1, times_ms[5], times_ms[9], times_ms[9] + 1):
        assert since(store, time_ms) is None
    store.close()


def test_f11_a_search_by_time_goes_on_when_the_far_messages_are_cleaned(folder: Path) -> None:
    clock = ManualClock()
    store, _ = with_far_messages(folder, clock)
    (fall,) = store._appender.times.falls
    while store._log.begin <= fall:
        send_some(store, clock, 20)
        flush_log(store)
        remove_oldest_segment(store)
    begin = store.range_of(QUEUE).min_offset
    first = store.queue_lookup.first_since(QUEUE, 0)
    assert first is not None
    assert first.offset == begin
    assert since(store, first.timestamp_ms + SECOND_MS) == begin + 1
    store.close()


@pytest.mark.parametrize("restart", RESTARTS)
def test_f11_clocks_that_are_wrong_again_and_again_are_bounded(restart: str, folder: Path) -> None:
    clock = ManualClock()
    store = store_at(folder, clock)
    for _ in range(FALLS_MAX + 6):
        clock.jump(FAR_MS)
        send_some(store, clock, 1)
        clock.jump(-FAR_MS)
        see_clock(store)
        clock.advance(CONFIRM_MS)
        (time_ms,) = send_some(store, clock, 1)
    store = restarted(store, clock, restart)
    assert len(store._appender.times.falls) == FALLS_MAX
    # The far message before it may have been stored at any time up to then.
    assert since(store, time_ms) == 2 * (FALLS_MAX + 6) - 2
    assert since(store, time_ms - CONFIRM_MS) == 2 * (FALLS_MAX + 6) - 2
    assert len(read_bodies(store)) == 2 * (FALLS_MAX + 6)
    store.close()


@pytest.mark.parametrize("begins_far", [False, True])
@pytest.mark.parametrize("restart", RESTARTS)
def test_f11_messages_of_the_mended_clock_are_found_by_key_and_time(
    restart: str, begins_far: bool, folder: Path
) -> None:
    clock = ManualClock()
    if begins_far:
        clock.jump(FAR_MS)
        send_some(store := store_at(folder, clock), clock, 1)
        clock.jump(-FAR_MS)
        see_clock(store)
        clock.advance(CONFIRM_MS)
        send_some(store, clock)
    else:
        store, _ = with_far_messages(folder, clock)
    store = restarted(store, clock, restart)
    time_ms = store_times_ms(store, QUEUE)[-1]
    key = str(store.next_offset(QUEUE) - 1)
    for around, count in ((time_ms, 1), (time_ms - FAR_MS, 0), (time_ms + FAR_MS, 0)):
        span = (around - 2 * SECOND_MS, around + 2 * SECOND_MS)
        assert len(store.messages.by_key(QUEUE.topic, key, *span, 64)) == count
    assert len(store.messages.by_key(QUEUE.topic, key, 0, NO_END, 64)) == 1
    store.close()


@pytest.mark.parametrize("restart", RESTARTS)
def test_f11_a_store_whose_times_fell_passes_the_check(restart: str, folder: Path) -> None:
    clock = ManualClock()
    store, _ = with_far_messages(folder, clock)
    restarted(store, clock, restart).close()
    sizes = StoreSizes(SEGMENT_BYTES, QUEUE_FILE_BYTES)
    assert [*StoreCheck(folder, sizes, IndexFormat(8, 64)).run()] == []
