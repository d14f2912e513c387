"""Registration of clients: heartbeats, unregistration and expiry.

A crash loses members, subscriptions and client streams until the next heartbeats. The whole
heartbeat is checked before any part of it takes effect. The groups and topics that it creates
are saved first. Its registrations follow in one step, without an await.
Source: ClientManageProcessor, docs/design/broker_behaviour.md sections 4.2 to 4.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import BrokerError, NoConsumerError, ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services.groups.client_stream import (
    ClientStream,
    ClientStreams,
)
from rocketpy_broker.services.groups.clients.consumers import (
    ConsumerData,
    ConsumerGroup,
    ConsumerGroups,
    consumers_of,
)
from rocketpy_broker.services.groups.clients.members import (
    EXPIRY_MS,
    OWN_VERSION,
    ClientRole,
    ClientVersion,
    GroupKey,
    Member,
    MemberRegistration,
    MemberTable,
    check_client_id,
)
from rocketpy_broker.services.groups.clients.producers import ProducerGroups, producers_of
from rocketpy_broker.services.groups.manager import (
    SubscriptionGroupManager,
    check_group,
    check_producer_group,
)
from rocketpy_broker.services.groups.notifier import Notifier
from rocketpy_broker.services.groups.retry_topics import RetryTopic, RetryTopics
from rocketpy_proto.counts import counted
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import groups_pb2


class MembersOnlineError(BrokerError):
    """An operation that is refused while a group has members."""

    code = ResponseCode.ILLEGAL_OPERATION

    def __init__(self, group: str, count: int) -> None:
        super().__init__(
            f"consumer group {group!r} has {counted(count, 'member')} online; stop the group "
            "first, or force it"
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A client, its address, and all of its groups."""

    client_id: str
    address: str
    producer_groups: Sequence[str]
    consumers: Sequence[ConsumerData]
    version: ClientVersion = OWN_VERSION

    @property
    def groups(self) -> list[GroupKey]:
        """All groups of the heartbeat."""
        consumers = [data.key for data in self.consumers]
        return [*consumers, *map(producers_of, self.producer_groups)]

    def check(self, limits: ClientLimits) -> None:
        """Raises ParameterIllegalError."""
        groups = self.groups
        check_counts(len(groups), (len(data.subscriptions) for data in self.consumers), limits)
        check_client_id(self.client_id, limits)
        for group in self.producer_groups:
            check_producer_group(group)
        for data in self.consumers:
            data.check(limits)
        if len(set(groups)) < len(groups):
            names = [group.name for group in groups if groups.count(group) > 1]
            raise ParameterIllegalError("group", names[0], "each group once")


def check_counts(
    group_count: int, subscription_counts: Iterable[int], limits: ClientLimits
) -> None:
    """Checks the sizes of a heartbeat, before its groups are checked one by one.

    Raises ParameterIllegalError.
    """
    if not 0 < group_count <= limits.groups_per_heartbeat_max:
        accepted = f"1 to {limits.groups_per_heartbeat_max}"
        raise ParameterIllegalError("number of groups", group_count, accepted)
    count = sum(subscription_counts)
    if count > limits.subscriptions_per_heartbeat_max:
        accepted = f"{limits.subscriptions_per_heartbeat_max} or fewer in one heartbeat"
        raise ParameterIllegalError("number of subscriptions", count, accepted)


