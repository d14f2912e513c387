"""QueryOffsets by pattern, and held until there is news, through real gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketpy_broker.services.offsets import queries
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.event_loop import until_a_task_waits_for_a_slot
from tests.support.broker.running_broker import RunningBroker, StartBroker

WAIT_MS = 30_000


async def ask(running: RunningBroker, **fields: Any) -> broker_pb2.QueryOffsetsResponse:
    response: broker_pb2.QueryOffsetsResponse = await running.data.QueryOffsets(
        broker_pb2.QueryOffsetsRequest(**fields)
    )
    return response


def known(response: broker_pb2.QueryOffsetsResponse) -> list[broker_pb2.KnownOffset]:
    """Returns what a caller knows after such an answer."""
    return [
        broker_pb2.KnownOffset(
            topic=topic.topic, queue_id=queue.queue_id, max_offset=queue.max_offset
        )
        for topic in response.topics
        for queue in topic.queues
    ]


def names(response: broker_pb2.QueryOffsetsResponse) -> list[str]:
    return [topic.topic for topic in response.topics]


async def hold(
    running: RunningBroker, **fields: Any
) -> asyncio.Future[broker_pb2.QueryOffsetsResponse]:
    """Holds a query at the broker: its caller knows the answer."""
    answer = await ask(running, **fields)
    call = asyncio.ensure_future(ask(running, known=known(answer), wait_ms_max=WAIT_MS, **fields))
    await running.held(1)
    return call


async def delete_topic(running: RunningBroker, topic: str) -> None:
    response = await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic=topic))
    assert response.status.code == ResponseCode.SUCCESS


async def test_k05_a_pattern_finds_topics_by_their_whole_name_behind_those_named(
    running: RunningBroker,
) -> None:
    for topic in ("orders-b", "orders-a", "old-orders-a", "Z", "orders-"):
        await running.create_topic(topic)
    response = await ask(running, topics=["Z", "orders-b", "None"], topic_pattern="orders-.+")
    assert response.status.code == ResponseCode.SUCCESS
    assert names(response) == ["Z", "orders-b", "None", "orders-a"]
    codes = [topic.status.code for topic in response.topics]
    assert codes == [0, 0, ResponseCode.TOPIC_NOT_EXIST, 0]


async def test_k05_the_brokers_own_topics_have_to_be_named(running: RunningBroker) -> None:
    await running.create_topic("T")
    assert names(await ask(running, topic_pattern=".*")) == ["T"]
    both = await ask(running, topic_pattern=".*", topics=["TBW102"])
    assert names(both) == ["TBW102", "T"]


async def test_k05_retry_topics_are_found_by_a_pattern_that_begins_as_they_do(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.create_topic("%RETRY%g")
    assert names(await ask(running, topic_pattern=".*")) == ["T"]
    assert names(await ask(running, topic_pattern=".*", topics=["%RETRY%g"])) == ["%RETRY%g", "T"]
    assert names(await ask(running, topic_pattern="%RETRY%.*")) == ["%RETRY%g"]
    assert names(await ask(running, topic_pattern="%RETRY%.*|T")) == ["%RETRY%g", "T"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic_pattern": "orders-(a"}, "topic_pattern is 'orders-(a'"),
        ({"topic_pattern": "a{1001}"}, "topic_pattern is"),
        ({"topics": ["T"], "wait_ms_max": 60_001}, "wait_ms_max is 60001"),
        ({"topics": ["T"], "wait_ms_max": -1}, "wait_ms_max is -1"),
    ],
)
async def test_k05_a_wrong_query_is_named(
    fields: dict[str, object], words: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    response = await ask(running, **fields)
    assert response.status.code == ResponseCode.INVALID_PARAMETER
    assert words in response.status.remark
    assert not response.topics


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_k05_a_held_query_is_answered_when_a_message_arrives(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        await running.create_topic("U")
        await running.append("T", 3, b"old")
        call = await hold(running, topics=["T"])
        await running.append("U", 3, b"of another topic")
        await running.held(1)
        assert not call.done()
        await running.append("T", 2, b"new")
        [topic] = (await call).topics
        assert [queue.max_offset for queue in topic.queues] == [0, 0, 1, 1]
        assert len(running.broker.services.long_polling.calls) == 0


async def test_k05_a_query_that_knows_less_is_answered_at_once(running: RunningBroker) -> None:
    await running.create_topic("T", queues=2)
    before = known(await ask(running, topics=["T"]))
    await running.append("T", 0, b"new")
    for said in (before, before[:1], []):
        response = await ask(running, topics=["T"], known=said, wait_ms_max=WAIT_MS)
        assert [queue.max_offset for queue in response.topics[0].queues] == [1, 0]


async def test_k05_a_message_that_comes_while_a_held_query_looks_at_other_queues_is_told(
    start_broker: StartBroker,
) -> None:
    """Looks at some queues at a time, while other work has scheduler slots."""
    count = 3 * queries.QUEUES_A_SLOT
    async with start_broker() as running:
        await running.create_topic("T", queues=count)
        said = known(await ask(running, topics=["T"]))
        appends = running.broker.services.sends
        block = wire_block("T", [b"x"])
        asked = asyncio.ensure_future(ask(running, topics=["T"], known=said, wait_ms_max=WAIT_MS))
        await until_a_task_waits_for_a_slot()
        appends.append_now("T", 0, block.records, block.record_sizes)
        (topic,) = (await asked).topics
        assert [queue.max_offset for queue in topic.queues] == [1, *[0] * (count - 1)]


async def test_k05_a_held_query_is_answered_at_its_deadline(running: RunningBroker) -> None:
    await running.create_topic("T")
    call = await hold(running, topics=["T"])
    running.clock.advance(WAIT_MS - 1)
    await running.held(1)
    assert not call.done()
    running.clock.advance(1)
    assert names(await call) == ["T"]


async def test_k05_a_held_pattern_is_answered_when_a_topic_comes_or_goes(
    running: RunningBroker,
) -> None:
    await running.create_topic("orders-a")
    call = await hold(running, topic_pattern="orders-.*")
    await running.create_topic("other")
    await running.held(1)
    assert not call.done()
    await running.create_topic("orders-b")
    assert names(await call) == ["orders-a", "orders-b"]
    call = await hold(running, topic_pattern="orders-.*")
    await delete_topic(running, "orders-a")
    assert names(await call) == ["orders-b"]


async def test_k05_a_held_query_for_a_missing_topic_is_answered_when_it_comes(
    running: RunningBroker,
) -> None:
    call = await hold(running, topics=["T"])
    await running.create_topic("T")
    [topic] = (await call).topics
    assert (topic.status.code, len(topic.queues)) == (ResponseCode.SUCCESS, 4)


async def test_k05_a_held_query_is_answered_when_its_topic_gets_more_queues(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", queues=2)
    call = await hold(running, topics=["T"])
    config = admin_pb2.TopicConfig(topic="T", read_queue_nums=3, write_queue_nums=3, perm=6)
    await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
    assert len((await call).topics[0].queues) == 3


async def test_k05_what_is_known_of_topics_not_asked_for_does_not_matter(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    said = known(await ask(running, topics=["T"]))
    said.append(broker_pb2.KnownOffset(topic="U", queue_id=0, max_offset=7))
    call = asyncio.ensure_future(ask(running, topics=["T"], known=said, wait_ms_max=WAIT_MS))
    await running.held(1)
    running.broker.services.long_polling.calls.stop()
    await call


async def test_k05_a_stopping_broker_answers_held_queries_and_holds_no_more(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    call = await hold(running, topics=["T"])
    running.broker.services.long_polling.calls.stop()
    said = known(await call)
    again = await ask(running, topics=["T"], known=said, wait_ms_max=WAIT_MS)
    assert names(again) == ["T"]


async def test_k05_a_held_query_whose_client_went_away_is_dropped(running: RunningBroker) -> None:
    await running.create_topic("T")
    said = known(await ask(running, topics=["T"]))
    call = running.data.QueryOffsets(
        broker_pb2.QueryOffsetsRequest(topics=["T"], known=said, wait_ms_max=WAIT_MS)
    )
    waiting = asyncio.ensure_future(call.code())
    await running.held(1)
    call.cancel()
    await running.held(0)
    await waiting


async def test_n12_an_answer_has_a_limited_number_of_queues(running: RunningBroker) -> None:
    table = running.broker.services.topics._table
    wide = table.entries["TBW102"].changed(read_queue_nums=1 << 16)
    table.take_in({f"W{number}": wide.changed(topic=f"W{number}") for number in range(17)})
    answer = await ask(running, topics=["W0"])
    assert [len(topic.queues) for topic in answer.topics] == [1 << 16]
    answer = await ask(running, topic_pattern="W.*")
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
    assert "number of queues of all topics is 1114112" in answer.status.remark
    assert "accepted is at most 1048576; ask for fewer topics" in answer.status.remark
    assert not answer.topics
