"""RocketMQ's statistics: queries, samples and deletions of the table of counters.

A housekeeping task takes the samples, one window in a scheduler slot. Deletion of a topic or group
removes its statistics.
Source: BrokerStatsManager, docs/design/broker_behaviour.md sections 6.3 and 9.5.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.observability.counters.event_counter import (
    GAUGE_PERIOD,
    EventCounter,
)
from rocketpy_broker.services.observability.counters.names import (
    BROKER_KINDS,
    BY_NAME,
    NAMES,
    Key,
    Kind,
    Name,
)
from rocketpy_broker.services.observability.counters.table import CounterTable
from rocketpy_broker.services.observability.counters.windows import WINDOWS
from rocketpy_broker.services.observability.statistics.day_totals import DayTotals
from rocketpy_broker.services.observability.statistics.speeds import StoreSpeeds
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.work_time import check_count
from rocketpy_broker.store.statistics import StoreStatistics
from rocketpy_proto.rocketpy.v1.admin_pb2 import (
    GetStatisticsRequest,
    GetStatisticsResponse,
    StatisticsItem,
)

MINUTE, HOUR, DAY = range(3)
assert [window.name for window in WINDOWS] == ["minute", "hour", "day"]
PAGE_ITEMS_MAX = 500
# Rows in one scheduler slot; takes about 1 ms.
ROWS_A_SLOT = 2_048
# Cursors of gauge rows start here; lower cursors are rows of sums.
_GAUGES_CURSOR = 1 << 32


class StatisticsService:
    """The statistics of one broker."""

    def __init__(
        self,
        counter: EventCounter,
        counted: StoreStatistics,
        topics: TopicConfigManager,
        clock: Clock,
    ) -> None:
        self.counter = counter
        self._counted = counted
        self._topics = topics
        self._clock = clock
        now_ms = clock.monotonic_ms()
        self.speeds = StoreSpeeds(counted, now_ms)
        self.days = DayTotals(counted, clock.now_ms())
        self._due_ms = [now_ms + window.period_ms for window in WINDOWS]
        self._gauges_due_ms = now_ms + GAUGE_PERIOD.period_ms

    # --- Samples ---

    async def run(self) -> None:
        """Takes samples when they are due, until cancelled."""
        while True:
            await sleep(self._clock, max(min(self._due_ms) - self._clock.monotonic_ms(), 0))
            await self.sample()

    async def sample(self) -> None:
        """Takes the due samples, and drops rows that were idle for long.

        A row of the sums is idle after a day without additions. If the table is tight, an hour is
        enough. All gauges are set to 0 every five minutes, as in RocketMQ. A gauge without a new
        value in five minutes is dropped then.
        """
        sums, gauges, now_ms = self.counter.sums, self.counter.gauges, self._clock.monotonic_ms()
        due = [index for index, due_ms in enumerate(self._due_ms) if due_ms <= now_ms]
        for index in due:
            # The next due time stays on schedule; a late loop restarts the schedule from now.
            next_ms = self._due_ms[index] + WINDOWS[index].period_ms
            late_ms = now_ms + WINDOWS[index].period_ms
            self._due_ms[index] = next_ms if next_ms > now_ms else late_ms
            sums.sample(index, now_ms)
            await take_slot()
        if MINUTE in due:
            self.speeds.sample(now_ms)
            self.days.sample(self._clock.now_ms())
        if HOUR in due:
            async for rows in _row_slices(sums):
                sums.drop_idle(HOUR if sums.is_tight else DAY, rows)
        if self._gauges_due_ms <= now_ms:
            self._gauges_due_ms = now_ms + GAUGE_PERIOD.period_ms
            gauges.sample(0, now_ms)
            gauges.clear_values()
            async for rows in _row_slices(gauges):
                gauges.drop_idle(0, rows)

    # --- Deletions ---

    async def forget_topic(self, topic: str) -> None:
        """Removes the statistics and metrics of a deleted topic."""
        self._counted.forget_topic(topic)
        self.counter.forget_topic(topic)
        await self._drop(lambda key: key.topic == topic)

    async def forget_group(self, group: str) -> None:
        """Removes the statistics and metrics of a deleted consumer group."""
        self.counter.forget_group(group)
        await self._drop(lambda key: key.group == group)

    async def _drop(self, is_gone: Callable[[Key], bool]) -> None:
        for table in (self.counter.sums, self.counter.gauges):
            async for rows in _row_slices(table):
                table.drop_if(is_gone, rows)

    # --- Queries ---

    async def page(self, query: GetStatisticsRequest) -> GetStatisticsResponse:
        """Returns a page of items in no order, and the next cursor; takes slots in between.

        An empty field of the query matches all. Raises ParameterIllegalError.
        """
        if query.keys:
            return await self._items(query)
        wanted: dict[Kind, list[Name]] = {}
        for name in _names(query.names):
            wanted.setdefault(name.kind, []).append(name)
        count_max = _count(query)
        sums, gauges = self.counter.sums, self.counter.gauges
        page = GetStatisticsResponse(untracked_count=sums.untracked + gauges.untracked)
        for base, table in ((0, sums), (_GAUGES_CURSOR, gauges)):
            async for rows in _row_slices(table, max(query.cursor - base, 0)):
                for row, key in enumerate(table.keys[rows], rows.start):
                    if key is None or key.kind not in wanted or not self._is_wanted(key, query):
                        continue
                    if len(page.items) >= count_max:
                        page.next_cursor = base + row
                        return page
                    page.items.extend(_item(table, row, key, name) for name in wanted[key.kind])
        return page

    async def _items(self, query: GetStatisticsRequest) -> GetStatisticsResponse:
        """Returns the items with the keys of a query."""
        check_count("keys", query.keys, PAGE_ITEMS_MAX)
        page = GetStatisticsResponse(untracked_count=self.counter.sums.untracked)
        for name in _names(query.names):
            await take_slot()
            found = (self.item(name.name, key) for key in dict.fromkeys(query.keys))
            page.items.extend(each for each in found if each is not None)
        return page

    def item(self, name: str, key_text: str) -> StatisticsItem | None:
        """Returns one of RocketMQ's statistics; None if nothing was counted."""
        wanted = BY_NAME.get(name)
        key = None if wanted is None else Key.parse(wanted.kind, key_text)
        if wanted is None or key is None:
            return None
        is_gauge = key.kind is Kind.GROUP_GET_FALL
        table = self.counter.gauges if is_gauge else self.counter.sums
        row = table.find(key)
        return None if row is None else _item(table, row, key, wanted)

    def _is_wanted(self, key: Key, query: GetStatisticsRequest) -> bool:
        group = query.consumer_group
        if query.topic and (key.topic != query.topic or key.kind in BROKER_KINDS):
            return False
        if group and key.group != group:
            return False
        if query.topic or query.include_system or key.kind in BROKER_KINDS:
            return True
        return not self._topics.is_internal(key.topic)


