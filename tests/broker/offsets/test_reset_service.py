"""Resets of a group to other places of a topic, through real gRPC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.services.groups.clients.members import EXPIRY_MS
from rocketpy_broker.services.offsets.table import OffsetTable
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2, groups_pb2
from tests.broker.admin.test_administration import commit, committed
from tests.support.broker.clients.group_clients import consumer, heartbeat, unregister
from tests.support.broker.running_broker import RunningBroker, StartBroker


async def reset(running: RunningBroker, **fields: Any) -> groups_pb2.ResetOffsetsResponse:
    """Resets offsets, by default of group g and topic T."""
    request = groups_pb2.ResetOffsetsRequest(**{"consumer_group": "g", "topic": "T", **fields})
    response: groups_pb2.ResetOffsetsResponse = await running.groups.ResetOffsets(request)
    return response


def places(response: groups_pb2.ResetOffsetsResponse) -> list[tuple[int, int, int]]:
    assert response.status.code == 0, response.status.remark
    return [(each.queue_id, each.old_offset, each.new_offset) for each in response.offsets]


async def fill(running: RunningBroker) -> None:
    """Creates topic T with three messages a second apart in queue 0; group g is at 2 of it."""
    await running.create_topic("T", queues=2)
    for _ in range(3):
        await running.append("T", 0, b"x")
        running.clock.advance(1_000)
    assert await commit(running, "g", ("T", 0, 2)) == 0


async def overrule(running: RunningBroker) -> None:
    """Resets group g, which has a member, to 1 of queue 0 by force."""
    await fill(running)
    await heartbeat(running, "c1", consumer("g", "T"))
    assert places(await reset(running, offset=1, queue_id=0, force=True)) == [(0, 2, 1)]


NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ({"earliest": True}, [(0, 2, 0), (1, -1, 0)]),
        ({"latest": True}, [(0, 2, 3), (1, -1, 0)]),
        ({"timestamp_ms": NOW_MS + 500}, [(0, 2, 1), (1, -1, 0)]),
        ({"timestamp_ms": NOW_MS + 99_000}, [(0, 2, 3), (1, -1, 0)]),
        ({"timestamp_ms": 0}, [(0, 2, 0), (1, -1, 0)]),
        ({"offset": 1, "queue_id": 0}, [(0, 2, 1)]),
        ({"offset": 3, "queue_id": 0}, [(0, 2, 3)]),
        ({"offset": 0}, [(0, 2, 0), (1, -1, 0)]),
    ],
)
async def test_a_group_is_set_to_a_place_of_each_queue(
    to: dict[str, Any], expected: list[tuple[int, int, int]], running: RunningBroker
) -> None:
    await fill(running)
    assert places(await reset(running, dry_run=True, **to)) == expected
    assert await committed(running, "g", "T") == [2, -1]
    assert places(await reset(running, **to)) == expected
    after = {0: 2, 1: -1} | {queue_id: new for queue_id, _, new in expected}
    assert await committed(running, "g", "T") == list(after.values())


async def test_a_reset_is_on_disk_when_it_is_answered(
    tmp_path: Path, running: RunningBroker
) -> None:
    await fill(running)
    assert places(await reset(running, earliest=True))
    saved = json.loads((tmp_path / "config" / "consumerOffset.json").read_text())
    assert saved["offsetTable"]["T@g"] == {"0": 0, "1": 0}


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"latest": True, "topic": "None"}, ResponseCode.TOPIC_NOT_EXIST, "'None' does not"),
        (
            {"latest": True, "consumer_group": "none"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "'none' does not exist",
        ),
        ({"latest": True, "queue_id": 2}, ResponseCode.INVALID_PARAMETER, "queue"),
        ({"latest": True, "queue_id": -1}, ResponseCode.INVALID_PARAMETER, "queue"),
        ({"offset": 4, "queue_id": 0}, ResponseCode.INVALID_PARAMETER, "0 to 3 in queue 0"),
        ({"offset": 1}, ResponseCode.INVALID_PARAMETER, "0 to 0 in queue 1"),
        ({"offset": -1}, ResponseCode.INVALID_PARAMETER, "offset is -1"),
        ({"offset": (1 << 63) - 1}, ResponseCode.INVALID_PARAMETER, "0 to 3 in queue 0"),
        ({"timestamp_ms": -1}, ResponseCode.INVALID_PARAMETER, "timestamp is -1"),
        ({}, ResponseCode.INVALID_PARAMETER, "earliest, latest, timestamp_ms or offset"),
        ({"latest": False}, ResponseCode.INVALID_PARAMETER, "to is 'latest'"),
        (
            {"latest": True, "consumer_group": "CID_RMQ_SYS_TRANS"},
            ResponseCode.NO_PERMISSION,
            "the broker's own",
        ),
        ({"latest": True, "consumer_group": "g" * 256}, ResponseCode.INVALID_PARAMETER, "1 to 255"),
        ({"latest": True, "consumer_group": "g" * 200}, ResponseCode.INVALID_PARAMETER, "1 to 120"),
        ({"latest": True, "topic": "t" * 5_000}, ResponseCode.INVALID_PARAMETER, "1 to 255"),
        ({"latest": True, "consumer_group": ""}, ResponseCode.INVALID_PARAMETER, "is ''"),
    ],
)
async def test_a_bad_reset_is_refused_and_changes_nothing(
    fields: dict[str, Any], code: int, said: str, running: RunningBroker
) -> None:
    await fill(running)
    response = await reset(running, **fields)
    assert (response.status.code, list(response.offsets)) == (code, [])
    assert said in response.status.remark
    assert await committed(running, "g", "T") == [2, -1]


async def test_a_group_with_members_is_left_alone(running: RunningBroker) -> None:
    await fill(running)
    await heartbeat(running, "c1", consumer("g", "T"))
    refused = await reset(running, earliest=True)
    assert refused.status.code == ResponseCode.ILLEGAL_OPERATION
    assert "'g' has 1 member online; stop the group first, or force it" in refused.status.remark
    assert await committed(running, "g", "T") == [2, -1]
    assert places(await reset(running, earliest=True, dry_run=True))[0] == (0, 2, 0)
    await unregister(running, "c1")
    assert places(await reset(running, earliest=True))[0] == (0, 2, 0)


async def test_members_that_are_overruled_hear_of_it_with_their_next_pull(
    running: RunningBroker,
) -> None:
    """Asserts that commits before that pull do not count, and neither does the pull's own."""
    await overrule(running)
    assert await commit(running, "g", ("T", 0, 3)) == ResponseCode.SUCCESS
    assert await committed(running, "g", "T") == [1, -1]
    pull = {"topic": "T", "queue_id": 0, "consumer_group": "g", "commit_offset": 3}
    [moved] = await running.pull(offset=3, **pull)
    assert moved.status.code == ResponseCode.PULL_OFFSET_MOVED
    assert (moved.next_offset, moved.pull_status) == (1, broker_pb2.OFFSET_RESET)
    assert (moved.min_offset, moved.max_offset, moved.records) == (0, 3, b"")
    assert await committed(running, "g", "T") == [1, -1]
    [found] = await running.pull(offset=1, **{**pull, "commit_offset": 1})
    assert (found.status.code, found.next_offset) == (ResponseCode.SUCCESS, 3)
    assert await commit(running, "g", ("T", 0, 3)) == ResponseCode.SUCCESS
    assert await committed(running, "g", "T") == [3, -1]


