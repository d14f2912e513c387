"""QueryOffsets of queues that a topic has and readers do not see, through real gRPC."""

from __future__ import annotations

import pytest

from rocketpy_broker.services.offsets import service
from rocketpy_proto.call_limits import OFFSET_QUERY_ENTRIES_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.offsets.queries.test_queries import ask
from tests.support.broker.running_broker import RunningBroker, StartBroker


async def show(running: RunningBroker, topic: str, queues: int) -> None:
    config = admin_pb2.TopicConfig(topic=topic, read_queue_nums=queues, write_queue_nums=queues)
    answer = await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
    assert answer.status.code == ResponseCode.SUCCESS


def queues_of(topic: str, *queue_ids: int) -> list[broker_pb2.TopicQueue]:
    return [broker_pb2.TopicQueue(topic=topic, queue_id=queue_id) for queue_id in queue_ids]


def ends(queues: list[broker_pb2.QueueOffsets]) -> dict[int, int]:
    return {queue.queue_id: queue.max_offset for queue in queues}


async def test_s5_hidden_queues_are_answered_where_they_are_asked_for(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "QUEUES_A_SLOT", 2)
    async with start_broker() as running:
        await running.create_topic("T", 4)
        await running.create_topic("U", 2)
        for queue_id in range(4):
            await running.append("T", queue_id, *[b"a"] * (queue_id + 1))
        await show(running, "T", 1)
        assert [
            ends(list(each.hidden_queues)) for each in (await ask(running, topics=["T"])).topics
        ] == [{}]
        wanted = [*queues_of("T", 0, 1, 2, 3, 9), *queues_of("U", 0), *queues_of("V", 1)]
        answer = await ask(running, topics=["T", "U", "V"], hidden_queues=wanted)
        found = {each.topic: each for each in answer.topics}
        assert ends(list(found["T"].queues)) == {0: 1}
        assert ends(list(found["T"].hidden_queues)) == {1: 2, 2: 3, 3: 4, 9: 0}
        assert not found["U"].hidden_queues
        assert found["V"].status.code == ResponseCode.TOPIC_NOT_EXIST
        await show(running, "T", 4)
        again = await ask(running, topics=["T"], hidden_queues=wanted)
        assert ends(list(again.topics[0].queues)) == {0: 1, 1: 2, 2: 3, 3: 4}
        assert ends(list(again.topics[0].hidden_queues)) == {9: 0}


async def test_s5_more_hidden_queues_than_a_query_may_have_are_refused(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", 1)
    wanted = queues_of("T", *range(1, OFFSET_QUERY_ENTRIES_MAX + 2))
    answer = await ask(running, topics=["T"], hidden_queues=wanted)
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
