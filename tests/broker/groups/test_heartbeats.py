"""Heartbeats through real gRPC: new members, what they create, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.services.topics.entry import EPOCH, TopicEntry
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import SubscriptionGroupConfig, TopicConfig
from rocketpy_proto.rocketpy.v1 import admin_pb2, groups_pb2
from tests.support.broker.clients.group_clients import (
    connections,
    consumer,
    heartbeat,
    members,
    sql,
    subscription,
    subscriptions,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker


def topic_entry(folder: Path, topic: str) -> dict[str, Any] | None:
    """Returns the entry of a topic in topics.json."""
    table = json.loads((folder / "config" / "topics.json").read_text())["topicConfigTable"]
    entry: dict[str, Any] | None = table.get(topic)
    return entry


def groups_file(folder: Path) -> Path:
    return folder / "config" / "subscriptionGroup.json"


async def test_g01_a_heartbeat_registers_consumers_and_producers(running: RunningBroker) -> None:
    data = consumer(
        "g",
        subscription("T", 7, "a || b"),
        consume_type=groups_pb2.CONSUME_ACTIVELY,
        message_model=groups_pb2.BROADCASTING,
        consume_from_where=groups_pb2.CONSUME_FROM_TIMESTAMP,
        unit_mode=True,
    )
    data.subscriptions[0].expression_type = "TAG"
    assert (await heartbeat(running, "c1", data, producers=["g", "p"])).code == 0
    found = await connections(running, "g")
    assert found.consumer_data == data
    now_ms = running.clock.now_ms()
    [consuming], [producing] = found.consumers, found.producers
    assert consuming == producing
    assert (consuming.client_id, consuming.last_update_ms) == ("c1", now_ms)
    assert consuming.address.startswith("127.0.0.1:")
    assert [each.client_id for each in (await connections(running, "p")).producers] == ["c1"]


async def test_g01_the_first_heartbeat_makes_the_group_and_its_retry_topic_on_disk(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        assert (await heartbeat(running, "c1", consumer("g", "T"))).code == 0
        table = json.loads(groups_file(tmp_path).read_text())["subscriptionGroupTable"]
        assert table["g"]["retryQueueNums"] == 1
        entry = topic_entry(tmp_path, "%RETRY%g")
    assert entry is not None
    assert entry.pop("attributes").keys() == {EPOCH}
    assert entry == {
        "order": False,
        "perm": 6,
        "readQueueNums": 1,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "%RETRY%g",
        "topicSysFlag": 0,
        "writeQueueNums": 1,
    }


async def test_g01_heartbeats_that_bring_nothing_new_write_nothing(
    tmp_path: Path, running: RunningBroker
) -> None:
    await heartbeat(running, "c1", consumer("g", "T"))
    files = [groups_file(tmp_path), tmp_path / "config" / "topics.json"]
    before = [path.stat().st_ino for path in files]
    await heartbeat(running, "c1", consumer("g", "T", "U"))
    await heartbeat(running, "c2", consumer("g", "T"))
    assert [path.stat().st_ino for path in files] == before


async def test_g01_producers_make_neither_group_nor_topic(
    tmp_path: Path, running: RunningBroker
) -> None:
    assert (await heartbeat(running, "c1", producers=["p"])).code == 0
    assert not groups_file(tmp_path).exists()
    assert topic_entry(tmp_path, "%RETRY%p") is None


@pytest.mark.parametrize("nums", [0, 3])
async def test_g01_the_retry_topic_has_as_many_queues_as_the_group_says(
    start_broker: StartBroker, tmp_path: Path, nums: int
) -> None:
    async with start_broker() as running:
        configs = running.broker.services.groups.configs
        await configs.update(SubscriptionGroupConfig("g", retry_queue_nums=nums))
        await heartbeat(running, "c1", consumer("g"))
        entry = topic_entry(tmp_path, "%RETRY%g")
        assert entry is not None
        assert (entry["readQueueNums"], entry["writeQueueNums"]) == (nums, nums)
    async with start_broker() as running:
        assert running.broker.services.topics.get("%RETRY%g").read_queue_nums == nums


async def test_g01_the_retry_topic_is_ordered_as_long_as_a_subscribed_topic_is(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.broker.services.topics.update(TopicConfig("O", order=True), create_only=True)
        await heartbeat(running, "c1", consumer("g", "T", "O"))
        first = topic_entry(tmp_path, "%RETRY%g")
        await heartbeat(running, "c1", consumer("g", "T"))
        second = topic_entry(tmp_path, "%RETRY%g")
    assert first is not None
    assert first["order"] is True
    assert second == {**first, "order": False}


async def test_g01_a_retry_topic_that_is_there_keeps_all_but_its_order(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        topics = running.broker.services.topics
        config = TopicConfig("%RETRY%g", 5, 4, 4, order=True, attributes={"a": "b"})
        made = TopicEntry(config, extra={"x": 1}, epoch=5)
        await topics.replicate({"%RETRY%g": made})
        await heartbeat(running, "c1", consumer("g", "T", unit_mode=True))
        entry = topic_entry(tmp_path, "%RETRY%g")
    assert entry == {**made.to_json(), "order": False}


async def test_g01_unit_mode_marks_a_new_retry_topic(
    tmp_path: Path, running: RunningBroker
) -> None:
    await heartbeat(running, "c1", consumer("g", "T", unit_mode=True))
    entry = topic_entry(tmp_path, "%RETRY%g")
    assert entry is not None
    assert entry["topicSysFlag"] == 2


async def test_g01_many_groups_of_one_heartbeat_are_one_save(
    tmp_path: Path, running: RunningBroker
) -> None:
    data = [consumer(f"g{number}", "T") for number in range(100)]
    assert (await heartbeat(running, "c1", *data)).code == 0
    topics = json.loads((tmp_path / "config" / "topics.json").read_text())
    assert sum(name.startswith("%RETRY%g") for name in topics["topicConfigTable"]) == 100
    backup = json.loads((tmp_path / "config" / "topics.json.bak").read_text())
    assert not any(name.startswith("%RETRY%") for name in backup["topicConfigTable"])


async def test_g01_a_full_disk_keeps_no_client_out_and_the_next_heartbeat_makes_the_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, running: RunningBroker
) -> None:
    obstacle = tmp_path / "config" / "topics.json.tmp"
    obstacle.mkdir()
    assert (await heartbeat(running, "c1", consumer("g", "T"))).code == 0
    assert await members(running, "g") == ["c1"]
    assert "retry topics could not be created yet" in caplog.text
    assert "%RETRY%g" not in running.broker.services.topics
    obstacle.rmdir()
    await heartbeat(running, "c1", consumer("g", "T"))
    assert topic_entry(tmp_path, "%RETRY%g") is not None


async def test_n12_g01_a_full_disk_is_told_once_a_minute_however_many_heartbeats_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, running: RunningBroker
) -> None:
    for name in ("topics", "subscriptionGroup"):
        (tmp_path / "config" / f"{name}.json.tmp").mkdir(parents=True)
    for minute in (1, 2):
        for number in range(5):
            assert (await heartbeat(running, "c1", consumer(f"g{number}", "T"))).code == 0
            assert (await heartbeat(running, "c1", consumer(f"h{minute}{number}"))).code == 0
        for words in ("retry topics could not be created yet", "new groups could not be saved"):
            assert caplog.text.count(words) == minute
        running.clock.advance(60_000)
    for name in ("topics", "subscriptionGroup"):
        (tmp_path / "config" / f"{name}.json.tmp").rmdir()


async def test_g01_retry_topics_are_listed_with_the_brokers_own(running: RunningBroker) -> None:
    await running.create_topic("T")
    await heartbeat(running, "c1", consumer("g", "T"))

    async def listed(*, system: bool) -> set[str]:
        request = admin_pb2.ListTopicsRequest(include_system=system)
        return {each.topic for each in (await running.admin.ListTopics(request)).configs}

    assert await listed(system=False) == {"T"}
    assert {"T", "%RETRY%g", "TBW102"} <= await listed(system=True)


async def test_g01_the_group_consumes_as_its_latest_heartbeat_says(running: RunningBroker) -> None:
    await heartbeat(running, "c1", consumer("g", "T"))
    await heartbeat(
        running,
        "c2",
        consumer(
            "g",
            "T",
            consume_type=groups_pb2.CONSUME_POP,
            consume_from_where=groups_pb2.CONSUME_FROM_FIRST_OFFSET,
        ),
    )
    data = (await connections(running, "g")).consumer_data
    assert data.consume_type == groups_pb2.CONSUME_POP
    assert data.consume_from_where == groups_pb2.CONSUME_FROM_FIRST_OFFSET


async def test_g01_an_empty_expression_is_every_message(running: RunningBroker) -> None:
    await heartbeat(running, "c1", consumer("g", subscription("T", 3, "")))
    assert await subscriptions(running, "g") == {"T": (3, "*")}


async def test_g01_a_condition_of_sql_is_kept_as_it_is(running: RunningBroker) -> None:
    assert (await heartbeat(running, "c1", consumer("g", sql("a > 1")))).code == 0
    assert await subscriptions(running, "g") == {"T": (0, "a > 1")}


async def test_g01_without_auto_creation_an_unknown_group_refuses_the_whole_heartbeat(
    start_broker: StartBroker,
) -> None:
    async with start_broker(auto_create_subscription_group=False) as running:
        await running.broker.services.groups.configs.update(SubscriptionGroupConfig("known"))
        status = await heartbeat(running, "c1", consumer("known"), consumer("g"))
        assert status.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "consumer group 'g' does not exist" in status.remark
        assert await members(running, "known") == []
        assert (await heartbeat(running, "c1", consumer("known"))).code == 0
        assert await members(running, "known") == ["c1"]
