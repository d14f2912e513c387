"""subscriptionGroup.json: predefined groups, first use, changes, RocketMQ's files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.errors import (
    ParameterIllegalError,
    PermissionDeniedError,
    SubscriptionGroupNotExistError,
)
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.groups.manager import PREDEFINED, SubscriptionGroupManager
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from tests.support.broker import rocketmq_files

NOW_MS = 1_700_000_000_000
FILE = "subscriptionGroup.json"


def manager(folder: Path, *, auto_create: bool = True) -> SubscriptionGroupManager:
    groups = SubscriptionGroupManager(
        folder, ManualClock(), auto_create_subscription_group=auto_create
    )
    groups.load()
    return groups


def saved(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / FILE).read_text())
    return content


def created(groups: SubscriptionGroupManager, group: str) -> SubscriptionGroupConfig:
    """Creates a group by its first use."""
    config = groups.get_or_create(group)
    asyncio.run(groups.save_new())
    return config


def names(groups: SubscriptionGroupManager) -> set[str]:
    return {config.group for config in groups.list()}


def test_b01_predefined_groups_are_there_from_the_start(tmp_path: Path) -> None:
    assert names(manager(tmp_path)) == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
    assert not (tmp_path / FILE).exists()


def test_b01_a_new_group_has_the_defaults_of_rocketmq(tmp_path: Path) -> None:
    created(manager(tmp_path), "g1")
    assert saved(tmp_path)["subscriptionGroupTable"]["g1"] == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "g1",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert saved(tmp_path)["forbiddenTable"] == {}
    assert saved(tmp_path)["dataVersion"] == {
        "counter": 1,
        "stateVersion": 0,
        "timestamp": NOW_MS,
    }


def test_c01_a_group_is_created_once_by_its_first_use(tmp_path: Path) -> None:
    groups = manager(tmp_path)
    first = created(groups, "g1")
    assert groups.get_or_create("g1") is first
    assert manager(tmp_path).get("g1").retry_max_times == 16
    assert saved(tmp_path)["dataVersion"]["counter"] == 1


def test_c01_without_auto_creation_a_group_must_be_there(tmp_path: Path) -> None:
    groups = manager(tmp_path, auto_create=False)
    with pytest.raises(SubscriptionGroupNotExistError, match="'g1'") as raised:
        groups.get_or_create("g1")
    assert raised.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    asyncio.run(groups.update(SubscriptionGroupConfig("g1")))
    assert groups.get_or_create("g1") == groups.get("g1")


@pytest.mark.parametrize("group", ["", "a b", "ä", "x" * 121, "../x"])
def test_b01_illegal_names_are_refused(tmp_path: Path, group: str) -> None:
    groups = manager(tmp_path)
    with pytest.raises(ParameterIllegalError, match="consumer_group"):
        groups.get_or_create(group)
    with pytest.raises(ParameterIllegalError, match="consumer_group"):
        asyncio.run(groups.update(SubscriptionGroupConfig(group)))
    assert names(groups) == set(PREDEFINED)


def test_b01_a_group_of_rocketmq_survives_with_all_its_fields(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(rocketmq_files.GROUPS)
    groups = manager(tmp_path)
    assert groups.get("g1").retry_max_times == 3
    created(groups, "g2")
    before = json.loads(rocketmq_files.GROUPS)
    after = saved(tmp_path)
    assert after["subscriptionGroupTable"]["g1"] == before["subscriptionGroupTable"]["g1"]
    assert after["forbiddenTable"] == before["forbiddenTable"]
    assert after["dataVersion"] == {"counter": 4, "stateVersion": 2, "timestamp": NOW_MS}


def test_b01_an_update_keeps_unknown_fields(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(rocketmq_files.GROUPS)
    asyncio.run(manager(tmp_path).update(SubscriptionGroupConfig("g1", retry_max_times=5)))
    entry = saved(tmp_path)["subscriptionGroupTable"]["g1"]
    assert (entry["retryMaxTimes"], entry["newerField"]) == (5, "kept")
    assert saved(tmp_path)["forbiddenTable"] == {"g1": {"TopicA": 2}}


def test_b01_a_deleted_group_takes_its_forbidden_topics_along(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(rocketmq_files.GROUPS)
    groups = manager(tmp_path)
    asyncio.run(groups.delete("g1"))
    assert saved(tmp_path)["forbiddenTable"] == {}
    assert names(manager(tmp_path)) == set(PREDEFINED)
    with pytest.raises(SubscriptionGroupNotExistError):
        asyncio.run(groups.delete("g1"))
    with pytest.raises(PermissionDeniedError, match="cannot be deleted"):
        asyncio.run(groups.delete("TOOLS_CONSUMER"))


def test_b01_a_negative_number_of_retry_queues_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterIllegalError, match="retry_queue_nums is -1"):
        asyncio.run(manager(tmp_path).update(SubscriptionGroupConfig("g1", retry_queue_nums=-1)))


def test_b01_a_group_that_cannot_be_saved_yet_is_saved_with_the_schedule(tmp_path: Path) -> None:
    groups = manager(tmp_path)
    (tmp_path / (FILE + ".tmp")).mkdir()
    created(groups, "g1")
    with pytest.raises(IsADirectoryError):
        save_now(groups._table)
    with pytest.raises(IsADirectoryError):
        asyncio.run(groups.update(SubscriptionGroupConfig("g2")))
    assert names(groups) == {*PREDEFINED, "g1"}
    (tmp_path / (FILE + ".tmp")).rmdir()
    save_now(groups._table)
    assert names(manager(tmp_path)) == {*PREDEFINED, "g1"}
    text = (tmp_path / FILE).stat()
    save_now(groups._table)
    assert (tmp_path / FILE).stat().st_ino == text.st_ino
