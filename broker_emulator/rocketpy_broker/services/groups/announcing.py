"""Telling the members of a group that it has changed, without holding up anybody else.

Lives in memory only. Changes that come while members are being told are told together, and the
telling of one group takes turns with all other work. Rows G02, B08.
Prior art: DefaultConsumerIdsChangeListener, spec/broker_behaviour.md section 4.4, which tells the
members within the heartbeat that brings the change, one call after the other.
"""

from __future__ import annotations

import asyncio

from rocketpy_broker.clock import give_way
from rocketpy_broker.services.groups.consumers import consumers_of
from rocketpy_broker.services.groups.members import MemberTable
from rocketpy_broker.services.groups.notices import NoticeStreams

MEMBERS_A_TURN = 1_000


class Announcer:
    """Groups whose members are to be told."""

    def __init__(self, members: MemberTable, streams: NoticeStreams) -> None:
        self._members = members
        self._streams = streams
        self._changed: dict[str, None] = {}
        self._news = asyncio.Event()

    def changed(self, group: str) -> None:
        """Tell all members of a consumer group, at the next turn."""
        self._changed[group] = None
        self._news.set()

    async def run(self) -> None:
        """Tell, for ever."""
        left = MEMBERS_A_TURN
        while True:
            await self._news.wait()
            self._news.clear()
            groups, self._changed = self._changed, {}
            for group in groups:
                # At least a step for each group, also where nobody listens.
                for client_id in [*self._members.members(consumers_of(group)), ""]:
                    self._tell(client_id, group)
                    left -= 1
                    if not left:
                        left = MEMBERS_A_TURN
                        await give_way()

    def _tell(self, client_id: str, group: str) -> None:
        stream = self._streams.get(client_id)
        # The client may have left while others were told.
        if stream is not None and client_id in self._members.members(consumers_of(group)):
            stream.tell_changed(group)
