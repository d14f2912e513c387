"""Patterns of topics that would match without end if each way were tried."""

from __future__ import annotations

import pytest

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.offsets.queries.test_queries import ask, hold, names
from tests.support.broker.running_broker import RunningBroker

LONG = "a" * 100


async def test_k05_a_pattern_that_could_match_in_many_ways_takes_no_longer(
    running: RunningBroker,
) -> None:
    await running.create_topic(LONG)
    known = [broker_pb2.KnownOffset(topic=LONG + "b", max_offset=1)]
    for wait_ms in (0, 30_000):
        answer = await ask(
            running, topic_pattern="(a+)+c", known=known, wait_ms_max=wait_ms, topics=[LONG]
        )
        assert names(answer) == [LONG]
    assert names(await ask(running, topic_pattern="(a+)+")) == [LONG]


async def test_k05_a_known_topic_that_is_gone_is_told_only_where_the_pattern_finds_it(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    gone = broker_pb2.KnownOffset(topic="Told", max_offset=1)
    now = [broker_pb2.KnownOffset(topic="T", queue_id=i) for i in range(4)]
    answer = await ask(running, topic_pattern="T.*", known=[*now, gone], wait_ms_max=30_000)
    assert names(answer) == ["T"]
    call = await hold(running, topic_pattern="T|X")
    await running.append("T", 0, b"new")
    assert names(await call) == ["T"]


@pytest.mark.parametrize(
    "pattern", ["a)(b", "a" * 1_001, "(?=T)T", r"(T)\1", "(((T{100}){100}){100})"]
)
async def test_k05_a_pattern_that_is_none_is_refused(pattern: str, running: RunningBroker) -> None:
    await running.create_topic("T")
    answer = await ask(running, topic_pattern=pattern)
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
    assert "topic_pattern is" in answer.status.remark
    assert len(answer.status.remark) < 1_500


async def test_k05_more_topics_than_one_turn_looks_at_are_found(running: RunningBroker) -> None:
    for number in range(3):
        await running.create_topic(f"T{number}")
    known = [broker_pb2.KnownOffset(topic=f"U{number}", max_offset=1) for number in range(1_000)]
    answer = await ask(running, topic_pattern="T.", known=known, wait_ms_max=30_000)
    assert names(answer) == ["T0", "T1", "T2"]
