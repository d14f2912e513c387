"""Statistics service: puts, gets and sends back of topics and groups.

The store and lower services call its listeners once per block. A housekeeping task samples one slab
of rows per scheduler slot. In memory only; a restart begins at zero. Deletion of a topic or group
removes its statistics.
Source: BrokerStatsManager, docs/design/broker_behaviour.md sections 6.3 and 9.5.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.groups.clients.members import Role
from rocketpy_broker.services.observability.statistics.gauges import PERIOD_MS, GaugeTable
from rocketpy_broker.services.observability.statistics.names import (
    BROKER_KINDS,
    BY_NAME,
    NAMES,
    Key,
    Kind,
    Name,
)
from rocketpy_broker.services.observability.statistics.speeds import StoreSpeeds
from rocketpy_broker.services.observability.statistics.table import (
    DAY,
    HOUR,
    MINUTE,
    SLAB_ROWS,
    StatisticsTable,
)
from rocketpy_broker.services.observability.statistics.windows import WINDOWS, Figures
from rocketpy_broker.services.pull.outcome import Pulled
from rocketpy_broker.services.retry.service import SentBackMessages
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.delay_levels import SCHEDULE_TOPIC
from rocketpy_broker.store.statistics import Put, StoreStatistics
from rocketpy_broker.store.values import PutCause, QueueKey

GROUP_CHARACTERS_MAX = 255
PAGE_ITEMS_MAX = 500
# RocketMQ's group name in the statistics of delay level deliveries.
SCHEDULE_CONSUMER = "SCHEDULE_CONSUMER"
# Cursors of gauge rows start here; lower cursors are rows of sums.
_MOMENTS_CURSOR = 1 << 32


@dataclass(frozen=True, slots=True)
class Item:
    """One of RocketMQ's statistics for one key; `value` and `times` since the row's start.

    A gauge has no windows.
    """

    name: str
    key: Key
    value: int
    times: int
    windows: Sequence[Figures]


@dataclass(frozen=True, slots=True)
class Query:
    """A filter of items by name, topic and group; an empty field matches all.

    `include_system` adds the broker's own topics and retry topics to a query without `topic`.
    `cursor` is 0, or `next_cursor` of the previous page.
    """

    names: Sequence[str] = ()
    topic: str = ""
    group: str = ""
    include_system: bool = False
    cursor: int = 0
    count_max: int = 0


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Items in no order; `next_cursor` 0: the last page."""

    items: list[Item]
    next_cursor: int
    untracked: int


