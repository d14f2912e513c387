"""Scheduler slots beside many clients: other work runs. Work is counted, not timed."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.groups.client_stream import ClientStreams
from rocketpy_broker.services.groups.clients.consumers import ConsumerData, consumers_of
from rocketpy_broker.services.groups.clients.expiry import ENTRIES_A_SLOT, ClientExpiry
from rocketpy_broker.services.groups.clients.members import EXPIRY_MS, MemberTable
from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_broker.services.groups.locks import LOCK_MS, QueueLocks
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.groups.notifier import (
    MEMBERS_A_SLOT,
    REST_MS_EACH,
    REST_MS_MAX,
    Notifier,
)
from rocketpy_broker.services.groups.retry_topics import RetryTopics
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from tests.support.broker.clients.group_clients import changed
from tests.support.broker.event_loop import most_in_a_pass, passes

CLIENTS, GROUPS = 100_000, 10


class Room:
    """The wiring of groups without a broker around it."""

    def __init__(self, folder: Path) -> None:
        self.clock, limits = ManualClock(), ClientLimits()
        self.members = MemberTable(self.clock, limits)
        self.streams = ClientStreams(limits)
        self.announcer = Notifier(self.members, self.streams, self.clock)
        self.locks = QueueLocks(self.clock, limits)
        self.clients = ClientService(
            SubscriptionGroupManager(folder, self.clock),
            RetryTopics(TopicConfigManager(folder, self.clock, "c", "b"), self.clock),
            self.members,
            self.streams,
            self.announcer,
            limits,
            self.clock,
        )
        self.housekeeping = ClientExpiry(self.clock, self.members, self.clients, self.locks)

    def join(self, number: int) -> None:
        data = ConsumerData(
            f"g{number % GROUPS}",
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            (),
        )
        self.clients.consumers.register(data, f"c{number}", "host:1")


async def test_b08_a_hundred_thousand_clients_expire_a_few_at_a_time(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for number in range(CLIENTS):
        room.join(number)
    room.clock.advance(EXPIRY_MS + 1)
    expiring = asyncio.ensure_future(room.housekeeping.clean())
    most = await most_in_a_pass(expiring, lambda: -len(room.members))
    assert most == ENTRIES_A_SLOT
    assert len(room.members) == room.members.client_count == 0
    assert room.clients.consumers.get("g0") is None


async def test_b08_clients_that_are_alive_are_not_looked_at(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for number in range(1_000):
        room.join(number)
    room.clock.advance(EXPIRY_MS)
    room.join(0)
    room.clock.advance(1)
    assert len(room.members.take_expired(10_000)) == 999
    room.clock.advance(EXPIRY_MS - 1)
    assert room.members.take_expired(10_000) == []


async def test_g04_locks_that_are_over_go_a_few_at_a_time(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for number in range(10):
        queues = [QueueKey("T", number * 1_000 + each) for each in range(1_000)]
        room.locks.lock("g", "c1", queues)
    room.clock.advance(LOCK_MS + 1)
    expiring = asyncio.ensure_future(room.housekeeping.clean())
    most = await most_in_a_pass(expiring, lambda: -len(room.locks))
    assert (most, len(room.locks)) == (ENTRIES_A_SLOT, 0)


async def test_g02_members_are_told_a_few_at_a_time(tmp_path: Path) -> None:
    room = Room(tmp_path)
    count = 10 * 10_000
    for number in range(count):
        room.join(number)
    opened = [room.streams.open(f"c{number}") for number in range(0, count, GROUPS)]
    told: list[int] = []

    async def wait() -> None:
        await opened[-1].next()

    announcing = asyncio.ensure_future(room.announcer.run())
    for number in range(GROUPS):
        room.announcer.changed(f"g{number}")
    waiting = asyncio.ensure_future(wait())
    while not waiting.done():
        told.append(sum(bool(stream._changed) for stream in opened))
        await asyncio.sleep(0)
    announcing.cancel()
    steps = [later - earlier for earlier, later in pairwise(told)]
    assert 0 < max(steps) <= MEMBERS_A_SLOT
    assert len([step for step in steps if step]) >= 9


async def test_g02_a_member_that_leaves_while_others_are_told_is_not(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for number in range(0, 3 * GROUPS * MEMBERS_A_SLOT, GROUPS):
        room.join(number)
    members = list(room.members.members(consumers_of("g0")))
    first, last = room.streams.open(members[0]), room.streams.open(members[-1])
    announcing = asyncio.ensure_future(room.announcer.run())
    room.announcer.changed("g0")
    assert await first.next() == changed("g0")
    room.clients.unregister(members[-1], "", "g0")
    for _ in range(10):
        await asyncio.sleep(0)
    announcing.cancel()
    assert not last._changed


async def test_g02_members_that_join_one_by_one_hear_of_few_changes(tmp_path: Path) -> None:
    room = Room(tmp_path)
    count = 10 * MEMBERS_A_SLOT
    heard = [0] * count
    streams = [room.streams.open(f"c{number * GROUPS}") for number in range(count)]

    async def listen(number: int) -> None:
        while await streams[number].next() is not None:
            heard[number] += 1

    async with TaskScope() as scope:
        for number in range(count):
            scope.start(listen(number))
        announcing = asyncio.ensure_future(room.announcer.run())
        for number in range(count):
            room.join(number * GROUPS)
            room.announcer.changed("g0")
            await passes(5)
        assert sum(heard) < 10 * count
        before = list(heard)
        # All have joined since the last notices; the group rests until all are notified.
        room.clock.advance(int(REST_MS_EACH * count))
        await passes(10 * MEMBERS_A_SLOT)
        assert {later - earlier for earlier, later in zip(before, heard, strict=True)} == {1}
        room.clock.advance(REST_MS_MAX)
        await passes(5)
        assert sum(heard) == sum(before) + count
        announcing.cancel()
        room.streams.stop()


async def test_g02_a_small_group_is_told_each_time_while_a_large_one_rests(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for number in range(0, GROUPS * (MEMBERS_A_SLOT + 1), GROUPS):
        room.join(number)
    room.join(1)
    large, small = room.streams.open("c0"), room.streams.open("c1")
    announcing = asyncio.ensure_future(room.announcer.run())
    room.announcer.changed("g0")
    assert await large.next() == changed("g0")
    for _ in range(3):
        room.announcer.changed("g0")
        room.announcer.changed("g1")
        assert await small.next() == changed("g1")
    assert not large._changed
    room.clock.advance(MEMBERS_A_SLOT)
    assert await large.next() == changed("g0")
    announcing.cancel()