async def test_who_pulls_from_the_new_place_is_not_moved(running: RunningBroker) -> None:
    await overrule(running)
    [found] = await running.pull(topic="T", queue_id=0, consumer_group="g", offset=1)
    assert (found.status.code, found.next_offset) == (ResponseCode.SUCCESS, 3)
    [plain] = await running.pull(topic="T", queue_id=0, offset=2)
    assert plain.status.code == ResponseCode.SUCCESS


async def test_a_group_whose_members_have_gone_asks_for_its_place(running: RunningBroker) -> None:
    await overrule(running)
    await unregister(running, "c1")
    assert await commit(running, "g", ("T", 0, 3)) == ResponseCode.SUCCESS
    assert await committed(running, "g", "T") == [3, -1]
    [found] = await running.pull(topic="T", queue_id=0, consumer_group="g", offset=2)
    assert found.status.code == ResponseCode.SUCCESS


async def test_a_topic_that_is_made_again_knows_of_no_reset(running: RunningBroker) -> None:
    await overrule(running)
    resets = running.broker.services.offsets.committed.resets
    assert resets
    await running.broker.services.admin.admin.delete_topic("T")
    assert not resets


async def test_a_broadcasting_group_keeps_its_own_progress(running: RunningBroker) -> None:
    await fill(running)
    group = consumer("g", "T", message_model=groups_pb2.BROADCASTING)
    await heartbeat(running, "c1", group)
    refused = await reset(running, earliest=True, force=True)
    assert refused.status.code == ResponseCode.NO_PERMISSION
    assert "its members keep their own progress" in refused.status.remark


