"""Messages and lags of the last hour, by minute.

The table of counters has the messages put and got; the broker's own topics do not count. The time
to read lags grows with the queues of all groups, so scheduler slots divide it. 10,000 groups of
eight queues take half a second a minute. After a longer read, the next minutes get no lags until
the reads take at most 1/SHARE of the time. In memory only: a restart begins without minutes. A
process that stood still, or a clock that was moved, leaves a gap between two minutes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_broker.services.observability.counters.event_counter import EventCounter
from rocketpy_broker.services.observability.counters.names import NUMS, Key, Kind
from rocketpy_proto.rocketpy.v1.admin_pb2 import (
    GetHistoryRequest,
    GetHistoryResponse,
    GroupDeadLetters,
    GroupHistory,
    HistoryMinute,
)

PERIOD_MS = 60_000
MINUTES = 60
# Groups whose lags are kept, of each minute; a minute takes at most 150 kB.
GROUPS_KEPT_MAX = 1_000
GROUPS_SHOWN, GROUPS_SHOWN_MAX = 10, 100
# Reads of lags take at most one twentieth of the time.
SHARE = 20
PAUSE_MS_MAX = 10 * PERIOD_MS
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class LagSample:
    """A group's lag, the part of it in the retry topic, and the number of its dead letters."""

    group: str
    lag: int
    retries: int
    dead_letters: int


LagSource = Callable[[], AsyncIterator[LagSample]]


@dataclass(slots=True)
class Lags:
    """The groups with the largest lags, and with the most dead letters, and sums of all groups."""

    largest: list[LagSample] = field(default_factory=list)
    deadliest: list[LagSample] = field(default_factory=list)
    lag: int = 0
    retries: int = 0
    dead_letters: int = 0
    # Number of groups with a lag.
    count: int = 0

    def add(self, each: LagSample) -> None:
        """Adds a group; `largest` and `deadliest` are in no order until `finish`."""
        self.lag += each.lag
        self.retries += each.retries
        self.dead_letters += each.dead_letters
        if each.lag:
            self.count += 1
            self.largest.append(each)
        if each.dead_letters:
            self.deadliest.append(each)
        if max(len(self.largest), len(self.deadliest)) >= 2 * GROUPS_KEPT_MAX:
            self.finish()

    def forget(self, each: LagSample) -> None:
        """Subtracts a group from the sums."""
        self.lag -= each.lag
        self.retries -= each.retries
        self.dead_letters -= each.dead_letters
        self.count -= bool(each.lag)

    def finish(self) -> None:
        """Sorts the groups and keeps the first ones."""
        self.largest = heapq.nlargest(GROUPS_KEPT_MAX, self.largest, key=attrgetter("lag"))
        dead_letters = attrgetter("dead_letters")
        self.deadliest = heapq.nlargest(GROUPS_SHOWN_MAX, self.deadliest, key=dead_letters)


@dataclass(slots=True)
class Minute:
    """The messages of a minute, and the lags at its end if they were read."""

    end_ms: int
    put_count: int
    get_count: int
    lag: int = UNKNOWN
    lags: dict[str, int] = field(default_factory=dict)
    # The lag of groups that are not in `lags`.
    other_lag: int = UNKNOWN

    def set(self, read: Lags) -> None:
        """Sets the lags."""
        self.lag = read.lag
        self.lags = {each.group: each.lag for each in read.largest}
        self.other_lag = UNKNOWN if read.count > len(self.lags) else 0


