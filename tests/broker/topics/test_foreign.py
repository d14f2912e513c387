"""Odd values in RocketMQ's topics.json, which this broker did not write."""

from __future__ import annotations

import json
from pathlib import Path

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import QUEUE_NUMS_MAX
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.broker.running_broker import StartBroker


async def test_b02_a_topic_whose_name_is_no_unicode_hides_no_others(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    table = {"T": {}, "\ud800": {}, "U": {"attributes": {"a": "\ud800"}}}
    (folder / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    async with start_broker() as running:
        answer = await running.admin.ListTopics(admin_pb2.ListTopicsRequest())
        found = await running.data.QueryOffsets(broker_pb2.QueryOffsetsRequest(topic_pattern=".*"))
    assert [topic.topic for topic in found.topics] == ["T", "U"]
    assert answer.status.code == ResponseCode.SUCCESS
    assert {config.topic for config in answer.configs} >= {"T", "U", "?"}


async def test_g01_a_group_that_wants_billions_of_retry_queues_gets_what_a_topic_may_have(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    table = {"g": {"retryQueueNums": 2_147_483_647}}
    (folder / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": table}))
    async with start_broker() as running:
        await running.create_topic("T")
        offset = broker_pb2.CommittedOffset(topic="T", queue_id=0, offset=0)
        request = broker_pb2.CommitOffsetsRequest(consumer_group="g", offsets=[offset])
        assert (await running.data.CommitOffsets(request)).status.code == ResponseCode.SUCCESS
        answer = await running.admin.ListTopics(admin_pb2.ListTopicsRequest(topics=["%RETRY%g"]))
    assert [config.read_queue_nums for config in answer.configs] == [65_536]


async def test_b02_a_topic_of_billions_of_queues_is_read_as_far_as_a_topic_may_go(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Asserts that the file keeps its values."""
    folder = tmp_path / "config"
    folder.mkdir()
    table = {"T": {"readQueueNums": 2_147_483_647, "writeQueueNums": 2_147_483_647, "perm": 6}}
    (folder / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    async with start_broker() as running:
        known = [broker_pb2.KnownOffset(topic="T", queue_id=0, max_offset=0)]
        request = broker_pb2.QueryOffsetsRequest(topics=["T"], known=known, wait_ms_max=9_000)
        (topic,) = (await running.data.QueryOffsets(request)).topics
        assert len(topic.queues) == QUEUE_NUMS_MAX
        (answer,) = await running.pull(topic="T", queue_id=QUEUE_NUMS_MAX)
        assert answer.status.code == ResponseCode.INVALID_PARAMETER
        await running.create_topic("U")
    kept = json.loads((folder / "topics.json").read_text())["topicConfigTable"]["T"]
    assert kept["readQueueNums"] == 2_147_483_647
