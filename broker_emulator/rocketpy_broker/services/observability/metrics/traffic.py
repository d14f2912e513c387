"""RocketMQ's counters of sent and pulled messages and bytes.

The values are the rows of the statistics by topic and group. A row without additions for a day is
dropped; its counter restarts at zero.
Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

from prometheus_client.core import CounterMetricFamily, Metric

from rocketpy_broker.services.observability.metrics.families import SERIES_A_TURN, turn
from rocketpy_broker.services.observability.metrics.labels import (
    flag,
    is_retry_or_dlq,
    is_system_group,
    message_type,
)
from rocketpy_broker.services.observability.statistics.names import Key, Kind
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.topics.manager import TopicConfigManager

IN_LABELS = ("topic", "message_type", "is_system")
OUT_LABELS = ("topic", "consumer_group", "is_system")
# Names and help texts of families: messages first, then bytes.
IN = (
    ("rocketmq_messages_in", "Messages that clients have sent."),
    ("rocketmq_throughput_in", "Bytes of messages that clients have sent."),
)
OUT = (
    ("rocketmq_messages_out", "Messages that consumer groups have pulled."),
    ("rocketmq_throughput_out", "Bytes of messages that consumer groups have pulled."),
)
DEAD = (("rocketmq_send_to_dlq_messages", "Messages that became dead letters."),)


class Traffic:
    """The source of message and byte counters."""

    def __init__(self, statistics: StatisticsService, topics: TopicConfigManager) -> None:
        self._statistics = statistics
        self._topics = topics

    async def families(self) -> AsyncGenerator[Metric, None]:
        """Yields the families, one kind of row after the other, in several scheduler slots."""
        for kind, labels_of, labels, named in (
            (Kind.TOPIC_PUT, self._in_labels, IN_LABELS, IN),
            (Kind.GROUP_GET, self._out_labels, OUT_LABELS, OUT),
            (Kind.DEAD_LETTERS, self._out_labels, OUT_LABELS, DEAD),
        ):
            made = partial(_families, named, labels)
            async with contextlib.aclosing(self._parts(kind, labels_of, made)) as parts:
                async for family in parts:
                    yield family

    def _in_labels(self, key: Key) -> Sequence[str] | None:
        if is_retry_or_dlq(key.topic):
            return None
        is_system = self._topics.is_system(key.topic)
        return key.topic, message_type(self._topics, key.topic), flag(is_system)

    def _out_labels(self, key: Key) -> Sequence[str] | None:
        is_system = self._topics.is_system(key.topic) or is_system_group(key.group)
        return key.topic, key.group, flag(is_system)

    async def _parts(
        self,
        kind: Kind,
        labels_of: Callable[[Key], Sequence[str] | None],
        made: Callable[[], list[CounterMetricFamily]],
    ) -> AsyncGenerator[Metric, None]:
        """Yields a series for each row: its messages in the first family, bytes in the second."""
        for family in made():
            yield family
        # Prevents a second series of a row that is dropped and recreated meanwhile.
        told: set[Key] = set()
        async for rows in self._statistics.sums(kind, SERIES_A_TURN):
            families = made()
            for key, *values in rows:
                labels = None if key in told else labels_of(key)
                told.add(key)
                if labels is not None:
                    for family, value in zip(families, values, strict=False):
                        family.add_metric(labels, value)
            for family in families:
                yield family
            await turn()


def _families(named: Sequence[tuple[str, str]], labels: Sequence[str]) -> list[CounterMetricFamily]:
    return [CounterMetricFamily(name, text, labels=labels) for name, text in named]