class History:
    """The last hour of one broker."""

    def __init__(
        self,
        counter: EventCounter,
        cluster_name: str,
        clients: ClientService,
        lags: LagSource,
        clock: Clock,
    ) -> None:
        self._sums = counter.sums
        self._put = Key(Kind.BROKER_PUT_WITHOUT_SYSTEM, cluster_name)
        self._get = Key(Kind.BROKER_GET_WITHOUT_SYSTEM, cluster_name)
        self._clients = clients
        self._source = lags
        self._clock = clock
        self._minutes: deque[Minute] = deque(maxlen=MINUTES)
        # The last lags that were read.
        self._lags = Lags()
        self._counts = {self._put: 0, self._get: 0}
        self._due_ms = clock.monotonic_ms() + PERIOD_MS
        self._lags_due_ms = 0.0

    # --- Samples ---

    async def run(self) -> None:
        """Takes a sample each minute, until cancelled."""
        while True:
            await sleep(self._clock, max(self._due_ms - self._clock.monotonic_ms(), 0))
            # The next minute ends on schedule; a late loop begins another schedule.
            now_ms = self._clock.monotonic_ms()
            next_ms = self._due_ms + PERIOD_MS
            self._due_ms = next_ms if next_ms > now_ms else now_ms + PERIOD_MS
            await self.sample()

    async def sample(self) -> None:
        """Ends a minute, and reads the lags in scheduler slots."""
        began_ms = self._clock.monotonic_ms()
        minute = Minute(
            self._clock.now_ms(), self._count_since(self._put), self._count_since(self._get)
        )
        self._minutes.append(minute)
        if began_ms < self._lags_due_ms:
            return
        lags = Lags()
        async for each in self._source():
            lags.add(each)
        lags.finish()
        minute.set(lags)
        self._lags = lags
        pause_ms = SHARE * (self._clock.monotonic_ms() - began_ms)
        # Limited, since the clock may have jumped during the read.
        self._lags_due_ms = began_ms + min(pause_ms, PAUSE_MS_MAX)

    def _count_since(self, key: Key) -> int:
        """Returns the messages since the last sample."""
        row, before = self._sums.find(key), self._counts[key]
        now = self._counts[key] = 0 if row is None else int(self._sums.counters[NUMS][row])
        # A lower number is that of a new row: a row is dropped after a day without messages.
        return now - before if now >= before else now

    async def forget_group(self, group: str) -> None:
        """Removes a deleted group from the rankings, the sums, and the minutes."""
        last = self._lags
        known = {each.group: each for each in (*last.largest, *last.deadliest)}.get(group)
        for ranking in (last.largest, last.deadliest):
            ranking[:] = [each for each in ranking if each.group != group]
        if known is not None:
            last.forget(known)
        for minute in self._minutes:
            minute.lags.pop(group, None)

    # --- Queries ---

    async def get(self, request: GetHistoryRequest) -> GetHistoryResponse:
        """Returns the minutes, with one group or the rankings. Raises ParameterIllegalError."""
        count_max, group, last = request.count_max, request.consumer_group, self._lags
        if count_max < 0:
            raise ParameterIllegalError("count_max", count_max, f"0 to {GROUPS_SHOWN_MAX}")
        count = 0 if group else min(count_max or GROUPS_SHOWN, GROUPS_SHOWN_MAX)
        groups = [group] if group else [each.group for each in last.largest[:count]]
        minutes = self._last_hour()
        return GetHistoryResponse(
            put_tps=self._tps(self._put),
            get_tps=self._tps(self._get),
            minutes=[
                HistoryMinute(
                    end_timestamp_ms=each.end_ms,
                    put_count=each.put_count,
                    get_count=each.get_count,
                    lag=each.lag,
                )
                for each in minutes
            ],
            groups=[self._group(each, minutes) for each in groups],
            dead_letter_groups=[
                GroupDeadLetters(consumer_group=each.group, message_count=each.dead_letters)
                for each in last.deadliest[:count]
            ],
            lag=last.lag,
            retry_message_count=last.retries,
            dead_letter_count=last.dead_letters,
            lagging_group_count=last.count,
        )

    def _last_hour(self) -> list[Minute]:
        """Returns the minutes of the last hour, without future ones if the clock was set back."""
        now_ms = self._clock.now_ms()
        hour_ms = MINUTES * PERIOD_MS
        return [each for each in self._minutes if -PERIOD_MS <= now_ms - each.end_ms < hour_ms]

    def _group(self, group: str, minutes: Sequence[Minute]) -> GroupHistory:
        lags = [each.lags.get(group, each.other_lag) for each in minutes]
        known = (lag for lag in reversed(lags) if lag != UNKNOWN)
        return GroupHistory(
            consumer_group=group,
            lag=next(known, UNKNOWN),
            member_count=self._clients.member_count(group),
            lags=lags,
        )

    def _tps(self, key: Key) -> float:
        row = self._sums.find(key)
        return 0.0 if row is None else self._sums.rings[0].figures(row, NUMS).tps
