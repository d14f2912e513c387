"""Held queries over many queues: few wake-ups, and only changed queues are read."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from msgspec import structs

from rocketpy_broker.config import Limits
from rocketpy_broker.services.offsets import queries
from rocketpy_broker.services.offsets.known import KnownOffsets
from rocketpy_broker.services.offsets.queries import FEW_QUEUES, REST_MS, OffsetQueryService
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.model.configs import Perm, TopicConfig
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.event_loop import until_a_task_waits_for_a_slot
from tests.support.broker.running_broker import RunningBroker, until


async def ask(running: RunningBroker, queues: int, grown: int = 0) -> asyncio.Task[int]:
    """Holds a query that knows `queues` queues; its task returns the first queue's maximum."""
    known = [
        broker_pb2.KnownOffset(topic="T", queue_id=each, max_offset=0 if each else grown)
        for each in range(queues)
    ]
    request = broker_pb2.QueryOffsetsRequest(topics=["T"], known=known, wait_ms_max=30_000)

    async def maximum() -> int:
        answer = await running.data.QueryOffsets(request)
        return int(answer.topics[0].queues[0].max_offset)

    call = asyncio.ensure_future(maximum())
    await running.held(1)
    return call


async def append(running: RunningBroker, count: int) -> None:
    for _ in range(count):
        await running.append_block("T", 0, wire_block("T", [b"x"]))


async def test_b11_messages_that_come_at_once_are_one_answer(running: RunningBroker) -> None:
    await running.create_topic("T", queues=FEW_QUEUES + 1)
    call = await ask(running, FEW_QUEUES + 1)
    await append(running, 5)
    assert not call.done()
    running.clock.advance(REST_MS)
    assert await call == 5
    # One that has been held for longer is answered by the first message.
    call = await ask(running, FEW_QUEUES + 1, 5)
    running.clock.advance(REST_MS)
    await append(running, 1)
    await until(call.done)
    assert call.result() == 6


async def test_b11_a_query_over_few_queues_is_answered_at_once(running: RunningBroker) -> None:
    await running.create_topic("T", queues=FEW_QUEUES)
    call = await ask(running, FEW_QUEUES)
    await append(running, 1)
    assert await call == 1


