"""Topic updates through gRPC: named fields, kept fields, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.broker.running_broker import RunningBroker, StartBroker

OK, ILLEGAL = ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER
ATTRIBUTE_ERROR = ResponseCode.SYSTEM_ERROR


async def update(
    running: RunningBroker, topic: str, *, create_only: bool = False, **fields: Any
) -> tuple[int, str]:
    """Updates a topic; returns code and remark."""
    request = admin_pb2.UpdateTopicRequest(
        config=admin_pb2.TopicConfig(topic=topic, **fields), create_only=create_only
    )
    status = (await running.admin.UpdateTopic(request)).status
    return status.code, status.remark


async def shown(running: RunningBroker, topic: str) -> admin_pb2.TopicConfig:
    response = await running.admin.ListTopics(admin_pb2.ListTopicsRequest(topics=[topic]))
    config: admin_pb2.TopicConfig = response.configs[0]
    return config


def saved(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "config" / "topics.json").read_text())
    return content


def version(folder: Path) -> int:
    counter: int = saved(folder)["dataVersion"]["counter"]
    return counter


async def test_n03_a_new_topic_gets_what_the_request_does_not_name(running: RunningBroker) -> None:
    assert await update(running, "T") == (OK, "")
    assert await shown(running, "T") == admin_pb2.TopicConfig(
        topic="T",
        read_queue_nums=8,
        write_queue_nums=8,
        perm=6,
        order=False,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )


async def test_n03_an_update_keeps_all_that_it_does_not_name(
    tmp_path: Path, running: RunningBroker
) -> None:
    await update(
        running,
        "T",
        read_queue_nums=4,
        write_queue_nums=3,
        perm=4,
        order=True,
        topic_filter_type="MULTI_TAG",
        topic_sys_flag=3,
        attributes={"+message.type": "FIFO", "+reserve.time": "1000"},
    )
    assert await update(running, "T", perm=6) == (OK, "")
    assert await update(running, "T", attributes={"-reserve.time": ""}) == (OK, "")
    epoch = str(running.broker.services.topics.epoch("T"))
    assert saved(tmp_path)["topicConfigTable"]["T"] == {
        "attributes": {"message.type": "FIFO", "rocketpy.epoch": epoch},
        "order": True,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "MULTI_TAG",
        "topicName": "T",
        "topicSysFlag": 3,
        "writeQueueNums": 3,
    }
    assert await update(running, "T", order=False) == (OK, "")
    found = await shown(running, "T")
    assert (found.order, found.topic_sys_flag, dict(found.attributes)) == (
        False,
        3,
        {"message.type": "FIFO"},
    )


async def test_n03_b01_a_real_change_is_one_data_version_and_a_repeated_one_none(
    tmp_path: Path, running: RunningBroker
) -> None:
    await update(running, "T", perm=6)
    before, written_ns = version(tmp_path), written(tmp_path)
    attributes = {"+message.type": "DELAY"}
    for _ in range(3):
        assert await update(running, "T", perm=4, attributes=attributes) == (OK, "")
    assert version(tmp_path) == before + 1
    changed_ns = written(tmp_path)
    assert changed_ns > written_ns
    assert await update(running, "T") == (OK, "")
    assert (version(tmp_path), written(tmp_path)) == (before + 1, changed_ns)


def written(folder: Path) -> int:
    return (folder / "config" / "topics.json").stat().st_mtime_ns


async def test_n03_a_refused_update_changes_nothing(tmp_path: Path, running: RunningBroker) -> None:
    await update(running, "T", attributes={"+message.type": "FIFO"})
    before = saved(tmp_path)
    code, _ = await update(running, "T", perm=4, attributes={"+reserve.time": "5", "+unknown": "x"})
    assert code == ATTRIBUTE_ERROR
    assert saved(tmp_path) == before
    assert (await shown(running, "T")).perm == 6


async def test_n03_fewer_queues_hide_messages_and_more_show_them_again(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", queues=4)
    await running.append("T", 3, b"hidden")
    assert await update(running, "T", read_queue_nums=2, write_queue_nums=2) == (OK, "")
    assert (await running.append("T", 3, b"x")).status.code == ILLEGAL
    [pulled] = await running.pull(topic="T", queue_id=3)
    assert pulled.status.code == ILLEGAL
    assert await update(running, "T", read_queue_nums=4) == (OK, "")
    [pulled] = await running.pull(topic="T", queue_id=3)
    assert (pulled.status.code, len(pulled.record_sizes)) == (OK, 4)
    assert (await running.append("T", 3, b"x")).status.code == ILLEGAL


async def test_n03_a_change_of_permission_counts_at_once(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    await update(running, "T", perm=4)
    code = (await running.append("T", 0, b"x")).status.code
    assert code == ResponseCode.NO_PERMISSION
    await update(running, "T", perm=2)
    assert (await running.append("T", 0, b"x")).status.code == OK
    [pulled] = await running.pull(topic="T", queue_id=0)
    assert pulled.status.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "topic name '' is illegal"),
        ("a b", "is illegal"),
        ("../x", "is illegal"),
        ("/etc/passwd", "is illegal"),
        ("..", "is illegal"),
        ("a\\b", "is illegal"),
        ("a.b", "is illegal"),
        ("x\0", "is illegal"),
        ("ä", "is illegal"),
        ("x" * 128, "use 1 to 127 of the characters"),
        ("DefaultCluster", "The topic[DefaultCluster] is conflict with system topic."),
        ("broker-a", "The topic[broker-a] is conflict with system topic."),
        ("TBW102", "is conflict with system topic."),
        ("rmq_sys_any", "is conflict with system topic."),
        ("SCHEDULE_TOPIC_XXXX", "is conflict with system topic."),
        ("DefaultCluster_REPLY_TOPIC", "is conflict with system topic."),
    ],
)
async def test_n03_b02_names_that_no_client_may_give_are_refused(
    tmp_path: Path, topic: str, remark: str, running: RunningBroker
) -> None:
    before = saved(tmp_path)
    code, said = await update(running, topic, perm=4)
    assert code == ILLEGAL
    assert remark in said
    assert saved(tmp_path) == before


async def test_n03_a_name_of_a_megabyte_is_not_told_back(running: RunningBroker) -> None:
    code, said = await update(running, "x" * (256 << 10))
    assert code == ILLEGAL
    assert len(said) < 400


async def test_n03_a_request_of_megabytes_is_refused_before_it_is_decoded(
    running: RunningBroker,
) -> None:
    code, said = await update(running, "T", attributes={"+message.type": "x" * (1 << 20)})
    assert code == ILLEGAL
    assert "bytes of the request is" in said


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"read_queue_nums": 0}, "read_queue_nums of topic 'T' is 0, accepted is 1 to 65536"),
        ({"write_queue_nums": -1}, "write_queue_nums of topic 'T' is -1, accepted is 1 to 65536"),
        ({"read_queue_nums": 65_537}, "is 65537, accepted is 1 to 65536"),
        ({"perm": 0}, "perm of topic 'T' is 0, accepted is 1 to 7"),
        ({"perm": 8}, "perm of topic 'T' is 8, accepted is 1 to 7"),
        ({"perm": -1}, "perm of topic 'T' is -1, accepted is 1 to 7"),
        ({"topic_filter_type": ""}, "topic_filter_type of topic 'T' is ''"),
        ({"topic_filter_type": "ALL"}, "is 'ALL', accepted is SINGLE_TAG or MULTI_TAG"),
        ({"topic_sys_flag": 4}, "topic_sys_flag of topic 'T' is 4, accepted is 0 to 3"),
        ({"topic_sys_flag": -1}, "topic_sys_flag of topic 'T' is -1, accepted is 0 to 3"),
        ({"attributes": {"+message.type": "MIXED"}}, "MIXED message type is not supported."),
    ],
)
@pytest.mark.parametrize("is_new", [True, False])
async def test_n03_values_that_no_topic_can_have_are_refused(
    running: RunningBroker, *, fields: dict[str, Any], remark: str, is_new: bool
) -> None:
    if not is_new:
        await running.create_topic("T")
    code, said = await update(running, "T", **fields)
    assert code == ILLEGAL
    assert remark in said


@pytest.mark.parametrize(
    ("attributes", "remark"),
    [
        ({"+unknown": "x"}, "unsupported key: 'unknown'; accepted are cleanup.policy, message"),
        ({"+delete.policy": "x"}, "unsupported key: 'delete.policy'"),
        ({"message.type": "FIFO"}, "attribute 'message.type' has a wrong form"),
        ({"": "x"}, "attribute '' has a wrong form"),
        ({"+": "x"}, "attribute '+' has a wrong form"),
        ({"+message.type": "fifo"}, "message.type is 'fifo', accepted is UNSPECIFIED, NORMAL"),
        ({"+message.type": ""}, "message.type is '', accepted is"),
        ({"+queue.type": "Any"}, "queue.type is 'Any', accepted is SimpleCQ"),
        ({"+queue.type": "BatchCQ"}, "queue.type is 'BatchCQ', which this broker does not support"),
        ({"+message.type": "LITE"}, "is 'LITE', which this broker does not support"),
        ({"+cleanup.policy": "COMPACTION"}, "is 'COMPACTION', which this broker does not support"),
        ({"+reserve.time": "soon"}, "reserve.time is 'soon', accepted is a number of ms"),
        ({"+reserve.time": "-2"}, "reserve.time is '-2', accepted is"),
        ({"+reserve.time": str(1 << 63)}, "reserve.time is '9223372036854775808'"),
        ({"+reserve.time": "1" * 5000}, "reserve.time is '1111"),
        ({"+reserve.time": "٣"}, "reserve.time is '٣', accepted is"),
        ({"-message.type": ""}, "the topic has no attribute 'message.type' to remove"),
        (
            {"+message.type": "FIFO", "-message.type": ""},
            "attribute 'message.type' is named twice",
        ),
        ({f"+{number}": "x" for number in range(17)}, "17 changes of attributes, accepted are 16"),
        ({"-queue.type": ""}, "queue.type is 'SimpleCQ', and cannot change"),
    ],
)
async def test_n03_attributes_that_cannot_be_are_refused(
    attributes: dict[str, str], remark: str, running: RunningBroker
) -> None:
    assert await update(running, "T", attributes={"+queue.type": "SimpleCQ"}) == (OK, "")
    code, said = await update(running, "T", attributes=attributes)
    assert code == ATTRIBUTE_ERROR
    assert remark in said
    assert len(said) < 400


async def test_n03_an_attribute_cannot_be_removed_from_a_new_topic(running: RunningBroker) -> None:
    code, said = await update(running, "T", attributes={"-message.type": ""})
    assert code == ATTRIBUTE_ERROR
    assert "cannot be removed from a topic that is being created" in said


async def test_n03_mixed_message_types_can_be_allowed(start_broker: StartBroker) -> None:
    async with start_broker(enable_mixed_message_type=True) as running:
        assert await update(running, "T", attributes={"+message.type": "MIXED"}) == (OK, "")


async def test_n03_what_rocketmq_has_set_stays_where_it_means_nothing_here(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    entry = {"perm": 9, "readQueueNums": -1, "attributes": {"queue.type": "BatchCQ", "newer": "1"}}
    (tmp_path / "config").mkdir()
    content = {"topicConfigTable": {"T": entry}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps(content))
    async with start_broker() as running:
        assert await update(running, "T", write_queue_nums=3) == (OK, "")
        found = saved(tmp_path)["topicConfigTable"]["T"]
        assert (found["perm"], found["readQueueNums"], found["writeQueueNums"]) == (9, -1, 3)
        assert found["attributes"] == entry["attributes"]
        code, said = await update(running, "T", attributes={"+queue.type": "SimpleCQ"})
        assert (code, "cannot change" in said) == (ATTRIBUTE_ERROR, True)
        assert await update(running, "T", attributes={"-newer": ""}) == (OK, "")
        assert (await shown(running, "T")).attributes == {"queue.type": "BatchCQ"}
