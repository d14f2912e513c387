"""Clients come, stay and go: heartbeats, what ends them, and who is told.

Holds no state of its own; a crash costs what `members`, `consumers` and `notices` hold, until the
next heartbeats. A heartbeat is checked as a whole before anything of it is done. What it creates is
saved first, and only then it registers, in one go.
Source: ClientManageProcessor, docs/design/broker_behaviour.md 4.2 to 4.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import BrokerError, NoConsumerError, ParameterIllegalError
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services.groups.client_stream import (
    CheckTransaction,
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
    GroupKey,
    Member,
    MemberTable,
    Registration,
    Role,
    check_client_id,
)
from rocketpy_broker.services.groups.clients.producers import ProducerGroups, producers_of
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager, check_group
from rocketpy_broker.services.groups.notifier import Notifier
from rocketpy_broker.services.groups.retry_topics import RetryTopic, RetryTopics


class MembersOnlineError(BrokerError):
    """What is not to be done while a group has members."""

    code = ResponseCode.ILLEGAL_OPERATION

    def __init__(self, group: str, count: int) -> None:
        members = "a member" if count == 1 else f"{count} members"
        super().__init__(
            f"consumer group {group!r} has {members} online; stop them first, or force it"
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A client, where it is, and all of its groups."""

    client_id: str
    address: str
    producer_groups: Sequence[str]
    consumers: Sequence[ConsumerData]

    @property
    def groups(self) -> list[GroupKey]:
        """All groups that it names."""
        consumers = [data.key for data in self.consumers]
        return [*consumers, *map(producers_of, self.producer_groups)]

    def check(self, limits: ClientLimits) -> None:
        """Raises ParameterIllegalError."""
        groups = self.groups
        check_counts(len(groups), (len(data.subscriptions) for data in self.consumers), limits)
        check_client_id(self.client_id, limits)
        for group in self.producer_groups:
            check_group(group, "producer_group")
        for data in self.consumers:
            data.check(limits)
        if len(set(groups)) < len(groups):
            names = [group.name for group in groups if groups.count(group) > 1]
            raise ParameterIllegalError("group", names[0], "each group once")


