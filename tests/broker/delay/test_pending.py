"""The table of pending messages against a sorted list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.services.delay import pending
from rocketpy_broker.services.delay.pending import PendingMessages

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


def test_d03_a_full_run_is_sorted_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "RUN_COUNT", 8)
    table = PendingMessages(DAY_MS)
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
