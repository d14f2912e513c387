"""Sends to topics that take one type of message only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import Record, decode_record, encode_record
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.blocks import WireBlock
from tests.support.broker.running_broker import RunningBroker, StartBroker

PROPERTIES = {
    "NORMAL": {"TAGS": "a"},
    "PRIORITY": {"_SYS_MSG_PRIORITY_": "3"},
    "FIFO": {"__SHARDINGKEY": "order-1"},
    "DELAY": {"DELAY": "3"},
    "TRANSACTION": {"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": "u"},
}


def block_of(*properties: dict[str, str]) -> WireBlock:
    """Returns a block of topic T with a record for each."""
    records = [encode_record(Record("T", 0, b"body", each)) for each in properties]
    sizes = np.array([len(record) for record in records], ">i4")
    return WireBlock(b"".join(records), sizes.tobytes())


async def topic(running: RunningBroker, message_type: str | None) -> None:
    attributes = {} if message_type is None else {"+message.type": message_type}
    config = admin_pb2.TopicConfig(topic="T", attributes=attributes)
    response = await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
    assert response.status.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("message_type", PROPERTIES)
async def test_n03_p01_a_topic_takes_messages_of_its_type_only(
    message_type: str, running: RunningBroker
) -> None:
    await topic(running, message_type)
    for sent, properties in PROPERTIES.items():
        response = await running.append_block("T", 0, block_of(properties))
        if sent == message_type:
            assert response.status.code == ResponseCode.SUCCESS
            continue
        assert response.status.code == ResponseCode.MESSAGE_ILLEGAL
        assert response.status.remark.startswith(
            f"message 0 of the block is of type {sent}, and topic 'T' has the message type "
            f"{message_type}."
        )


@pytest.mark.parametrize("message_type", [None, "UNSPECIFIED", "MIXED"])
async def test_n03_other_topics_take_all_types(
    start_broker: StartBroker, message_type: str | None
) -> None:
    async with start_broker(enable_mixed_message_type=True) as running:
        await topic(running, message_type)
        for properties in PROPERTIES.values():
            response = await running.append_block("T", 0, block_of(properties))
            assert response.status.code == ResponseCode.SUCCESS


# Properties of RocketMQ 5.5, such as short-lived topics that this broker has not.
NEWER = {
    "__LITE_TOPIC": "lite-7",
    "TRANS_OFFSET": "12",
    "ORIGIN_GROUP": "group",
}


@pytest.mark.parametrize("message_type", ["PRIORITY", "LITE", "NORMAL"])
async def test_n03_newer_types_stay_and_newer_properties_come_whole(
    start_broker: StartBroker, tmp_path: Path, message_type: str
) -> None:
    attributes = {"message.type": message_type, "lite.topic.expiration": "30"}
    entry: dict[str, Any] = {"topicName": "T", "readQueueNums": 1, "writeQueueNums": 1}
    table = {"T": {**entry, "attributes": attributes}}
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    sent = NEWER | (PROPERTIES["PRIORITY"] if message_type == "PRIORITY" else {})
    async with start_broker() as running:
        response = await running.append_block("T", 0, block_of(sent))
        assert response.status.code == ResponseCode.SUCCESS, response.status.remark
        pulled = await running.pull(topic="T", queue_id=0)
        record = decode_record(pulled[0].records).record
        assert record.properties == sent
        config = admin_pb2.TopicConfig(topic="T", perm=6)
        await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
    saved = json.loads((tmp_path / "config" / "topics.json").read_text())
    assert saved["topicConfigTable"]["T"]["attributes"].items() >= attributes.items()


async def test_n03_the_check_can_be_switched_off(start_broker: StartBroker) -> None:
    async with start_broker(enable_topic_message_type_check=False) as running:
        await topic(running, "NORMAL")
        response = await running.append_block("T", 0, block_of(PROPERTIES["DELAY"]))
        assert response.status.code == ResponseCode.SUCCESS


async def test_n03_one_message_of_another_type_refuses_the_whole_block(
    running: RunningBroker,
) -> None:
    await topic(running, "NORMAL")
    fifo = {"KEYS": "k", "__SHARDINGKEY": "s"}
    response = await running.append_block("T", 0, block_of({}, {}, fifo))
    assert response.status.code == ResponseCode.MESSAGE_ILLEGAL
    assert response.status.remark.startswith("message 2 of the block is of type FIFO")
    [pulled] = await running.pull(topic="T", queue_id=0)
    assert pulled.status.code == ResponseCode.PULL_NOT_FOUND


async def test_n03_a_message_that_waited_or_was_sent_back_is_not_checked_again(
    running: RunningBroker,
) -> None:
    await topic(running, "DELAY")
    await running.append_block("T", 0, block_of({"DELAY": "1"}))
    running.clock.advance(1_000)
    pulled = await running.pull(topic="T", queue_id=0, wait_ms_max=60_000)
    assert pulled[0].status.code == ResponseCode.SUCCESS
