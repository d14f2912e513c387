"""Locks and members against plain lists: the same steps, and never a difference.

The steps move a clock. The models keep everything and look at all of it. What the tables forget,
and the order of their look-ups, must not show.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import ClientsFullError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.groups.clients.members import (
    ClientRole,
    GroupKey,
    MemberRegistration,
    MemberTable,
)
from rocketpy_broker.services.groups.locks import QueueLocks
from rocketpy_broker.store.values import QueueKey

EXAMPLES = 200
STEPS = 60
LOCKS_MAX = 8
CLIENTS_MAX, REGISTRATIONS_MAX, MEMBERS_MAX, GROUPS_MAX = 4, 9, 3, 3
CONNECTION_MAX = 5
QUEUES = [QueueKey("T", queue_id) for queue_id in range(4)] + [QueueKey("U", 0)]

groups = st.sampled_from(["g", "h"])
clients = st.sampled_from(["c1", "c2", "c3"])
queues = st.lists(st.sampled_from(QUEUES), max_size=5)
# Around the times that matter, and a little.
delays = st.sampled_from([1, 10_000, 59_999, 60_000, 60_001, 119_999, 120_000, 120_001])


@dataclass
class Held:
    """A lock, expired or not."""

    group: str
    queue: QueueKey
    client_id: str
    last_ms: float


class LocksAndList(RuleBasedStateMachine):
    """Queue locks, and the list of all locks ever taken and not released."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.locks = QueueLocks(self.clock, ClientLimits(locks_max=LOCKS_MAX))
        self.held: list[Held] = []

    def live(self) -> list[Held]:
        now_ms = self.clock.monotonic_ms()
        return [held for held in self.held if now_ms - held.last_ms <= 60_000]

    @rule(group=groups, client_id=clients, wanted=queues)
    def lock(self, group: str, client_id: str, wanted: list[QueueKey]) -> None:
        taken = {held.queue: held.client_id for held in self.live() if held.group == group}
        expected = [
            queue for queue in dict.fromkeys(wanted) if taken.get(queue, client_id) == client_id
        ]
        try:
            found = self.locks.lock(group, client_id, wanted)
        except ClientsFullError:
            new = [queue for queue in expected if queue not in taken]
            assert len(self.held) + len(new) > LOCKS_MAX
            return
        assert found == expected
        now_ms = self.clock.monotonic_ms()
        self.held = [
            held for held in self.held if held.group != group or held.queue not in expected
        ]
        self.held += [Held(group, queue, client_id, now_ms) for queue in expected]

    @rule(group=groups, client_id=clients, given_back=queues)
    def unlock(self, group: str, client_id: str, given_back: list[QueueKey]) -> None:
        self.locks.unlock(group, client_id, given_back)
        self.held = [
            held
            for held in self.held
            if (held.group, held.client_id) != (group, client_id) or held.queue not in given_back
        ]

    @rule(delay_ms=delays)
    def wait(self, delay_ms: int) -> None:
        self.clock.advance(delay_ms)

    @rule(delta_ms=st.integers(-1_000_000, 1_000_000))
    def set_clock(self, delta_ms: int) -> None:
        self.clock.jump(delta_ms)

    @rule(count=st.integers(1, 4))
    def keep_house(self, count: int) -> None:
        before = len(self.locks)
        dropped = self.locks.drop_expired(count)
        assert dropped <= count
        assert len(self.locks) == before - dropped
        if dropped < count:
            self.held = self.live()
            assert len(self.locks) == len(self.held)

    @invariant()
    def nothing_that_counts_is_forgotten(self) -> None:
        assert len(self.live()) <= len(self.locks) <= min(len(self.held), LOCKS_MAX)


@dataclass
class Joined:
    """A client in a group since its last heartbeat."""

    group: GroupKey
    client_id: str
    address: str
    seen_ms: float
    update_ms: int


keys = st.builds(GroupKey, st.sampled_from(ClientRole), groups)
many_clients = st.sampled_from([f"c{number}" for number in range(6)])