class ClientService:
    """Service that registers and removes clients."""

    def __init__(
        self,
        configs: SubscriptionGroupManager,
        retry_topics: RetryTopics,
        members: MemberTable,
        streams: ClientStreams,
        notifier: Notifier,
        limits: ClientLimits,
        clock: Clock,
    ) -> None:
        self._configs = configs
        self._retry_topics = retry_topics
        self._members = members
        self._streams = streams
        self._notifier = notifier
        self._limits = limits
        self._clock = clock
        # Called after each registration with its role and its duration in ms.
        self.registered = Listeners[[ClientRole, float]]()
        # Called with the name of a consumer group and a client that has left it.
        self.left = Listeners[[str, str]]()
        self.consumers = ConsumerGroups(members, limits)
        self.producers = ProducerGroups(members)

    def registration_count(self, role: ClientRole) -> int:
        """Returns the number of clients of all groups of a role together."""
        return self._members.registration_count(role)

    async def heartbeat(self, heartbeat: Heartbeat) -> None:
        """Registers the client in all groups of the heartbeat for 120 seconds.

        Raises ParameterIllegalError, ClientsFullError, SubscriptionGroupNotExistError. No client is
        registered then, but groups and their retry topics may have been created.
        """
        heartbeat.check(self._limits)
        self._check_space(heartbeat)
        await self._create_groups(heartbeat.consumers)
        # Other tasks ran during the await.
        self._check_space(heartbeat)
        for data in heartbeat.consumers:
            with self._timing(ClientRole.CONSUMER):
                is_changed = self.consumers.register(
                    data, heartbeat.client_id, heartbeat.address, heartbeat.version
                )
                if is_changed and self._is_notified(data.group):
                    self._announce(data.group, heartbeat.client_id)
        for group in heartbeat.producer_groups:
            with self._timing(ClientRole.PRODUCER):
                self.producers.register(
                    group, heartbeat.client_id, heartbeat.address, heartbeat.version
                )

    def without_refused(self, heartbeat: Heartbeat) -> tuple[Heartbeat, list[BrokerError]]:
        """Returns a heartbeat without the refused groups, and the errors of these groups."""
        errors: list[BrokerError] = []

        def is_accepted(check: Callable[[], None]) -> bool:
            try:
                check()
            except BrokerError as error:
                errors.append(error)
                return False
            return True

        def check_consumer(data: ConsumerData) -> None:
            data.check(self._limits)
            self._configs.check_available(data.group)

        consumers = [
            data for data in heartbeat.consumers if is_accepted(partial(check_consumer, data))
        ]
        producers = [
            group
            for group in heartbeat.producer_groups
            if is_accepted(partial(check_producer_group, group))
        ]
        return replace(heartbeat, consumers=consumers, producer_groups=producers), errors

    @contextmanager
    def _timing(self, role: ClientRole) -> Iterator[None]:
        begin_ms = self._clock.monotonic_ms()
        yield
        self.registered(role, self._clock.monotonic_ms() - begin_ms)

    def _check_space(self, heartbeat: Heartbeat) -> None:
        self._members.check_space(heartbeat.client_id, heartbeat.groups, heartbeat.address)
        self.consumers.check_space(heartbeat.consumers, heartbeat.address)

    async def _create_groups(self, consumers: Sequence[ConsumerData]) -> None:
        for data in consumers:
            self._configs.check_available(data.group)
        is_new = any(data.group not in self._configs for data in consumers)
        wanted = [
            RetryTopic(
                self._configs.get_or_create(data.group),
                self._retry_topics.is_ordered([each.topic for each in data.subscriptions]),
                data.unit_mode,
            )
            for data in consumers
        ]
        if is_new:
            await self._configs.save_new()
        await self._retry_topics.ensure(wanted)

    def _is_notified(self, group: str) -> bool:
        """True if members of the group are notified of changes."""
        if group not in self._configs:
            return True
        return self._configs.get(group).notify_consumer_ids_changed_enable

    def _announce(self, name: str, first: str = "") -> None:
        group = self.consumers.get(name)
        if group is not None and not group.is_broadcasting:
            self._notifier.changed(name, first)

    def unregister(self, client_id: str, producer_group: str, consumer_group: str) -> None:
        """Removes the client from these groups; from all its groups if both names are empty.

        Raises ParameterIllegalError.
        """
        check_client_id(client_id, self._limits)
        groups: list[GroupKey] = []
        if producer_group:
            check_producer_group(producer_group)
            groups.append(producers_of(producer_group))
        if consumer_group:
            check_group(consumer_group)
            groups.append(consumers_of(consumer_group))
        for group in groups or self._members.groups_of(client_id):
            if self._members.remove(group, client_id):
                self._left(
                    MemberRegistration(group, client_id), is_notified=self._is_notified(group.name)
                )

    def _left(self, registration: MemberRegistration, *, is_notified: bool) -> None:
        """Handles the exit of a client from a group: notifies the remaining members."""
        (role, name), client_id = registration
        if role is not ClientRole.CONSUMER:
            return
        self.left(name, client_id)
        stream = self._streams.get(client_id)
        if stream is not None:
            stream.forget(name)
        if self.consumers.left(name) is not None and is_notified:
            self._announce(name)

    # --- Clients that do not unregister ---

    def expired(self, registrations: Iterable[MemberRegistration]) -> None:
        """Notifies the groups of expired clients; ends the streams of clients without a group."""
        for registration in registrations:
            self._left(registration, is_notified=True)
            client_id = registration.client_id
            if not self._members.is_registered(client_id):
                reason = f"client {client_id!r} sent no heartbeat for {EXPIRY_MS // 1000} seconds"
                self._streams.disconnect(client_id, f"{reason}; send one and open another stream")

    def open_notices(self, client_id: str, address: str = "") -> ClientStream:
        """Returns a new client stream for the client at that address.

        Raises ParameterIllegalError, ClientsFullError.
        """
        return self._streams.open(client_id, address)

    @property
    def listener_count(self) -> int:
        """The number of clients with a client stream."""
        return len(self._streams)

    def close_notices(self, stream: ClientStream, *, leaves: bool = True) -> None:
        """Closes an ended stream; a client that `leaves` with it leaves its groups.

        A client with another stream stays.
        """
        if not self._streams.close(stream) or not leaves:
            return
        for group in self._members.groups_of(stream.client_id):
            self._members.remove(group, stream.client_id)
            self._left(MemberRegistration(group, stream.client_id), is_notified=True)

    # --- Queries ---

    def member_ids(self, group: str) -> list[str]:
        """Returns the sorted client ids of a consumer group.

        Sorts them in one step: `members_per_group_max` limits them. Raises ParameterIllegalError,
        NoConsumerError.
        """
        check_group(group)
        found = sorted(self._members.members(consumers_of(group)))
        if not found:
            raise NoConsumerError(group)
        return found

    def is_member(self, group: str, client_id: str) -> bool:
        """True if the client is in the consumer group."""
        return client_id in self._members.members(consumers_of(group))

    def member_count(self, group: str) -> int:
        """Returns the number of clients of a consumer group."""
        return len(self._members.members(consumers_of(group)))

    @property
    def client_count(self) -> int:
        """The number of clients in any group."""
        return self._members.client_count

    def registered_ids(self) -> list[str]:
        """Returns the ids of all clients, unsorted."""
        return self._members.client_ids()

    def registrations(self, client_id: str) -> list[tuple[GroupKey, Member]]:
        """Returns the groups of a client, and its membership in each."""
        return [
            (group, self._members.members(group)[client_id])
            for group in self._members.groups_of(client_id)
        ]

    def connections(self, group: GroupKey) -> list[Member]:
        """Returns the members of a group by client id. Raises ParameterIllegalError."""
        if group.role is ClientRole.PRODUCER:
            check_producer_group(group.name)
        else:
            check_group(group.name)
        return sorted(self._members.members(group).values(), key=lambda member: member.client_id)

    def groups_of(self, client_id: str) -> list[GroupKey]:
        """Returns the groups of a client."""
        return self._members.groups_of(client_id)

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """Returns the settings and subscriptions of the group; None if it has no clients."""
        return self.consumers.get(group)

    def notify_one_producer(self, check: groups_pb2.CheckTransaction) -> bool:
        """Sends a transaction check to one client of its producer group, in turn.

        Returns False if no client has a stream that accepts the check.
        """

        def is_taken(client_id: str) -> bool:
            stream = self._streams.get(client_id)
            return stream is not None and stream.offer(check)

        return self.producers.ask_one(check.producer_group, is_taken)