class StatisticsService:
    """The statistics of one broker."""

    def __init__(
        self,
        topics: TopicConfigManager,
        counted: StoreStatistics,
        clock: Clock,
        cluster_name: str,
        table: StatisticsTable | None = None,
        gauges: GaugeTable | None = None,
    ) -> None:
        self._topics = topics
        self._counted = counted
        self._clock = clock
        self._cluster = cluster_name
        self.table = StatisticsTable() if table is None else table
        self.gauges = GaugeTable() if gauges is None else gauges
        now_ms = clock.monotonic_ms()
        self.speeds = StoreSpeeds(counted, now_ms)
        self._due_ms = [now_ms + window.period_ms for window in WINDOWS]
        self._moments_due_ms = now_ms + PERIOD_MS
        # Notified of a deleted topic.
        self.topic_forgotten = Listeners[[str]]()

    # --- Counting ---

    def put(self, put: Put) -> None:
        """Counts a stored block."""
        if put.cause is PutCause.OWN:
            return
        topic = put.queue.topic
        if put.cause is not PutCause.SENT_BACK:
            self._count_broker(Kind.BROKER_PUT, Kind.BROKER_PUT_WITHOUT_SYSTEM, topic, put.count)
        is_scheduled = topic == SCHEDULE_TOPIC
        if put.cause is PutCause.SENT or (put.cause is PutCause.SENT_BACK and is_scheduled):
            self._add(Key(Kind.TOPIC_PUT, topic), put.count, put.bytes, int(put.latency_ms))
        if is_scheduled:
            key = Key(Kind.QUEUE_PUT, topic, queue_id=put.queue.queue_id)
            self._add(key, put.count, put.bytes)

    def pulled(self, pulled: Pulled) -> None:
        """Counts an answer to a pull; it has no messages if the filter rejects all."""
        (topic, queue_id), group, count = pulled.queue, pulled.group, pulled.count
        if count:
            self._count_broker(Kind.BROKER_GET, Kind.BROKER_GET_WITHOUT_SYSTEM, topic, count)
        # The group is any text that a client sends.
        if not group or len(group) > GROUP_CHARACTERS_MAX:
            return
        if count:
            self._add(Key(Kind.GROUP_GET, topic, group), count, pulled.bytes, pulled.latency_ms)
        key, now_ms = Key(Kind.GROUP_GET_FALL, topic, group, queue_id), self._clock.monotonic_ms()
        self.gauges.set(key, now_ms, pulled.behind_bytes, pulled.behind_ms if count else None)

    def delivered(self, queue: QueueKey, count: int, size_bytes: int) -> None:
        """Counts messages that a delay level has delivered."""
        topic, queue_id = queue
        self._add(Key(Kind.QUEUE_GET, topic, SCHEDULE_CONSUMER, queue_id), count, size_bytes)
        self._add(Key(Kind.GROUP_GET, topic, SCHEDULE_CONSUMER), count, size_bytes)

    def registered(self, role: Role, latency_ms: float) -> None:
        """Counts a client's registration in a group, or its heartbeat."""
        kind = Kind.CONSUMER_REGISTER if role is Role.CONSUMER else Kind.PRODUCER_REGISTER
        self._add(Key(kind, self._cluster), 1, latency_ms=int(latency_ms))

    def sent_back(self, messages: SentBackMessages) -> None:
        """Counts stored messages that a group has sent back."""
        for topic, count in messages.topics.items():
            self._add(Key(Kind.SENT_BACK, topic, messages.group), count)
            if messages.is_dead:
                self._add(Key(Kind.DEAD_LETTERS, topic, messages.group), count)

    def _count_broker(self, kind: Kind, without_system: Kind, topic: str, count: int) -> None:
        now_ms = self._clock.monotonic_ms()
        self.table.add(Key(kind, self._cluster), now_ms, count)
        if not self._topics.is_system(topic):
            self.table.add(Key(without_system, self._cluster), now_ms, count)

    def _add(self, key: Key, nums: int, size: int = 0, latency_ms: int = 0) -> None:
        self.table.add(key, self._clock.monotonic_ms(), nums, size, latency_ms)

    async def forget_topic(self, topic: str) -> None:
        """Removes the statistics of a deleted topic."""
        self._counted.forget_topic(topic)
        self.topic_forgotten(topic)
        await self._drop(lambda key: key.topic == topic)

    async def forget_group(self, group: str) -> None:
        """Removes the statistics of a deleted consumer group."""
        await self._drop(lambda key: key.group == group)

    async def _drop(self, is_gone: Callable[[Key], bool]) -> None:
        for table in (self.table, self.gauges):
            for number in range(len(table.pages)):
                table.drop(number, is_gone)
                await take_slot()

    # --- Samples ---

    async def run(self) -> None:
        """Takes samples when they are due, until cancelled."""
        while True:
            await sleep(self._clock, max(min(self._due_ms) - self._clock.monotonic_ms(), 0))
            await self.sample()

    async def sample(self) -> None:
        """Takes the due samples, one slab per scheduler slot."""
        now_ms = self._clock.monotonic_ms()
        due = [index for index, due_ms in enumerate(self._due_ms) if due_ms <= now_ms]
        for index in due:
            # The next due time stays on schedule; a late loop restarts the schedule from now.
            next_ms = self._due_ms[index] + WINDOWS[index].period_ms
            late_ms = now_ms + WINDOWS[index].period_ms
            self._due_ms[index] = next_ms if next_ms > now_ms else late_ms
        if MINUTE in due:
            self.speeds.sample(now_ms)
        for number, slab in enumerate(self.table.pages):
            slab.sample(due, now_ms)
            if HOUR in due:
                self.table.drop_idle(number, HOUR if self.table.is_tight else DAY)
            await take_slot()
        if self._moments_due_ms <= now_ms:
            self._moments_due_ms = now_ms + PERIOD_MS
            for number in range(len(self.gauges.pages)):
                self.gauges.end_period(number, now_ms)
                await take_slot()

    # --- Queries ---

    async def sums(
        self, kind: Kind, count_max: int
    ) -> AsyncIterator[Sequence[tuple[Key, int, int]]]:
        """Yields keys of a kind with their messages and bytes, up to `count_max` at a time.

        Values count from the row's start. The caller takes a scheduler slot between two parts, so
        rows may be added and dropped meanwhile.
        """
        for slab in self.table.pages:
            wanted = [
                row for row, key in enumerate(slab.keys) if key is not None and key.kind is kind
            ]
            for begin in range(0, len(wanted), count_max):
                yield [
                    (key, int(slab.counters["nums"][row]), int(slab.counters["size"][row]))
                    for row in wanted[begin : begin + count_max]
                    if (key := slab.keys[row]) is not None and key.kind is kind
                ]

    async def page(self, query: Query) -> ItemPage:
        """Returns a page of items and the next cursor; takes scheduler slots in between.

        Raises ParameterIllegalError.
        """
        names, count_max = _names(query.names), _count(query)
        wanted: dict[Kind, list[Name]] = {}
        for name in names:
            wanted.setdefault(name.kind, []).append(name)
        items: list[Item] = []
        untracked = self.table.untracked + self.gauges.untracked
        for base, table in ((0, self.table), (_MOMENTS_CURSOR, self.gauges)):
            number, first = divmod(max(query.cursor - base, 0), SLAB_ROWS)
            while number < len(table.pages):
                room = count_max - len(items)
                rows, end = self._rows(table.keys_from(number, first), wanted, query, room)
                items += _items(table, number, rows, wanted)
                if end is not None:
                    return ItemPage(items, base + number * SLAB_ROWS + end, untracked)
                number, first = number + 1, 0
                await take_slot()
        return ItemPage(items, 0, untracked)

    def _rows(
        self,
        keys: Iterable[tuple[int, Key]],
        wanted: Mapping[Kind, Sequence[Name]],
        query: Query,
        room: int,
    ) -> tuple[list[tuple[int, Key]], int | None]:
        """Returns the wanted rows for the page, and the first wanted row after it, if any."""
        rows: list[tuple[int, Key]] = []
        for row, key in keys:
            if key.kind not in wanted or not self._is_wanted(key, query):
                continue
            if room <= 0:
                return rows, row
            rows.append((row, key))
            room -= len(wanted[key.kind])
        return rows, None

    def _is_wanted(self, key: Key, query: Query) -> bool:
        if query.topic and (key.topic != query.topic or key.kind in BROKER_KINDS):
            return False
        if query.group and key.group != query.group:
            return False
        if query.topic or query.include_system or key.kind in BROKER_KINDS:
            return True
        return not self._topics.is_internal(key.topic)


