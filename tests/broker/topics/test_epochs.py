"""Epochs of topics: a recreated topic is distinguished, through real gRPC."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.topics.entry import EPOCH
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.values import GetMessageResult
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.blocks import bodies_of
from tests.support.broker.running_broker import RunningBroker, StartBroker

GONE = ResponseCode.TOPIC_NOT_EXIST


async def offsets_of(running: RunningBroker, **fields: Any) -> broker_pb2.TopicOffsets:
    """Returns the offsets of topic T."""
    response = await running.data.QueryOffsets(
        broker_pb2.QueryOffsetsRequest(topics=["T"], **fields)
    )
    found: broker_pb2.TopicOffsets = response.topics[0]
    return found


async def epoch_of(running: RunningBroker) -> int:
    return int((await offsets_of(running)).topic_epoch)


async def delete(running: RunningBroker) -> None:
    response = await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
    assert response.status.code == ResponseCode.SUCCESS


async def make_again(running: RunningBroker, *bodies: bytes) -> None:
    """Deletes topic T and recreates it with these messages."""
    await delete(running)
    await running.create_topic("T", 1)
    if bodies:
        assert (await running.append("T", 0, *bodies)).status.code == ResponseCode.SUCCESS


async def test_s9_an_epoch_survives_restarts_and_updates_and_is_no_attribute(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T", 1)
        first = await epoch_of(running)
        config = admin_pb2.TopicConfig(topic="T", read_queue_nums=2, write_queue_nums=2)
        config.attributes["+message.type"] = "NORMAL"
        await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
        listed = await running.admin.ListTopics(admin_pb2.ListTopicsRequest(topics=["T"]))
        assert dict(listed.configs[0].attributes) == {"message.type": "NORMAL"}
        config.attributes.clear()
        config.attributes["-" + EPOCH] = ""
        refused = await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
        assert refused.status.code != ResponseCode.SUCCESS
    async with start_broker() as running:
        assert await epoch_of(running) == first > 0
        await make_again(running)
        assert await epoch_of(running) not in {0, first}


async def test_s9_a_pull_of_a_topic_that_was_made_again_is_refused_by_name(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", 1)
    old = await epoch_of(running)
    await make_again(running, b"new")
    (refused,) = await running.pull(topic="T", topic_epoch=old)
    assert refused.status.code == GONE
    assert (
        f"topic 'T' was deleted and recreated: the request names epoch {old}"
        in refused.status.remark
    )
    assert not refused.records
    for epoch in (0, await epoch_of(running)):
        (answer, *_) = await running.pull(topic="T", topic_epoch=epoch)
        assert bodies_of(answer.records, answer.record_sizes) == [b"new"]
    await delete(running)
    (refused,) = await running.pull(topic="T", topic_epoch=old)
    assert refused.status.code == GONE


async def test_s9_a_held_pull_gets_nothing_of_the_topic_that_comes_in_place(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", 1)
    epoch = await epoch_of(running)
    pull = asyncio.ensure_future(running.pull(topic="T", topic_epoch=epoch, wait_ms_max=30_000))
    await running.held(1)
    await make_again(running, b"new")
    (answer,) = await pull
    assert answer.status.code == GONE


@pytest.mark.parametrize("expression", ["", "TAGS IS NULL"])
async def test_s9_a_pull_under_way_ends_where_its_topic_does(
    expression: str, running: RunningBroker
) -> None:
    await running.create_topic("T", 1)
    for _ in range(20):
        await running.append("T", 0, *[b"old" + bytes(40_000)] * 10)
    request = broker_pb2.PullRequest(
        topic="T",
        offset_end=200,
        response_bytes_max=100_000,
        topic_epoch=await epoch_of(running),
        expression=expression,
        expression_type="SQL92" if expression else "",
    )
    call = aiter(running.data.Pull(request))
    answers = [await anext(call)]
    await make_again(running)
    for _ in range(20):
        await running.append("T", 0, *[b"new" + bytes(40_000)] * 10)
    answers += [answer async for answer in call]
    bodies = [body for answer in answers for body in bodies_of(answer.records, answer.record_sizes)]
    assert 0 < len(bodies) < 200
    assert {body[:3] for body in bodies} == {b"old"}
    request.offset = len(bodies)
    assert [answer.status.code async for answer in running.data.Pull(request)] == [GONE]


async def test_s9_what_a_filter_looked_for_while_others_had_turns_is_looked_at_again(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", 1)
    await running.append("T", 0, b"a")
    epoch = await epoch_of(running)
    matching = running.broker.services.pull.pulls._matching
    looked_at = matching.get_message

    async def made_again_meanwhile(*wanted: Any) -> GetMessageResult:
        found = await looked_at(*wanted)
        await make_again(running, b"new")
        return found

    matching.get_message = made_again_meanwhile  # type: ignore[method-assign, assignment]
    (refused,) = await running.pull(
        topic="T", topic_epoch=epoch, expression="TAGS IS NULL", expression_type="SQL92"
    )
    assert refused.status.code == GONE
    assert not refused.records


async def test_s9_a_held_offset_query_tells_of_a_topic_that_is_as_long_as_the_old_one(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", 1)
    await running.append("T", 0, b"a")
    old = await offsets_of(running)
    known = [
        broker_pb2.KnownOffset(topic="T", queue_id=0, max_offset=1, topic_epoch=old.topic_epoch)
    ]
    await make_again(running, b"b")
    # Not held: a test that waits for a clock that stands still would not end.
    new = await offsets_of(running, known=known, wait_ms_max=30_000)
    assert new.topic_epoch not in {0, old.topic_epoch}
    assert new.queues[0].max_offset == 1


async def test_s9_progress_of_a_topic_that_was_made_again_is_refused(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", 1)
    entry = broker_pb2.CommittedOffset(
        topic="T", queue_id=0, offset=7, topic_epoch=await epoch_of(running)
    )
    request = broker_pb2.CommitOffsetsRequest(consumer_group="g", offsets=[entry])
    assert (await running.data.CommitOffsets(request)).status.code == ResponseCode.SUCCESS
    await make_again(running)
    refused = await running.data.CommitOffsets(request)
    assert refused.status.code == GONE
    queues = (await offsets_of(running, consumer_group="g")).queues
    assert [queue.committed_offset for queue in queues] == [-1]


def loaded(folder: Path, *topics: str, epoch: str | None) -> TopicConfigManager:
    """Loads a file with these topics, of which the first one has an epoch, or none."""
    table: dict[str, Any] = {topic: {"topicName": topic} for topic in topics}
    if epoch is not None:
        table[topics[0]]["attributes"] = {EPOCH: epoch, "message.type": "FIFO"}
    (folder / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    manager = TopicConfigManager(folder, ManualClock(), "DefaultCluster", "broker-a")
    manager.load()
    return manager


def test_s9_a_topic_that_rocketmq_made_beside_ours_gets_an_epoch_once(tmp_path: Path) -> None:
    first = loaded(tmp_path, "Ours", "Theirs", epoch="5")
    assert first.epoch("Ours") == 5
    assert dict(first.get("Ours").attributes) == {"message.type": "FIFO"}
    drawn = first.epoch("Theirs")
    assert drawn not in {0, 5}
    again = TopicConfigManager(tmp_path, ManualClock(), "DefaultCluster", "broker-a")
    again.load()
    assert again.epoch("Theirs") == drawn
    assert first.epoch("SELF_TEST_TOPIC") == 0


def test_s9_a_file_without_any_epoch_tells_nothing_and_stays_as_it_is(tmp_path: Path) -> None:
    """Covers a file of RocketMQ 4, which drops attributes."""
    manager = loaded(tmp_path, "Old", "Older", epoch=None)
    assert manager.epoch("Old") == 0
    manager.check_epoch("Old", 7)
