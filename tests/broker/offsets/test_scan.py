"""The scan for progress that no group needs any more."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.offsets.committed import COMMITTING_MS, ConsumerOffsetManager
from rocketpy_broker.services.offsets.scan import (
    DELAY_MS,
    INTERVAL_MS,
    QUEUES_A_SLOT,
    OffsetScan,
)
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.broker.clients.group_clients import consumer, heartbeat, unregister
from tests.support.broker.running_broker import RunningBroker, StartBroker

NOTHING = QueueBounds(0, 0)


class Desk:
    """A table of offsets, the bounds of queues, and the groups' subscriptions."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.table = ConsumerOffsetManager(folder, self.clock)
        self.ranges: dict[QueueKey, QueueBounds] = {}
        self.subscribed: set[tuple[str, str]] = set()
        self.scan = OffsetScan(
            self.table,
            lambda group, topic: (group, topic) in self.subscribed,
            lambda queue: self.ranges.get(queue, NOTHING),
            self.clock,
        )

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        for queue_id, offset in offsets.items():
            self.table.commit(group, topic, queue_id, offset)

    def bounds(self, topic: str, *ranges: tuple[int, int]) -> None:
        for queue_id, bounds in enumerate(ranges):
            self.ranges[QueueKey(topic, queue_id)] = QueueBounds(*bounds)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def scanned(desk: Desk) -> list[str]:
    """Returns what a scan removes after a time without commits."""
    desk.clock.advance(COMMITTING_MS + 1)
    return await desk.scan.scan()


@pytest.mark.parametrize(
    ("offsets", "ranges"),
    [
        pytest.param({0: 4}, [(5, 9)], id="below the minimum"),
        pytest.param({0: 4, 1: 0}, [(5, 9), (7, 7)], id="below both minima"),
        pytest.param({0: 4, 1: 7}, [(5, 9), (7, 7)], id="at the end of an empty queue"),
        pytest.param({0: 4, 1: 0}, [(5, 9), (0, 0)], id="at the beginning of a new queue"),
        pytest.param({0: -5}, [(0, 9)], id="negative"),
    ],
)
async def test_b06_progress_that_nothing_can_be_read_from_is_removed(
    desk: Desk, offsets: dict[int, int], ranges: list[tuple[int, int]]
) -> None:
    desk.commit("g", "T", offsets)
    desk.commit("g", "U", {0: 3})
    desk.bounds("T", *ranges)
    assert await scanned(desk) == ["T@g"]
    assert [entry async for entry in desk.table.entries()] == [("U", "g")]
    assert desk.table.query("g", "T", 0) == -1


@pytest.mark.parametrize(
    ("offsets", "ranges"),
    [
        pytest.param({0: 6}, [(5, 9)], id="behind the minimum"),
        pytest.param({0: 9}, [(5, 9)], id="at the end"),
        pytest.param({0: 12}, [(5, 9)], id="behind the end"),
        pytest.param({0: 5}, [(5, 9)], id="at the minimum of messages"),
        pytest.param({0: 4, 1: 8}, [(5, 9), (7, 9)], id="one queue is behind its minimum"),
        pytest.param({0: 4, 1: 7}, [(5, 9), (7, 9)], id="one queue can be read on"),
        pytest.param({0: 0}, [(0, 9)], id="nothing was read yet"),
        pytest.param({0: 0}, [(0, 0)], id="a new topic"),
        pytest.param({0: 5}, [(5, 5)], id="everything was read"),
        pytest.param({0: 3}, [], id="an unknown queue"),
    ],
)
async def test_b06_progress_that_can_be_read_on_from_stays_however_long_its_group_is_away(
    desk: Desk, offsets: dict[int, int], ranges: list[tuple[int, int]]
) -> None:
    desk.commit("stopped-query", "T", offsets)
    desk.bounds("T", *ranges)
    for _ in range(3):
        assert await scanned(desk) == []
    assert desk.table.offsets_of("stopped-query", "T") == offsets


async def test_b06_progress_of_a_subscribed_group_stays(desk: Desk) -> None:
    for group in ("g", "h"):
        desk.commit(group, "T", {0: 4})
    desk.bounds("T", (5, 9))
    desk.subscribed = {("g", "T"), ("h", "U")}
    assert await scanned(desk) == ["T@h"]
    desk.subscribed = set()
    assert await scanned(desk) == ["T@g"]


async def test_b06_a_group_that_commits_without_heartbeats_is_at_work(desk: Desk) -> None:
    desk.commit("g", "T", {0: 4})
    desk.bounds("T", (5, 9))
    for _ in range(3):
        desk.clock.advance(COMMITTING_MS)
        assert await desk.scan.scan() == []
        desk.commit("g", "T", {0: 4})
    desk.clock.advance(COMMITTING_MS + 1)
    assert await desk.scan.scan() == ["T@g"]


@pytest.mark.parametrize(
    ("topic", "group"),
    [("RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"), ("T", "g@broadcast")],
)
async def test_b06_progress_of_no_consumer_group_stays(desk: Desk, topic: str, group: str) -> None:
    desk.commit(group, topic, {0: 4})
    desk.bounds(topic, (5, 9))
    assert await scanned(desk) == []


GROUPS = ["committing", "subscribing", "deleted"]


