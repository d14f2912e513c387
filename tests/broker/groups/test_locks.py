"""Queue locks through real gRPC: one owner each, for sixty seconds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from rocketpy_broker.config import ClientLimits, Limits
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.groups.locks import LOCK_MS, QueueLocks
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import common_pb2, groups_pb2
from tests.support.broker.clients.group_clients import listening, lock, lock_response
from tests.support.broker.running_broker import RunningBroker, StartBroker, another_connection


async def unlock(
    running: RunningBroker,
    client_id: str,
    queue_ids: Sequence[int],
    group: str = "g",
    topic: str = "T",
) -> common_pb2.Status:
    queues = [groups_pb2.LockedQueue(topic=topic, queue_id=each) for each in queue_ids]
    request = groups_pb2.UnlockQueuesRequest(
        consumer_group=group, client_id=client_id, queues=queues
    )
    response: groups_pb2.UnlockQueuesResponse = await running.groups.UnlockQueues(request)
    return response.status


async def test_g04_a_queue_has_one_owner_in_a_group(running: RunningBroker) -> None:
    assert await lock(running, "c1", [0, 1, 1]) == [0, 1]
    assert await lock(running, "c2", [1, 2]) == [2]
    assert await lock(running, "c2", [0, 1], "other") == [0, 1]
    other_topic = await lock_response(running, "c2", [0], topic="U")
    assert list(other_topic.queues) == [groups_pb2.LockedQueue(topic="U", queue_id=0)]
    assert await lock(running, "c1", [0, 1, 2]) == [0, 1]
    assert await lock(running, "c1", []) == []


async def test_g04_fifty_concurrent_lockers_of_a_hundred_queues_get_one_owner_each(
    running: RunningBroker,
) -> None:
    chance = random.Random(4)

    async def locker(number: int) -> list[int]:
        owned: set[int] = set()
        wanted = list(range(100))
        for _ in range(5):
            chance.shuffle(wanted)
            parts = [wanted[begin : begin + 10] for begin in range(0, 100, 10)]
            found = await asyncio.gather(*(lock(running, f"c{number}", part) for part in parts))
            assert owned <= {each for part in found for each in part}
            owned.update(each for part in found for each in part)
        return sorted(owned)

    owners = await asyncio.gather(*map(locker, range(50)))
    assert sorted(each for owned in owners for each in owned) == list(range(100))


async def test_g04_a_lock_is_free_for_others_when_its_time_is_over(running: RunningBroker) -> None:
    assert await lock(running, "c1", [0]) == [0]
    running.clock.advance(LOCK_MS)
    assert await lock(running, "c2", [0]) == []
    running.clock.advance(1)
    assert await lock(running, "c2", [0]) == [0]
    assert await lock(running, "c1", [0]) == []


async def test_g04_the_owner_renews_its_lock(running: RunningBroker) -> None:
    for _ in range(5):
        assert await lock(running, "c1", [0]) == [0]
        running.clock.advance(50_000)
        assert await lock(running, "c2", [0]) == []
    running.clock.advance(50_000)
    assert await lock(running, "c2", [0]) == [0]


async def test_g04_a_clock_that_is_set_frees_no_lock(running: RunningBroker) -> None:
    assert await lock(running, "c1", [0]) == [0]
    running.clock.jump(10 * LOCK_MS)
    assert await lock(running, "c2", [0]) == []


async def test_g04_unlocking_gives_back_ones_own_only(running: RunningBroker) -> None:
    await lock(running, "c1", [0, 1])
    assert (await unlock(running, "c2", [0, 1, 5])).code == 0
    assert await lock(running, "c2", [0, 1]) == []
    assert (await unlock(running, "c1", [0])).code == 0
    assert await lock(running, "c2", [0, 1]) == [0]
    assert (await unlock(running, "c1", [1], "other")).code == 0
    assert (await unlock(running, "c1", [1], topic="U")).code == 0
    assert await lock(running, "c2", [1]) == []


async def test_g04_a_client_that_goes_away_keeps_its_locks_for_their_time(
    running: RunningBroker,
) -> None:
    async with listening(running, "c1"):
        assert await lock(running, "c1", [0]) == [0]
    assert await lock(running, "c2", [0]) == []
    running.clock.advance(LOCK_MS + 1)
    assert await lock(running, "c2", [0]) == [0]


BAD_LOCKS = [
    pytest.param("", "g", "T", [0], "client_id is ''", id="no client id"),
    pytest.param("c" * 256, "g", "T", [0], "1 to 255 bytes", id="long client id"),
    pytest.param("c1", "", "T", [0], "consumer_group is ''", id="no group"),
    pytest.param("c1", "a b", "T", [0], "consumer_group is 'a b'", id="group name"),
    pytest.param("c1", "g" * 121, "T", [0], "1 to 120 of the", id="long group"),
    pytest.param("c1", "g", "", [0], "topic is ''", id="no topic"),
    pytest.param("c1", "g", "a b", [0], "topic is 'a b'", id="topic name"),
    pytest.param("c1", "g", "T" * 128, [0], "1 to 127 of the", id="long topic"),
    pytest.param("c1", "g", "T", [1, -1], "queue_id is -1", id="queue id"),
    pytest.param("c1", "g", "T", range(1_001), "number of queues is 1001", id="many queues"),
]


@pytest.mark.parametrize(("client_id", "group", "topic", "queue_ids", "said"), BAD_LOCKS)
async def test_g04_a_bad_request_locks_and_unlocks_nothing(
    client_id: str,
    group: str,
    topic: str,
    queue_ids: Sequence[int],
    said: str,
    running: RunningBroker,
) -> None:
    locked = await lock_response(running, client_id, queue_ids, group, topic)
    unlocked = await unlock(running, client_id, queue_ids, group, topic)
    assert unlocked == locked.status
    assert locked.status.code == ResponseCode.INVALID_PARAMETER
    assert said in locked.status.remark
    assert len(running.broker.services.groups.locks) == 0


async def test_g04_only_so_many_locks_are_held_and_a_refusal_locks_none(
    start_broker: StartBroker,
) -> None:
    limits = Limits(clients=ClientLimits(locks_max=3))
    async with start_broker(limits=limits) as running:
        assert await lock(running, "c1", [0, 1]) == [0, 1]
        refused = await lock_response(running, "c2", [2, 3])
        assert refused.status.code == ResponseCode.SYSTEM_BUSY
        assert "number of queue locks would exceed the limit 3" in refused.status.remark
        assert await lock(running, "c3", [2]) == [2]
        assert await lock(running, "c1", [0, 1]) == [0, 1]
        running.clock.advance(LOCK_MS + 1)
        assert await lock(running, "c2", [1, 2, 3]) == [1, 2, 3]
        assert len(running.broker.services.groups.locks) == 3


def test_g04_locks_that_are_over_make_room_also_between_two_housekeepings() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock, ClientLimits(locks_max=2))
    queues = [QueueKey("T", queue_id) for queue_id in range(3)]
    assert locks.lock("g", "c1", queues[:2]) == queues[:2]
    clock.advance(LOCK_MS + 1)
    assert locks.lock("g", "c2", queues[1:]) == queues[1:]
    assert len(locks) == 2


async def test_g04_a_connection_has_a_limited_number_of_locks(start_broker: StartBroker) -> None:
    limits = Limits(clients=ClientLimits(locks_per_connection_max=3))
    async with start_broker(limits=limits) as running:
        assert await lock(running, "c1", [0, 1]) == [0, 1]
        refused = await lock_response(running, "c2", [2, 3])
        assert refused.status.code == ResponseCode.SYSTEM_BUSY
        assert "queue locks of a connection" in refused.status.remark
        assert await lock(running, "c1", [0, 1]) == [0, 1]
        async with another_connection(running) as other:
            assert await lock(other, "c2", [2, 3]) == [2, 3]
            # A lock that another connection renews counts there.
            assert await lock(other, "c1", [0]) == [0]
        assert await lock(running, "c3", [4, 5]) == [4, 5]
