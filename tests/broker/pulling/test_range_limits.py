"""LimitRanges: how far ranges of queues reach within a number of bytes."""

from __future__ import annotations

import asyncio
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_broker.clock import ManualClock
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.services.pulling.range_limits import OffsetRange, RangeLimitService, Reach
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues import lookup as queue_lookup
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import Host
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.blocks import wire_block
from tests.broker.conftest import RunningBroker, StartBroker

FIXED = len(wire_block("T", [b""]).records)
Ranges = list[tuple[int, int, int]]


async def limit(
    running: RunningBroker, bytes_max: int, ranges: Ranges, topic: str = "T"
) -> broker_pb2.LimitRangesResponse:
    parts = [
        broker_pb2.OffsetRange(topic=topic, queue_id=queue_id, begin=begin, end=end)
        for queue_id, begin, end in ranges
    ]
    response: broker_pb2.LimitRangesResponse = await running.data.LimitRanges(
        broker_pb2.LimitRangesRequest(ranges=parts, bytes_max=bytes_max)
    )
    return response


async def ends(running: RunningBroker, bytes_max: int, ranges: Ranges) -> tuple[list[int], int]:
    response = await limit(running, bytes_max, ranges)
    assert response.status.code == ResponseCode.SUCCESS
    return list(response.ends), response.bytes


def sized(size: int, count: int) -> list[bytes]:
    """Bodies of messages whose records have `size` bytes."""
    return [bytes(size - FIXED)] * count


async def test_k04_ranges_are_cut_in_proportion_to_their_bytes(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await running.append("T", 0, *sized(100, 600))
        await running.append("T", 1, *sized(200, 100))
        everything: Ranges = [(0, 0, 600), (1, 0, 100), (2, 0, 0)]
        assert await ends(running, 80_000, everything) == ([600, 100, 0], 80_000)
        # 100 and 200 bytes for the first messages, then three quarters and one quarter.
        assert await ends(running, 8_300, everything) == ([61, 10, 0], 8_100)
        assert await ends(running, 4_000, [(1, 50, 100)]) == ([70], 4_000)
        assert await ends(running, 4_199, [(1, 50, 100)]) == ([70], 4_000)
        assert await ends(running, 1, []) == ([], 0)


async def test_k04_at_least_the_oldest_message_is_left(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await running.append("T", 1, *sized(500, 2))
        await running.append("T", 0, *sized(100, 600))
        assert await ends(running, 1, [(0, 0, 600), (1, 0, 2)]) == ([0, 1], 500)
        assert await ends(running, 600, [(0, 0, 600), (1, 0, 2)]) == ([1, 1], 600)


async def test_k04_a_small_queue_does_not_wait_for_ever_behind_a_large_one(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await running.append("T", 0, *sized(100, 50))
        await running.append("T", 1, *sized(900, 1))
        await running.append("T", 0, *sized(100, 550))
        begin, batches = 0, 0
        while (reached := await ends(running, 999, [(0, begin, 600), (1, 0, 1)]))[0][1] == 0:
            assert reached[1] <= 999
            begin, batches = reached[0][0], batches + 1
        assert (begin, batches) == (54, 6)


@pytest.mark.parametrize("bytes_max", [10_000, 50_000, 59_999])
async def test_k04_long_ranges_are_read_in_stretches(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    monkeypatch.setattr(queue_lookup, "STRETCH_UNITS_MAX", 16)
    async with start_broker() as running:
        await running.create_topic("T")
        await running.append("T", 0, *sized(100, 300))
        await running.append("T", 1, *sized(100, 300))
        reached, count = await ends(running, bytes_max, [(0, 0, 300), (1, 0, 300)])
        assert bytes_max - 200 <= count <= bytes_max
        assert abs(reached[0] - reached[1]) <= 1


async def test_k04_offsets_outside_the_queue_have_no_bytes(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await running.append("T", 0, *sized(100, 10))
        assert await ends(running, 900, [(0, 0, 20)]) == ([9], 900)
        assert await ends(running, 1_000, [(0, 0, 20), (1, 0, 7)]) == ([20, 7], 1_000)


@pytest.mark.parametrize(
    ("topic", "part", "bytes_max", "words"),
    [
        ("Unknown", (0, 0, 1), 1, "Unknown"),
        ("T", (4, 0, 1), 1, "queue id 4"),
        ("T", (0, -1, 1), 1, "begin is -1"),
        ("T", (0, 5, 4), 1, "end is 4"),
        ("T", (0, 0, 1), 0, "bytes_max is 0"),
    ],
)
async def test_k04_a_wrong_range_is_named(
    start_broker: StartBroker,
    topic: str,
    part: tuple[int, int, int],
    bytes_max: int,
    words: str,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        response = await limit(running, bytes_max, [part], topic)
        assert response.status.code != ResponseCode.SUCCESS
        assert words in response.status.remark
        assert not response.ends


@settings(max_examples=20)
@given(
    queues=st.lists(st.lists(st.integers(0, 700), max_size=30), min_size=1, max_size=4),
    share=st.integers(1, 120),
)
def test_k04_the_limit_holds_for_any_sizes_and_no_byte_of_it_is_lost_needlessly(
    tmp_path_factory: pytest.TempPathFactory, queues: list[list[int]], share: int
) -> None:
    folder = tmp_path_factory.mktemp("store")
    clock = ManualClock()
    topics = TopicConfigManager(folder, clock, "DefaultCluster", "broker-a")
    asyncio.run(topics.update(TopicConfig("T", 4, 4, 6), create_only=True))
    config = StoreConfig(folder, 1 << 17, 2000, FlushDiskType.ASYNC_FLUSH)
    store = MessageStore(config, clock, Host.parse("10.0.0.2:10911"))
    store.open()
    for queue_id, bodies in enumerate(queues):
        for body_bytes in bodies:
            store.append(QueueKey("T", queue_id), wire_block("T", [bytes(body_bytes)]).parsed())
    totals = [list(accumulate((FIXED + size for size in sizes), initial=0)) for sizes in queues]
    all_bytes = sum(total[-1] for total in totals)
    bytes_max = max(all_bytes * share // 100, 1)
    ranges = [
        OffsetRange(QueueKey("T", queue_id), 0, len(bodies))
        for queue_id, bodies in enumerate(queues)
    ]
    reached = asyncio.run(RangeLimitService(store, topics).limit(ranges, bytes_max))
    store.close()
    assert reached == [
        Reach(reach.end, total[reach.end]) for reach, total in zip(reached, totals, strict=True)
    ]
    given_bytes = sum(reach.bytes for reach in reached)
    count = sum(reach.end for reach in reached)
    assert given_bytes <= bytes_max or count == 1
    assert count > 0 or all_bytes == 0
    # What is missing to the limit is less than one message of each queue.
    assert given_bytes >= min(bytes_max, all_bytes) - len(queues) * (FIXED + 700)