@pytest.mark.parametrize("first", GROUPS)
async def test_b06_a_group_that_comes_back_during_the_scan_keeps_its_progress(
    desk: Desk, first: str
) -> None:
    count = 3 * QUEUES_A_SLOT
    for group in dict.fromkeys([first, *GROUPS, "gone"]):
        desk.commit(group, "T", dict.fromkeys(range(count), 4))
    desk.bounds("T", *[(5, 9)] * count)
    desk.clock.advance(COMMITTING_MS + 1)
    scanning = asyncio.ensure_future(desk.scan.scan())
    await asyncio.sleep(0)
    desk.commit("committing", "T", {0: 6})
    desk.subscribed.add(("subscribing", "T"))
    await desk.table.delete_group("deleted")
    assert await scanning == ["T@gone"]
    assert desk.table.query("committing", "T", 0) == 6


async def test_b06_progress_that_moved_while_it_was_looked_at_stays(desk: Desk) -> None:
    desk.commit("g", "T", {0: 4})
    assert not desk.table.delete_if("g", "T", {0: 3})
    assert not desk.table.delete_if("other", "T", {0: 4})
    assert desk.table.delete_if("g", "T", {0: 4})


async def test_b06_progress_that_is_deleted_is_not_at_work(desk: Desk) -> None:
    desk.commit("g", "T", {0: 4})
    assert desk.table.is_committing("g", "T")
    await desk.table.delete_group("g")
    assert not desk.table.is_committing("g", "T")


async def test_b06_others_get_their_turns_while_many_queues_are_looked_at(desk: Desk) -> None:
    count = 10 * QUEUES_A_SLOT
    desk.commit("g", "T", dict.fromkeys(range(count), 4))
    desk.bounds("T", *[(5, 9)] * count)
    desk.clock.advance(COMMITTING_MS + 1)
    scanning, turns = asyncio.ensure_future(desk.scan.scan()), 0
    while not scanning.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10
    assert await scanning == ["T@g"]


# --- In a broker ---


async def commit(running: RunningBroker, group: str, topic: str, offset: int) -> None:
    entry = broker_pb2.CommittedOffset(topic=topic, queue_id=0, offset=offset)
    request = broker_pb2.CommitOffsetsRequest(consumer_group=group, offsets=[entry])
    assert (await running.data.CommitOffsets(request)).status.code == 0


async def committed(running: RunningBroker, group: str) -> int:
    request = broker_pb2.QueryOffsetsRequest(topics=["T"], consumer_group=group)
    response = await running.data.QueryOffsets(request)
    offset: int = response.topics[0].queues[0].committed_offset
    return offset


async def advance(running: RunningBroker, delta_ms: int) -> None:
    running.clock.advance(delta_ms)
    for _ in range(20):
        await asyncio.sleep(0)


async def queue_without_its_beginning(running: RunningBroker) -> int:
    """Fills more than a segment and removes it; returns the queue's minimum."""
    await running.create_topic("T", queues=1)
    for _ in range(12):
        await running.append("T", 0, b"x" * 100_000)
    await running.broker.services.flush.store_files.remove_oldest_segment()
    return running.broker.store.range_of(QueueKey("T", 0)).min_offset


async def test_b06_a_broker_forgets_it_minutes_after_its_start_and_saves_that(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        minimum = await queue_without_its_beginning(running)
        assert minimum > 1
        for group, offset in (("below", 1), ("at", minimum), ("ahead", minimum + 1)):
            await commit(running, group, "T", offset)
        await commit(running, "member", "T", 1)
    async with start_broker() as running:
        await heartbeat(running, "c1", consumer("member", "T"))
        await advance(running, DELAY_MS - 1)
        await heartbeat(running, "c1", consumer("member", "T"))
        assert await committed(running, "below") == 1
        await advance(running, 1)
        assert await committed(running, "below") == -1
        assert await committed(running, "at") == minimum
        assert await committed(running, "ahead") == minimum + 1
        assert await committed(running, "member") == 1
        await unregister(running, "c1")
        await advance(running, INTERVAL_MS - 1)
        assert await committed(running, "member") == 1
        await advance(running, 1)
        assert await committed(running, "member") == -1
    table: dict[str, Any] = json.loads((tmp_path / "config" / "consumerOffset.json").read_text())[
        "offsetTable"
    ]
    assert table.keys() == {"T@at", "T@ahead"}


async def test_b06_a_query_that_was_stopped_goes_on_where_it_was(running: RunningBroker) -> None:
    minimum = await queue_without_its_beginning(running)
    await commit(running, "query", "T", minimum + 1)
    await advance(running, COMMITTING_MS + 1)
    for _ in range(3):
        await advance(running, INTERVAL_MS)
    assert await committed(running, "query") == minimum + 1


async def test_n12_b06_a_scan_leaves_one_line_however_much_is_forgotten(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(50):
        desk.commit(f"g{number}", "T", {0: 4})
    desk.bounds("T", (5, 9))
    assert len(await scanned(desk)) == 50
    [record] = caplog.records
    assert "removed 50 entries of consumer offsets" in record.getMessage()
    assert "T@g0" in record.getMessage()
    assert await scanned(desk) == []
    assert len(caplog.records) == 1