class CountingStore:
    """The reads of a store by a service, which notes the queues of which it reads the maximum."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.recoveries = store.recoveries
        self.seen: list[QueueKey] = []

    def range_of(self, queue: QueueKey) -> QueueBounds:
        self.seen.append(queue)
        return self._store.range_of(queue)


class HeldQuery:
    """A query over all queues, held after its first look, and the queues it looks at then."""

    def __init__(self, running: RunningBroker) -> None:
        services, store = running.broker.services, CountingStore(running.broker.store)
        self._running = running
        self._store = store
        self._service = OffsetQueryService(
            cast("MessageStore", store), services.topics, services.long_polling.calls, Limits()
        )

    async def hold(self, *topics: str, pattern: str = "", with_epochs: bool = False) -> None:
        """Holds it until it has looked at each queue."""
        topics_of_broker = self._running.broker.services.topics
        configs = topics_of_broker.list(include_system=False)
        queues = [QueueKey(each.topic, i) for each in configs for i in range(each.read_queue_nums)]
        epoch_of = topics_of_broker.epoch
        epochs = {each.topic: epoch_of(each.topic) for each in configs} if with_epochs else {}
        known = KnownOffsets(
            (*queue, self._store.range_of(queue).max_offset, epochs.get(queue.topic, 0))
            for queue in queues
        )
        self._store.seen.clear()
        query = self._service.query(topics, pattern, known, 30_000)
        self.call = asyncio.ensure_future(self._service.topics_when_new(query))
        await until(lambda: len(self._store.seen) >= len(queues))
        await self.settle()
        assert sorted(self._store.seen) == sorted(queues)
        self._store.seen.clear()

    async def settle(self) -> None:
        """Waits until the query has looked at what it was woken for."""
        self._running.clock.advance(REST_MS)
        for _ in range(100):
            await asyncio.sleep(0)

    async def looked_at(self) -> list[QueueKey]:
        """Returns the queues of the time since the last call, sorted."""
        await self.settle()
        seen, self._store.seen = sorted(self._store.seen), []
        return seen


async def create(running: RunningBroker, topic: str, queues: int) -> None:
    assert await running.create_topic(topic, queues=queues) == 0


@pytest.mark.parametrize("queues", [300, 3_000])
async def test_b11_a_message_makes_a_held_query_look_at_its_queue(
    queues: int, running: RunningBroker
) -> None:
    await create(running, "T", 200)
    for number in range(queues // 100 - 2):
        await create(running, f"U{number}", 100)
    held = HeldQuery(running)
    await held.hold(pattern="T|U.*")
    await running.append("T", 150, b"x")
    assert await held.looked_at() == [QueueKey("T", 150)]
    assert len(await held.call) == queues // 100 - 1


@pytest.mark.parametrize(("named", "pattern"), [(["T"], ""), ([], "T.*")])
async def test_b11_topics_of_others_make_a_held_query_look_at_no_queue(
    named: list[str], pattern: str, running: RunningBroker
) -> None:
    await create(running, "T", 300)
    held = HeldQuery(running)
    await held.hold(*named, pattern=pattern)
    await create(running, "Other", 5)
    assert await held.looked_at() == []
    assert not held.call.done()
    await running.append("T", 0, b"x")
    assert await held.looked_at() == [QueueKey("T", 0)]
    assert await held.call == ["T"]


async def test_b11_a_changed_topic_makes_a_held_query_look_at_its_queues(
    running: RunningBroker,
) -> None:
    await create(running, "T", 300)
    await create(running, "U", 3)
    held = HeldQuery(running)
    await held.hold("T", "U")
    # Not distinguished from a deleted and recreated topic: no epoch is known.
    topics = running.broker.services.topics
    await topics.update(structs.replace(topics.get("U"), perm=Perm.READ), create_only=False)
    assert await held.looked_at() == [QueueKey("U", i) for i in range(3)]
    assert not held.call.done()
    await topics.add_queues("U", 4)
    assert await held.call == ["T", "U"]


async def test_b11_what_changes_while_a_held_query_looks_is_looked_at(
    running: RunningBroker,
) -> None:
    count = queries.QUEUES_A_SLOT
    await create(running, "T", count + 300)
    held = HeldQuery(running)
    await held.hold("T")
    calls = running.broker.services.long_polling.calls
    # The queues have no new messages, though the query is woken.
    for number in range(count + 1):
        calls.notify_queue(QueueKey("T", number))
    running.clock.advance(REST_MS)
    await until_a_task_waits_for_a_slot()
    calls.notify_queue(QueueKey("T", count + 7))
    wanted = [*range(count + 1), count + 7]
    assert await held.looked_at() == [QueueKey("T", number) for number in wanted]
    assert not held.call.done()
    await running.append("T", 0, b"x")
    assert await held.call == ["T"]


async def test_b11_a_queue_that_no_longer_can_be_read_is_not_looked_at(
    running: RunningBroker,
) -> None:
    await create(running, "T", 300)
    held = HeldQuery(running)
    await held.hold("T")
    running.broker.services.long_polling.calls.notify_queue(QueueKey("T", 300))
    assert await held.looked_at() == []
    held.call.cancel()


@pytest.mark.parametrize("with_epochs", [False, True])
async def test_b11_a_topic_that_is_made_again_is_told_by_its_epoch(
    running: RunningBroker, *, with_epochs: bool
) -> None:
    await create(running, "T", 3)
    held = HeldQuery(running)
    await held.hold("T", with_epochs=with_epochs)
    topics = running.broker.services.topics
    # Changes during the first save share the next one. So waiters see the recreated topic only.
    await asyncio.gather(
        topics.create(TopicConfig("U")), topics.delete("T"), topics.create(TopicConfig("T", 3, 3))
    )
    await held.settle()
    assert held.call.done() is with_epochs
    held.call.cancel()
