"""Progress of groups: the offset to resume at, commits, and the earliest store time."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.broker.running_broker import RunningBroker, StartBroker

Queue = tuple[str, int]
ZERO = (ResponseCode.SUCCESS, 0)
NONE = (ResponseCode.QUERY_NOT_FOUND, -1)


async def ask(
    running: RunningBroker, *queues: Queue, group: str = "g", zero: bool = True
) -> broker_pb2.QueryConsumerOffsetsResponse:
    request = broker_pb2.QueryConsumerOffsetsRequest(
        consumer_group=group,
        queues=[broker_pb2.TopicQueue(topic=topic, queue_id=each) for topic, each in queues],
        set_zero_if_not_found=zero,
    )
    response: broker_pb2.QueryConsumerOffsetsResponse = await running.data.QueryConsumerOffsets(
        request
    )
    return response


async def offsets(running: RunningBroker, *queues: Queue, **fields: Any) -> list[tuple[int, int]]:
    response = await ask(running, *queues, **fields)
    assert response.status.code == ResponseCode.SUCCESS, response.status.remark
    return [(each.status.code, each.offset) for each in response.offsets]


async def test_c09_the_committed_offset_is_told_or_0_where_the_queue_begins_there(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"a", b"b")
    await running.append("T", 1, b"a")
    running.broker.services.offsets.committed.commit("g", "T", 0, 1)
    queues = [("T", 0), ("T", 1), ("T", 2)]
    # Queue 2 is empty.
    assert await offsets(running, *queues) == [(ResponseCode.SUCCESS, 1), ZERO, ZERO]
    assert await offsets(running, *queues, zero=False) == [(ResponseCode.SUCCESS, 1), NONE, NONE]
    assert await offsets(running, *queues, group="h") == [ZERO, ZERO, ZERO]


async def test_c09_a_queue_whose_first_message_is_cold_has_no_beginning_for_a_new_group(
    start_broker: StartBroker,
) -> None:
    async with start_broker(access_message_in_memory_max_ratio=0) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"a")
        running.broker.services.offsets.committed.commit("h", "T", 0, 0)
        response = await ask(running, ("T", 0), ("T", 1))
        assert [each.status.code for each in response.offsets] == [NONE[0], ZERO[0]]
        words = "group 'g' has no progress in queue 0 of topic 'T'"
        assert words in response.offsets[0].status.remark
        assert await offsets(running, ("T", 0), group="h") == [ZERO]


async def test_c09_a_queue_that_has_lost_its_first_messages_has_none_either(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    for _ in range(3):
        await running.append("T", 0, *[bytes(30_000)] * 20)
    assert await offsets(running, ("T", 0)) == [ZERO]
    removal = running.broker.store.plan_removal()
    removal.run()
    running.broker.store.removed(removal)
    assert await offsets(running, ("T", 0)) == [NONE]


async def test_c09_asking_makes_no_group(running: RunningBroker) -> None:
    await running.create_topic("T")
    await offsets(running, ("T", 0))
    assert "g" not in running.broker.services.groups.configs


@pytest.mark.parametrize(
    ("queue", "group", "code", "words"),
    [
        (("Unknown", 0), "g", ResponseCode.TOPIC_NOT_EXIST, "'Unknown'"),
        (("T", 4), "g", ResponseCode.INVALID_PARAMETER, "queue id 4"),
        (("T", 0), "", ResponseCode.INVALID_PARAMETER, "consumer_group is ''"),
        (("T", 0), "a b", ResponseCode.INVALID_PARAMETER, "consumer_group is 'a b'"),
    ],
)
async def test_c09_a_wrong_query_is_named(
    queue: Queue, group: str, code: ResponseCode, words: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    response = await ask(running, ("T", 1), queue, group=group)
    assert response.status.code == code
    assert words in response.status.remark
    assert not response.offsets


async def test_c09_a_call_takes_1000_queues(running: RunningBroker) -> None:
    await running.create_topic("T")
    assert await offsets(running, *[("T", 0)] * 1_000) == [ZERO] * 1_000
    response = await ask(running, *[("T", 0)] * 1_001)
    assert response.status.code == ResponseCode.INVALID_PARAMETER
    assert "number of queues is 1001, accepted is 1000 or fewer" in response.status.remark


async def test_c10_a_commit_is_stored_by_topic_group_and_queue_whatever_was_before(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.create_topic("U")
    for offset in (9, 4):
        commit = broker_pb2.CommittedOffset(topic="T", queue_id=1, offset=offset)
        request = broker_pb2.CommitOffsetsRequest(consumer_group="g", offsets=[commit])
        response = await running.data.CommitOffsets(request)
        assert response.status.code == ResponseCode.SUCCESS
        found = await offsets(running, ("T", 0), ("T", 1), ("U", 1), zero=False)
        assert found == [NONE, (ResponseCode.SUCCESS, offset), NONE]


async def test_c11_the_earliest_store_time_is_that_of_the_first_message_since_ever(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    times = []
    for _ in range(3):
        times.append(running.clock.now_ms())
        await running.append("T", 0, *[bytes(30_000)] * 20)
        running.clock.advance(1_000)

    async def first(queue_id: int, timestamp_ms: int = 0) -> tuple[bool, int, int]:
        queue = broker_pb2.QueueTime(topic="T", queue_id=queue_id, timestamp_ms=timestamp_ms)
        request = broker_pb2.SearchOffsetsRequest(queues=[queue])
        [found] = (await running.data.SearchOffsets(request)).offsets
        return found.found, found.offset, found.store_timestamp_ms

    assert await first(0) == (True, 0, times[0])
    assert await first(0, times[1]) == (True, 20, times[1])
    assert await first(0, times[2] + 1) == (False, 60, -1)
    assert await first(1) == (False, 0, -1)
    removal = running.broker.store.plan_removal()
    removal.run()
    running.broker.store.removed(removal)
    low = running.broker.store.range_of(QueueKey("T", 0)).min_offset
    assert await first(0) == (True, low, times[1])
