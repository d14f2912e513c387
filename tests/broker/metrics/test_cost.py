"""The cost of a snapshot for other work: small parts, and a limited rate."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.observability.metrics import lag
from rocketpy_broker.services.observability.metrics import service as service_module
from rocketpy_broker.services.observability.metrics.families import Series
from rocketpy_broker.services.observability.metrics.service import (
    KEPT_MS_MIN,
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
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        for number in range(MANY):
            await running.create_topic(f"T{number}")
            await running.append(f"T{number}", 0, b"1")
        for number in range(MANY):
            await enter(running, f"g{number}")
            await running.pull(topic=f"T{number}", queue_id=0, offset=0, consumer_group="g")
            await commit(running, f"g{number}", 0)
        whole = parsed((await get(running, "/metrics"))[1])
        monkeypatch.setattr(service_module, "SAMPLES_A_SLOT", FEW)
        running.clock.advance(KEPT_MS_MIN + 1)
        text = (await get(running, "/metrics"))[1]
    parts = parsed(text)
    for name in FAMILIES:
        assert parts.samples[name].keys() == whole.samples[name].keys()
        assert len(parts.samples[name]) >= MANY
        assert text.count(f"# TYPE {name} ") == 1
        lines = [number for number, line in enumerate(text.splitlines()) if f"{name}{{" in line]
        assert lines == [*range(lines[0], lines[-1] + 1)]


class LargeSource:
    """A source of a large family."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def series(self) -> AsyncIterator[Series | None]:
        for number in range(self.count):
            yield "rocketmq_producer_connections", (str(number),), number


async def test_s13_a_large_family_is_made_in_slots() -> None:
    source = LargeSource(3 * SAMPLES_A_SLOT)
    async with counted_slots() as slots:
        text = b"".join(await MetricsService([source], {}, ManualClock()).text())
    assert text.count(b"\nrocketmq_producer_connections{") == source.count
    assert len(slots) == 3


async def test_n12_of_very_many_lags_some_are_told_and_the_others_counted(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits the page: with a million groups in topics it had 557 MiB."""
    monkeypatch.setattr(lag, "PLACES_KEPT_MAX", 1)
    await running.create_topic("T")
    await running.append("T", 0, b"1", b"2")
    for number in range(MANY):
        await commit(running, f"g{number}", number % 2)
    source = group_lags(running, FEW)
    page = await metrics_of(source, running.clock)
    assert len(source._stored_ms) == 1
    assert len(page.samples["rocketmq_consumer_lag_messages"]) == FEW
    assert page.value("rocketpy_omitted_consumer_lags") == MANY - FEW


async def test_n12_a_snapshot_reads_some_ages_and_counts_the_messages_of_all(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "READS_MAX", FEW)
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        await running.append("T", 0, *[b"1"] * MANY)
        for number in range(MANY):
            await commit(running, f"g{number}", number)
        page = parsed((await get(running, "/metrics"))[1])
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
