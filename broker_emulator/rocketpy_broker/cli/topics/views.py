"""Columns of topics and their queues, and tables of one topic."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.output import Column
from rocketpy_broker.client.topics import Topic
from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_proto.rocketpy.v1 import admin_pb2

Queue = admin_pb2.TopicQueueStatus


def message_count(queue: Queue) -> int:
    """Returns the number of messages between the offsets."""
    return queue.max_offset - queue.min_offset


def _last_stored(queue: Queue) -> str | None:
    stored_ms = queue.last_store_timestamp_ms
    return None if stored_ms < 0 else time_of_ms(stored_ms)


TOPICS = (
    Column("topic", "topic", "topic"),
    Column("readQueueNums", "read queues", "read_queue_nums"),
    Column("writeQueueNums", "write queues", "write_queue_nums"),
    Column("perm", "perm", "perm"),
    Column("", "message type", "message_type"),
    Column("order", "", "order"),
    Column("topicFilterType", "", "topic_filter_type"),
    Column("topicSysFlag", "", "topic_sys_flag"),
    Column("attributes", "", lambda topic: dict(topic.attributes)),
)
QUEUES = (
    Column("", "queue", "queue_id", str),
    Column("", "minimum", "min_offset"),
    Column("", "maximum", "max_offset"),
    Column("", "messages", message_count),
    Column("", "last stored", _last_stored),
)


def show_topic(
    topic: Topic, queues: Sequence[Queue], groups: Sequence[str], put_tps: float, *, as_json: bool
) -> None:
    """Prints a topic, as tables with an empty line between them; `put_tps` is of a minute."""
    count = sum(map(message_count, queues))
    if as_json:
        output.print_json(
            {
                **output.json_of(TOPICS, topic),
                "messages": count,
                "putTps": put_tps,
                "queues": [output.json_of(QUEUES, queue) for queue in queues],
                "groups": groups,
            }
        )
        return
    output.print_table(
        ("field", "value"),
        [
            *_setting_fields(topic),
            ["messages", count],
            ["messages put a second", f"{put_tps:.2f}"],
        ],
    )
    typer.echo()
    output.print_entries(QUEUES, queues)
    if groups:
        typer.echo()
        output.print_table(("consumer group",), [(group,) for group in groups])


def _setting_fields(topic: Topic) -> list[list[output.Cell]]:
    fields: list[list[output.Cell]] = [
        ["topic", topic.topic],
        ["read queues", topic.read_queue_nums],
        ["write queues", topic.write_queue_nums],
        ["perm", f"{topic.perm} ({_letters(topic.perm)})"],
        ["order", "yes" if topic.order else "no"],
        ["filter type", topic.topic_filter_type],
        ["system flag", topic.topic_sys_flag],
    ]
    return fields + [[f"attribute {name}", value] for name, value in topic.attributes.items()]


def _letters(perm: int) -> str:
    """Returns RocketMQ's text of a permission, such as RW-."""
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
