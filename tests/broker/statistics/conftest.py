"""Statistics on a clock that stands still."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.observability.statistics.gauges import GaugeTable
from rocketpy_broker.services.observability.statistics.service import Item, Query, StatisticsService
from rocketpy_broker.services.observability.statistics.table import StatisticsTable
from rocketpy_broker.services.observability.statistics.windows import Figures
from rocketpy_broker.services.pull.outcome import Pulled
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.statistics import Put, StoreStatistics
from rocketpy_broker.store.values import PutCause, QueueKey

SAMPLE_MS = 10_000


class Counting:
    """A service, and its clock."""

    def __init__(self, folder: Path, rows_max: int = 100_000, moments_max: int = 100_000) -> None:
        self.clock = ManualClock()
        topics = TopicConfigManager(folder, self.clock, "DefaultCluster", "broker-a")
        self.counted = StoreStatistics()
        self.table = StatisticsTable(rows_max)
        self.service = StatisticsService(
            topics,
            self.counted,
            self.clock,
            "DefaultCluster",
            self.table,
            GaugeTable(moments_max),
        )
        self.counted.block_put.add(self.service.put)

    def put(self, topic: str, count: int = 1, cause: PutCause = PutCause.SENT) -> None:
        self.counted.put(Put(QueueKey(topic, 2), count, count * 100, 4.0, cause))

    def got(self, topic: str, group: str, count: int = 1, size: int = 10, **said: int) -> None:
        """Records an answer to a pull of queue 3; omitted numbers are 0."""
        fields = {"latency_ms": 0, "behind_bytes": 0, "behind_ms": 0} | said
        self.service.pulled(Pulled(QueueKey(topic, 3), group, count, size, **fields))

    def pass_time(self, ms: int) -> None:
        """Advances the clock, with a sample whenever one is due."""
        for _ in range(ms // SAMPLE_MS):
            self.clock.advance(SAMPLE_MS)
            asyncio.run(self.service.sample())

    def items(self, *names: str, **fields: object) -> dict[str, Item]:
        """Returns items by name and key."""
        query = Query(names, **fields)  # type: ignore[arg-type]
        page = asyncio.run(self.service.page(query))
        assert page.next_cursor == 0
        return {f"{item.name} {item.key.text}": item for item in page.items}

    def figures(self, name: str, window: int = 0) -> Figures:
        return self.items(name.split(maxsplit=1)[0], include_system=True)[name].windows[window]


@pytest.fixture
def counting(tmp_path: Path) -> Counting:
    return Counting(tmp_path)
