"""topics.json: system topics, RocketMQ's files, and what a round trip keeps."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.errors import PermissionDeniedError, TopicIllegalError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.topics.entry import TopicEntry
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.model.configs import TopicConfig
from tests.support.broker import rocketmq_files

NOW_MS = 1_700_000_000_000
# Topic -> queues and permission, as docs/design/storage.md section 12.1 lists them.
ALWAYS = {
    "SELF_TEST_TOPIC": (1, 6),
    "BenchmarkTest": (1024, 6),
    "DefaultCluster": (16, 7),
    "broker-a": (1, 7),
    "OFFSET_MOVED_EVENT": (1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
}
AUTO_CREATE = {"TBW102": (8, 7)}
TIMER = {"rmq_sys_wheel_timer": (1, 6)}


def manager(folder: Path, options: SystemTopicOptions | None = None) -> TopicConfigManager:
    topics = TopicConfigManager(folder, ManualClock(), "DefaultCluster", "broker-a", options)
    topics.load()
    return topics


def saved(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "topics.json").read_text())
    return content


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (SystemTopicOptions(), {**ALWAYS, **AUTO_CREATE, **TIMER}),
        (SystemTopicOptions(auto_create_topic_enable=False), {**ALWAYS, **TIMER}),
        (SystemTopicOptions(timer_wheel_enable=False), {**ALWAYS, **AUTO_CREATE}),
        (
            SystemTopicOptions(trace_topic_enable=True),
            {**ALWAYS, **AUTO_CREATE, **TIMER, "RMQ_SYS_TRACE_TOPIC": (1, 6)},
        ),
        (
            SystemTopicOptions(default_topic_queue_nums=4, revive_queue_nums=2),
            {
                **ALWAYS,
                **TIMER,
                "TBW102": (4, 7),
                "rmq_sys_REVIVE_LOG_DefaultCluster": (2, 6),
            },
        ),
    ],
)
def test_b02_system_topics_follow_the_options(
    tmp_path: Path, options: SystemTopicOptions, expected: dict[str, tuple[int, int]]
) -> None:
    configs = manager(tmp_path, options).list(include_system=True)
    assert {config.topic: (config.read_queue_nums, config.perm) for config in configs} == expected
    assert all(config.read_queue_nums == config.write_queue_nums for config in configs)
    assert saved(tmp_path)["topicConfigTable"].keys() == expected.keys()


@pytest.mark.parametrize(
    "topic",
    [
        *("TBW102", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC", "rmq_sys_x", "BenchmarkTest"),
        *("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"),
    ],
)
def test_b02_reserved_names_stay_reserved_where_the_topic_is_not_made(
    tmp_path: Path, topic: str
) -> None:
    topics = manager(tmp_path, SystemTopicOptions(auto_create_topic_enable=False))
    with pytest.raises(TopicIllegalError, match="reserved"):
        asyncio.run(topics.update(TopicConfig(topic), create_only=True))


def test_b02_loading_adds_to_the_built_in_topics_and_overrides_the_same_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "topics.json").write_text(rocketmq_files.TOPICS)
    topics = manager(tmp_path)
    assert topics.get("BenchmarkTest").read_queue_nums == 7
    assert topics.get("TBW102").read_queue_nums == 8
    assert [config.topic for config in topics.list(include_system=False)] == ["TopicA"]


@pytest.mark.parametrize(
    "topic", ["RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"]
)
def test_b02_topics_that_newer_rocketmq_makes_for_itself_are_the_systems(
    tmp_path: Path, topic: str
) -> None:
    table = {"topicConfigTable": {topic: TopicEntry(TopicConfig(topic, 1, 1)).to_json()}}
    (tmp_path / "topics.json").write_text(json.dumps(table))
    topics = manager(tmp_path)
    assert topics.is_system(topic)
    assert topics.list(include_system=False) == []
    assert topic in [config.topic for config in topics.list(include_system=True)]
    with pytest.raises(PermissionDeniedError, match="system topic"):
        topics.check_writable(topic, 0)


def test_b01_a_topic_of_rocketmq_survives_a_change_of_another_with_all_its_fields(
    tmp_path: Path,
) -> None:
    (tmp_path / "topics.json").write_text(rocketmq_files.TOPICS)
    asyncio.run(manager(tmp_path).update(TopicConfig("Other", 2, 2), create_only=True))
    text = (tmp_path / "topics.json").read_text()
    entry = rocketmq_files.TOPICS.partition('"TopicA":')[2].partition(',\n\t\t"BenchmarkTest"')[0]
    assert json.loads(text)["topicConfigTable"]["TopicA"] == json.loads(entry)
    assert json.loads(text)["newerTable"] == {"1": 2}
    assert f'"TopicA":{entry},\n' in text
    assert manager(tmp_path).get("Other").read_queue_nums == 2


def test_b01_a_changed_topic_keeps_what_nobody_asked_to_change(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(rocketmq_files.TOPICS)
    asyncio.run(
        manager(tmp_path).update(
            TopicConfig("TopicA", 9, 9, 4, attributes={"a": "b"}), create_only=False
        )
    )
    entry = saved(tmp_path)["topicConfigTable"]["TopicA"]
    assert (entry["readQueueNums"], entry["perm"], entry["attributes"]) == (9, 4, {"a": "b"})
    assert (entry["order"], entry["topicFilterType"], entry["topicSysFlag"]) == (
        True,
        "MULTI_TAG",
        2,
    )
    assert entry["newerField"] == [1, {"a": 1}]


def test_b01_each_change_is_one_data_version(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(rocketmq_files.TOPICS)
    topics = manager(tmp_path)
    asyncio.run(topics.update(TopicConfig("T"), create_only=True))
    expected = {"counter": 4, "stateVersion": 2, "timestamp": NOW_MS}
    assert saved(tmp_path)["dataVersion"] == expected
    asyncio.run(topics.delete("T"))
    assert saved(tmp_path)["dataVersion"] == {**expected, "counter": 5}
    asyncio.run(manager(tmp_path).update(TopicConfig("T"), create_only=True))
    assert saved(tmp_path)["dataVersion"] == {**expected, "counter": 6}


def test_b01_numbers_as_strings_missing_and_null_fields_are_read(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(
        "{'topicConfigTable':{'Old':{'topicName':'Old','perm':'4'},"
        "'Odd':{'readQueueNums':'3','writeQueueNums':5,'order':'true','attributes':null,"
        "'topicFilterType':null,'topicSysFlag':'1'}},}"
    )
    topics = manager(tmp_path)
    assert topics.get("Old") == TopicConfig("Old", 16, 16, 4)
    assert topics.get("Odd") == TopicConfig("Odd", 3, 5, 6, order=True, topic_sys_flag=1)
    asyncio.run(topics.update(TopicConfig("T"), create_only=True))
    entry = saved(tmp_path)["topicConfigTable"]["Odd"]
    assert (entry["topicName"], entry["topicFilterType"]) == ("Odd", "SINGLE_TAG")


def test_b01_a_change_that_cannot_be_saved_is_no_change(tmp_path: Path) -> None:
    topics = manager(tmp_path)
    (tmp_path / "topics.json.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        asyncio.run(topics.update(TopicConfig("T"), create_only=True))
    assert topics.list(include_system=False) == []
    (tmp_path / "topics.json.tmp").rmdir()
    asyncio.run(topics.update(TopicConfig("T"), create_only=True))
    assert saved(tmp_path)["dataVersion"]["counter"] == 2


async def test_n12_names_and_configurations_are_those_of_one_moment(tmp_path: Path) -> None:
    topics = manager(tmp_path)
    await topics.update(TopicConfig("TopicA"), create_only=True)
    names = topics.names(include_system=False)
    assert list(names) == ["TopicA"]
    configs = topics.configs(names)
    await topics.update(TopicConfig("TopicB"), create_only=True)
    await topics.delete("TopicA")
    assert [config.topic for config in configs] == ["TopicA"]
    assert list(topics.names(include_system=False)) == ["TopicB"]
