"""Cleaning: by age and hour, by space, on request; and a clock that jumps."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.cleaner import (
    HOUR_MS,
    CleanDecision,
    Cleaner,
    CleanPolicy,
    SegmentWait,
    WaitReason,
    used_ratio,
)
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueBounds, QueueKey, ReadLimits
from tests.support.store.messages import (
    NO_END,
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    numbered,
    put,
    put_all,
    read_all,
    remove_oldest_segment,
)
from tests.support.store.stores import OpenStore, crash

DAY_MS = 24 * HOUR_MS
POLICY = CleanPolicy()
EVERY_HOUR = CleanPolicy(delete_when_hours=frozenset(range(24)))


def cleaner(clock: ManualClock, policy: CleanPolicy = EVERY_HOUR, used: float = 0.1) -> Cleaner:
    return Cleaner(policy, clock, lambda: used)


def settled(cleaning: Cleaner, clock: ManualClock) -> Cleaner:
    """Returns the cleaner after an hour in which its clock did not jump."""
    cleaning.decide([], manual=False)
    clock.advance(HOUR_MS)
    return cleaning


def ages(clock: ManualClock, *days: float) -> list[float]:
    """Returns the last write times of segments with these ages."""
    return [clock.now_ms() - age * DAY_MS for age in days]


def test_s10_expired_segments_go_and_never_the_last(clock: ManualClock) -> None:
    cleaning = settled(cleaner(clock), clock)
    assert cleaning.decide(ages(clock, 9, 5, 2, 1), manual=False).segment_count == 2
    assert cleaning.decide(ages(clock, 9), manual=False).segment_count == 0
    assert cleaning.decide([], manual=False).segment_count == 0


def test_s10_what_lies_behind_a_younger_segment_stays(clock: ManualClock) -> None:
    cleaning = settled(cleaner(clock), clock)
    assert cleaning.decide(ages(clock, 2, 9, 9, 0), manual=False).segment_count == 0


def test_s10_segments_that_stay_say_why_and_until_when(clock: ManualClock) -> None:
    cleaning = cleaner(clock)
    written = ages(clock, 9, 5, 2, 1, 0)
    cleaning.decide(written, manual=True)
    clock.advance(HOUR_MS // 4)
    young = SegmentWait(WaitReason.AGE, 2, round(written[2]) + POLICY.reserved_ms)
    confirmed_ms = clock.now_ms() + HOUR_MS * 3 // 4
    unsure = SegmentWait(WaitReason.CLOCK, 2, confirmed_ms)
    assert cleaning.waits(written, 5, manual=True) == [unsure, young]
    clock.advance(HOUR_MS)
    assert cleaning.waits(written, 5, manual=True) == [
        SegmentWait(WaitReason.BATCH, 2, clock.now_ms()),
        young,
    ]
    assert cleaning.waits(written, 1, manual=True) == [
        SegmentWait(WaitReason.BATCH, 1, clock.now_ms()),
        SegmentWait(WaitReason.NEEDED, 1),
        young,
    ]
    assert cleaning.waits(ages(clock, 1, 0), 5, manual=True) == [
        SegmentWait(WaitReason.AGE, 1, clock.now_ms() + 2 * DAY_MS)
    ]
    assert cleaning.waits(ages(clock, 9), 5, manual=True) == []
    assert cleaning.waits([], 0, manual=True) == []


def test_s10_segments_wait_for_the_next_hour_of_cleaning_unless_the_disk_fills(
    clock: ManualClock,
) -> None:
    local = time.localtime(clock.now_ms() / 1000)
    policy = CleanPolicy(delete_when_hours=frozenset({(local.tm_hour + 5) % 24}))
    cleaning = settled(cleaner(clock, policy), clock)
    [wait] = cleaning.waits(ages(clock, 9, 0), 2, manual=False)
    assert (wait.reason, wait.segment_count) == (WaitReason.HOUR, 1)
    assert wait.until_ms is not None
    until = time.localtime(wait.until_ms / 1000)
    assert (until.tm_hour, until.tm_min) == ((local.tm_hour + 5) % 24, 0)
    assert 0 < wait.until_ms - clock.now_ms() <= 5 * HOUR_MS
    full = settled(cleaner(clock, policy, used=0.8), clock)
    [wait] = full.waits(ages(clock, 9, 0), 2, manual=False)
    assert wait.reason is WaitReason.BATCH
    never = settled(cleaner(clock, CleanPolicy(delete_when_hours=frozenset())), clock)
    assert never.waits(ages(clock, 9, 0), 2, manual=False) == [SegmentWait(WaitReason.HOUR, 1)]


def test_s10_forcible_cleaning_waits_for_no_age(clock: ManualClock) -> None:
    cleaning = cleaner(clock, CleanPolicy(clean_file_forcibly_enable=True), used=0.87)
    [wait] = cleaning.waits(ages(clock, *[1] * 30), 29, manual=False)
    assert (wait.reason, wait.segment_count) == (WaitReason.BATCH, 29)


def test_s10_a_pass_removes_so_many_at_most(clock: ManualClock) -> None:
    cleaning = settled(cleaner(clock), clock)
    many = ages(clock, *[9] * 30)
    assert cleaning.decide(many, manual=False).segment_count == POLICY.files_per_pass_max


def test_s10_other_hours_are_left_alone_unless_asked_or_short_of_space(clock: ManualClock) -> None:
    hour = time.localtime(clock.now_ms() / 1000).tm_hour
    policy = CleanPolicy(delete_when_hours=frozenset({(hour + 5) % 24}))
    cleaning = settled(cleaner(clock, policy), clock)
    assert cleaning.decide(ages(clock, 9, 0), manual=False).segment_count == 0
    assert cleaning.decide(ages(clock, 9, 0), manual=True).segment_count == 1
    full = settled(cleaner(clock, policy, used=0.8), clock)
    assert full.decide(ages(clock, 9, 1, 0), manual=False) == CleanDecision(1, disk_full=False)


def test_s10_a_full_disk_stops_sends_and_takes_no_message_before_its_time(
    clock: ManualClock,
) -> None:
    cleaning = cleaner(clock, POLICY, used=0.95)
    assert cleaning.decide(ages(clock, 1, 1, 0), manual=False) == CleanDecision(0, disk_full=True)


def test_s10_forcible_cleaning_has_to_be_asked_for(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    policy = CleanPolicy(clean_file_forcibly_enable=True)
    cleaning = cleaner(clock, policy, used=0.87)
    assert cleaning.decide(ages(clock, 1, 1, 0), manual=False) == CleanDecision(2, disk_full=False)
    assert "removing 2 log segments early" in caplog.text
    caplog.clear()
    assert cleaning.decide(ages(clock, 0), manual=False).segment_count == 0
    assert not caplog.text


@pytest.mark.parametrize("jump_ms", [100 * DAY_MS, -3 * DAY_MS])
def test_f11_a_jump_of_the_clock_deletes_nothing_at_once(clock: ManualClock, jump_ms: int) -> None:
    cleaning = settled(cleaner(clock), clock)
    written = ages(clock, 1, 1, 0)
    clock.jump(jump_ms)
    assert cleaning.decide(written, manual=False).segment_count == 0
    clock.advance(HOUR_MS - 1)
    assert cleaning.decide(written, manual=True).segment_count == 0
    # An operator may correct the clock within the hour, and no message is lost.
    clock.jump(-jump_ms)
    clock.advance(2 * HOUR_MS)
    assert cleaning.decide(written, manual=True).segment_count == 0


def test_f11_a_clock_that_stays_where_it_jumped_to_is_believed_after_an_hour(
    clock: ManualClock,
) -> None:
    cleaning = settled(cleaner(clock), clock)
    written = ages(clock, 1, 1, 0)
    clock.jump(100 * DAY_MS)
    assert cleaning.decide(written, manual=False).segment_count == 0
    clock.advance(HOUR_MS)
    assert cleaning.decide(written, manual=False).segment_count == 2


def test_f11_the_first_reading_after_a_start_removes_nothing(clock: ManualClock) -> None:
    assert cleaner(clock).decide(ages(clock, 100, 0), manual=True).segment_count == 0


def test_s10_the_used_share_of_a_disk_is_between_nothing_and_all(tmp_path: Path) -> None:
    assert 0 < used_ratio(tmp_path) <= 1


def aged(store: MessageStore, clock: ManualClock, count: int) -> None:
    """Makes the first `count` segments nine days old."""
    folder = store.config.folder / "commitlog"
    seconds = (clock.now_ms() - 9 * DAY_MS) / 1000
    for path in sorted(folder.iterdir())[:count]:
        os.utime(path, (seconds, seconds))


def clean(store: MessageStore, clock: ManualClock) -> int:
    store.expired_segment_count(manual=True)
    clock.advance(HOUR_MS)
    count = store.expired_segment_count(manual=True)
    for _ in range(count):
        remove_oldest_segment(store)
    return count


def test_s10_log_queues_and_index_lose_what_has_expired(
    clock: ManualClock, tmp_path: Path, store: MessageStore
) -> None:
    put(store, [b"old"], OTHER)
    put_all(store, numbered(300))
    store.dispatch()
    flush_log(store)
    segments = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    queue_files = len(list((tmp_path / "consumequeue" / "TopicA" / "2").iterdir()))
    aged(store, clock, 4)
    assert clean(store, clock) == 4
    assert sorted(path.name for path in (tmp_path / "commitlog").iterdir()) == segments[4:]
    begin = store.range_of(QUEUE).min_offset
    assert begin > 0
    assert read_all(store) == numbered(300)[begin:]
    missed = store.get_message(QUEUE, 0, NO_END, ReadLimits())
    assert (missed.status, missed.next_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, begin)
    # The queue's messages are all removed; its next offset is kept.
    assert store.range_of(OTHER) == QueueBounds(1, 1)
    assert len(list((tmp_path / "consumequeue" / "TopicA" / "2").iterdir())) < queue_files
    assert len(list((tmp_path / "rocketpy" / "checksums").iterdir())) == len(segments) - 4


@pytest.mark.parametrize("crashed", [False, True])
def test_s10_a_cleaned_store_starts_again_as_it_was(
    new_store: OpenStore, clock: ManualClock, crashed: bool, store: MessageStore
) -> None:
    put(store, [b"old"], OTHER)
    put_all(store, numbered(300))
    flush_log(store)
    aged(store, clock, 4)
    clean(store, clock)
    ranges = {queue: store.range_of(queue) for queue in store.queues()}
    left = read_all(store)
    (crash if crashed else MessageStore.close)(store)
    again = new_store()
    result = again.open()
    assert result.in_doubt == []
    assert {queue: again.range_of(queue) for queue in again.queues()} == ranges
    assert read_all(again) == left
    put(again, [b"next"], OTHER)
    assert read_all(again, OTHER) == [b"next"]
    assert again.range_of(OTHER) == QueueBounds(1, 2)


def test_s10_what_is_not_on_disk_yet_stays(clock: ManualClock, store: MessageStore) -> None:
    put_all(store, numbered(300))
    aged(store, clock, 4)
    assert clean(store, clock) == 0


def test_n12_s10_marks_of_deleted_topics_go_with_the_last_of_their_records(
    tmp_path: Path, store: MessageStore
) -> None:
    """Asserts that topics deleted again and again leave no tombstones without records."""
    for number in range(3):
        put(store, [b"1"], QueueKey(f"gone{number}", 0))
        delete_topic(store, f"gone{number}")
        store.dispatch()
    marks = store._parts.queues._deleted.marks
    assert [*marks] == ["gone0", "gone1", "gone2"]
    while store.positions().log_begin < marks["gone2"]:
        put_all(store, numbered(200))
        flush_log(store)
        remove_oldest_segment(store)
    # As if its removal had failed; the next start removes it, by the tombstone.
    (tmp_path / "consumequeue" / "gone1").mkdir()
    put(store, [b"2"], OTHER)
    delete_topic(store, OTHER.topic)
    kept = store._parts.queues._deleted.marks
    assert kept == {"gone1": marks["gone1"], OTHER.topic: store.positions().log_end}
