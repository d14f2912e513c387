"""QueryOffsets of queues that a topic has and readers do not see, through real gRPC."""

from __future__ import annotations

from rocketpy_broker.services.offsets.service import QUEUES_A_SLOT
from rocketpy_proto.call_limits import OFFSET_QUERY_ENTRIES_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.offsets.queries.test_queries import ask
from tests.support.broker.running_broker import RunningBroker


async def show(running: RunningBroker, topic: str, queues: int) -> None:
    config = admin_pb2.TopicConfig(topic=topic, read_queue_nums=queues, write_queue_nums=queues)
    answer = await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
    assert answer.status.code == ResponseCode.SUCCESS


def queues_of(topic: str, *queue_ids: int) -> list[broker_pb2.TopicQueue]:
    return [broker_pb2.TopicQueue(topic=topic, queue_id=queue_id) for queue_id in queue_ids]


def ends(queues: list[broker_pb2.QueueOffsets]) -> dict[int, int]:
    return {queue.queue_id: queue.max_offset for queue in queues}


async def test_s5_hidden_queues_are_answered_where_they_are_asked_for(
    running: RunningBroker,
) -> None:
    """Covers an answer that is made in several slots."""
    count = 2 * QUEUES_A_SLOT
    await running.create_topic("T", count)
    await running.create_topic("U", 2)
    written = {0: 1, 1: 2, 2: 3, QUEUES_A_SLOT: 1, QUEUES_A_SLOT + 1: 4, count - 1: 2}
    for queue_id, size in written.items():
        await running.append("T", queue_id, *[b"a"] * size)
    everything = dict.fromkeys(range(count), 0) | written
    await show(running, "T", 1)
    assert [
        ends(list(each.hidden_queues)) for each in (await ask(running, topics=["T"])).topics
    ] == [{}]
    in_t = queues_of("T", *range(count), count + 9)
    wanted = [*in_t, *queues_of("U", 0), *queues_of("V", 1)]
    answer = await ask(running, topics=["T", "U", "V"], hidden_queues=wanted)
    found = {each.topic: each for each in answer.topics}
    assert ends(list(found["T"].queues)) == {0: 1}
    hidden = list(found["T"].hidden_queues)
    assert [each.queue_id for each in hidden] == [*range(1, count), count + 9]
    assert {0: 1, **ends(hidden)} == {**everything, count + 9: 0}
    assert not found["U"].hidden_queues
    assert found["V"].status.code == ResponseCode.TOPIC_NOT_EXIST
    await show(running, "T", count)
    again = await ask(running, topics=["T"], hidden_queues=wanted)
    assert ends(list(again.topics[0].queues)) == everything
    assert ends(list(again.topics[0].hidden_queues)) == {count + 9: 0}


async def test_s5_more_hidden_queues_than_a_query_may_have_are_refused(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", 1)
    wanted = queues_of("T", *range(1, OFFSET_QUERY_ENTRIES_MAX + 2))
    answer = await ask(running, topics=["T"], hidden_queues=wanted)
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
