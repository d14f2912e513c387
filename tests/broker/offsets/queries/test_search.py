"""SearchOffsets through real gRPC."""

from __future__ import annotations

import pytest

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.broker.running_broker import RunningBroker


async def search(
    running: RunningBroker, *queues: tuple[str, int, int]
) -> broker_pb2.SearchOffsetsResponse:
    times = [
        broker_pb2.QueueTime(topic=topic, queue_id=queue_id, timestamp_ms=timestamp_ms)
        for topic, queue_id, timestamp_ms in queues
    ]
    response: broker_pb2.SearchOffsetsResponse = await running.data.SearchOffsets(
        broker_pb2.SearchOffsetsRequest(queues=times)
    )
    return response


async def test_k05_offsets_are_found_by_time_queue_by_queue(running: RunningBroker) -> None:
    await running.create_topic("T", queues=3)
    begin_ms = running.clock.now_ms()
    for queue_id in (0, 0, 1, 0):
        await running.append("T", queue_id, b"x", b"y")
        running.clock.advance(10)
    response = await search(
        running,
        ("T", 0, begin_ms + 1),
        ("T", 1, 0),
        ("T", 0, begin_ms + 30),
        ("T", 0, begin_ms + 31),
        ("T", 2, 0),
    )
    assert response.status.code == ResponseCode.SUCCESS
    answers = [(offset.found, offset.offset) for offset in response.offsets]
    assert answers == [(True, 2), (True, 0), (True, 4), (False, 6), (False, 0)]


@pytest.mark.parametrize(
    ("queue", "code", "words"),
    [
        (("Unknown", 0, 0), ResponseCode.TOPIC_NOT_EXIST, "Unknown"),
        (("T", 4, 0), ResponseCode.INVALID_PARAMETER, "queue id 4"),
    ],
)
async def test_k05_a_wrong_queue_in_a_search_is_named(
    queue: tuple[str, int, int], code: ResponseCode, words: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    response = await search(running, ("T", 0, 0), queue)
    assert response.status.code == code
    assert words in response.status.remark
    assert not response.offsets


async def test_k05_more_queues_than_a_search_takes_are_refused(running: RunningBroker) -> None:
    await running.create_topic("T")
    response = await search(running, *[("T", 0, 0)] * 1_000)
    assert len(response.offsets) == 1_000
    response = await search(running, *[("T", 0, 0)] * 1_001)
    assert response.status.code == ResponseCode.INVALID_PARAMETER
    assert "number of queues is 1001, accepted is 1000 or fewer" in response.status.remark