async def _row_slices(table: CounterTable, first: int = 0) -> AsyncIterator[slice]:
    """Yields slices of all rows; takes scheduler slots in between, in which rows may change."""
    for begin in range(first, len(table.keys), ROWS_A_SLOT):
        yield slice(begin, min(begin + ROWS_A_SLOT, len(table.keys)))
        await take_slot()


def _item(table: CounterTable, row: int, key: Key, name: Name) -> StatisticsItem:
    """Returns one of RocketMQ's statistics since the row's start; a gauge has no windows."""
    values = table.counters[row]
    item = StatisticsItem(
        name=name.name,
        key=key.text,
        value=int(values[name.column]),
        times=int(values["times"]),
    )
    if key.kind is not Kind.GROUP_GET_FALL:
        for window, ring in zip((item.minute, item.hour, item.day), table.rings, strict=True):
            window.sum, window.tps, window.avgpt = ring.figures(row, name.column)
    return item


def _names(names: Sequence[str]) -> Sequence[Name]:
    """Returns the queried names, or all. Raises ParameterIllegalError for an unknown name."""
    if len(names) > len(NAMES):
        raise ParameterIllegalError("number of names", len(names), f"{len(NAMES)} or fewer")
    for name in names:
        if name not in BY_NAME:
            raise ParameterIllegalError("name", f"{name:.100}", ", ".join(BY_NAME))
    return [BY_NAME[name] for name in dict.fromkeys(names)] or NAMES


def _count(query: GetStatisticsRequest) -> int:
    """Returns the page size. Raises ParameterIllegalError for a negative cursor or size."""
    if query.cursor < 0:
        raise ParameterIllegalError("cursor", query.cursor, "0, or next_cursor of a page")
    if query.count_max < 0:
        raise ParameterIllegalError("count_max", query.count_max, f"0 to {PAGE_ITEMS_MAX}")
    return min(query.count_max or PAGE_ITEMS_MAX, PAGE_ITEMS_MAX)