class MembersAndList(RuleBasedStateMachine):
    """Members of groups, and the list of all registrations."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        limits = ClientLimits(
            clients_max=CLIENTS_MAX,
            registrations_max=REGISTRATIONS_MAX,
            registrations_per_connection_max=CONNECTION_MAX,
            members_per_group_max=MEMBERS_MAX,
            groups_per_client_max=GROUPS_MAX,
        )
        self.table = MemberTable(self.clock, limits)
        self.joined: list[Joined] = []

    def has_space(self, client_id: str, new: list[GroupKey], address: str) -> bool:
        ids = {each.client_id for each in self.joined}
        mine = sum(each.client_id == client_id for each in self.joined)
        sizes = [sum(each.group == group for each in self.joined) for group in new]
        return (
            len(ids | {client_id}) <= CLIENTS_MAX
            and len(self.joined) + len(new) <= REGISTRATIONS_MAX
            and mine + len(new) <= GROUPS_MAX
            and sum(each.address == address for each in self.joined) + len(new) <= CONNECTION_MAX
            and all(size < MEMBERS_MAX for size in sizes)
        )

    @rule(
        client_id=many_clients,
        wanted=st.lists(keys, min_size=1, max_size=3, unique=True),
        address=st.sampled_from(["host:1", "host:2", "host:3"]),
    )
    def join(self, client_id: str, wanted: list[GroupKey], address: str) -> None:
        mine = {each.group for each in self.joined if each.client_id == client_id}
        new = [group for group in wanted if group not in mine]
        try:
            self.table.check_space(client_id, wanted, address)
        except ClientsFullError:
            assert new
            assert not self.has_space(client_id, new, address)
            return
        assert not new or self.has_space(client_id, new, address)
        for group in wanted:
            assert self.table.register(group, client_id, address) == (group in new)
            self.joined = [
                each for each in self.joined if (each.group, each.client_id) != (group, client_id)
            ]
            seen_ms, now_ms = self.clock.monotonic_ms(), self.clock.now_ms()
            self.joined.append(Joined(group, client_id, address, seen_ms, now_ms))

    @rule(client_id=many_clients, group=keys)
    def leave(self, client_id: str, group: GroupKey) -> None:
        kept = [each for each in self.joined if (each.group, each.client_id) != (group, client_id)]
        assert self.table.remove(group, client_id) == (len(kept) < len(self.joined))
        self.joined = kept

    @rule(delay_ms=delays)
    def wait(self, delay_ms: int) -> None:
        self.clock.advance(delay_ms)

    @rule(delta_ms=st.integers(-1_000_000, 1_000_000))
    def set_clock(self, delta_ms: int) -> None:
        self.clock.jump(delta_ms)

    @rule(count=st.integers(1, 4))
    def expire(self, count: int) -> None:
        now_ms = self.clock.monotonic_ms()
        # The list is in the order of heartbeats.
        over = [each for each in self.joined if now_ms - each.seen_ms > 120_000][:count]
        found = self.table.take_expired(count)
        assert found == [MemberRegistration(each.group, each.client_id) for each in over]
        self.joined = [each for each in self.joined if each not in over]

    @rule(group=keys)
    def take_turns(self, group: GroupKey) -> None:
        members = list(self.table.members(group))
        if members:
            assert [self.table.rotate(group) for _ in members] == members
            assert self.table.rotate(group) == members[0]

    @invariant()
    def both_know_the_same(self) -> None:
        assert len(self.table) == len(self.joined)
        assert self.table.client_count == len({each.client_id for each in self.joined})
        by_group: dict[GroupKey, dict[str, tuple[str, int]]] = {}
        by_client: dict[str, set[GroupKey]] = {}
        for each in self.joined:
            entry = each.address, each.update_ms
            by_group.setdefault(each.group, {})[each.client_id] = entry
            by_client.setdefault(each.client_id, set()).add(each.group)
        for role in ClientRole:
            count = sum(each.group.role is role for each in self.joined)
            assert self.table.registration_count(role) == count
            for name in ("g", "h"):
                group = GroupKey(role, name)
                found = {
                    client_id: (member.address, member.last_update_ms)
                    for client_id, member in self.table.members(group).items()
                }
                assert found == by_group.get(group, {})
        for number in range(6):
            found_groups = self.table.groups_of(f"c{number}")
            assert set(found_groups) == by_client.get(f"c{number}", set())
            assert len(found_groups) == len(set(found_groups))


def test_g04_locks_are_those_of_the_model() -> None:
    run_state_machine_as_test(
        LocksAndList, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
    )


def test_g01_g03_b08_members_are_those_of_the_model() -> None:
    run_state_machine_as_test(
        MembersAndList, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
    )
