"""`rocketpy stats` and `rocketpy clean`: a running broker's store, counted and cleaned.

Holds no state.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import (
    DEFAULT_ENDPOINT,
    TIMEOUT_SECONDS,
    Endpoint,
    asking,
    check,
)
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_proto.rocketpy.v1 import admin_pb2

CLEAN_SECONDS = 600.0
COUNTERS = (
    "put_failed_count",
    "get_found_count",
    "get_miss_count",
    "get_message_count",
    "dispatch_behind_bytes",
    "flush_behind_bytes",
    "log_begin_offset",
    "log_end_offset",
    "corrupt_record_count",
)


def stats(as_json: output.AsJson = False, endpoint: Endpoint = DEFAULT_ENDPOINT) -> None:
    """Show what the broker's store has counted since its start."""
    request = admin_pb2.GetStoreStatisticsRequest()
    with asking(endpoint) as connection:
        response: admin_pb2.GetStoreStatisticsResponse = connection.ask(
            lambda: connection.admin.GetStoreStatistics(request, timeout=TIMEOUT_SECONDS)
        )
        if as_json:
            output.print_json(_stats_json(response))
        else:
            _show_stats(response)


def _stats_json(response: admin_pb2.GetStoreStatisticsResponse) -> dict[str, object]:
    return {
        "topics": [
            {"topic": topic.topic, "putCount": topic.put_count, "putBytes": topic.put_bytes}
            for topic in response.topics
        ],
        **{_camel(name): getattr(response, name) for name in COUNTERS},
        "putLatencies": [
            {
                "atMostMs": None if bucket.at_most_ms < 0 else bucket.at_most_ms,
                "count": bucket.count,
            }
            for bucket in response.put_latencies
        ],
    }


def _show_stats(response: admin_pb2.GetStoreStatisticsResponse) -> None:
    topics: list[list[output.Cell]] = [
        [topic.topic, topic.put_count, topic.put_bytes] for topic in response.topics
    ]
    output.print_table(("topic", "messages put", "bytes put"), topics, groups_digits=True)
    store: list[list[output.Cell]] = [
        [name.replace("_", " "), getattr(response, name)] for name in COUNTERS
    ]
    for bucket in response.put_latencies:
        bound = "longer" if bucket.at_most_ms < 0 else f"up to {bucket.at_most_ms:,} ms"
        store.append([f"puts that took {bound}", bucket.count])
    output.print_table(("store", "value"), store, groups_digits=True)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def clean(
    unused_topics: Annotated[
        bool,
        typer.Option("--unused-topics", help="Remove the messages of topics not configured."),
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Remove expired log segments now, whatever the hour."""
    with asking(endpoint) as connection:
        if unused_topics:
            _clean_unused_topics(connection)
            return
        response = connection.admin.CleanExpiredFiles(
            admin_pb2.CleanExpiredFilesRequest(), timeout=CLEAN_SECONDS
        )
    check(response.status)
    typer.echo(
        f"removed {response.removed_file_count} log segments; "
        f"the log begins at {response.log_begin_offset}"
    )


def _clean_unused_topics(connection: BrokerConnection) -> None:
    response = connection.admin.CleanUnusedTopics(
        admin_pb2.CleanUnusedTopicsRequest(), timeout=CLEAN_SECONDS
    )
    check(response.status)
    typer.echo(f"removed the messages of {len(response.topics)} topics")
