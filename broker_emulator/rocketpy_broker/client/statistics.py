"""RocketMQ's statistics of a broker: messages put, got and sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketpy_broker.client.connection import (
    REQUEST_SECONDS_MAX,
    BrokerConnection,
    last_name,
    pages,
)
from rocketpy_proto.rocketpy.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class StatisticsWindow:
    """A statistic's additions in a minute, an hour or a day.

    `sum` is their sum, `tps` the rate a second, `avgpt` the average of one addition.
    """

    sum: int
    tps: float
    avgpt: float


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of RocketMQ, such as TOPIC_PUT_NUMS, for one key.

    The key is a topic, topic@group, topic@queueId, topic@queueId@group, or the cluster. `value` is
    the sum and `times` the number of all additions since the key's first one.
    GROUP_GET_FALL_SIZE and GROUP_GET_FALL_TIME have the key queueId@topic@group. Their `value` is
    the last pull's, and their windows are zeros.
    """

    name: str
    key: str
    value: int
    times: int
    minute: StatisticsWindow
    hour: StatisticsWindow
    day: StatisticsWindow


def list_statistics(
    connection: BrokerConnection,
    names: Sequence[str] = (),
    *,
    topic: str = "",
    group: str = "",
    include_system: bool = False,
) -> list[Statistic]:
    """Returns statistics by key and name; empty `names`, `topic` and `group` mean all.

    Raises UnreachableError, RefusedError.
    """

    def page_after(cursor: int) -> admin_pb2.GetStatisticsResponse:
        request = admin_pb2.GetStatisticsRequest(
            names=names,
            topic=topic,
            consumer_group=group,
            include_system=include_system,
            cursor=cursor,
        )
        return _page(connection, request)

    listed = pages(page_after, 0, lambda page: page.next_cursor or None)
    found = [_statistic(item) for page in listed for item in page.items]
    return sorted(found, key=lambda item: (item.key, item.name))


def store_statistics(
    connection: BrokerConnection, *, include_system: bool = False
) -> admin_pb2.GetStoreStatisticsResponse:
    """Returns the store's counters with all topics. Raises UnreachableError, RefusedError."""

    def page_after(after: str) -> admin_pb2.GetStoreStatisticsResponse:
        return _store_page(connection, after, include_system=include_system)

    def next_place(page: admin_pb2.GetStoreStatisticsResponse) -> str | None:
        return last_name([each.topic for each in page.topics], has_more=page.has_more_topics)

    answer, *others = pages(page_after, "", next_place)
    for page in others:
        answer.topics.extend(page.topics)
    return answer


def store_counters(connection: BrokerConnection) -> admin_pb2.GetStoreStatisticsResponse:
    """Returns the store's counters with the first page of topics.

    Raises UnreachableError, RefusedError.
    """
    return _store_page(connection, "", include_system=False)


def _page(
    connection: BrokerConnection, request: admin_pb2.GetStatisticsRequest
) -> admin_pb2.GetStatisticsResponse:
    response: admin_pb2.GetStatisticsResponse = connection.ask(
        lambda: connection.admin.GetStatistics(request, timeout=REQUEST_SECONDS_MAX)
    )
    return response


def _store_page(
    connection: BrokerConnection, after: str, *, include_system: bool
) -> admin_pb2.GetStoreStatisticsResponse:
    request = admin_pb2.GetStoreStatisticsRequest(topics_after=after, include_system=include_system)
    response: admin_pb2.GetStoreStatisticsResponse = connection.ask(
        lambda: connection.admin.GetStoreStatistics(request, timeout=REQUEST_SECONDS_MAX)
    )
    return response


def _statistic(item: admin_pb2.StatisticsItem) -> Statistic:
    minute, hour, day = (
        StatisticsWindow(window.sum, window.tps, window.avgpt)
        for window in (item.minute, item.hour, item.day)
    )
    return Statistic(item.name, item.key, item.value, item.times, minute, hour, day)
