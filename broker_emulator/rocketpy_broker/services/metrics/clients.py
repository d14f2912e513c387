"""Topics, groups and clients: how many there are. Holds no state.

Source: spec/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from rocketpy_broker.services.groups.consumers import ConsumeType
from rocketpy_broker.services.groups.members import Role
from rocketpy_broker.services.groups.room import Groups
from rocketpy_broker.services.metrics.families import SERIES_A_TURN, gauge, turn
from rocketpy_broker.services.metrics.labels import flag, is_system_group
from rocketpy_broker.services.topics.manager import TopicConfigManager

PROTOCOL = "grpc"
MODES = {ConsumeType.ACTIVELY: "pull", ConsumeType.PASSIVELY: "push", ConsumeType.POP: "pop"}


class ClientState:
    """The tables of one broker."""

    def __init__(self, topics: TopicConfigManager, groups: Groups, permission: int) -> None:
        self._topics = topics
        self._groups = groups
        self._permission = permission

    async def families(self) -> AsyncGenerator[Metric, None]:
        """Numbers of entries, and of clients; others have turns in between."""
        yield gauge(
            "rocketmq_broker_permission", "4: read, 2: write, together 6.", self._permission
        )
        yield gauge("rocketmq_topic_number", "Topics, with the broker's own.", len(self._topics))
        yield gauge(
            "rocketmq_consumer_group_number",
            "Consumer groups, with the broker's own.",
            len(self._groups.configs),
        )
        producers = sum(count for _, count in self._groups.clients.counts(Role.PRODUCER))
        yield gauge(
            "rocketmq_producer_connections",
            "Clients in producer groups.",
            producers,
            {"protocol_type": PROTOCOL},
        )
        counts = self._groups.clients.counts(Role.CONSUMER)
        for begin in range(0, max(len(counts), 1), SERIES_A_TURN):
            await turn()
            yield self._consumers(counts[begin : begin + SERIES_A_TURN])

    def _consumers(self, counts: Sequence[tuple[str, int]]) -> Metric:
        family = GaugeMetricFamily(
            "rocketmq_consumer_connections",
            "Clients in a consumer group.",
            labels=["consumer_group", "consume_mode", "protocol_type", "is_system"],
        )
        for name, count in counts:
            group = self._groups.clients.consumers.get(name)
            if group is not None:
                mode = MODES[group.latest.consume_type]
                family.add_metric((name, mode, PROTOCOL, flag(is_system_group(name))), count)
        return family
