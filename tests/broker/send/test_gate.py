"""Checks of a send, by code and remark."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_proto.call_limits import ANY_QUEUE
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import before_call, failing


async def send_creating(
    running: RunningBroker, topic: str, queues: int = 4, default_topic: str = "TBW102"
) -> broker_pb2.AppendResponse:
    """Sends one message as RocketMQ's producers do, to a topic that may not exist."""
    block = wire_block(topic, [b"x"])
    request = broker_pb2.AppendRequest(
        topic=topic,
        queue_id=0,
        records=block.records,
        record_sizes=block.record_sizes,
        default_topic=default_topic,
        default_topic_queue_nums=queues,
    )
    response: broker_pb2.AppendResponse = await running.data.Append(iter([request])).read()
    return response


@pytest.mark.parametrize("name", ["TBW102", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"])
async def test_p04_reserved_names_cannot_be_sent_to(name: str, running: RunningBroker) -> None:
    answer = await running.append(name, 0, b"x")
    assert answer.status.code == ResponseCode.NO_PERMISSION
    assert name in answer.status.remark
    assert running.broker.store.queues() == []


@pytest.mark.parametrize("name", ["", "a.b", "a/../b", "T" * 128, "ü"])
async def test_p04_names_that_no_topic_can_have_are_refused_as_such(
    name: str, running: RunningBroker
) -> None:
    for answer in (await running.append(name, 0, b"x"), await send_creating(running, name)):
        assert answer.status.code == ResponseCode.INVALID_PARAMETER
        assert repr(name) in answer.status.remark


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (100, 8), (1, 1)])
async def test_p05_an_unknown_topic_is_made_from_the_template(
    start_broker: StartBroker, asked: int, made: int
) -> None:
    async with start_broker() as running:
        answer = await send_creating(running, "New", asked)
        assert answer.status.code == ResponseCode.SUCCESS
        config = running.broker.services.topics.get("New")
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (made, made, 6)
    async with start_broker() as running:
        assert "New" in running.broker.services.topics