def _items(
    table: StatisticsTable,
    number: int,
    rows: Sequence[tuple[int, Key]],
    wanted: Mapping[Kind, Sequence[Name]],
) -> list[Item]:
    slab = table.pages[number]
    indices = np.array([row for row, _ in rows], np.int64)
    windows = [ring.differences(indices) for ring in slab.rings] if table.has_windows else []
    return [
        Item(
            name.name,
            key,
            int(slab.counters[name.column][row]),
            int(slab.counters["times"][row]),
            [window.figures(index, name.column) for window in windows],
        )
        for index, (row, key) in enumerate(rows)
        for name in wanted[key.kind]
    ]


def _names(names: Sequence[str]) -> Sequence[Name]:
    """Returns the queried names, or all. Raises ParameterIllegalError for an unknown name."""
    if len(names) > len(NAMES):
        raise ParameterIllegalError("number of names", len(names), f"{len(NAMES)} or fewer")
    for name in names:
        if name not in BY_NAME:
            raise ParameterIllegalError("name", f"{name:.100}", ", ".join(BY_NAME))
    return [BY_NAME[name] for name in dict.fromkeys(names)] or NAMES


def _count(query: Query) -> int:
    """Returns the page size. Raises ParameterIllegalError for a negative cursor or size."""
    if query.cursor < 0:
        raise ParameterIllegalError("cursor", query.cursor, "0, or next_cursor of a page")
    if query.count_max < 0:
        raise ParameterIllegalError("count_max", query.count_max, f"0 to {PAGE_ITEMS_MAX}")
    return min(query.count_max or PAGE_ITEMS_MAX, PAGE_ITEMS_MAX)
