"""Rows and windows of statistics, on a clock that stands still."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import PASSES
from rocketpy_broker.services.observability.counters.names import Key, Kind
from rocketpy_broker.services.observability.counters.windows import Figures
from rocketpy_broker.services.observability.statistics.service import ROWS_A_SLOT
from rocketpy_broker.services.retry.service import SentBackMessages
from rocketpy_broker.store.statistics import (
    LATENCY_BOUNDS_MS,
    LONGER,
    Put,
    StoreStatistics,
    latency_classes,
    percentile_ms,
)
from rocketpy_broker.store.values import PutCause, QueueKey
from rocketpy_proto.rocketpy.v1.admin_pb2 import GetStatisticsRequest
from tests.broker.statistics.conftest import SAMPLE_MS, Counting

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOTHING = Figures(0, 0.0, 0.0)


def test_s13_sum_tps_and_average_are_of_the_window_s_first_and_last_sample(
    counting: Counting,
) -> None:
    for _ in range(10):
        counting.put("T", 30)
        counting.put("T", 10)
        counting.pass_time(SAMPLE_MS)
    assert counting.figures("TOPIC_PUT_NUMS T") == Figures(240, 4.0, 20.0)
    assert counting.figures("TOPIC_PUT_SIZE T") == Figures(24_000, 400.0, 2_000.0)
    assert counting.figures("TOPIC_PUT_LATENCY T") == Figures(48, 0.8, 4.0)
    item = counting.items("TOPIC_PUT_NUMS")["TOPIC_PUT_NUMS T"]
    assert (item.value, item.times) == (400, 20)


def test_s13_the_first_sample_of_a_row_follows_one_of_zeros_a_period_earlier(
    counting: Counting,
) -> None:
    counting.clock.advance(7_000)
    counting.put("First", 50)
    counting.clock.advance(3_000)
    asyncio.run(counting.service.sample())
    assert counting.figures("TOPIC_PUT_NUMS First") == Figures(50, 5.0, 50.0)
    counting.put("Later", 20)
    assert counting.figures("TOPIC_PUT_NUMS Later") == NOTHING
    counting.pass_time(SAMPLE_MS)
    assert counting.figures("TOPIC_PUT_NUMS Later") == Figures(20, 2.0, 20.0)
    assert counting.figures("TOPIC_PUT_NUMS First") == Figures(50, 2.5, 50.0)


def test_s13_a_minute_forgets_and_hour_and_day_remember(counting: Counting) -> None:
    counting.put("T", 60)
    counting.pass_time(600_000)
    assert counting.figures("TOPIC_PUT_NUMS T") == NOTHING
    assert counting.figures("TOPIC_PUT_NUMS T", "hour") == Figures(60, 0.1, 60.0)
    assert counting.figures("TOPIC_PUT_NUMS T", "day") == NOTHING
    counting.put("T", 12)
    counting.pass_time(HOUR_MS - 600_000)
    assert counting.figures("TOPIC_PUT_NUMS T", "hour") == Figures(72, 0.02, 36.0)
    assert counting.figures("TOPIC_PUT_NUMS T", "day") == Figures(72, 0.02, 36.0)
    counting.pass_time(HOUR_MS)
    assert counting.figures("TOPIC_PUT_NUMS T", "hour") == NOTHING
    assert counting.figures("TOPIC_PUT_NUMS T", "day") == Figures(72, 0.01, 36.0)


def test_s13_a_row_that_was_idle_for_a_day_makes_room(counting: Counting) -> None:
    counting.put("Idle")
    counting.pass_time(HOUR_MS)
    counting.put("Busy")
    counting.pass_time(DAY_MS - HOUR_MS)
    assert Key(Kind.TOPIC_PUT, "Idle") in counting.table
    counting.pass_time(HOUR_MS - SAMPLE_MS)
    assert Key(Kind.TOPIC_PUT, "Idle") in counting.table
    counting.pass_time(SAMPLE_MS)
    assert Key(Kind.TOPIC_PUT, "Idle") not in counting.table
    assert Key(Kind.TOPIC_PUT, "Busy") in counting.table
    counting.put("Idle", 5)
    counting.pass_time(SAMPLE_MS)
    assert counting.figures("TOPIC_PUT_NUMS Idle") == Figures(5, 0.5, 5.0)


def test_s13_memory_is_bounded_and_rows_idle_for_an_hour_make_room_when_it_is_tight(
    tmp_path: Path,
) -> None:
    counting = Counting(tmp_path, rows_max=8)
    for number in range(10):
        counting.got("T", f"g{number}", 1, 10)
    # Two rows are the broker's.
    assert (len(counting.table), counting.table.untracked) == (8, 4)
    page = asyncio.run(counting.service.page(GetStatisticsRequest(names=["GROUP_GET_NUMS"])))
    assert (len(page.items), page.untracked_count) == (6, 4)
    counting.pass_time(HOUR_MS)
    counting.got("T", "g0", 1, 10)
    counting.pass_time(600_000)
    assert Key(Kind.GROUP_GET, "T", "g0") in counting.table
    assert Key(Kind.GROUP_GET, "T", "g1") not in counting.table
    counting.got("T", "g9", 7, 10)
    counting.pass_time(SAMPLE_MS)
    assert counting.figures("GROUP_GET_NUMS T@g9") == Figures(7, 0.7, 7.0)


def test_s13_a_group_without_a_name_or_with_a_very_long_one_has_no_row(
    counting: Counting,
) -> None:
    counting.got("T", "", 1, 10)
    counting.got("T", "g" * 256, 1, 10)
    assert counting.items("GROUP_GET_NUMS") == {}
    assert counting.items("BROKER_GET_NUMS")["BROKER_GET_NUMS DefaultCluster"].value == 2


def test_s13_samples_of_many_rows_leave_turns_to_others(tmp_path: Path) -> None:
    counting = Counting(tmp_path)
    for number in range(3 * ROWS_A_SLOT):
        counting.put(f"T{number}")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def both() -> None:
        other = asyncio.ensure_future(others())
        counting.clock.advance(HOUR_MS)
        await counting.service.sample()
        other.cancel()

    asyncio.run(both())
    # A slot for each window, and for each step of the search for idle rows.
    assert turns >= (3 + 3) * PASSES


def test_s13_pages_give_every_item_once(tmp_path: Path) -> None:
    counting = Counting(tmp_path)
    topics = {f"T{number}" for number in range(ROWS_A_SLOT + 100)}
    for topic in topics:
        counting.put(topic)
    seen: list[tuple[str, str]] = []
    cursor, pages = 0, 0
    while True:
        names = ["TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"]
        page = asyncio.run(counting.service.page(GetStatisticsRequest(names=names, cursor=cursor)))
        assert 0 < len(page.items) <= 501
        seen += [(item.name, item.key) for item in page.items]
        cursor, pages = page.next_cursor, pages + 1
        if not cursor:
            break
    assert pages == 9
    assert len(seen) == len(set(seen)) == 2 * len(topics)
    beyond = asyncio.run(counting.service.page(GetStatisticsRequest(cursor=1 << 62)))
    assert not beyond.items


def test_s13_a_deleted_topic_takes_its_statistics_along(counting: Counting) -> None:
    counting.put("T")
    counting.put("Other")
    counting.got("T", "g", 1, 1)
    asyncio.run(counting.service.forget_topic("T"))
    found = {item.key for item in counting.items().values()}
    assert found == {"Other", "DefaultCluster"}
    assert counting.counted.puts.keys() == {"Other"}


def test_s13_a_deleted_group_takes_its_statistics_along(counting: Counting) -> None:
    counting.put("SCHEDULE_TOPIC_XXXX")
    for group in ("2", "g"):
        counting.events.sent_back(SentBackMessages(group, {"T": 1}, is_dead=True))
    asyncio.run(counting.service.forget_group("2"))
    found = {item.key for item in counting.items(include_system=True).values()}
    # A queue may bear the group's name.
    assert found == {"T@g", "SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX@2", "DefaultCluster"}


def test_s13_r01_what_is_sent_back_counts_as_rocketmq_counts_it(counting: Counting) -> None:
    counting.put("SCHEDULE_TOPIC_XXXX", 3, PutCause.SENT_BACK)
    counting.put("%DLQ%g", 2, PutCause.SENT_BACK)
    counting.events.sent_back(SentBackMessages("g", {"T": 2, "U": 1}, is_dead=False))
    counting.events.sent_back(SentBackMessages("g", {"T": 2}, is_dead=True))
    found = counting.items(include_system=True)
    assert {name: item.value for name, item in found.items()} == {
        "TOPIC_PUT_NUMS SCHEDULE_TOPIC_XXXX": 3,
        "TOPIC_PUT_SIZE SCHEDULE_TOPIC_XXXX": 300,
        "TOPIC_PUT_LATENCY SCHEDULE_TOPIC_XXXX": 4,
        "QUEUE_PUT_NUMS SCHEDULE_TOPIC_XXXX@2": 3,
        "QUEUE_PUT_SIZE SCHEDULE_TOPIC_XXXX@2": 300,
        "SNDBCK_PUT_NUMS T@g": 4,
        "SNDBCK_PUT_NUMS U@g": 1,
        "SNDBCK2DLQ_TIMES T@g": 2,
    }


def test_s13_t01_steps_of_a_transaction_are_the_broker_s_puts_and_no_topic_s(
    counting: Counting,
) -> None:
    counting.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, PutCause.TRANSACTION)
    counting.put("rmq_sys_rocketpy_batches", 1, PutCause.OWN)
    counting.put("T", 2)
    found = counting.items("BROKER_PUT_NUMS", "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC")
    assert {name: item.value for name, item in found.items()} == {
        "BROKER_PUT_NUMS DefaultCluster": 3,
        "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC DefaultCluster": 2,
    }
    names = counting.items("TOPIC_PUT_NUMS", include_system=True)
    assert names.keys() == {"TOPIC_PUT_NUMS T"}


def test_s13_a_clock_that_stood_still_gives_one_sample_and_goes_on(counting: Counting) -> None:
    counting.put("T", 10)
    counting.clock.advance(100_000)
    asyncio.run(counting.service.sample())
    asyncio.run(counting.service.sample())
    counting.put("T", 10)
    counting.pass_time(SAMPLE_MS)
    assert counting.figures("TOPIC_PUT_NUMS T").sum == 20


@pytest.mark.parametrize(
    ("ms", "bound"),
    [(0.4, 0), (1, 10), (10.9, 10), (11, 50), (500, 500), (501, 1_000), (10_000, 10_000)],
)
def test_s13_put_times_are_counted_in_rocketmq_s_classes(ms: float, bound: int) -> None:
    counted = StoreStatistics()
    counted.put(Put(QueueKey("T", 0), 1, 1, ms, PutCause.SENT))
    classes = latency_classes(counted.put_step_counts)
    assert list(classes) == [*LATENCY_BOUNDS_MS, LONGER]
    assert {bound: count for bound, count in classes.items() if count} == {bound: 1}


def test_s13_percentiles_come_from_finer_steps() -> None:
    counted = StoreStatistics()
    assert percentile_ms(counted.put_step_counts, 0.99) == LONGER
    for ms in [3] * 989 + [31] * 10 + [20_000]:
        counted.put(Put(QueueKey("T", 0), 1, 1, ms, PutCause.SENT))
    assert percentile_ms(counted.put_step_counts, 0.98) == 3
    assert percentile_ms(counted.put_step_counts, 0.99) == 32
    assert percentile_ms(counted.put_step_counts, 1) == LONGER
    assert latency_classes(counted.put_step_counts)[LONGER] == 1


def test_s13_speeds_have_a_figure_for_each_span_that_is_over(counting: Counting) -> None:
    rates = counting.service.speeds.rates
    assert rates()["put_tps"] == []
    counting.put("T", 100)
    counting.counted.got(5, 2.0)
    counting.counted.got(0, 3.5)
    assert counting.counted.get_latency_max_ms == 3.5
    counting.pass_time(SAMPLE_MS)
    assert rates()["put_tps"] == [10.0]
    assert (rates()["get_found_tps"], rates()["get_miss_tps"]) == ([0.1], [0.1])
    assert rates()["get_transferred_tps"] == [0.5]
    counting.pass_time(50_000)
    assert rates()["put_tps"] == [0.0, 100 / 60]
    counting.pass_time(540_000)
    assert rates()["put_tps"] == [0.0, 0.0, 100 / 600]


def test_s13_the_last_minute_s_put_times_begin_anew_each_minute(counting: Counting) -> None:
    counting.put("T")
    assert sum(counting.service.speeds.minute_step_counts) == 0
    counting.pass_time(60_000)
    assert latency_classes(counting.service.speeds.minute_step_counts)[10] == 1
    counting.pass_time(60_000)
    assert sum(counting.service.speeds.minute_step_counts) == 0


def test_items_are_looked_up_by_their_keys(counting: Counting) -> None:
    for topic in ("A", "B", "C"):
        counting.put(topic, 2)
    counting.got("A", "g", 1)
    names = ["TOPIC_PUT_NUMS", "GROUP_GET_NUMS"]
    found = counting.items(*names, keys=["C", "A", "A@g", "none", "C", "@@", ""])
    assert found.keys() == {"TOPIC_PUT_NUMS C", "TOPIC_PUT_NUMS A", "GROUP_GET_NUMS A@g"}
    assert found["TOPIC_PUT_NUMS A"].value == 2
    with pytest.raises(ParameterIllegalError):
        counting.items(*names, keys=["A"] * 501)
    with pytest.raises(ParameterIllegalError):
        counting.items("NO_SUCH", keys=["A"])
