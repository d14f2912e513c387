"""Refusals of messages sent back, in RocketMQ's order and with its codes."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from rocketpy_broker.config import ClientLimits, Limits
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import Perm, TopicConfig
from tests.broker.send.test_large_blocks import LARGE
from tests.support.broker.retries import (
    DEAD_LETTER,
    DEAD_LETTERS,
    GROUP,
    RETRY,
    RETRY_TOPIC,
    Meant,
    answered,
    count,
    outcome,
    records,
    refusal,
    send,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.transactions import prepare
from tests.support.store.disk_calls import LOG, Act, DiskCall, before_call, failing, holding


async def test_r01_an_unknown_group_is_refused_where_groups_are_not_made(
    start_broker: StartBroker,
) -> None:
    async with start_broker(auto_create_subscription_group=False) as running:
        code, remark = await refusal(running, Meant(0))
        assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert repr(GROUP) in remark
        assert RETRY_TOPIC not in running.broker.services.topics


async def test_r01_an_unknown_group_and_its_topic_are_made_and_saved(
    start_broker: StartBroker, start_crashed: StartBroker
) -> None:
    async with start_crashed(FlushDiskType.ASYNC_FLUSH) as running:
        assert (await outcome(running, 7))[0] == ResponseCode.SYSTEM_ERROR
    async with start_broker() as running:
        services = running.broker.services
        assert GROUP in services.groups.configs
        topic = services.topics.get(RETRY_TOPIC)
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


@pytest.mark.parametrize("name", ["", "a b", "x" * 121])
async def test_n11_a_group_name_that_cannot_be_is_refused(
    name: str, running: RunningBroker
) -> None:
    code, remark = await refusal(running, Meant(0), group=name)
    assert (code, "consumer_group is" in remark) == (ResponseCode.INVALID_PARAMETER, True)


async def test_n11_no_more_groups_than_the_broker_takes(start_broker: StartBroker) -> None:
    limits = Limits(clients=ClientLimits(groups_max=1))
    async with start_broker(limits=limits) as running:
        code, remark = await refusal(running, Meant(0))
        assert (code, "number of consumer groups" in remark) == (ResponseCode.SYSTEM_BUSY, True)


@pytest.mark.parametrize("number", [0, 1_001])
async def test_n11_a_call_takes_one_to_a_thousand_messages(
    number: int, running: RunningBroker
) -> None:
    code, remark = await refusal(running, *[Meant(0)] * number)
    assert code == ResponseCode.INVALID_PARAMETER
    assert f"number of messages is {number}" in remark


async def test_n11_a_negative_maximum_is_refused(running: RunningBroker) -> None:
    code, remark = await refusal(running, Meant(0), times_max=-1)
    assert (code, "max_reconsume_times is -1" in remark) == (29, True)


async def test_n11_a_request_with_too_many_bytes_is_refused(start_broker: StartBroker) -> None:
    limits = Limits(clients=ClientLimits(request_bytes_max=1_000))
    async with start_broker(limits=limits) as running:
        code, remark = await refusal(running, Meant(0, msg_id="x" * 1_000))
        assert (code, "bytes of the request is 10" in remark) == (29, True)


async def test_r01_a_retry_topic_that_cannot_be_made_is_told(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    before_call(monkeypatch, "fsync", TOPICS, without(RETRY_TOPIC))
    code, remark = await refusal(running, Meant(0))
    assert code == ResponseCode.SYSTEM_ERROR
    assert remark.startswith(f"topic[{RETRY_TOPIC}] not exist")


async def test_r01_dead_letters_without_a_topic_are_told_and_retries_go_on(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T")
    offset = await send(running)
    await outcome(running, offset)
    before_call(monkeypatch, "fsync", TOPICS, without(DEAD_LETTERS))
    answer = await answered(running, Meant(offset, -1), Meant(offset, 1))
    dead, again = answer.messages
    assert dead.status.code == ResponseCode.SYSTEM_ERROR
    assert dead.status.remark.startswith(f"topic[{DEAD_LETTERS}] not exist")
    assert (again.status.code, again.to) == (0, RETRY)


async def test_n12_r01_a_topic_that_cannot_be_made_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, running: RunningBroker
) -> None:
    await running.create_topic("T")
    offset = await send(running)
    await outcome(running, offset)
    before_call(monkeypatch, "fsync", TOPICS, without(DEAD_LETTERS))
    for minute in (1, 2):
        for _ in range(5):
            await answered(running, Meant(offset, -1))
        assert caplog.text.count("could not be created") == minute
        running.clock.advance(60_000)


TOPICS = "*/config/topics.json.tmp"


def without(topic: str) -> Act:
    """Returns an act that fails if a file names this topic, for which a disk has no space."""

    def full(call: DiskCall) -> None:
        if topic.encode() in Path(call.path).read_bytes():
            failing(errno.ENOSPC)(call)

    return full


async def test_r01_a_retry_topic_that_is_not_writable_is_refused(running: RunningBroker) -> None:
    await set_perm(running, RETRY_TOPIC, Perm.READ)
    code, remark = await refusal(running, Meant(0))
    assert code == ResponseCode.NO_PERMISSION
    assert remark.startswith(f"the topic[{RETRY_TOPIC}] sending message is forbidden")


async def test_r03_the_permission_of_dead_letters_does_not_matter(running: RunningBroker) -> None:
    await running.create_topic("T")
    await set_perm(running, DEAD_LETTERS, Perm.READ)
    assert (await outcome(running, await send(running), -1))[1] == DEAD_LETTER


async def set_perm(running: RunningBroker, topic: str, perm: Perm) -> None:
    await running.broker.services.topics.update(
        TopicConfig(topic, 1, 1, int(perm)), create_only=True
    )


async def test_r01_the_retry_topic_is_no_ordered_one_any_more(running: RunningBroker) -> None:
    topics = running.broker.services.topics
    await topics.make_retry_topics([TopicConfig(RETRY_TOPIC, 1, 1, 6, order=True)])
    await outcome(running, 0)
    assert topics.get(RETRY_TOPIC).order is False


@pytest.mark.parametrize("offset", [-1, 1, 10_000_000])
async def test_r01_where_no_message_begins_none_is_sent_back(
    offset: int, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await send(running)
    code, _, remark = await outcome(running, offset)
    assert code == ResponseCode.SYSTEM_ERROR
    assert remark.startswith(f"look message by offset failed, {offset}: no message starts")


async def test_r01_a_half_message_is_not_sent_back(running: RunningBroker) -> None:
    """Guards against readers that see what was never committed."""
    await running.create_topic("T")
    half = await prepare(running, "a")
    code, _, remark = await outcome(running, half.commit_log_offset, -1)
    assert code == ResponseCode.SYSTEM_ERROR
    assert f"the broker's own topic {HALF_QUEUE.topic!r}" in remark


async def test_r01_a_message_that_waits_is_not_sent_back(running: RunningBroker) -> None:
    await running.create_topic("T")
    offset = await send(running, DELAY="5")
    assert "'SCHEDULE_TOPIC_XXXX'" in (await outcome(running, offset))[2]


WRONG = {
    "is of topic 'T', not of 'U'": Meant(0, topic="U"),
    "does not have the id 'other'": Meant(0, msg_id="other"),
}


@pytest.mark.parametrize("said", WRONG)
async def test_r01_another_message_than_was_meant_is_not_sent_back(
    said: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    offset = await send(running, UNIQ_KEY="u")
    answer = await answered(running, replace(WRONG[said], offset=offset, level=-1))
    assert answer.messages[0].status.code == ResponseCode.SYSTEM_ERROR
    assert said in answer.messages[0].status.remark
    good = [Meant(offset, -1, "u", "T"), Meant(offset, -1, "u"), Meant(offset, -1, topic="T")]
    answer = await answered(running, *good)
    assert [each.to for each in answer.messages] == [DEAD_LETTER] * 3


async def test_r01_what_was_sent_back_before_is_known_by_its_first_topic_and_id(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    offset = await send(running)
    await outcome(running, offset, -1)
    (dead,) = await records(running, DEAD_LETTERS)
    origin = dead.properties["ORIGIN_MESSAGE_ID"]
    for topic in ("T", DEAD_LETTERS):
        meant = Meant(dead.physical_offset, -1, origin, topic)
        answer = await answered(running, meant)
        assert answer.messages[0].to == DEAD_LETTER, answer.messages[0].status.remark


async def test_n11_a_broker_that_is_busy_or_closed_sends_nothing_back(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    offset = await send(running)
    running.broker.store.flush_failed(OSError(5, "Input/output error"))
    code, remark = await refusal(running, Meant(offset))
    assert code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "read-only" in remark
    assert GROUP not in running.broker.services.groups.configs


async def test_n11_a_store_that_gets_busy_refuses_the_rest(
    monkeypatch: pytest.MonkeyPatch, start_broker: StartBroker
) -> None:
    limits = Limits(unflushed_bytes_max=1)
    async with start_broker(FlushDiskType.SYNC_FLUSH, limits) as running:
        await running.create_topic("T")
        offset = await send(running)
        await until(lambda: running.broker.store.unflushed_bytes == 0)
        waiting = running.broker.services.flush.group_commit
        with holding(monkeypatch, "fdatasync", LOG):
            asked = asyncio.ensure_future(answered(running, Meant(offset, -1), Meant(offset, 1)))
            await until(lambda: waiting.waiting_count > 0)
        first, second = (await asked).messages
    assert first.status.code == ResponseCode.SUCCESS
    assert second.status.code == ResponseCode.SYSTEM_BUSY
    assert "bytes wait" in second.status.remark


async def test_r01_what_the_disk_does_not_confirm_has_failed_by_the_stores_status(
    monkeypatch: pytest.MonkeyPatch, start_broker: StartBroker
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        offset = await send(running)
        waiting = running.broker.services.flush.group_commit
        with holding(monkeypatch, "fdatasync", LOG):
            answering = asyncio.ensure_future(answered(running, Meant(offset, -1), Meant(1)))
            await until(lambda: waiting.waiting_count > 0)
            running.clock.advance(5_000)
            answer = await answering
        await until(lambda: count(running, DEAD_LETTERS) == 1)
    first, second = answer.messages
    assert first.status.code == ResponseCode.SYSTEM_ERROR
    assert first.status.remark.startswith("FLUSH_DISK_TIMEOUT: stored, but")
    assert second.status.remark.startswith("look message by offset failed, 1")


@pytest.mark.parametrize(("level", "topic"), [(1, RETRY_TOPIC), (-1, DEAD_LETTERS)])
async def test_r01_what_is_sent_back_while_its_topic_goes_is_told(
    monkeypatch: pytest.MonkeyPatch, level: int, topic: str, running: RunningBroker
) -> None:
    """Guards against a message of a topic that is not there, which no reader could see."""
    await running.create_topic("T")
    offset = await send(running)
    await outcome(running, offset, level)
    services, statistics = running.broker.services, running.broker.store.statistics
    stored = statistics.put_message_count
    with (
        holding(monkeypatch, "pwrite", LOG) as write,
        holding(monkeypatch, "fsync", "*/config/topics.json*") as save,
    ):
        deleting = asyncio.ensure_future(services.admin.admin.delete_topic(topic))
        await save.reached()
        large = asyncio.ensure_future(running.append("T", 0, LARGE))
        await write.reached()
        # The message waits for the end of the large write.
        sending = asyncio.ensure_future(outcome(running, offset, level))
        await until(lambda: services.sends.admission.waiting_count > 0)
        save.open()
        await deleting
    code, _, remark = await sending
    assert (code, remark[: len(topic) + 7]) == (ResponseCode.SYSTEM_ERROR, f"topic[{topic}]")
    assert (await large).status.code == 0
    assert statistics.put_message_count - stored == 1
