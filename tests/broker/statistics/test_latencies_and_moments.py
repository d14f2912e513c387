"""Lags of groups, and latencies of pulls and registrations."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rocketpy_broker.services.groups.clients.members import ClientRole
from rocketpy_broker.services.observability.counters.event_counter import GAUGE_PERIOD
from rocketpy_broker.services.observability.counters.windows import Figures
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1.admin_pb2 import GetStatisticsRequest, StatisticsItem
from tests.broker.statistics.conftest import SAMPLE_MS, Counting

PERIOD_MS = GAUGE_PERIOD.period_ms
BEHIND = ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME")


def topic_of(item: StatisticsItem) -> str:
    """Returns the topic in a key of queue, topic and group."""
    return item.key.split("@")[1]


def behind(counting: Counting, topic: str = "T") -> dict[str, int]:
    return {name: item.value for name, item in counting.items(*BEHIND, topic=topic).items()}


def test_s13_group_get_latency_sums_up_the_ms_of_pulls(counting: Counting) -> None:
    counting.got("T", "g", latency_ms=30)
    counting.got("T", "g", latency_ms=0)
    counting.got("T", "g", count=0, latency_ms=500)
    counting.pass_time(SAMPLE_MS)
    assert counting.figures("GROUP_GET_LATENCY T@g") == Figures(30, 3.0, 15.0)
    assert counting.items("GROUP_GET_LATENCY")["GROUP_GET_LATENCY T@g"].times == 2


def test_s13_group_get_fall_is_what_the_last_pull_has_found(counting: Counting) -> None:
    counting.got("T", "g", behind_bytes=5_000, behind_ms=900)
    counting.got("T", "g", behind_bytes=4_000, behind_ms=800)
    name = "3@T@g"
    assert behind(counting) == {f"{BEHIND[0]} {name}": 4_000, f"{BEHIND[1]} {name}": 800}
    assert not any(item.HasField("minute") for item in counting.items(*BEHIND).values())
    # Nothing of what it looked at was wanted; there is no time of a last message.
    counting.got("T", "g", count=0, behind_bytes=3_000)
    assert list(behind(counting).values()) == [3_000, 800]


def test_s13_group_get_fall_is_0_each_five_minutes_and_then_goes(counting: Counting) -> None:
    counting.got("T", "g", behind_bytes=5_000, behind_ms=900)
    counting.pass_time(PERIOD_MS - SAMPLE_MS)
    assert list(behind(counting).values()) == [5_000, 900]
    counting.pass_time(SAMPLE_MS)
    assert list(behind(counting).values()) == [0, 0]
    counting.got("U", "g", behind_bytes=7, behind_ms=8)
    counting.pass_time(PERIOD_MS)
    assert (behind(counting), list(behind(counting, "U").values())) == ({}, [0, 0])
    counting.pass_time(PERIOD_MS)
    assert len(counting.gauges) == 0


def test_s13_group_get_fall_is_bounded_and_goes_with_its_topic(tmp_path: Path) -> None:
    counting = Counting(tmp_path, moments_max=2)
    for topic in ("T", "U", "V"):
        counting.got(topic, "g", behind_bytes=1)
    page = asyncio.run(counting.service.page(GetStatisticsRequest(names=BEHIND)))
    assert ({topic_of(item) for item in page.items}, page.untracked_count) == ({"T", "U"}, 1)
    asyncio.run(counting.service.forget_topic("T"))
    counting.got("V", "g", behind_bytes=1)
    assert {topic_of(item) for item in counting.items(*BEHIND).values()} == {"U", "V"}


def test_s13_pages_go_on_from_sums_to_values_of_the_moment(counting: Counting) -> None:
    for number in range(7):
        counting.got(f"T{number}", "g", behind_bytes=number)
    seen: list[str] = []
    cursor = 0
    while True:
        names = ["GROUP_GET_NUMS", *BEHIND]
        query = GetStatisticsRequest(names=names, cursor=cursor, count_max=4)
        page = asyncio.run(counting.service.page(query))
        assert 0 < len(page.items) <= 5
        seen += [f"{item.name} {item.key}" for item in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
    assert len(seen) == len(set(seen)) == 21


def test_s13_register_times_count_registrations_and_their_ms(counting: Counting) -> None:
    for ms in (3.9, 5.0):
        counting.events.registered(ClientRole.CONSUMER, ms)
    counting.events.registered(ClientRole.PRODUCER, 2.0)
    counting.pass_time(SAMPLE_MS)
    consumers = counting.items("CONSUMER_REGISTER_TIME")
    assert [(item.key, item.value, item.times) for item in consumers.values()] == [
        ("DefaultCluster", 8, 2)
    ]
    assert counting.figures("PRODUCER_REGISTER_TIME DefaultCluster") == Figures(2, 0.2, 2.0)
    assert counting.items("CONSUMER_REGISTER_TIME", topic="DefaultCluster") == {}


def test_s13_d03_queue_get_counts_what_a_level_delivers(counting: Counting) -> None:
    counting.events.delivered(QueueKey("SCHEDULE_TOPIC_XXXX", 2), 5, 500)
    found = counting.items(
        "QUEUE_GET_NUMS", "QUEUE_GET_SIZE", "GROUP_GET_NUMS", include_system=True
    )
    assert {name: item.value for name, item in found.items()} == {
        "QUEUE_GET_NUMS SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER": 5,
        "QUEUE_GET_SIZE SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER": 500,
        "GROUP_GET_NUMS SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER": 5,
    }
