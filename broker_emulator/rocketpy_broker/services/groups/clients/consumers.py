"""Consumer groups with clients: their consumption settings and subscriptions.

State: in memory only, from a group's first member to its last. The next heartbeats restore it
after a crash. The latest heartbeat of a group sets its consumption settings.
Source: ConsumerManager and ConsumerGroupInfo, docs/design/broker_behaviour.md sections 4.1 and 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import ClientsFullError
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.services.groups.clients.members import (
    OWN_VERSION,
    ClientRole,
    ClientVersion,
    GroupKey,
    MemberTable,
)
from rocketpy_broker.services.groups.clients.subscriptions import (
    Subscription,
    check_subscriptions,
    merge,
)
from rocketpy_broker.services.groups.manager import check_group
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """A consumer group as described by one of its clients.

    `fingerprint` identifies the subscriptions of a RocketMQ client that sends it, else it is 0.
    """

    group: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: Sequence[Subscription]
    unit_mode: bool = False
    fingerprint: int = 0

    @property
    def key(self) -> GroupKey:
        """The key of the group."""
        return consumers_of(self.group)

    def check(self, limits: ClientLimits) -> None:
        """Raises ParameterIllegalError."""
        check_group(self.group)
        check_subscriptions(self.subscriptions, limits)


def consumers_of(group: str) -> GroupKey:
    """Returns the consumer group of that name."""
    return GroupKey(ClientRole.CONSUMER, group)


@dataclass(slots=True)
class ConsumerGroup:
    """The group's data of the latest heartbeat, and its subscriptions by topic.

    The bytes of the subscriptions count for the connection of that heartbeat.
    """

    latest: ConsumerData
    subscriptions: Mapping[str, Subscription]
    subscription_bytes: int = 0
    address: str = ""

    @property
    def is_broadcasting(self) -> bool:
        """True if every member gets every message."""
        return self.latest.message_model is MessageModel.BROADCASTING


class ConsumerGroups:
    """Consumer groups with clients, by name."""

    def __init__(self, members: MemberTable, limits: ClientLimits) -> None:
        self._members = members
        self._limits = limits
        self._groups: dict[str, ConsumerGroup] = {}
        self._shares = Shares(limits.subscription_bytes_per_connection_max)

    @property
    def subscription_bytes(self) -> int:
        """The memory of all subscriptions."""
        return self._shares.total

    def get(self, group: str) -> ConsumerGroup | None:
        """Returns the group; None if it has no clients."""
        return self._groups.get(group)

    def names(self) -> list[str]:
        """Returns the groups that have clients, unsorted."""
        return list(self._groups)

    def is_subscribed(self, group: str, topic: str) -> bool:
        """True if the group has a client and subscribes to the topic."""
        found = self._groups.get(group)
        return found is not None and topic in found.subscriptions

    def check_space(self, wanted: Sequence[ConsumerData], address: str) -> None:
        """Raises ClientsFullError if the connection may not register these groups."""
        bytes_max, total, mine = self._limits.subscription_bytes_max, self._shares.total, 0
        for data in wanted:
            # The sum assumes that every subscription is replaced.
            size = sum(subscription.bytes for subscription in data.subscriptions)
            known = self._groups.get(data.group)
            before = 0 if known is None else known.subscription_bytes
            total += size - before
            mine += size - (before if known is not None and known.address == address else 0)
        if mine > 0 and not self._shares.has_space(address, mine):
            name = f"the bytes of the subscriptions of the connection {address}"
            raise ClientsFullError(name, self._shares.connection_max, "subscribe to fewer topics")
        if total > bytes_max:
            raise ClientsFullError(
                "the bytes of all subscriptions", bytes_max, "subscribe to fewer topics"
            )

    def register(
        self,
        data: ConsumerData,
        client_id: str,
        address: str,
        version: ClientVersion = OWN_VERSION,
    ) -> bool:
        """Registers a client in its group; returns True if the members need a notice.

        The caller has called `check_space` of the members and of these groups.
        """
        is_new = self._members.register(data.key, client_id, address, version)
        group = self._groups.get(data.group)
        if group is None:
            group = self._groups[data.group] = ConsumerGroup(data, {})
        merged = merge(group.subscriptions, data.subscriptions)
        size = sum(subscription.bytes for subscription in merged.table.values())
        self._shares.change(group.address, -group.subscription_bytes)
        self._shares.change(address, size)
        group.latest, group.subscriptions = replace(data, subscriptions=()), merged.table
        group.subscription_bytes, group.address = size, address
        return is_new or merged.is_changed

    def left(self, group: str) -> ConsumerGroup | None:
        """Returns the group after the exit of a member; None if it has no members left.

        Members that leave together are reported one by one, also after the group's removal.
        """
        if self._members.members(consumers_of(group)):
            return self._groups[group]
        gone = self._groups.pop(group, None)
        if gone is not None:
            self._shares.change(gone.address, -gone.subscription_bytes)
        return None
