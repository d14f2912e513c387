"""Large blocks beside small calls, through real gRPC. Order and slots are counted, not timed."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator

import grpc
import pytest

from rocketpy_broker.services.admin import topic_admin_service
from rocketpy_broker.services.flush.admission import SMALL_BYTES_MAX
from rocketpy_broker.services.offsets import service as offsets
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, broker_pb2_grpc
from tests.support.blocks import WireBlock, bodies_of, wire_block
from tests.support.broker.event_loop import counted_slots
from tests.support.broker.running_broker import RunningBroker, until
from tests.support.store.disk_calls import LOG, DiskCall, before_call

LARGE = bytes(2 * SMALL_BYTES_MAX)


class HeldWrites:
    """Writes of large blocks, each of which waits until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self._let_go = threading.Semaphore(0)
        before_call(monkeypatch, "pwrite", LOG, self._hold)

    def _hold(self, call: DiskCall) -> None:
        if len(call.arguments[0]) > SMALL_BYTES_MAX:
            self.begun.append(threading.current_thread().name)
            self._let_go.acquire()

    def wake(self, count: int) -> None:
        """Releases `count` writes."""
        self._let_go.release(count)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldWrites:
    return HeldWrites(monkeypatch)


def append(running: RunningBroker, *bodies: bytes) -> asyncio.Task[broker_pb2.AppendResponse]:
    """Sends one block on a stream of its own."""
    return asyncio.ensure_future(running.append("T", 0, *bodies))


def in_flight(running: RunningBroker) -> tuple[int, int]:
    """Returns the bytes of large blocks under way, and how many blocks wait."""
    found = running.broker.services.sends.admission.sends
    return found.total, found.waiting_count


