"""Statistics on a clock that stands still."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.observability.counters.event_counter import (
    GAUGE_PERIOD,
    EventCounter,
)
from rocketpy_broker.services.observability.counters.table import CounterTable
from rocketpy_broker.services.observability.counters.windows import Figures
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.pull.outcome import Pulled
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.statistics import Put, StoreStatistics
from rocketpy_broker.store.values import PutCause, QueueKey
from rocketpy_proto.rocketpy.v1.admin_pb2 import GetStatisticsRequest, StatisticsItem

SAMPLE_MS = 10_000


class Counting:
    """A service, and its clock."""

    def __init__(self, folder: Path, rows_max: int = 100_000, moments_max: int = 100_000) -> None:
        self.clock = ManualClock()
        topics = TopicConfigManager(folder, self.clock, "DefaultCluster", "broker-a")
        self.counted = StoreStatistics()
        self.table = CounterTable(rows_max=rows_max)
        self.gauges = CounterTable([GAUGE_PERIOD], moments_max)
        self.events = EventCounter(topics, self.clock, "DefaultCluster", self.table, self.gauges)
        self.service = StatisticsService(self.events, self.counted, topics, self.clock)
        self.counted.block_put.add(self.events.put)

    def put(self, topic: str, count: int = 1, cause: PutCause = PutCause.SENT) -> None:
        self.counted.put(Put(QueueKey(topic, 2), count, count * 100, 4.0, cause))

    def got(self, topic: str, group: str, count: int = 1, size: int = 10, **said: int) -> None:
        """Records an answer to a pull of queue 3; omitted numbers are 0."""
        fields = {"latency_ms": 0, "behind_bytes": 0, "behind_ms": 0} | said
        self.events.pulled(Pulled(QueueKey(topic, 3), group, count, size, **fields))

    def pass_time(self, ms: int) -> None:
        """Advances the clock, with a sample whenever one is due."""

        async def sample() -> None:
            for _ in range(ms // SAMPLE_MS):
                self.clock.advance(SAMPLE_MS)
                await self.service.sample()

        asyncio.run(sample())

    def items(self, *names: str, **fields: Any) -> dict[str, StatisticsItem]:
        """Returns items by name and key."""
        query = GetStatisticsRequest(names=names, **fields)
        page = asyncio.run(self.service.page(query))
        assert page.next_cursor == 0
        return {f"{item.name} {item.key}": item for item in page.items}

    def figures(self, name: str, window: str = "minute") -> Figures:
        item = self.items(name.split(maxsplit=1)[0], include_system=True)[name]
        found = getattr(item, window)
        return Figures(found.sum, found.tps, found.avgpt)


@pytest.fixture
def counting(tmp_path: Path) -> Counting:
    return Counting(tmp_path)
