"""Gauges of topics, groups and clients.

Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from rocketpy_broker.services.groups.clients.consumers import ConsumeType
from rocketpy_broker.services.groups.clients.members import Role
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.observability.metrics.families import SERIES_A_TURN, gauge, turn
from rocketpy_broker.services.observability.metrics.labels import flag, is_system_group
from rocketpy_broker.services.topics.manager import TopicConfigManager

PROTOCOL = "grpc"
MODES = {ConsumeType.ACTIVELY: "pull", ConsumeType.PASSIVELY: "push", ConsumeType.POP: "pop"}


class ClientState:
    """The source of client and group gauges of one broker."""

    def __init__(self, topics: TopicConfigManager, groups: Groups, permission: int) -> None:
        self._topics = topics
        self._groups = groups
        self._permission = permission

    async def families(self) -> AsyncGenerator[Metric, None]:
        """Yields the gauges; takes scheduler slots in between."""
        yield gauge(
            "rocketmq_broker_permission", "4: read, 2: write, together 6.", self._permission
        )
        yield gauge("rocketmq_topic_number", "Topics, with the broker's own.", len(self._topics))
        yield gauge(
            "rocketmq_consumer_group_number",
            "Consumer groups, with the broker's own.",
            len(self._groups.configs),
        )
        yield gauge(
            "rocketmq_producer_connections",
            "Clients in producer groups.",
            self._groups.clients.registration_count(Role.PRODUCER),
            {"protocol_type": PROTOCOL},
        )
        names = self._groups.clients.consumers.names()
        for begin in range(0, max(len(names), 1), SERIES_A_TURN):
            await turn()
            yield self._consumers(names[begin : begin + SERIES_A_TURN])

    def _consumers(self, names: Sequence[str]) -> Metric:
        family = GaugeMetricFamily(
            "rocketmq_consumer_connections",
            "Clients in a consumer group.",
            labels=["consumer_group", "consume_mode", "protocol_type", "is_system"],
        )
        clients = self._groups.clients
        for name in names:
            group = clients.consumer_group(name)
            if group is not None:
                labels = (name, MODES[group.latest.consume_type], PROTOCOL)
                count = clients.member_count(name)
                family.add_metric((*labels, flag(is_system_group(name))), count)
        return family
