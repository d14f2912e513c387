"""`rocketpy stats` and `rocketpy topic stats`: a broker's statistics."""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.cli.output import Column
from rocketpy_broker.client.statistics import list_statistics, store_statistics
from rocketpy_broker.contract_json import json_of
from rocketpy_proto.rocketpy.v1 import admin_pb2

_COUNTERS = (
    "put_failed_count",
    "get_found_count",
    "get_miss_count",
    "get_message_count",
    "dispatch_behind_bytes",
    "flush_behind_bytes",
    "log_begin_offset",
    "log_end_offset",
    "corrupt_record_count",
    "staged_bytes",
    "staged_bytes_max",
    "put_latency_99_ms",
    "put_latency_999_ms",
    "put_latency_max_ms",
    "get_latency_max_ms",
)
_HEADINGS = {
    "put_latency_99_ms": "put latency ms, 99 %",
    "put_latency_999_ms": "put latency ms, 99.9 %",
    "put_latency_max_ms": "put latency ms, longest",
    "get_latency_max_ms": "get latency ms, longest",
}
COUNTERS = [Column("", _HEADINGS.get(name) or name.replace("_", " "), name) for name in _COUNTERS]
SPEEDS_COUNT = 3
SPEEDS = ("put_tps", "get_found_tps", "get_miss_tps", "get_transferred_tps")
TOPICS = (
    Column("", "topic", "topic"),
    Column("", "messages put", "put_count"),
    Column("", "bytes put", "put_bytes"),
)
STATISTICS = (
    Column("", "key", "key"),
    Column("name", "name", "name"),
    Column("key", "", "key"),
    Column("value", "in all", "value"),
    Column("times", "", "times"),
    Column("minute", "minute", lambda each: asdict(each.minute), itemgetter("sum")),
    Column("", "TPS", lambda each: f"{each.minute.tps:.2f}"),
    Column("", "AVGPT", lambda each: f"{each.minute.avgpt:.2f}"),
    Column("hour", "hour", lambda each: asdict(each.hour), itemgetter("sum")),
    Column("day", "day", lambda each: asdict(each.day), itemgetter("sum")),
)
System = Annotated[
    bool, typer.Option("--system", help="Also the broker's own topics and retry topics.")
]


def stats(
    system: System = False, as_json: output.AsJson = False, endpoint: Endpoint = DEFAULT_ENDPOINT
) -> None:
    """Show what the broker's store has counted since its start."""
    with asking(endpoint) as connection:
        response = store_statistics(connection, include_system=system)
        if as_json:
            output.print_json(json_of(response))
        else:
            _show_stats(response)


def _show_stats(response: admin_pb2.GetStoreStatisticsResponse) -> None:
    output.print_entries(TOPICS, response.topics, groups_digits=True)
    counters = zip(output.headings(COUNTERS), output.row_of(COUNTERS, response), strict=True)
    store: list[list[output.Cell]] = [[name, value] for name, value in counters]
    for name in SPEEDS:
        speeds = [f"{speed:.2f}" for speed in getattr(response, name)]
        # A window longer than the broker's uptime has no speed yet.
        speeds += [output.ABSENT] * (SPEEDS_COUNT - len(speeds))
        store.append([name.replace("_", " ") + ", 10 s 60 s 600 s", " ".join(speeds)])
    for bucket in response.put_latencies:
        bound = "longer" if bucket.at_most_ms < 0 else f"up to {bucket.at_most_ms:,} ms"
        store.append([f"puts that took {bound}", bucket.count])
    output.print_table(("store", "value"), store, groups_digits=True)


def topic_stats(
    topic: Annotated[str, typer.Argument(help="Name of the topic. Default: all.")] = "",
    group: Annotated[str, typer.Option(help="Only this consumer group.")] = "",
    names: Annotated[
        list[str] | None,
        typer.Option("--name", help="A name such as TOPIC_PUT_NUMS; may be repeated."),
    ] = None,
    system: System = False,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show what topics and groups put, got and sent back in the last minute, hour and day.

    Each window has a sum. TPS and AVGPT, the sum divided by the calls, are of the last minute.
    --json has them for all windows.
    """
    with asking(endpoint) as connection:
        found = list_statistics(
            connection, names or (), topic=topic, group=group, include_system=system
        )
        output.print_entries(STATISTICS, found, as_json=as_json, groups_digits=True)
        if not found and not as_json:
            typer.echo("rocketpy: the broker has no such statistics since its start", err=True)
