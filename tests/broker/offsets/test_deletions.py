"""Removal of groups' progress with its topic or group: gRPC and disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.offsets.committed import ENTRIES_A_SLOT, ConsumerOffsetManager
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.admin.test_administration import commit, committed
from tests.broker.offsets.queries.test_queries import delete_topic
from tests.broker.offsets.test_reset_service import fill, reset
from tests.support.broker.running_broker import RunningBroker, StartBroker

Deletion = Callable[[RunningBroker], Awaitable[None]]


async def a_deletion(running: RunningBroker) -> None:
    await delete_topic(running, "T")


async def a_removal_of_unused_topics(running: RunningBroker) -> None:
    response = await running.admin.CleanUnusedTopics(admin_pb2.CleanUnusedTopicsRequest())
    assert list(response.topics) == ["T"]


@pytest.mark.parametrize("deletion", [a_deletion, a_removal_of_unused_topics])
async def test_c10_a_topic_made_again_is_read_from_its_start_also_after_a_kill(
    start_broker: StartBroker, start_crashed: StartBroker, tmp_path: Path, deletion: Deletion
) -> None:
    """Guards against saved progress of the old topic: the group would skip new messages."""
    async with start_broker() as running:
        await fill(running)
    if deletion is a_removal_of_unused_topics:
        for path in (tmp_path / "config").glob("topics.json*"):
            path.unlink()
    async with start_crashed(FlushDiskType.ASYNC_FLUSH) as running:
        await deletion(running)
        await running.create_topic("T", queues=2)
        for _ in range(3):
            await running.append("T", 0, b"new")
    async with start_broker() as running:
        assert await committed(running, "g", "T") == [-1, -1]


async def test_c10_nobody_commits_in_a_topic_that_is_being_deleted(running: RunningBroker) -> None:
    await fill(running)
    with running.broker.store.deletions.refusing("T"):
        assert await commit(running, "g", ("T", 0, 3)) == ResponseCode.SERVICE_NOT_AVAILABLE
        answer = await reset(running, earliest=True)
        assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "'T' is being deleted; try again later" in answer.status.remark
    assert await committed(running, "g", "T") == [2, -1]


@pytest.fixture
def many(tmp_path: Path) -> ConsumerOffsetManager:
    """Returns groups for three scheduler slots, each in topics T and U.

    One of them broadcasts in T.
    """
    manager = ConsumerOffsetManager(tmp_path, ManualClock())
    for number in range(3 * ENTRIES_A_SLOT // 2):
        for topic in ("T", "U"):
            manager.commit(f"g{number}", topic, 0, 1)
    manager.commit("g0@client", "T", 0, 1)
    return manager


async def left(manager: ConsumerOffsetManager) -> list[tuple[str, str]]:
    return [entry async for entry in manager.entries()]


async def turns_of(work: Awaitable[None]) -> int:
    """Returns how many scheduler slots other work had until `work` was done."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await take_slot()
        turns += 1
    await task
    return turns


async def test_b09_progress_of_a_topic_is_forgotten_with_turns_for_others(
    many: ConsumerOffsetManager,
) -> None:
    assert await turns_of(many.delete_topic("T")) >= 3
    assert {topic for topic, _ in await left(many)} == {"U"}
    assert many.offsets_of("g0@client", "T") == {0: 1}


async def test_b09_progress_of_a_group_is_forgotten_with_turns_for_others(
    many: ConsumerOffsetManager,
) -> None:
    before = len(await left(many))
    assert await turns_of(many.delete_group("g7")) >= 3
    after = await left(many)
    assert (len(after), "g7" in {group for _, group in after}) == (before - 2, False)
    await many.delete_group("client")
    assert many.offsets_of("g0@client", "T") == {0: 1}
