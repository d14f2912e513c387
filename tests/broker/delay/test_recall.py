"""Recalls of messages before their delivery time, and refused recalls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages.recall import recall_handle, recall_message
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.recall_handle import RecallHandle
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.delay.test_levels import advance, bodies, both, visible
from tests.broker.delay.test_timer_export import export
from tests.broker.delay.test_times import NOW_MS, send_at
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

DUE_MS = NOW_MS + 5_400
ILLEGAL = ResponseCode.ILLEGAL_OPERATION


async def recall(
    running: RunningBroker, handle: str, topic: str = "T"
) -> broker_pb2.RecallMessageResponse:
    request = broker_pb2.RecallMessageRequest(topic=topic, recall_handle=handle)
    response: broker_pb2.RecallMessageResponse = await running.data.RecallMessage(request)
    return response


def handle_of(key: str, topic: str = "T", broker: str = "broker-a", due_ms: int = DUE_MS) -> str:
    return RecallHandle.of_message(topic, broker, due_ms, key).encode()


@both
async def test_d03_a_message_that_was_taken_back_never_comes(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        await send_at(running, [DUE_MS], b"back", UNIQ_KEY="K1")
        await send_at(running, [DUE_MS], b"stays", UNIQ_KEY="K2")
        await send_at(running, [DUE_MS + 1_000], b"another time", UNIQ_KEY="K1")
        answer = await recall(running, handle_of("K1"))
        assert (answer.status.code, answer.msg_id) == (ResponseCode.SUCCESS, "K1")
        await advance(running, 7_000)
        await until(lambda: visible(running) == 2)
        assert await bodies(running) == [b"stays", b"another time"]
        assert visible(running, queue_id=0) == 0
        assert running.broker.services.delay.timer.waiting_count == 0


async def test_d03_the_client_makes_the_handle_of_what_it_sent(running: RunningBroker) -> None:
    def as_a_client(port: int) -> str:
        with BrokerConnection(f"127.0.0.1:{port}") as connection:
            return recall_message(connection, "T", recall_handle(connection, "T", DUE_MS, "K1"))

    await running.create_topic("T")
    await send_at(running, [DUE_MS], b"back", UNIQ_KEY="K1")
    assert await asyncio.to_thread(as_a_client, running.ready.port) == "K1"
    await advance(running, 7_000)
    assert visible(running) == 0


async def test_d03_a_recall_outlives_a_kill(
    start_broker: StartBroker, start_crashed: StartBroker
) -> None:
    async with start_crashed(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await send_at(running, [DUE_MS, DUE_MS], b"back", b"back", UNIQ_KEY="K1")
        await recall(running, handle_of("K1"))
    async with start_broker() as running:
        await advance(running, 7_000)
        assert visible(running) == 0


@pytest.mark.parametrize(
    ("handle", "code", "remark"),
    [
        ("no base 64!", ILLEGAL, "not Base64"),
        ("dGV4dA==", ILLEGAL, "holds 'text', not 'v1 TOPIC BROKER TIME KEY'"),
        ("A" * 5_000, ILLEGAL, "5000 characters, limit 4096"),
        (RecallHandle("T", "broker-a", -5, "K").encode(), ILLEGAL, "the time of the recall handle"),
        (handle_of("K", topic="U"), ILLEGAL, "it is for topic 'U', and the request names 'T'"),
        (handle_of("K", broker="b"), ILLEGAL, "it is for broker 'b', and this is 'broker-a'"),
        (handle_of("K", due_ms=NOW_MS), ILLEGAL, "may have been delivered"),
        (handle_of("K", due_ms=NOW_MS + 400 * 86_400_000), ILLEGAL, "limit 3 days from now"),
        (handle_of("K\x01"), ILLEGAL, "separator"),
    ],
)
async def test_d03_a_handle_that_names_nothing_to_take_back_is_refused(
    handle: str, code: ResponseCode, remark: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    answer = await recall(running, handle)
    assert answer.status.code == code
    assert remark in answer.status.remark
    assert visible(running, *TIMER_QUEUE) == 0


async def test_d03_a_recall_from_a_topic_that_is_not_there_is_refused(
    running: RunningBroker,
) -> None:
    answer = await recall(running, handle_of("K"))
    assert answer.status.code == ResponseCode.TOPIC_NOT_EXIST
    assert "'T' does not exist" in answer.status.remark


async def test_d03_a_broker_that_takes_nothing_back_says_so_first(
    start_broker: StartBroker,
) -> None:
    async with start_broker(recall_message_enable=False) as running:
        answer = await recall(running, "no base 64!")
        assert answer.status.code == ResponseCode.NO_PERMISSION
        assert answer.status.remark == "recall failed, operation is forbidden"


async def test_d03_a_broker_that_stores_nothing_takes_nothing_back(running: RunningBroker) -> None:
    running.broker.store.flush_failed(OSError(5, "broken"))
    answer = await recall(running, handle_of("K"))
    assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "read-only" in answer.status.remark


@both
async def test_d03_what_is_sent_behind_a_recall_of_its_key_comes(
    start_broker: StartBroker, start_crashed: StartBroker, flush: FlushDiskType
) -> None:
    """Asserts that a recall cancels only the message that waited; the later one is acknowledged."""
    async with start_crashed(flush) as running:
        await running.create_topic("T")
        await send_at(running, [DUE_MS], b"back", UNIQ_KEY="K1")
        assert (await recall(running, handle_of("K1"))).status.code == ResponseCode.SUCCESS
        await send_at(running, [DUE_MS], b"in its place", UNIQ_KEY="K1")
        await until(lambda: visible(running, *TIMER_QUEUE) == 3)
    async with start_broker(flush) as running:
        await advance(running, 7_000)
        await until(lambda: visible(running) == 1)
        assert await bodies(running) == [b"in its place"]
        await advance(running, 1_000)
        assert running.broker.services.delay.timer.waiting_count == 0


async def test_d03_a_copy_that_was_rolled_behind_its_recall_stays_taken_back(
    running: RunningBroker,
) -> None:
    """Covers RocketMQ, which rolls waits of over two days and cancels every copy of a key."""
    await running.create_topic("T")
    await send_at(running, [DUE_MS], b"back", UNIQ_KEY="K1")
    assert (await recall(running, handle_of("K1"))).status.code == ResponseCode.SUCCESS
    await send_at(running, [DUE_MS], b"back", UNIQ_KEY="K1", TIMER_ROLL_TIMES="1")
    await advance(running, 7_000)
    assert await bodies(running) == []


async def test_d04_a_stop_rolls_what_was_sent_behind_a_recall_and_it_comes(
    start_broker: StartBroker, start_crashed: StartBroker, tmp_path: Path
) -> None:
    """Leaves a copy after the recall at the stop; the next start reads it, too."""
    async with start_crashed(FlushDiskType.ASYNC_FLUSH) as running:
        await running.create_topic("T")
        await send_at(running, [DUE_MS], b"back", UNIQ_KEY="K1")
        assert (await recall(running, handle_of("K1"))).status.code == ResponseCode.SUCCESS
        await send_at(running, [DUE_MS], b"in its place", UNIQ_KEY="K1")
        await send_at(running, [DUE_MS + 1_000], b"later", UNIQ_KEY="K2")
        await send_at(running, [NOW_MS + 1_000], b"first", UNIQ_KEY="K3")
        await advance(running, 1_500)
        assert await bodies(running) == [b"first"]
        export(running, tmp_path, count_max=1)
    async with start_broker(clock=ManualClock(NOW_MS + 2_000)) as running:
        assert visible(running, *TIMER_QUEUE) == 6
        await advance(running, 7_000)
        assert await bodies(running) == [b"first", b"in its place", b"later"]
