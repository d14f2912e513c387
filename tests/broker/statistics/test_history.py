"""The last hour by minute: messages of the counters, and the lags of groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.services.observability.statistics.history import (
    GROUPS_KEPT_MAX,
    MINUTES,
    PERIOD_MS,
    UNKNOWN,
    History,
    LagSample,
)
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.statistics.conftest import Counting
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.event_loop import passes
from tests.support.broker.retries import DEAD_LETTERS, GROUP, RETRY_TOPIC
from tests.support.broker.running_broker import RunningBroker


class NoClients:
    """Clients of groups without members."""

    def member_count(self, _group: str) -> int:
        return 0


class Hour:
    """A history whose lags the test sets; a read of them takes `read_ms`."""

    def __init__(self, folder: Path) -> None:
        self.counting = Counting(folder)
        self.lags: Mapping[str, int] = {}
        self.dead_letters: Mapping[str, int] = {}
        self.read_ms = 0
        clients: Any = NoClients()
        counter, clock = self.counting.events, self.counting.clock
        self.history = History(counter, "DefaultCluster", clients, self._read, clock)

    async def _read(self) -> AsyncIterator[LagSample]:
        self.counting.clock.advance(self.read_ms)
        for group in {**self.lags, **self.dead_letters}:
            lag, dead_letters = self.lags.get(group, 0), self.dead_letters.get(group, 0)
            yield LagSample(group, lag, min(lag, 1), dead_letters)

    def minute(self, *, lags: Mapping[str, int] | None = None) -> None:
        """Ends a minute with these lags."""
        self.lags = self.lags if lags is None else lags
        self.counting.clock.advance(PERIOD_MS)
        asyncio.run(self.history.sample())

    def get(self, group: str = "", count_max: int = 0) -> admin_pb2.GetHistoryResponse:
        request = admin_pb2.GetHistoryRequest(consumer_group=group, count_max=count_max)
        return asyncio.run(self.history.get(request))

    def lags_of(self, group: str) -> list[int]:
        [found] = self.get(group).groups
        return [*found.lags]


@pytest.fixture
def hour(tmp_path: Path) -> Hour:
    return Hour(tmp_path)


def test_each_minute_has_its_messages_without_those_of_system_topics(hour: Hour) -> None:
    hour.counting.put("orders", 5)
    hour.counting.put(SCHEDULE_TOPIC, 9)
    hour.counting.got("orders", "billing", 3)
    hour.minute()
    hour.minute()
    hour.counting.put("orders", 2)
    hour.minute()
    minutes = hour.get().minutes
    assert [(each.put_count, each.get_count) for each in minutes] == [(5, 3), (0, 0), (2, 0)]
    ends = [each.end_timestamp_ms for each in minutes]
    assert [later - end for end, later in pairwise(ends)] == [PERIOD_MS] * 2


def test_the_rates_are_of_the_last_minute(hour: Hour) -> None:
    hour.counting.put("orders", 120)
    hour.counting.got("orders", "billing", 60)
    hour.counting.pass_time(60_000)
    found = hour.get()
    assert (found.put_tps, found.get_tps) == (2.0, 1.0)
    hour.counting.pass_time(60_000)
    assert (hour.get().put_tps, hour.get().get_tps) == (0.0, 0.0)


def test_a_count_that_begins_again_is_no_negative_minute(hour: Hour) -> None:
    hour.counting.put("orders", 5)
    hour.minute()
    hour.counting.table.drop_if(lambda _key: True, slice(0, len(hour.counting.table.keys)))
    hour.minute()
    hour.counting.put("orders", 2)
    hour.minute()
    assert [each.put_count for each in hour.get().minutes] == [5, 0, 2]


def test_only_the_last_hour_is_kept(hour: Hour) -> None:
    for number in range(MINUTES + 2):
        hour.minute(lags={"billing": number})
    assert len(hour.get().minutes) == MINUTES
    assert hour.lags_of("billing") == [*range(2, MINUTES + 2)]


def test_minutes_of_an_earlier_hour_are_dropped_after_a_gap(hour: Hour) -> None:
    hour.minute(lags={"billing": 1})
    hour.minute(lags={"billing": 2})
    hour.counting.clock.advance(50 * PERIOD_MS)
    hour.minute(lags={"billing": 3})
    ends = [each.end_timestamp_ms for each in hour.get().minutes]
    assert [after - before for before, after in pairwise(ends)] == [PERIOD_MS, 51 * PERIOD_MS]
    hour.counting.clock.advance(8 * PERIOD_MS)
    assert (len(hour.get().minutes), hour.lags_of("billing")) == (2, [2, 3])
    hour.counting.clock.advance(60 * PERIOD_MS)
    assert (len(hour.get().minutes), hour.lags_of("billing")) == (0, [])


def test_groups_are_ranked_by_their_last_lag(hour: Hour) -> None:
    hour.minute(lags={"a": 1, "b": 5, "c": 0})
    hour.dead_letters = {"c": 4, "d": 7}
    hour.minute(lags={"a": 9, "b": 5, "c": 0})
    found = hour.get()
    assert [(each.consumer_group, each.lag) for each in found.groups] == [("a", 9), ("b", 5)]
    assert [[*each.lags] for each in found.groups] == [[1, 9], [5, 5]]
    ranked = [(each.consumer_group, each.message_count) for each in found.dead_letter_groups]
    assert ranked == [("d", 7), ("c", 4)]
    assert (found.lag, found.retry_message_count, found.dead_letter_count) == (14, 2, 11)
    assert found.lagging_group_count == 2
    assert [each.lag for each in found.minutes] == [6, 14]
    assert len(hour.get(count_max=1).groups) == 1
    with pytest.raises(ParameterIllegalError):
        hour.get(count_max=-1)


def test_the_largest_lags_are_kept_and_the_others_are_unknown(hour: Hour) -> None:
    hour.minute(lags={"small": 1})
    many = {f"g{number:04}": number for number in range(2, 2 * GROUPS_KEPT_MAX + 2)}
    hour.minute(lags={"small": 1, **many})
    found = hour.get(count_max=200)
    assert [each.lag for each in found.groups] == [*range(2_001, 1_901, -1)]
    assert found.lagging_group_count == 2 * GROUPS_KEPT_MAX + 1
    assert found.lag == 1 + sum(many.values())
    assert hour.lags_of("small") == [1, UNKNOWN]
    assert hour.lags_of("g2001") == [0, 2_001]
    [small] = hour.get("small").groups
    assert small.lag == 1


def test_a_slow_read_of_lags_is_followed_by_minutes_without_one(hour: Hour) -> None:
    """Reads for 9 s, which allows the next read after 180 s."""
    hour.read_ms = 9_000
    for lag in range(1, 6):
        hour.minute(lags={"billing": lag})
    assert hour.lags_of("billing") == [1, UNKNOWN, UNKNOWN, 4, UNKNOWN]
    found = hour.get("billing")
    assert [each.lag for each in found.minutes] == [1, UNKNOWN, UNKNOWN, 4, UNKNOWN]
    assert (found.groups[0].lag, found.lag) == (4, 4)


def test_a_deleted_group_leaves_the_rankings(hour: Hour) -> None:
    hour.dead_letters = {"gone": 1, "stays": 1}
    hour.minute(lags={"gone": 3, "stays": 2})
    asyncio.run(hour.history.forget_group("gone"))
    found = hour.get()
    assert [each.consumer_group for each in found.groups] == ["stays"]
    assert [each.consumer_group for each in found.dead_letter_groups] == ["stays"]
    assert (found.lag, found.lagging_group_count, found.dead_letter_count) == (2, 1, 1)
    hour.minute(lags={"gone": 7})
    # A new group of this name.
    assert list(hour.get("gone").groups[0].lags)[-2:] == [0, 7]


def test_an_unknown_group_has_no_lag(hour: Hour) -> None:
    assert hour.get("nobody").groups[0].lag == UNKNOWN
    hour.minute()
    assert hour.get("nobody").groups[0].lag == 0


async def sampled(running: RunningBroker) -> admin_pb2.GetHistoryResponse:
    """Returns the history after another minute."""
    running.clock.advance(PERIOD_MS)
    while True:
        await passes(40)
        found: admin_pb2.GetHistoryResponse = await running.admin.GetHistory(
            admin_pb2.GetHistoryRequest()
        )
        if found.minutes and found.minutes[-1].lag != UNKNOWN:
            return found


async def test_a_broker_samples_its_groups_once_a_minute(running: RunningBroker) -> None:
    for topic in ("orders", RETRY_TOPIC, DEAD_LETTERS):
        await running.create_topic(topic, queues=1)
    await running.append("orders", 0, b"a", b"b", b"c")
    await running.append(RETRY_TOPIC, 0, b"again")
    await running.append(DEAD_LETTERS, 0, b"dead", b"dead")
    await heartbeat(running, "client-1", consumer(GROUP, "orders", RETRY_TOPIC))
    found = await sampled(running)
    [group] = found.groups
    assert (group.consumer_group, group.lag, group.member_count) == (GROUP, 4, 1)
    assert (found.retry_message_count, found.dead_letter_count) == (1, 2)
    assert [each.consumer_group for each in found.dead_letter_groups] == [GROUP]
    offset = broker_pb2.CommittedOffset(topic="orders", queue_id=0, offset=3)
    request = broker_pb2.CommitOffsetsRequest(consumer_group=GROUP, offsets=[offset])
    assert (await running.data.CommitOffsets(request)).status.code == 0
    [group] = (await sampled(running)).groups
    assert [*group.lags] == [4, 1]
