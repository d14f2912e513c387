"""Expiry of silent clients and of queue locks, every ten seconds.

Each scheduler slot takes the oldest entries only. So the delay of other calls does not grow with
the number of clients. Source: ClientHousekeepingService, docs/design/broker_behaviour.md
section 4.7; unlike RocketMQ, this broker notifies the rest of the group.
"""

from __future__ import annotations

import logging

from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.groups.clients.members import MemberTable
from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_broker.services.groups.locks import QueueLocks
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
INTERVAL_MS = 10_000
ENTRIES_A_SLOT = 500


class ClientExpiry:
    """The periodic task that expires clients and locks."""

    def __init__(
        self, clock: Clock, members: MemberTable, clients: ClientService, locks: QueueLocks
    ) -> None:
        self._clock = clock
        self._members = members
        self._clients = clients
        self._locks = locks

    async def run(self) -> None:
        """Expires clients and locks at intervals until cancelled."""
        while True:
            await sleep(self._clock, INTERVAL_MS)
            await self.clean()

    async def clean(self) -> None:
        """Removes the registrations and locks that have expired by now."""
        count = 0
        while expired := self._members.take_expired(ENTRIES_A_SLOT):
            self._clients.expired(expired)
            count += len(expired)
            await take_slot()
        if count:
            logger.info("dropped %s of silent clients", counted(count, "registration"))
        while self._locks.drop_expired(ENTRIES_A_SLOT):
            await take_slot()
