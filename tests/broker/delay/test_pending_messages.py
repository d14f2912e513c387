"""The table of pending messages against a sorted list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.services.delay.pending_messages import PendingMessages, key_hash

DAY_MS = 86_400_000
TIMES = st.lists(st.lists(st.integers(1, 5_000), max_size=20), max_size=12)


@pytest.mark.parametrize("delay_ms_max", [3 * DAY_MS, 4_000 * DAY_MS])
@given(TIMES, st.integers(1, 30))
def test_d03_messages_go_out_by_time_then_by_offset_whenever_they_came(
    delay_ms_max: int, lots: list[list[int]], count_max: int
) -> None:
    table = PendingMessages(delay_ms_max)
    waiting: list[tuple[int, int]] = []
    read = 0
    for number, lot in enumerate(lots):
        offsets = np.arange(read, read + len(lot))
        read += len(lot)
        table.add(np.array(lot, np.int64), offsets)
        waiting = sorted(waiting + list(zip(lot, offsets.tolist(), strict=True)))
        now_ms = number * 400
        while len((due := table.due(now_ms, count_max)).offsets):
            found = list(zip(due.due_ms.tolist(), due.offsets.tolist(), strict=True))
            assert found == waiting[: len(found)]
            waiting = waiting[len(found) :]
            table.done(due)
        assert not waiting or waiting[0][0] > now_ms
        assert len(table) == len(waiting)
        assert table.offsets().tolist() == sorted(offset for _, offset in waiting)
        first_ms = table.first_ms(now_ms)
        assert (first_ms is None) == (not waiting)
        assert not waiting or (first_ms or 0) <= waiting[0][0]
        assert table.low_offset(read) <= min((offset for _, offset in waiting), default=read)


def test_d03_a_full_run_is_sorted_before_its_time() -> None:
    table = PendingMessages(DAY_MS, run_count=8)
    for begin in range(0, 40, 5):
        table.add(np.full(5, 900), np.arange(begin, begin + 5)[::-1])
    due = table.due(900, 100)
    assert due.offsets.tolist() == list(range(40))
    table.done(due)
    assert (len(table), table.first_ms(900), table.low_offset(40)) == (0, None, 40)


def test_d03_nothing_below_the_oldest_bucket_of_pending_ones_is_kept() -> None:
    table = PendingMessages(DAY_MS)
    table.add(np.array([1, 9_000]), np.array([10, 5_000]))
    assert table.low_offset(6_000) == 0
    table.done(table.due(1, 10))
    assert table.low_offset(6_000) == 4_096


def test_b09_marks_of_a_slot_are_sorted_in_runs_and_no_full_one_again() -> None:
    """Covers a second with all its messages cancelled, some while they become due."""
    table = PendingMessages(DAY_MS, run_count=64)
    for offset in range(1_000):
        table.cancel(500, f"T+{offset}", offset)
    table.add(np.array([600]), np.array([1_000]))
    before = table.due(700, 1).tombstones.runs
    table.cancel(500, "T+another", 1_001)
    after = table.due(700, 1).tombstones.runs
    assert all(run.shape[1] <= 64 for run in after)
    assert sum(run.shape[1] for run in after) == 2 * 1_001
    assert [one is other for one, other in zip(before, after, strict=False)][:-1] == [
        True for _ in before[:-1]
    ]


MARKS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(1, 3)), max_size=40)


@given(MARKS, st.integers(1, 6))
def test_d03_a_message_is_void_by_the_marks_behind_it(
    marks: list[tuple[str, bool, int]], run_count: int
) -> None:
    """Compares with marks applied one by one; a rolled copy is void by any earlier cancellation."""
    table = PendingMessages(DAY_MS, run_count=run_count)
    table.add(np.array([900]), np.array([0]))
    below: dict[str, int] = {}
    cancelled = set()
    offset = 0
    for key, is_cancel, step in marks:
        offset += step
        (table.cancel if is_cancel else table.supersede)(900, key, offset)
        below[key] = offset
        if is_cancel:
            cancelled.add(key)
        tombstones = table.due(900, 10).tombstones
        asked = [(each, place) for each in "abcd" for place in (1, offset - 1, offset)]
        hashes = np.array([key_hash(900, each) for each, _ in asked])
        places = np.array([place for _, place in asked])
        for is_rolled in (False, True):
            found = tombstones.cover(hashes, places, np.full(len(asked), is_rolled)).tolist()
            assert found == [
                place < below.get(each, 0) or (is_rolled and each in cancelled)
                for each, place in asked
            ]
