"""Producer groups: selection of the next client for a request.

The order of a group's members in `MemberTable` is the order of selection.
Source: ProducerManager#getAvailableChannel, docs/design/broker_behaviour.md sections 4.2 and 7.6.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketpy_broker.services.groups.clients.members import (
    OWN_VERSION,
    ClientRole,
    ClientVersion,
    GroupKey,
    MemberTable,
)

# Clients asked by one call; the next call continues after them.
CLIENTS_ASKED_MAX = 1_000


def producers_of(group: str) -> GroupKey:
    """Returns the producer group of that name."""
    return GroupKey(ClientRole.PRODUCER, group)


class ProducerGroups:
    """Producer groups with clients, by name."""

    def __init__(self, members: MemberTable) -> None:
        self._members = members

    def register(
        self, group: str, client_id: str, address: str, version: ClientVersion = OWN_VERSION
    ) -> None:
        """Registers the client in the group. The caller has called `check_space`."""
        self._members.register(producers_of(group), client_id, address, version)

    def ask_one(self, group: str, ask: Callable[[str], bool]) -> bool:
        """Asks clients in turn until one accepts; returns False if none does.

        A client is asked again only after all other clients of the group.
        """
        key = producers_of(group)
        count = min(len(self._members.members(key)), CLIENTS_ASKED_MAX)
        return any(ask(self._members.rotate(key)) for _ in range(count))
