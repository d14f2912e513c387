"""MeasureRanges and LimitRanges, and the connector's use of them: ranges cut to bytes."""

from __future__ import annotations

import asyncio

import pytest

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.queries import GrpcOffsetQueries
from pyspark_rocketpy.transport.values import RetryPolicy
from rocketpy_broker.store.queues.units import UNIT
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker

FIXED = len(wire_block("T", [b""]).records)
Ranges = list[tuple[int, int, int]]


def wire(ranges: Ranges, topic: str = "T") -> list[broker_pb2.OffsetRange]:
    return [
        broker_pb2.OffsetRange(topic=topic, queue_id=queue_id, begin=begin, end=end)
        for queue_id, begin, end in ranges
    ]


async def measure(
    running: RunningBroker, bytes_max: int, ranges: Ranges, topic: str = "T"
) -> broker_pb2.MeasureRangesResponse:
    response: broker_pb2.MeasureRangesResponse = await running.data.MeasureRanges(
        broker_pb2.MeasureRangesRequest(ranges=wire(ranges, topic), bytes_max=bytes_max)
    )
    return response


async def limit(
    running: RunningBroker, bytes_max: list[int], ranges: Ranges, topic: str = "T"
) -> broker_pb2.LimitRangesResponse:
    response: broker_pb2.LimitRangesResponse = await running.data.LimitRanges(
        broker_pb2.LimitRangesRequest(ranges=wire(ranges, topic), bytes_max=bytes_max)
    )
    return response


async def ends(running: RunningBroker, bytes_max: int, ranges: Ranges) -> list[int]:
    """Returns the ends of the ranges as the connector gets them from the broker."""
    config = ClientConfig((f"127.0.0.1:{running.ready.port}",), 10_000)
    queries = GrpcOffsetQueries(config, RetryPolicy(0, 0))
    parts = [QueueRange("T", *part) for part in ranges]
    try:
        return await asyncio.to_thread(queries.limit_bytes, parts, bytes_max)
    finally:
        forget_client(config)


def sized(size: int, count: int) -> list[bytes]:
    """Returns bodies of messages with records of `size` bytes."""
    return [bytes(size - FIXED)] * count


async def test_k04_ranges_are_cut_in_proportion_to_their_bytes(running: RunningBroker) -> None:
    await running.create_topic("T")
    await running.append("T", 0, *sized(100, 600))
    await running.append("T", 1, *sized(200, 100))
    everything: Ranges = [(0, 0, 600), (1, 0, 100), (2, 0, 0)]
    assert await ends(running, 80_000, everything) == [600, 100, 0]
    # 100 and 200 bytes for the first messages, then three quarters and one quarter.
    assert await ends(running, 8_300, everything) == [61, 10, 0]
    assert await ends(running, 4_000, [(1, 50, 100)]) == [70]
    assert await ends(running, 4_199, [(1, 50, 100)]) == [70]
    assert await ends(running, 1, []) == []


async def test_k04_at_least_the_oldest_message_is_left(running: RunningBroker) -> None:
    await running.create_topic("T")
    await running.append("T", 1, *sized(500, 2))
    await running.append("T", 0, *sized(100, 600))
    assert await ends(running, 1, [(0, 0, 600), (1, 0, 2)]) == [0, 1]
    assert await ends(running, 600, [(0, 0, 600), (1, 0, 2)]) == [1, 1]


async def test_k04_a_small_queue_does_not_wait_for_ever_behind_a_large_one(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, *sized(100, 50))
    await running.append("T", 1, *sized(900, 1))
    await running.append("T", 0, *sized(100, 550))
    begin, batches = 0, 0
    while (reached := await ends(running, 999, [(0, begin, 600), (1, 0, 1)]))[1] == 0:
        assert reached[0] - begin <= 9
        begin, batches = reached[0], batches + 1
    assert (begin, batches) == (54, 6)


