"""The cost of a snapshot for other work: small parts, and a limited rate."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.observability.metrics.families import Series
from rocketpy_broker.services.observability.metrics.service import (
    KEPT_TIMES,
    SAMPLES_A_SLOT,
    MetricsService,
)
from tests.broker.metrics.scrape import get, group_lags, metrics_of, parsed
from tests.broker.metrics.test_messages import commit, enter
from tests.support.broker.event_loop import counted_slots
from tests.support.broker.running_broker import RunningBroker, StartBroker

MANY, FEW = 7, 2
FAMILIES = (
    "rocketmq_messages_in_total",
    "rocketmq_messages_out_total",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_queueing_latency_milliseconds",
    "rocketmq_consumer_connections",
)


async def test_s13_large_families_are_made_in_small_parts_and_are_whole_in_the_text(
    start_broker: StartBroker,
) -> None:
    # Each group has five gauges of lags.
    count = SAMPLES_A_SLOT // 5 + 1
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        for number in range(count):
            await running.create_topic(f"T{number}")
            await running.append(f"T{number}", 0, b"1")
        for number in range(count):
            await enter(running, f"g{number}")
            await running.pull(topic=f"T{number}", queue_id=0, offset=0, consumer_group="g")
            await commit(running, f"g{number}", 0)
        text = (await get(running, "/metrics"))[1]
    page = parsed(text)
    for name in FAMILIES:
        assert len(page.samples[name]) >= count
        check_whole(text, name)


def check_whole(text: str, name: str) -> None:
    """Asserts that the lines of a family are consecutive, after one line with its type."""
    lines = [number for number, line in enumerate(text.splitlines()) if f"{name}{{" in line]
    assert lines == [*range(lines[0], lines[-1] + 1)]
    assert text.count(f"# TYPE {name} ") == 1


class LargeSource:
    """A source of large families, in turn."""

    def __init__(self, count: int, *names: str) -> None:
        self.count = count
        self._names = names

    async def series(self) -> AsyncIterator[Series | None]:
        for number in range(self.count):
            for name in self._names:
                yield name, (str(number),), number


async def test_s13_large_families_are_made_in_slots() -> None:
    names = "rocketmq_producer_connections", "rocketmq_consumer_connections"
    source = LargeSource(3 * SAMPLES_A_SLOT // len(names), *names)
    async with counted_slots() as slots:
        pieces = await MetricsService([source], {}, ManualClock()).text()
    text = b"".join(pieces).decode()
    for name in names:
        assert text.count(f"\n{name}{{") == source.count
        check_whole(text, name)
    assert len(slots) == 3


async def test_n12_of_very_many_lags_some_are_told_and_the_others_counted(
    running: RunningBroker,
) -> None:
    """Limits the page: with a million groups in topics it had 557 MiB."""
    await running.create_topic("T")
    await running.append("T", 0, b"1", b"2")
    for number in range(MANY):
        await commit(running, f"g{number}", number % 2)
    source = group_lags(running, lags_max=FEW, places_kept_max=1)
    page = await metrics_of(source, running.clock)
    assert len(source._stored_ms) == 1
    assert len(page.samples["rocketmq_consumer_lag_messages"]) == FEW
    assert page.value("rocketpy_omitted_consumer_lags") == MANY - FEW


async def test_n12_a_snapshot_reads_some_ages_and_counts_the_messages_of_all(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, *[b"1"] * MANY)
    for number in range(MANY):
        await commit(running, f"g{number}", number)
    source = group_lags(running, reads_max=FEW)
    page = await metrics_of(source, running.clock)
    assert len(page.samples["rocketmq_consumer_lag_messages"]) == MANY
    assert len(page.samples["rocketmq_consumer_lag_latency_milliseconds"]) == FEW


async def test_a_page_is_handed_out_in_pieces_and_is_whole() -> None:
    clock = ManualClock()
    pieces = await MetricsService([SlowSource(clock, takes_ms=1)], {}, clock).text()
    assert len(pieces) > 1
    assert b"rocketmq_topic_number 1.0" in b"".join(pieces)


class SlowSource:
    """A source that takes time, and may fail in the end."""

    def __init__(self, clock: ManualClock, takes_ms: int) -> None:
        self._clock = clock
        self._takes_ms = takes_ms
        self.error: Exception | None = None
        self.asked = 0

    async def series(self) -> AsyncIterator[Series | None]:
        self.asked += 1
        self._clock.advance(self._takes_ms)
        yield "rocketmq_topic_number", (), self.asked
        if self.error is not None:
            raise self.error


async def test_a_snapshot_that_failed_is_not_tried_again_sooner_than_one_that_did_not() -> None:
    clock = ManualClock()
    source = SlowSource(clock, takes_ms=500)
    service = MetricsService([source], {}, clock)
    source.error = RuntimeError("broken")
    for _ in range(5):
        with pytest.raises(RuntimeError, match="broken"):
            await service.text()
    assert source.asked == 1
    source.error = None
    clock.advance(500 * KEPT_TIMES + 1)
    assert b"rocketmq_topic_number 2.0" in b"".join(await service.text())
