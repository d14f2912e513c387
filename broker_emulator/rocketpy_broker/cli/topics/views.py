"""A topic as a JSON object and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.client import topics
from rocketpy_broker.runtime.time_format import time_of_ms


@dataclass(frozen=True, slots=True)
class Description:
    """A topic with its queues, groups with progress, and messages put per second.

    `put_tps` is the last minute's.
    """

    topic: topics.Topic
    queues: Sequence[topics.TopicQueue]
    groups: Sequence[str]
    put_tps: float

    @property
    def message_count(self) -> int:
        """The number of messages in all queues."""
        return sum(queue.message_count for queue in self.queues)


def description_json(found: Description) -> dict[str, object]:
    """Returns a topic with its queues and groups as JSON."""
    return {
        **topic_json(found.topic),
        "messages": found.message_count,
        "putTps": found.put_tps,
        "queues": [
            {
                "queueId": queue.queue_id,
                "minOffset": queue.min_offset,
                "maxOffset": queue.max_offset,
                "messages": queue.message_count,
                "lastStoreTimestamp": None
                if queue.last_store_ms is None
                else time_of_ms(queue.last_store_ms),
            }
            for queue in found.queues
        ],
        "groups": list(found.groups),
    }


def show_description(found: Description) -> None:
    """Prints a topic as tables, with an empty line between them."""
    output.print_table(
        ("field", "value"),
        [
            *_setting_fields(found.topic),
            ["messages", found.message_count],
            ["messages put a second", f"{found.put_tps:.2f}"],
        ],
    )
    typer.echo()
    output.print_table(
        ("queue", "minimum", "maximum", "messages", "last stored"),
        [
            (
                str(queue.queue_id),
                queue.min_offset,
                queue.max_offset,
                queue.message_count,
                output.ABSENT if queue.last_store_ms is None else time_of_ms(queue.last_store_ms),
            )
            for queue in found.queues
        ],
    )
    if found.groups:
        typer.echo()
        output.print_table(("consumer group",), [(group,) for group in found.groups])


def _setting_fields(topic: topics.Topic) -> list[list[output.Cell]]:
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


def topic_json(topic: topics.Topic) -> dict[str, object]:
    """Returns the settings of a topic as JSON."""
    return {
        "topic": topic.topic,
        "readQueueNums": topic.read_queue_nums,
        "writeQueueNums": topic.write_queue_nums,
        "perm": topic.perm,
        "order": topic.order,
        "topicFilterType": topic.topic_filter_type,
        "topicSysFlag": topic.topic_sys_flag,
        "attributes": dict(topic.attributes),
    }
