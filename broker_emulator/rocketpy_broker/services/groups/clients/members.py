"""Table of the clients in producer and consumer groups.

State: in memory only; clients return with their next heartbeat after a crash. The time of each
step does not depend on the number of clients: expiry reads only the oldest registrations.
The client id identifies a client: two connections with one id are one member.
Source: ProducerManager, ConsumerManager, docs/design/broker_behaviour.md sections 4.1 and 4.7.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import NamedTuple

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import ClientsFullError, ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import Shares
from rocketpy_proto.model.codes import Language
from rocketpy_proto.remoting import PROTOCOL_VERSION

# A client without a heartbeat for longer has expired.
EXPIRY_MS = 120_000
_TRY_LATER = "unregister clients that are not needed, or try again later"


class ClientRole(Enum):
    """The role of a client in a group."""

    CONSUMER = "consumer"
    PRODUCER = "producer"


class GroupKey(NamedTuple):
    """A group; consumers and producers of one name are two groups."""

    role: ClientRole
    name: str


class MemberRegistration(NamedTuple):
    """A client in a group."""

    group: GroupKey
    client_id: str


class ClientVersion(NamedTuple):
    """The language of a client, and the version of its library in RocketMQ's numbers."""

    language: Language = Language.PYTHON
    number: int = PROTOCOL_VERSION


# The version of clients that do not send one: clients of our own protocol.
OWN_VERSION = ClientVersion()


@dataclass(slots=True)
class Member:
    """A client of one group; `last_update_ms` is since 1970, `seen_ms` is monotonic."""

    client_id: str
    address: str
    last_update_ms: int
    seen_ms: float
    version: ClientVersion = OWN_VERSION


def check_client_id(client_id: str, limits: ClientLimits) -> None:
    """Raises ParameterIllegalError for an illegal client id."""
    size = len(client_id.encode())
    if not (0 < size <= limits.client_id_bytes_max and client_id.isprintable()):
        accepted = f"1 to {limits.client_id_bytes_max} bytes of printable characters"
        # A longer text does not help the reader.
        shown = client_id[: limits.client_id_bytes_max]
        raise ParameterIllegalError("client_id", shown, accepted)


class MemberTable:
    """Groups -> clients, clients -> groups, and all registrations by age."""

    def __init__(self, clock: Clock, limits: ClientLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._groups: dict[GroupKey, OrderedDict[str, Member]] = {}
        self._groups_of: dict[str, dict[GroupKey, None]] = {}
        self._by_age: OrderedDict[MemberRegistration, Member] = OrderedDict()
        self._counts = dict.fromkeys(ClientRole, 0)
        self._shares = Shares(limits.registrations_per_connection_max)

    def __len__(self) -> int:
        return len(self._by_age)

    @property
    def client_count(self) -> int:
        """The number of clients in any group."""
        return len(self._groups_of)

    def is_registered(self, client_id: str) -> bool:
        """True if a client is in any group."""
        return client_id in self._groups_of

    def registration_count(self, role: ClientRole) -> int:
        """Returns the registrations of a role; a client counts once for each of its groups."""
        return self._counts[role]

    def client_ids(self) -> list[str]:
        """Returns the clients in any group, unsorted."""
        return list(self._groups_of)

    def members(self, group: GroupKey) -> Mapping[str, Member]:
        """Returns the members by client id; empty if the group does not exist."""
        return self._groups.get(group, {})

    def groups_of(self, client_id: str) -> list[GroupKey]:
        """Returns the groups of a client."""
        return list(self._groups_of.get(client_id, ()))

    def check_space(self, client_id: str, groups: Sequence[GroupKey], address: str) -> None:
        """Raises ClientsFullError if the client could not join all of these groups."""
        limits, known = self._limits, self._groups_of.get(client_id, {})
        new = [group for group in groups if group not in known]
        if not known and new and self.client_count >= limits.clients_max:
            raise ClientsFullError("the number of clients", limits.clients_max, _TRY_LATER)
        if len(known) + len(new) > limits.groups_per_client_max:
            name = f"the number of groups of client {client_id!r}"
            way_out = "unregister it from groups that are not needed, or use several client ids"
            raise ClientsFullError(name, limits.groups_per_client_max, way_out)
        if len(self._by_age) + len(new) > limits.registrations_max:
            raise ClientsFullError(
                "the number of registrations", limits.registrations_max, _TRY_LATER
            )
        if new and not self._shares.has_space(address, len(new)):
            name = f"the number of registrations of the connection {address}"
            raise ClientsFullError(name, self._shares.connection_max, _TRY_LATER)
        for group in new:
            if len(self.members(group)) >= limits.members_per_group_max:
                name = f"the number of clients of {group.role.value} group {group.name!r}"
                raise ClientsFullError(name, limits.members_per_group_max, _TRY_LATER)

    def register(
        self,
        group: GroupKey,
        client_id: str,
        address: str,
        version: ClientVersion = OWN_VERSION,
    ) -> bool:
        """Registers the client in the group; returns True if it is a new member.

        The caller has called `check_space`.
        """
        now_ms, seen_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        registration = MemberRegistration(group, client_id)
        member = self._by_age.get(registration)
        if member is not None:
            self._shares.change(member.address, -1)
            self._shares.change(address, 1)
            member.address, member.version = address, version
            member.last_update_ms, member.seen_ms = now_ms, seen_ms
            self._by_age.move_to_end(registration)
            return False
        member = Member(client_id, address, now_ms, seen_ms, version)
        self._by_age[registration] = member
        self._groups.setdefault(group, OrderedDict())[client_id] = member
        self._groups_of.setdefault(client_id, {})[group] = None
        self._counts[group.role] += 1
        self._shares.change(address, 1)
        return True

    def remove(self, group: GroupKey, client_id: str) -> bool:
        """Removes the client from the group; returns False if it was not a member."""
        member = self._by_age.pop(MemberRegistration(group, client_id), None)
        if member is None:
            return False
        self._shares.change(member.address, -1)
        self._counts[group.role] -= 1
        members, groups = self._groups[group], self._groups_of[client_id]
        del members[client_id], groups[group]
        if not members:
            del self._groups[group]
        if not groups:
            del self._groups_of[client_id]
        return True

    def take_expired(self, count_max: int) -> list[MemberRegistration]:
        """Removes expired registrations, at most `count_max`, and returns them."""
        oldest_ms = self._clock.monotonic_ms() - EXPIRY_MS
        expired: list[MemberRegistration] = []
        for registration, member in islice(self._by_age.items(), count_max):
            if member.seen_ms >= oldest_ms:
                break
            expired.append(registration)
        for registration in expired:
            self.remove(*registration)
        return expired

    def rotate(self, group: GroupKey) -> str:
        """Returns the first member of the group and moves it to the end."""
        members = self._groups[group]
        client_id = next(iter(members))
        members.move_to_end(client_id)
        return client_id