@pytest.mark.parametrize("bytes_max", [10_000, 50_000, 59_999])
async def test_k04_long_ranges_are_read_in_parts(start_broker: StartBroker, bytes_max: int) -> None:
    async with start_broker(consume_queue_file_bytes=16 * UNIT.itemsize) as running:
        await running.create_topic("T")
        await running.append("T", 0, *sized(100, 300))
        await running.append("T", 1, *sized(100, 300))
        reached = await ends(running, bytes_max, [(0, 0, 300), (1, 0, 300)])
        assert bytes_max - 200 <= 100 * sum(reached) <= bytes_max
        assert abs(reached[0] - reached[1]) <= 1


async def test_k04_offsets_outside_the_queue_have_no_bytes(running: RunningBroker) -> None:
    await running.create_topic("T")
    await running.append("T", 0, *sized(100, 10))
    assert await ends(running, 900, [(0, 0, 20)]) == [9]
    assert await ends(running, 1_000, [(0, 0, 20), (1, 0, 7)]) == [20, 7]


async def test_k04_ranges_are_measured_until_they_have_more_than_was_asked(
    start_broker: StartBroker,
) -> None:
    async with start_broker(consume_queue_file_bytes=10 * UNIT.itemsize) as running:
        await running.create_topic("T")
        for queue_id in range(3):
            await running.append("T", queue_id, *sized(100 + queue_id, 50))
        everything: Ranges = [(0, 0, 60), (1, 5, 50), (2, 0, 40)]
        response = await measure(running, 5_500, everything)
        assert not response.goes_on
        assert [
            (part.end, part.bytes, part.offset_count, part.offset_count_left)
            for part in response.ranges
        ] == [(60, 5_000, 50, 0), (10, 505, 5, 40), (10, 1_020, 10, 30)]
        assert [part.first_bytes for part in response.ranges] == [100, 101, 102]
        places = [part.first_physical_offset for part in response.ranges]
        assert places == [0, 5_000 + 5 * 101, 5_000 + 50 * 101]


async def test_k04_each_range_reaches_as_far_as_its_own_bytes(running: RunningBroker) -> None:
    await running.create_topic("T")
    await running.append("T", 0, *sized(100, 10))
    ranges: Ranges = [(0, 0, 10), (0, 3, 10), (0, 0, 20), (1, 0, 5), (0, 2, 10)]
    response = await limit(running, [250, 100, 1_000, 0, 99], ranges)
    assert list(response.ends) == [2, 4, 20, 5, 2]
    assert list(response.bytes) == [200, 100, 1_000, 0, 0]
    assert not response.goes_on


@pytest.mark.parametrize(
    ("topic", "part", "bytes_max", "words"),
    [
        ("Unknown", (0, 0, 1), 1, "Unknown"),
        ("T", (4, 0, 1), 1, "queue id 4"),
        ("T", (0, -1, 1), 1, "begin is -1"),
        ("T", (0, 5, 4), 1, "end is 4"),
        ("T", (0, 0, 1), -1, "bytes_max is -1"),
    ],
)
async def test_k04_a_wrong_range_is_named(
    topic: str, part: tuple[int, int, int], bytes_max: int, words: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    measured = await measure(running, bytes_max, [part], topic)
    limited = await limit(running, [bytes_max], [part], topic)
    for status in (measured.status, limited.status):
        assert status.code != ResponseCode.SUCCESS
        assert words in status.remark
    assert not measured.ranges
    assert not limited.ends


async def test_k04_a_limit_for_each_range_is_asked_for(running: RunningBroker) -> None:
    await running.create_topic("T")
    response = await limit(running, [1, 2], [(0, 0, 1)])
    assert response.status.code == ResponseCode.INVALID_PARAMETER
    assert "number of bytes_max is 2, accepted is 1" in response.status.remark


async def test_k04_more_ranges_than_a_call_takes_are_refused(running: RunningBroker) -> None:
    await running.create_topic("T")
    for count, code in ((1_000, ResponseCode.SUCCESS), (1_001, ResponseCode.INVALID_PARAMETER)):
        ranges: Ranges = [(0, 0, 1)] * count
        answers = await measure(running, 1, ranges), await limit(running, [1] * count, ranges)
        for answer in answers:
            assert answer.status.code == code
    assert "number of ranges is 1001, accepted is 1000 or fewer" in answer.status.remark