async def test_p05_a_topic_that_cannot_be_saved_is_not_created(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_call(monkeypatch, "fsync", "*/config/topics.json.tmp", failing(errno.ENOSPC))
    answer = await send_creating(running, "New")
    assert answer.status.code == ResponseCode.TOPIC_NOT_EXIST
    assert "New" not in running.broker.services.topics


async def test_p05_a_topic_that_is_there_stays_as_it_is(running: RunningBroker) -> None:
    await running.create_topic("T", queues=2)
    answers = await asyncio.gather(*(send_creating(running, "T") for _ in range(10)))
    assert {answer.status.code for answer in answers} == {0}
    assert running.broker.services.topics.get("T").write_queue_nums == 2


async def test_p05_many_first_sends_make_one_topic(running: RunningBroker) -> None:
    answers = await asyncio.gather(*(send_creating(running, "New", 4) for _ in range(20)))
    assert {answer.status.code for answer in answers} == {0}
    assert {answer.queue_offset for answer in answers} == set(range(20))


@pytest.mark.parametrize("default_topic", ["", "Nothing", "BenchmarkTest"])
async def test_p05_without_a_template_an_unknown_topic_stays_unknown(
    default_topic: str, running: RunningBroker
) -> None:
    answer = await send_creating(running, "New", default_topic=default_topic)
    assert answer.status.code == ResponseCode.TOPIC_NOT_EXIST
    assert "New" not in running.broker.services.topics


async def test_p05_a_broker_that_makes_no_topics_says_so(start_broker: StartBroker) -> None:
    options = SystemTopicOptions(auto_create_topic_enable=False)
    async with start_broker(system_topics=options) as running:
        answer = await send_creating(running, "New")
        assert answer.status.code == ResponseCode.TOPIC_NOT_EXIST


async def test_p05_nor_does_it_make_any_in_a_store_from_when_it_did(
    start_broker: StartBroker,
) -> None:
    """Covers a store that has the template among its topics, while the option is off."""
    async with start_broker() as running:
        await running.create_topic("T")
    options = SystemTopicOptions(auto_create_topic_enable=False)
    async with start_broker(system_topics=options) as running:
        answer = await send_creating(running, "New")
        assert answer.status.code == ResponseCode.TOPIC_NOT_EXIST
        assert "New" not in running.broker.services.topics


@pytest.mark.parametrize("queues", [0, -1])
async def test_p05_a_topic_without_queues_is_not_made(queues: int, running: RunningBroker) -> None:
    answer = await send_creating(running, "New", queues)
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
    assert f"with {queues} queues" in answer.status.remark


async def test_p06_of_a_topic_without_queues_the_broker_picks_none(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Covers a file that was written elsewhere; no command makes such a topic."""
    (tmp_path / "config").mkdir()
    topic = {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 0, "perm": 6}
    content = json.dumps({"topicConfigTable": {"T": topic}})
    (tmp_path / "config" / "topics.json").write_text(content, encoding="utf-8")
    async with start_broker() as running:
        for queue_id in (ANY_QUEUE, 0):
            answer = await running.append("T", queue_id, b"x")
            assert answer.status.code == ResponseCode.INVALID_PARAMETER
            assert "topic 'T' is not there: it has no queues" in answer.status.remark


async def test_p03_a_broker_without_write_permission_takes_no_sends_and_makes_no_topics(
    start_broker: StartBroker,
) -> None:
    async with start_broker(broker_permission=4) as running:
        await running.create_topic("T")
        for answer in (await running.append("T", 0, b"x"), await send_creating(running, "New")):
            assert answer.status.code == ResponseCode.NO_PERMISSION
            assert "the broker[broker-a] sending message is forbidden" in answer.status.remark
        assert "New" not in running.broker.services.topics


async def test_c01_a_broker_without_read_permission_lets_nobody_pull(
    start_broker: StartBroker,
) -> None:
    async with start_broker(broker_permission=2) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"x")
        (answer,) = await running.pull(topic="T", queue_id=0, offset=0)
        assert answer.status.code == ResponseCode.NO_PERMISSION
        assert "the broker[broker-a] pulling message is forbidden" in answer.status.remark


async def test_p03_a_topic_that_may_not_be_written_is_named(running: RunningBroker) -> None:
    await running.broker.services.topics.update(TopicConfig("T", perm=4), create_only=True)
    answer = await running.append("T", 0, b"x")
    assert answer.status.code == ResponseCode.NO_PERMISSION
    assert "'T' is not writable" in answer.status.remark


async def test_p07_a_broker_may_refuse_transactions(start_broker: StartBroker) -> None:
    async with start_broker(reject_transaction_message=True) as running:
        await running.create_topic("T")
        properties = {"TRAN_MSG": ["true"], "PGROUP": ["g"], "UNIQ_KEY": ["u"]}
        answer = await running.append_block("T", 0, wire_block("T", [b"x"], properties=properties))
        assert answer.status.code == ResponseCode.NO_PERMISSION
        assert "takes no transaction messages" in answer.status.remark
        assert (await running.append("T", 0, b"x")).status.code == ResponseCode.SUCCESS


async def test_p09_sends_are_taken_from_a_time_on(start_broker: StartBroker) -> None:
    begin_ms = 1_700_000_060_000
    async with start_broker(start_accept_send_request_timestamp_ms=begin_ms) as running:
        await running.create_topic("T")
        answer = await running.append("T", 0, b"x")
        assert answer.status.code == ResponseCode.SYSTEM_ERROR
        assert answer.status.remark.startswith(
            "broker unable to service, until 2023-11-14 22:14:20"
        )
        running.clock.advance(60_000)
        assert (await running.append("T", 0, b"x")).status.code == ResponseCode.SUCCESS