def check_counts(
    group_count: int, subscription_counts: Iterable[int], limits: ClientLimits
) -> None:
    """The first check of a heartbeat, also before its groups are looked at one by one.

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
    """Registers clients, and lets them go."""

    def __init__(
        self,
        configs: SubscriptionGroupManager,
        retry_topics: RetryTopics,
        members: MemberTable,
        streams: ClientStreams,
        announcer: Notifier,
        limits: ClientLimits,
        clock: Clock,
    ) -> None:
        self._configs = configs
        self._retry_topics = retry_topics
        self._members = members
        self._streams = streams
        self._announcer = announcer
        self._limits = limits
        self._clock = clock
        # Told of each registration, and how many ms it took.
        self.registered = Listeners[[Role, float]]()
        self.consumers = ConsumerGroups(members, limits)
        self.producers = ProducerGroups(members)

    def registration_count(self, role: Role) -> int:
        """How many clients all groups of a role have together."""
        return self._members.registration_count(role)

    async def heartbeat(self, heartbeat: Heartbeat) -> None:
        """Let the client be in all of these groups for the next 120 seconds.

        Raises ParameterIllegalError, ClientsFullError, SubscriptionGroupNotExistError; then
        nothing was done, but that groups and their retry topics may have been created.
        """
        heartbeat.check(self._limits)
        self._check_room(heartbeat)
        await self._create_groups(heartbeat.consumers)
        # Others had their turns meanwhile.
        self._check_room(heartbeat)
        for data in heartbeat.consumers:
            with self._timing(Role.CONSUMER):
                is_changed = self.consumers.register(data, heartbeat.client_id, heartbeat.address)
                if is_changed and self._is_told(data.group):
                    self._announce(data.group)
        for group in heartbeat.producer_groups:
            with self._timing(Role.PRODUCER):
                self.producers.register(group, heartbeat.client_id, heartbeat.address)

    @contextmanager
    def _timing(self, role: Role) -> Iterator[None]:
        begin_ms = self._clock.monotonic_ms()
        yield
        self.registered(role, self._clock.monotonic_ms() - begin_ms)

    def _check_room(self, heartbeat: Heartbeat) -> None:
        self._members.check_room(heartbeat.client_id, heartbeat.groups, heartbeat.address)
        self.consumers.check_room(heartbeat.consumers, heartbeat.address)

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

    def _is_told(self, group: str) -> bool:
        """True if members of the group want to know of changes."""
        if group not in self._configs:
            return True
        return self._configs.get(group).notify_consumer_ids_changed_enable

    def _announce(self, name: str) -> None:
        group = self.consumers.get(name)
        if group is not None and not group.is_broadcasting:
            self._announcer.changed(name)

    def unregister(self, client_id: str, producer_group: str, consumer_group: str) -> None:
        """Let the client leave these groups; without any, all that it is in.

        Raises ParameterIllegalError.
        """
        check_client_id(client_id, self._limits)
        groups: list[GroupKey] = []
        if producer_group:
            check_group(producer_group, "producer_group")
            groups.append(producers_of(producer_group))
        if consumer_group:
            check_group(consumer_group)
            groups.append(consumers_of(consumer_group))
        for group in groups or self._members.groups_of(client_id):
            if self._members.remove(group, client_id):
                self._left(Registration(group, client_id), is_told=self._is_told(group.name))

    def _left(self, registration: Registration, *, is_told: bool) -> None:
        """A client is in a group no more: whoever is left has to know."""
        (role, name), client_id = registration
        if role is not Role.CONSUMER:
            return
        stream = self._streams.get(client_id)
        if stream is not None:
            stream.forget(name)
        if self.consumers.left(name) is not None and is_told:
            self._announce(name)

    # --- Clients that go without a word ---

    def expired(self, registrations: Iterable[Registration]) -> None:
        """Clients were silent for too long, and are in these groups no more."""
        for registration in registrations:
            self._left(registration, is_told=True)
            client_id = registration.client_id
            if not self._members.is_registered(client_id):
                reason = f"client {client_id!r} sent no heartbeat for {EXPIRY_MS // 1000} seconds"
                self._streams.disconnect(client_id, f"{reason}; send one and open another stream")

    def open_notices(self, client_id: str, address: str = "") -> ClientStream:
        """What the client at that address is to be told from now on.

        Raises ParameterIllegalError, ClientsFullError.
        """
        return self._streams.open(client_id, address)

    @property
    def listener_count(self) -> int:
        """How many clients have a stream of notices."""
        return len(self._streams)

    def close_notices(self, stream: ClientStream) -> None:
        """The stream has ended; a client that has no other is gone, and leaves its groups."""
        if not self._streams.close(stream):
            return
        for group in self._members.groups_of(stream.client_id):
            self._members.remove(group, stream.client_id)
            self._left(Registration(group, stream.client_id), is_told=True)

    # --- Who is there ---

    def member_ids(self, group: str) -> list[str]:
        """Returns the clients of a consumer group, in order. Raises ParameterIllegalError, NoConsumerError.

        A group has so few that they can be sorted in one go.
        """
        check_group(group)
        found = sorted(self._members.members(consumers_of(group)))
        if not found:
            raise NoConsumerError(group)
        return found

    def member_count(self, group: str) -> int:
        """How many clients a consumer group has."""
        return len(self._members.members(consumers_of(group)))

    @property
    def client_count(self) -> int:
        """How many clients are in any group."""
        return self._members.client_count

    def registered_ids(self) -> list[str]:
        """Returns the ids of all clients, in no order."""
        return self._members.client_ids()

    def registrations(self, client_id: str) -> list[tuple[GroupKey, Member]]:
        """Returns the groups that a client is in, and what is known of it in each."""
        return [
            (group, self._members.members(group)[client_id])
            for group in self._members.groups_of(client_id)
        ]

    def connections(self, group: GroupKey) -> list[Member]:
        """Returns the clients of a group by id, or none. Raises ParameterIllegalError."""
        check_group(group.name, f"{group.role.value}_group")
        return sorted(self._members.members(group).values(), key=lambda member: member.client_id)

    def groups_of(self, client_id: str) -> list[GroupKey]:
        """Returns the groups that a client is in."""
        return self._members.groups_of(client_id)

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """How the group consumes; None where it has no clients."""
        return self.consumers.get(group)

    def notify_one_producer(self, notice: CheckTransaction) -> bool:
        """Sends a notice to one client of its producer group, another each time.

        Returns False where none listens, or all that do have too many notices waiting.
        """

        def is_taken(client_id: str) -> bool:
            stream = self._streams.get(client_id)
            return stream is not None and stream.offer(notice)

        return self.producers.ask_one(notice.group, is_taken)
