"""Every ten seconds: clients that were silent for too long go, and so do locks that are over.

Holds no state. Each turn takes the oldest entries only, so the time that others wait does not grow
with the number of clients. Source: ClientHousekeepingService, docs/design/broker_behaviour.md
section 4.7; unlike there, the rest of the group is told.
"""

from __future__ import annotations

import logging

from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.groups.clients.members import MemberTable
from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_broker.services.groups.locks import QueueLocks

logger = logging.getLogger(__name__)
INTERVAL_MS = 10_000
ENTRIES_A_TURN = 500


class ClientExpiry:
    """Looks after clients and locks."""

    def __init__(
        self, clock: Clock, members: MemberTable, clients: ClientService, locks: QueueLocks
    ) -> None:
        self._clock = clock
        self._members = members
        self._clients = clients
        self._locks = locks

    async def run(self) -> None:
        """Looks at intervals, for ever."""
        while True:
            await sleep(self._clock, INTERVAL_MS)
            await self.clean()

    async def clean(self) -> None:
        """Let go what is over now."""
        count = 0
        while expired := self._members.take_expired(ENTRIES_A_TURN):
            self._clients.expired(expired)
            count += len(expired)
            await take_slot()
        if count:
            logger.info("%d registrations of silent clients have expired", count)
        while self._locks.drop_expired(ENTRIES_A_TURN):
            await take_slot()