async def test_b09_the_loop_serves_others_while_a_large_block_is_written(
    held: HeldWrites, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await running.append("T", 1, b"small")
    large = append(running, LARGE)
    await until(lambda: bool(held.begun))
    [pulled] = await running.pull(topic="T", queue_id=1)
    assert bodies_of(pulled.records, pulled.record_sizes) == [b"small"]
    assert not large.done()
    held.wake(1)
    response = await large
    assert (response.status.code, response.queue_offset) == (ResponseCode.SUCCESS, 0)
    assert held.begun[0].startswith("append")
    assert in_flight(running) == (0, 0)


async def test_b09_small_blocks_go_before_the_large_ones_that_wait(
    held: HeldWrites, running: RunningBroker
) -> None:
    await running.create_topic("T")
    large = [append(running, LARGE) for _ in range(4)]
    await until(lambda: bool(held.begun) and not large_waits(running, 3))
    small = [append(running, b"small %d" % number) for number in range(10)]
    gathering = running.broker.services.sends._batcher
    await until(lambda: len(gathering._by_topic.get("T", ())) == len(small))
    held.wake(len(large))
    stored = await asyncio.gather(*large, *small)
    offsets_found = [each.queue_offset for each in stored]
    assert sorted(offsets_found[: len(large)]) == [0, 11, 12, 13]
    assert sorted(offsets_found[len(large) :]) == list(range(1, 11))


def large_waits(running: RunningBroker, count: int) -> bool:
    """True if fewer than `count` large blocks are checked and wait for the one that is written."""
    waiters = running.broker.services.sends.admission._one_at_a_time._waiters
    return len(waiters or ()) < count


async def test_b09_large_blocks_go_on_while_small_ones_keep_coming(running: RunningBroker) -> None:
    await running.create_topic("T")
    large = [append(running, LARGE) for _ in range(4)]
    small = 0
    while not all(each.done() for each in large):
        response = await running.append("T", 1, b"small")
        assert response.queue_offset == small
        small += 1
    assert sorted(each.result().queue_offset for each in large) == [0, 1, 2, 3]


async def test_b09_blocks_of_one_stream_stay_in_their_order_whatever_their_size(
    running: RunningBroker,
) -> None:
    bodies = [b"a", LARGE, b"b", b"c", LARGE, LARGE, b"d"]

    async def requests() -> AsyncIterator[broker_pb2.AppendRequest]:
        for body in bodies:
            block = wire_block("T", [body])
            yield broker_pb2.AppendRequest(
                topic="T", queue_id=0, records=block.records, record_sizes=block.record_sizes
            )

    await running.create_topic("T")
    answers = [answer async for answer in running.data.Append(requests())]
    assert [answer.queue_offset for answer in answers] == list(range(len(bodies)))
    found = [
        body
        for response in await running.pull(topic="T", queue_id=0)
        for body in bodies_of(response.records, response.record_sizes)
    ]
    assert found == bodies


async def test_b09_clients_that_go_away_leave_no_room_taken(
    held: HeldWrites, running: RunningBroker
) -> None:
    await running.create_topic("T")
    gone = grpc.aio.insecure_channel(f"127.0.0.1:{running.ready.port}")
    stub = broker_pb2_grpc.BrokerStub(gone)
    block = wire_block("T", [LARGE])
    request = broker_pb2.AppendRequest(
        topic="T", queue_id=0, records=block.records, record_sizes=block.record_sizes
    )
    reads = [asyncio.ensure_future(stub.Append(iter([request])).read()) for _ in range(3)]
    await until(lambda: bool(held.begun) and in_flight(running)[0] > 2 * len(LARGE))
    await gone.close()
    await asyncio.gather(*reads, return_exceptions=True)
    await until(lambda: in_flight(running)[0] < 2 * len(LARGE))
    held.wake(3)
    await until(lambda: in_flight(running) == (0, 0))
    held.wake(1)
    response = await running.append("T", 0, LARGE)
    assert response.status.code == ResponseCode.SUCCESS
    # What was being written is stored; what waited is not.
    assert response.queue_offset == 1


async def test_b09_who_is_cancelled_while_the_disk_fails_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    """Guards against a call that waits without end for a client that is gone."""
    begun, wake = threading.Event(), threading.Event()

    def fail(call: DiskCall) -> None:
        if len(call.arguments[0]) > SMALL_BYTES_MAX and not begun.is_set():
            begun.set()
            wake.wait()
            raise OSError(errno.EIO, "Input/output error")

    await running.create_topic("T")
    appends, block = running.broker.services.sends, wire_block("T", [LARGE])
    before_call(monkeypatch, "pwrite", LOG, fail)
    sending = asyncio.ensure_future(appends.append_large("T", 0, block.records, block.record_sizes))
    await until(begun.is_set)
    sending.cancel()
    wake.set()
    await asyncio.wait([sending])
    assert sending.cancelled()
    assert in_flight(running) == (0, 0)
    assert (await running.append("T", 0, LARGE)).queue_offset == 0


async def test_b09_a_large_block_that_is_refused_leaves_nothing(running: RunningBroker) -> None:
    await running.create_topic("T")
    good = wire_block("T", [LARGE])
    harmed = WireBlock(good.records[:-300] + bytes(300), good.record_sizes)
    response = await running.append_block("T", 0, harmed)
    assert response.status.code == ResponseCode.MESSAGE_ILLEGAL
    assert "malformed" in response.status.remark
    assert in_flight(running) == (0, 0)
    assert (await running.append("T", 0, b"a")).queue_offset == 0


async def test_b09_a_topic_deleted_while_its_large_block_waits_gets_none_of_it(
    held: HeldWrites, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await running.create_topic("Other")
    first = asyncio.ensure_future(running.append("Other", 0, LARGE))
    await until(lambda: bool(held.begun))
    second = append(running, LARGE)
    await until(lambda: not large_waits(running, 1))
    deleting = asyncio.ensure_future(
        running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
    )
    held.wake(2)
    assert (await first).status.code == ResponseCode.SUCCESS
    await deleting
    assert (await second).status.code in (
        *(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        ResponseCode.SERVICE_NOT_AVAILABLE,
    )
    await running.create_topic("T")
    assert (await running.append("T", 0, b"new")).queue_offset == 0


async def test_n13_offsets_of_many_queues_are_looked_at_some_in_each_slot(
    running: RunningBroker,
) -> None:
    queues = 4_096
    await running.create_topic("T", queues)
    async with counted_slots() as slots:
        answer = await running.data.QueryOffsets(broker_pb2.QueryOffsetsRequest(topics=["T"]))
    assert len(answer.topics[0].queues) == queues
    assert len(slots) >= queues // offsets.QUEUES_A_SLOT


async def test_n13_a_list_of_many_topics_is_made_in_slots(running: RunningBroker) -> None:
    topics, table = 3_000, running.broker.services.topics._table
    template = table.entries["TBW102"]
    table.take_in({f"topic-{number}": template for number in range(topics)})
    async with counted_slots() as slots:
        answer = await running.admin.ListTopics(admin_pb2.ListTopicsRequest())
    assert len(answer.configs) >= topics
    assert len(slots) >= len(answer.configs) // topic_admin_service.ENTRIES_A_SLOT
