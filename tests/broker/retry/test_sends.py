"""Sends of clients to a retry topic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from rocketpy_broker.hooks import Hook, SendContext, SendOutcome
from rocketpy_broker.services.groups.locks import LOCK_MS
from rocketpy_broker.services.send.retry_sends import MESSAGES_MAX
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from tests.support.blocks import WireBlock, wire_block
from tests.support.broker.installed_hooks import installed
from tests.support.broker.retries import (
    DEAD_LETTERS,
    GROUP,
    RETRY_TOPIC,
    Meant,
    count,
    records,
    refusal,
    set_group,
    with_times,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker


async def sent(
    running: RunningBroker, times: int, given: Mapping[str, str] | None = None, queue_id: int = 0
) -> int:
    """Sends one message to the retry topic; returns the response code."""
    named = {name: [value] for name, value in (given or {}).items()}
    block = with_times(wire_block(RETRY_TOPIC, [b"x"], properties=named), times)
    return (await running.append_block(RETRY_TOPIC, queue_id, block)).status.code


async def test_p05_a_retry_topic_comes_to_be_by_its_first_use(running: RunningBroker) -> None:
    assert await sent(running, 1, {"RETRY_TOPIC": "T", "MAX_RECONSUME_TIMES": "3"}) == 0
    topic = running.broker.services.topics.get(RETRY_TOPIC)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    (record,) = await records(running)
    assert record.reconsume_times == 1
    assert record.properties == {"RETRY_TOPIC": "T"}


async def test_p05_not_for_a_group_that_may_not_be(start_broker: StartBroker) -> None:
    async with start_broker(auto_create_subscription_group=False) as running:
        assert await sent(running, 0) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert RETRY_TOPIC not in running.broker.services.topics


async def test_p05_nor_for_a_name_that_cannot_be(running: RunningBroker) -> None:
    topic = "%RETRY%a b"
    answer = await running.append_block(topic, 0, wire_block(topic, [b"x"]))
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
    assert "topic name '%RETRY%a b' is illegal" in answer.status.remark


async def test_p09_a_broker_without_write_permission_takes_neither_sends_nor_send_backs(
    start_broker: StartBroker,
) -> None:
    async with start_broker(broker_permission=4) as running:
        assert await sent(running, 0) == ResponseCode.NO_PERMISSION
        code, remark = await refusal(running, Meant(0))
        assert code == ResponseCode.NO_PERMISSION
        assert remark == "the broker[broker-a] sending message is forbidden"
        assert RETRY_TOPIC not in running.broker.services.topics


class Watching(Hook):
    """A hook that keeps its calls for sends to the retry topic."""

    seen: ClassVar[list[str]] = []

    def before_send(self, context: SendContext) -> None:
        assert (context.topic, context.queue_id) == (RETRY_TOPIC, 0)
        self.seen.append("before")

    def after_send(self, context: SendContext, outcome: SendOutcome) -> None:
        assert (context.topic, outcome.code) == (RETRY_TOPIC, 0)
        self.seen.append("after")


async def test_p02_hooks_are_around_sends_to_a_retry_topic(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    Watching.seen.clear()
    with installed(tmp_path / "hooks", watching=f"{__name__}:Watching"):
        async with start_broker() as running:
            assert await sent(running, 0) == 0
    assert Watching.seen == ["before", "after"]


async def test_n12_a_block_of_more_messages_than_fit_a_turn_is_refused(
    running: RunningBroker,
) -> None:
    bodies = [b"x"] * (MESSAGES_MAX + 1)
    answer = await running.append(RETRY_TOPIC, 0, *bodies)
    assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
    assert "holds 1001 messages, limit 1000. Send smaller blocks" in answer.status.remark
    assert RETRY_TOPIC not in running.broker.services.topics
    assert (await running.append(RETRY_TOPIC, 0, *bodies[1:])).status.code == 0


async def test_p03_the_queue_must_be_one_of_the_topics(running: RunningBroker) -> None:
    assert await sent(running, 0, queue_id=1) == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("times", "given", "is_dead"),
    [
        (2, {}, False),
        (3, {}, True),
        (3, {"MAX_RECONSUME_TIMES": "3"}, False),
        (1, {"MAX_RECONSUME_TIMES": "0"}, True),
    ],
)
async def test_r03_a_message_above_its_maximum_is_stored_as_a_dead_letter(
    start_broker: StartBroker, times: int, given: dict[str, str], is_dead: bool
) -> None:
    """Covers counts above and at the maximum, as for a message that is sent back."""
    async with start_broker() as running:
        await set_group(running, retry_max_times=2)
        assert await sent(running, times, given) == 0
        assert (count(running), count(running, DEAD_LETTERS)) == (not is_dead, is_dead)
        if is_dead:
            (record,) = await records(running, DEAD_LETTERS)
            assert record.properties == {"DELAY": "-1"}
            assert record.reconsume_times == times


async def test_r03_while_queues_are_locked_every_message_is_a_dead_letter(
    running: RunningBroker,
) -> None:
    locks = running.broker.services.groups.locks
    locks.lock("others", "c", [QueueKey("T", 0)])
    assert await sent(running, 0) == 0
    assert (count(running), count(running, DEAD_LETTERS)) == (1, 0)
    locks.lock(GROUP, "c", [QueueKey("T", 0)])
    assert await sent(running, 0, {"DELAY": "3"}) == 0
    assert (count(running), count(running, DEAD_LETTERS)) == (1, 1)
    running.clock.advance(LOCK_MS + 1)
    assert await sent(running, 0) == 0
    assert (count(running), count(running, DEAD_LETTERS)) == (2, 1)


async def test_r03_one_lock_that_is_renewed_is_enough(running: RunningBroker) -> None:
    locks, queues = running.broker.services.groups.locks, [QueueKey("T", 0), QueueKey("T", 1)]
    locks.lock(GROUP, "c", queues)
    running.clock.advance(LOCK_MS)
    locks.lock(GROUP, "c", queues[:1])
    running.clock.advance(LOCK_MS)
    assert locks.is_locked(GROUP)
    locks.unlock(GROUP, "c", queues[:1])
    assert not locks.is_locked(GROUP)
    locks.unlock(GROUP, "c", queues)
    assert not locks.is_locked(GROUP)
    assert len(locks) == 0


REFUSED = {
    "send them in separate blocks": (["0", "9"], 1),
    "property MAX_RECONSUME_TIMES is 'many'": (["many", "9"], 1),
    "property MAX_RECONSUME_TIMES is '-1'": (["-1", "-1"], 1),
}


@pytest.mark.parametrize("said", REFUSED)
async def test_n11_blocks_that_cannot_be_decided_are_refused(
    said: str, running: RunningBroker
) -> None:
    values, times = REFUSED[said]
    properties = {"MAX_RECONSUME_TIMES": values}
    block = with_times(wire_block(RETRY_TOPIC, [b"x"] * 2, properties=properties), times)
    answer = await running.append_block(RETRY_TOPIC, 0, block)
    assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
    assert said in answer.status.remark
    assert running.broker.store.queues() == []


async def test_n11_a_dead_letter_that_would_be_too_long_is_refused(running: RunningBroker) -> None:
    await set_group(running, retry_max_times=0)
    assert await sent(running, 1, {"much": "x" * 32_760}) == ResponseCode.MESSAGE_ILLEGAL
    assert running.broker.store.queues() == []


async def test_p01_a_block_that_is_none_is_refused_for_a_retry_topic_too(
    running: RunningBroker,
) -> None:
    answer = await running.append_block(RETRY_TOPIC, 0, WireBlock(b"", b""))
    assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
