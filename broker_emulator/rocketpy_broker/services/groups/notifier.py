"""Notifications of changes to the members of a consumer group.

State: groups with a pending notification, in memory only. Changes during a notification are
combined into the next one. The notifier takes a scheduler slot after each MEMBERS_A_SLOT members.
A large group rests after a notification. Otherwise 1,000 members that join one after the other
would receive 500,000 notices.
Prior art: DefaultConsumerIdsChangeListener, docs/design/broker_behaviour.md section 4.4, which
notifies the members one by one within the heartbeat that brings the change.
"""

from __future__ import annotations

import asyncio

from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.groups.client_stream import ClientStreams
from rocketpy_broker.services.groups.clients.consumers import consumers_of
from rocketpy_broker.services.groups.clients.members import MemberTable

# A notice costs the loop up to 40 microseconds, most of them when it is written.
MEMBERS_A_SLOT = 100
# A group of more than `MEMBERS_A_SLOT` members rests after a notification, up to REST_MS_MAX. Its
# rest is this time multiplied by the number of members of all resting groups.
REST_MS_EACH = 0.5
# RocketMQ's clients query the members every 20 seconds.
REST_MS_MAX = 20_000


class Notifier:
    """Notifier of the members of changed groups, and the groups that it has yet to notify."""

    def __init__(self, members: MemberTable, streams: ClientStreams, clock: Clock) -> None:
        self._members = members
        self._streams = streams
        self._clock = clock
        # By changed group, the member that already has the notice, or an empty id.
        self._changed: dict[str, str] = {}
        # True: the group has changed since the start of its rest.
        self._resting: dict[str, bool] = {}
        self._resting_members = 0
        self._news = asyncio.Event()

    def changed(self, group: str, first: str = "") -> None:
        """Schedules notices to all members of a consumer group, after the group's rest if any.

        `first` is the id of a member that gets the notice at once.
        """
        if group in self._resting:
            self._resting[group] = True
            return
        is_known = group in self._changed
        has_first = bool(first) and self._notify(first, group)
        self._changed[group] = first if has_first and not is_known else ""
        self._news.set()

    async def run(self) -> None:
        """Notifies members until cancelled."""
        left = MEMBERS_A_SLOT
        async with TaskScope() as scope:
            while True:
                await self._news.wait()
                self._news.clear()
                groups, self._changed = self._changed, {}
                for group, first in groups.items():
                    members = list(self._members.members(consumers_of(group)))
                    if len(members) > MEMBERS_A_SLOT:
                        self._resting[group] = False
                        scope.start(self._rest(group, len(members)))
                    # The empty id counts one step also for a group without members.
                    for client_id in [*members, ""]:
                        if client_id != first:
                            self._notify(client_id, group)
                        left -= 1
                        if not left:
                            left = MEMBERS_A_SLOT
                            await take_slot()

    async def _rest(self, group: str, count: int) -> None:
        self._resting_members += count
        await sleep(self._clock, min(REST_MS_MAX, REST_MS_EACH * self._resting_members))
        self._resting_members -= count
        if self._resting.pop(group):
            self.changed(group)

    def _notify(self, client_id: str, group: str) -> bool:
        """Notifies a member; returns False if it has no stream."""
        stream = self._streams.get(client_id)
        # The client may have left during the notification of its group.
        if stream is not None and client_id in self._members.members(consumers_of(group)):
            stream.notify_changed(group)
            return True
        return False
