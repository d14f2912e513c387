"""RocketMQ's statistics of a broker: messages put, got and sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketpy_broker.client.connection import BrokerConnection, last_name
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
    """Returns statistics sorted by key and name; empty `names`, `topic` and `group` mean all.

    Raises ClientError.
    """
    request = admin_pb2.GetStatisticsRequest(
        names=names, topic=topic, consumer_group=group, include_system=include_system
    )
    pages = connection.pages(
        connection.admin.GetStatistics, request, lambda page: page.next_cursor or None, "cursor"
    )
    found = [_statistic(item) for page in pages for item in page.items]
    return sorted(found, key=lambda item: (item.key, item.name))


def store_statistics(
    connection: BrokerConnection, *, include_system: bool = False
) -> admin_pb2.GetStoreStatisticsResponse:
    """Returns the store's counters with all topics. Raises ClientError."""

    def next_place(page: admin_pb2.GetStoreStatisticsResponse) -> str | None:
        return last_name([each.topic for each in page.topics], has_more=page.has_more_topics)

    request = admin_pb2.GetStoreStatisticsRequest(include_system=include_system)
    listing = connection.admin.GetStoreStatistics
    answer: admin_pb2.GetStoreStatisticsResponse
    answer, *others = connection.pages(listing, request, next_place, "topics_after")
    for page in others:
        answer.topics.extend(page.topics)
    answer.has_more_topics = False
    return answer


def store_counters(connection: BrokerConnection) -> admin_pb2.GetStoreStatisticsResponse:
    """Returns the store's counters with the first page of topics.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    answer: admin_pb2.GetStoreStatisticsResponse = connection.ask(
        connection.admin.GetStoreStatistics, admin_pb2.GetStoreStatisticsRequest()
    )
    return answer


def _statistic(item: admin_pb2.StatisticsItem) -> Statistic:
    minute, hour, day = (
        StatisticsWindow(window.sum, window.tps, window.avgpt)
        for window in (item.minute, item.hour, item.day)
    )
    return Statistic(item.name, item.key, item.value, item.times, minute, hour, day)
