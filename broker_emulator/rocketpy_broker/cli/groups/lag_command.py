"""`rocketpy lag`: the lag of consumer groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.cli.groups.views import GROUP_TOPICS, offset_or_none
from rocketpy_broker.cli.output import Column
from rocketpy_broker.cli.watch import SECONDS_DEFAULT, Interval, QueryView, Watch, show, watch
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.group_admin import group_topics
from rocketpy_broker.client.offsets import GroupLag, query_lag, topic_groups

QUEUES = (
    Column("queueId", "queue", "queue_id", str),
    Column("minOffset", "minimum", "min_offset"),
    Column("maxOffset", "maximum", "max_offset"),
    Column("committedOffset", "committed", "committed_offset", offset_or_none),
    Column("lag", "lag", "lag"),
)
LAGS = (
    Column("topic", "topic", "topic"),
    Column("consumerGroup", "consumer group", "consumer_group"),
    Column("isKnown", "", "is_known"),
    Column("lag", "lag", "total"),
    Column("queues", "", lambda lag: [output.json_of(QUEUES, each) for each in lag.queues]),
)


def lag(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Names of topics.")
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            help="Consumer group; may be repeated. Default: all with progress in the topic. "
            "Without a topic: all topics of the group.",
        ),
    ] = None,
    is_watching: Watch = False,
    interval: Interval = SECONDS_DEFAULT,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show the lag of consumer groups in topics.

    One group and one topic are shown queue by queue. For a group that the broker does not know, all
    messages count as its lag.
    """
    topic_names, group_names = (list(dict.fromkeys(given or ())) for given in (topics, groups))
    if not (topic_names or group_names):
        raise typer.BadParameter(
            "name a topic, or a group with --group; `rocketpy group list` lists the groups"
        )
    with asking(endpoint) as connection:

        def query() -> QueryView:
            return _view(connection, topic_names, group_names)

        if is_watching:
            watch(query, interval, as_json=as_json)
        show(query(), as_json=as_json)


def _view(connection: BrokerConnection, topics: Sequence[str], groups: Sequence[str]) -> QueryView:
    if not topics:
        return _of_groups(connection, groups)
    if not groups:
        return _of_topics(connection, topics)
    lags = [query_lag(connection, topic, group) for topic in topics for group in groups]
    if len(lags) == 1:
        return _of_queues(lags[0])
    rows = [output.row_of(LAGS, each) for each in lags]
    objects = [output.json_of(LAGS, each) for each in lags]
    return QueryView(output.headings(LAGS), rows, objects, _unknown(lags))


def _of_groups(connection: BrokerConnection, groups: Sequence[str]) -> QueryView:
    """Returns the lag of each group in its topics."""
    rows: list[list[output.Cell]] = []
    objects: list[dict[str, object]] = []
    for group in groups:
        found = list(group_topics(connection, group))
        total = sum(each.lag for each in found)
        rows += [[group, each.topic, each.queue_count, each.lag] for each in found]
        rows.append([group, "total", sum(each.queue_count for each in found), total])
        topics = [output.json_of(GROUP_TOPICS, each) for each in found]
        objects.append({"consumerGroup": group, "lag": total, "topics": topics})
    return QueryView(("consumer group", "topic", "queues", "lag"), rows, objects)


def _of_topics(connection: BrokerConnection, topics: Sequence[str]) -> QueryView:
    """Returns the lag of each topic's groups."""
    rows: list[list[output.Cell]] = []
    objects: list[dict[str, object]] = []
    notes: list[str] = []
    for topic in topics:
        lags = [
            query_lag(connection, topic, group) for group in list(topic_groups(connection, topic))
        ]
        rows += [output.row_of(LAGS, each) for each in lags]
        listed = [{"consumerGroup": each.consumer_group, "lag": each.total} for each in lags]
        objects.append({"topic": topic, "groups": listed})
        if not lags:
            notes.append(f"no consumer group has progress in topic {topic!r} yet")
    columns = ["topic", "consumer group", "lag"]
    if len(topics) == 1:
        columns, rows = columns[1:], [row[1:] for row in rows]
    return QueryView(columns, rows, objects, notes)


def _of_queues(found: GroupLag) -> QueryView:
    rows = [output.row_of(QUEUES, queue) for queue in found.queues]
    rows.append(["total", output.ABSENT, output.ABSENT, output.ABSENT, found.total])
    return QueryView(
        output.headings(QUEUES), rows, [output.json_of(LAGS, found)], _unknown([found])
    )


def _unknown(lags: Sequence[GroupLag]) -> list[str]:
    names = dict.fromkeys(each.consumer_group for each in lags if not each.is_known)
    return [f"consumer group {name!r} is unknown to this broker" for name in names]
