"""Groups that operators create, change and delete, through real gRPC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import groups_pb2
from tests.broker.admin.test_administration import commit, committed
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.running_broker import RunningBroker, StartBroker


async def update(
    running: RunningBroker, group: str, *, create_only: bool = False, **fields: Any
) -> groups_pb2.UpdateGroupResponse:
    config = groups_pb2.GroupConfig(consumer_group=group, **fields)
    request = groups_pb2.UpdateGroupRequest(config=config, create_only=create_only)
    response: groups_pb2.UpdateGroupResponse = await running.groups.UpdateGroup(request)
    return response


async def delete(running: RunningBroker, group: str, **fields: Any) -> Any:
    request = groups_pb2.DeleteGroupRequest(consumer_group=group, **fields)
    return await running.groups.DeleteGroup(request)


async def test_a_change_of_a_group_keeps_what_it_does_not_name(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        made = await update(running, "g", retry_max_times=3, create_only=True)
        assert (made.status.code, made.config.retry_max_times) == (0, 3)
        assert (made.config.retry_queue_nums, made.config.consume_enable) == (1, True)
        changed = await update(running, "g", consume_enable=False, broker_id=0)
        assert (changed.config.retry_max_times, changed.config.consume_enable) == (3, False)
        saved = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_text())
        entry = saved["subscriptionGroupTable"]["g"]
        assert (entry["retryMaxTimes"], entry["consumeEnable"]) == (3, False)
    async with start_broker() as running:
        kept = running.broker.services.groups.configs.get("g")
        assert (kept.retry_max_times, kept.consume_enable) == (3, False)


async def test_a_group_that_may_not_consume_is_refused(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    await update(running, "g", consume_enable=False)
    [refused] = await running.pull(topic="T", queue_id=0, consumer_group="g")
    assert refused.status.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("group", "fields", "said"),
    [
        ("", {}, "consumer_group is ''"),
        ("a b", {}, "consumer_group is 'a b'"),
        ("g" * 121, {}, "1 to 120"),
        ("g" * 100_000, {}, "1 to 120"),
        ("g", {"retry_queue_nums": -1}, "retry_queue_nums is -1, accepted is 0 to 65536"),
        ("g", {"retry_queue_nums": 65_537}, "retry_queue_nums is 65537"),
        ("g", {"retry_max_times": -1}, "retry_max_times is -1"),
        ("g", {"broker_id": -1}, "broker_id is -1"),
        ("g", {"which_broker_when_consume_slowly": -1}, "which_broker_when_consume_slowly is -1"),
        ("g", {"consume_timeout_minute": 0}, "consume_timeout_minute is 0"),
        ("g", {"group_sys_flag": -1}, "group_sys_flag is -1"),
        ("g", {"attributes": {"+a": "b"}}, "attributes is"),
    ],
)
async def test_a_bad_change_is_refused_and_changes_nothing(
    group: str, fields: dict[str, Any], said: str, running: RunningBroker
) -> None:
    await update(running, "known", retry_max_times=3)
    before = running.broker.services.groups.configs.list()
    status = (await update(running, group, **fields)).status
    assert (status.code, said in status.remark) == (ResponseCode.INVALID_PARAMETER, True)
    assert running.broker.services.groups.configs.list() == before


async def test_a_group_that_exists_is_not_created_again(running: RunningBroker) -> None:
    await update(running, "known", retry_max_times=3)
    before = running.broker.services.groups.configs.list()
    status = (await update(running, "known", create_only=True)).status
    assert status.code == ResponseCode.ILLEGAL_OPERATION
    assert "'known' exists already" in status.remark
    assert running.broker.services.groups.configs.list() == before


async def fill(running: RunningBroker) -> None:
    """Creates group g, with progress in T, a retry topic and a dead letter."""
    await running.create_topic("T", queues=1)
    await running.append("T", 0, b"1", b"2")
    await commit(running, "g", ("T", 0, 1))
    await running.create_topic("%DLQ%g", queues=1)
    await running.append("%DLQ%g", 0, b"dead")


async def test_a_group_goes_with_its_progress_and_its_topics(
    tmp_path: Path, running: RunningBroker
) -> None:
    await fill(running)
    await commit(running, "other", ("T", 0, 1))
    gone = await delete(running, "g")
    assert (gone.status.code, list(gone.topics)) == (0, ["%RETRY%g", "%DLQ%g"])
    services = running.broker.services
    assert "g" not in services.groups.configs
    assert not {"%RETRY%g", "%DLQ%g"} & {each.topic for each in all_topics(running)}
    assert await committed(running, "g", "T") == [-1]
    assert await committed(running, "other", "T") == [1]
    saved = json.loads((tmp_path / "config" / "consumerOffset.json").read_text())
    assert list(saved["offsetTable"]) == ["T@other"]
    again = await delete(running, "g")
    assert again.status.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def all_topics(running: RunningBroker) -> Any:
    return running.broker.services.topics.list(include_system=True)


async def test_a_group_may_leave_its_topics(running: RunningBroker) -> None:
    await fill(running)
    assert list((await delete(running, "g", keep_topics=True)).topics) == []
    assert {"%RETRY%g", "%DLQ%g"} <= {each.topic for each in all_topics(running)}
    assert "g" not in running.broker.services.groups.configs


async def test_a_group_with_members_stays_unless_it_is_forced(running: RunningBroker) -> None:
    await fill(running)
    for client_id in ("c1", "c2"):
        await heartbeat(running, client_id, consumer("g", "T"))
    refused = await delete(running, "g")
    assert refused.status.code == ResponseCode.ILLEGAL_OPERATION
    assert "'g' has 2 members online" in refused.status.remark
    assert await committed(running, "g", "T") == [1]
    assert (await delete(running, "g", force=True)).status.code == 0
    assert "g" not in running.broker.services.groups.configs
    await heartbeat(running, "c1", consumer("g", "T"))
    assert "g" in running.broker.services.groups.configs


async def test_the_broker_s_own_groups_stay(running: RunningBroker) -> None:
    for group in ("TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"):
        refused = await delete(running, group, force=True)
        assert refused.status.code == ResponseCode.NO_PERMISSION
        assert group in running.broker.services.groups.configs
