"""Producer groups: which of their clients is asked next.

Holds no state; the members of a group stand in the order in which they are asked.
Source: ProducerManager#getAvailableChannel, docs/design/broker_behaviour.md sections 4.2 and 7.6.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketpy_broker.services.groups.clients.members import GroupKey, MemberTable, Role

# By one call; the next call goes on behind them.
CLIENTS_ASKED_MAX = 1_000


def producers_of(group: str) -> GroupKey:
    """Returns the producer group of that name."""
    return GroupKey(Role.PRODUCER, group)


class ProducerGroups:
    """Producer groups with clients, by name."""

    def __init__(self, members: MemberTable) -> None:
        self._members = members

    def register(self, group: str, client_id: str, address: str) -> None:
        """Let the client be in the group from now on. The caller has asked `check_room`."""
        self._members.register(producers_of(group), client_id, address)

    def ask_one(self, group: str, ask: Callable[[str], bool]) -> bool:
        """Asks clients in turn until one takes it; return whether one did.

        Who was asked is asked again when all the others were.
        """
        key = producers_of(group)
        count = min(len(self._members.members(key)), CLIENTS_ASKED_MAX)
        return any(ask(self._members.rotate(key)) for _ in range(count))
