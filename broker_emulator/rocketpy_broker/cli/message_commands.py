"""`rocketpy message …`, `rocketpy stats` and `rocketpy clean`: what lies in a running broker's
store.

Holds no state.
"""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from rocketpy_broker.cli.broker_client import (
    DEFAULT_ENDPOINT,
    TIMEOUT_SECONDS,
    Endpoint,
    Stubs,
    asking,
    check,
)
from rocketpy_proto.record import Record, decode_record
from rocketpy_proto.rocketpy.v1 import admin_pb2

BODY_BYTES_SHOWN = 1000
CLEAN_SECONDS = 600.0
message_app = typer.Typer(help="Look at single messages.", no_args_is_help=True)


@message_app.command("query")
def query(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    key: Annotated[str, typer.Argument(help="One of the KEYS, or the UNIQ_KEY.")],
    count: Annotated[int, typer.Option(min=1, max=64, help="Show at most so many.")] = 32,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show the newest messages of a topic that have a key."""
    request = admin_pb2.QueryMessageRequest(topic=topic, key=key, count_max=count)
    with asking(endpoint) as stubs:
        _show(stubs.admin.QueryMessage(request, timeout=TIMEOUT_SECONDS))


@message_app.command("view")
def view(
    offset_msg_id: Annotated[str, typer.Argument(help="The offset message id.")],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show the message with an offset message id."""
    request = admin_pb2.ViewMessageRequest(offset_msg_id=offset_msg_id)
    with asking(endpoint) as stubs:
        _show(stubs.admin.ViewMessage(request, timeout=TIMEOUT_SECONDS))


def _show(response: admin_pb2.MessagesResponse) -> None:
    check(response.status)
    position = 0
    for size in np.frombuffer(response.record_sizes, ">i4").tolist():
        _show_record(decode_record(response.records, position).record)
        position += size
    if position == 0:
        sys.exit("rocketpy: no message has this key")


def _show_record(record: Record) -> None:
    table = Table("field", "value", show_header=False)
    table.add_row("topic", record.topic)
    table.add_row("queue", f"{record.queue_id}, offset {record.queue_offset}")
    table.add_row("log offset", str(record.physical_offset))
    table.add_row("born", f"{_time(record.born_timestamp_ms)} at {record.born_host}")
    table.add_row("stored", f"{_time(record.store_timestamp_ms)} at {record.store_host}")
    for name, value in sorted(record.properties.items()):
        table.add_row(name, value)
    table.add_row("body", repr(record.body[:BODY_BYTES_SHOWN]))
    Console().print(table)


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, tz=timezone.utc).isoformat(
        " ", "milliseconds"
    )


def stats(endpoint: Endpoint = DEFAULT_ENDPOINT) -> None:
    """Show what the broker's store has counted since its start."""
    with asking(endpoint) as stubs:
        response = stubs.admin.GetStoreStatistics(
            admin_pb2.GetStoreStatisticsRequest(), timeout=TIMEOUT_SECONDS
        )
    check(response.status)
    topics = Table("topic", "messages put", "bytes put")
    for topic in response.topics:
        topics.add_row(topic.topic, f"{topic.put_count:,}", f"{topic.put_bytes:,}")
    store = Table("store", "value")
    for name in (
        "put_failed_count",
        "get_found_count",
        "get_miss_count",
        "get_message_count",
        "dispatch_behind_bytes",
        "flush_behind_bytes",
        "log_begin_offset",
        "log_end_offset",
        "corrupt_record_count",
    ):
        store.add_row(name.replace("_", " "), f"{getattr(response, name):,}")
    for bucket in response.put_latencies:
        bound = "longer" if bucket.at_most_ms < 0 else f"up to {bucket.at_most_ms:,} ms"
        store.add_row(f"puts that took {bound}", f"{bucket.count:,}")
    Console().print(topics, store)


def clean(
    unused_topics: Annotated[
        bool,
        typer.Option("--unused-topics", help="Remove the messages of topics not configured."),
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Remove expired log segments now, whatever the hour."""
    with asking(endpoint) as stubs:
        if unused_topics:
            _clean_unused_topics(stubs)
            return
        response = stubs.admin.CleanExpiredFiles(
            admin_pb2.CleanExpiredFilesRequest(), timeout=CLEAN_SECONDS
        )
    check(response.status)
    typer.echo(
        f"removed {response.removed_file_count} log segments; "
        f"the log begins at {response.log_begin_offset}"
    )


def _clean_unused_topics(stubs: Stubs) -> None:
    response = stubs.admin.CleanUnusedTopics(
        admin_pb2.CleanUnusedTopicsRequest(), timeout=CLEAN_SECONDS
    )
    check(response.status)
    typer.echo(f"removed the messages of {len(response.topics)} topics")