async def test_progress_from_elsewhere_is_reset_too(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Covers a table of offsets with a group that no table of groups has."""
    async with start_broker() as running:
        await fill(running)
    (tmp_path / "config" / "subscriptionGroup.json").unlink()
    for backup in (tmp_path / "config").glob("subscriptionGroup.json.*"):
        backup.unlink()
    async with start_broker() as running:
        assert "g" not in running.broker.services.groups.configs
        assert places(await reset(running, earliest=True))[0] == (0, 2, 0)


MEMBERS_PULL = {"topic": "T", "queue_id": 0, "consumer_group": "g"}


@pytest.mark.parametrize("is_killed", [True, False])
async def test_c10_members_that_outlive_the_broker_hear_of_a_reset_all_the_same(
    start_broker: StartBroker, start_crashed: StartBroker, *, is_killed: bool
) -> None:
    """Guards against late commits of old places, which would undo an answered reset."""
    starting = start_crashed if is_killed else start_broker
    async with starting(FlushDiskType.ASYNC_FLUSH) as running:
        await overrule(running)
    async with start_broker() as running:
        assert await commit(running, "g", ("T", 0, 3)) == ResponseCode.SUCCESS
        assert await committed(running, "g", "T") == [1, -1]
        await heartbeat(running, "c1", consumer("g", "T"))
        running.clock.advance(EXPIRY_MS - 1)
        await heartbeat(running, "c1", consumer("g", "T"))
        running.clock.advance(2)
        assert await commit(running, "g", ("T", 0, 3)) == ResponseCode.SUCCESS
        assert await committed(running, "g", "T") == [1, -1]
        [moved] = await running.pull(offset=3, commit_offset=3, **MEMBERS_PULL)
        assert (moved.status.code, moved.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 1)
        assert await commit(running, "g", ("T", 0, 2)) == ResponseCode.SUCCESS
    async with start_broker() as running:
        assert await committed(running, "g", "T") == [2, -1]
        assert not running.broker.services.offsets.committed.resets


async def test_c10_a_reset_before_members_come_back_replaces_the_one_that_waits_for_them(
    start_broker: StartBroker,
) -> None:
    """Guards against members that get the older place: their later commits undid the newer one."""
    async with start_broker() as running:
        await fill(running)
        await heartbeat(running, "c1", consumer("g", "T"))
        await reset(running, offset=1, queue_id=0, force=True)
    async with start_broker() as running:
        assert places(await reset(running, earliest=True)) == [(0, 1, 0), (1, -1, 0)]
        await heartbeat(running, "c1", consumer("g", "T"))
        [moved] = await running.pull(offset=3, **MEMBERS_PULL)
        assert (moved.status.code, moved.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)


async def test_c10_a_group_that_does_not_come_back_keeps_no_reset(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await overrule(running)
    async with start_broker() as running:
        running.clock.advance(EXPIRY_MS)
        assert await commit(running, "g", ("T", 0, 3)) == ResponseCode.SUCCESS
        assert await committed(running, "g", "T") == [3, -1]


async def test_c10_a_reset_of_a_queue_that_is_shorter_now_ends_where_it_does(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await overrule(running)
    path = tmp_path / "config" / "consumerOffset.json"
    content = json.loads(path.read_text())
    content["rocketpyResets"]["T@g"]["0"] = 9
    path.write_text(json.dumps(content))
    async with start_broker() as running:
        [moved] = await running.pull(offset=1, **MEMBERS_PULL)
        assert (moved.status.code, moved.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 3)


@pytest.mark.parametrize("odd", [[], 1, {"T@g": 1}, {"T@g": {"x": 1}}, {"T@g": {"0": {}}}])
def test_c10_resets_that_cannot_be_read_are_a_broken_file(odd: object) -> None:
    with pytest.raises(
        ValueError, match=r"is no (object|string|integer)|is neither true nor|invalid literal"
    ):
        OffsetTable.from_json(odd)
