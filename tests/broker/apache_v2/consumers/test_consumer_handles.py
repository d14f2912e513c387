"""Receipt handles: acknowledgements, invisible times, dead letters, and handles of nothing."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rocketpy_broker.config import Limits
from rocketpy_broker.errors import StoreBusyError
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model import dead_letter_topic
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from tests.support.broker.clients.apache_consumers import Consumer, duration
from tests.support.broker.pops import (
    GROUP,
    INVISIBLE_MS,
    REVIVE_MS,
    TOPIC,
    pass_time,
    with_messages,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import LOG, before_call, failing, holding

DEAD_LETTERS = dead_letter_topic(GROUP)
LATER_MS = INVISIBLE_MS + REVIVE_MS
Illegal = Callable[[str], str]


def dead_letters(running: RunningBroker) -> int:
    return running.broker.store.range_of(QueueKey(DEAD_LETTERS, 0)).max_offset


def changed_number(place: int) -> Illegal:
    """Returns a function that forges a number of a handle."""

    def changed(handle: str) -> str:
        parts = handle.split(" ")
        parts[place] = str(int(parts[place]) + 1)
        return " ".join(parts)

    return changed


async def test_an_acknowledged_message_does_not_come_again(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        consumer = Consumer(running)
        received = await consumer.receive()
        await consumer.acked(received.handles[0])
        # A repeated acknowledgement has no further effect.
        end = running.broker.store.positions().log_end
        await consumer.acked(received.handles[0])
        assert running.broker.store.positions().log_end == end
        await pass_time(running, LATER_MS)
        assert (await consumer.receive()).bodies == [b"b"]


async def test_each_entry_of_an_acknowledgement_has_a_result(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        consumer = Consumer(running)
        first, second = (await consumer.receive()).handles
        response = await consumer.ack(first, "none", second, first)
        assert response.status.code == v2.MULTIPLE_RESULTS
        codes = [each.status.code for each in response.entries]
        assert codes == [v2.OK, v2.INVALID_RECEIPT_HANDLE, v2.OK, v2.OK]
        assert [each.message_id for each in response.entries] == ["id-0", "id-1", "id-2", "id-3"]
        assert [each.receipt_handle for each in response.entries] == [first, "none", second, first]
        await pass_time(running, LATER_MS)
        await consumer.receive_nothing()


async def test_messages_of_one_receive_are_acknowledged_by_one_record(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, *[b"%d" % i for i in range(70)]) as running:
        consumer = Consumer(running)
        handles = [handle for _ in range(3) for handle in (await consumer.receive()).handles]
        before = running.broker.store.next_offset(TIMER_QUEUE)
        await consumer.acked(*reversed(handles))
        assert (len(handles), running.broker.store.next_offset(TIMER_QUEUE)) == (70, before + 3)
        await pass_time(running, LATER_MS)
        await consumer.receive_nothing()


@pytest.mark.parametrize("count", [0, 1_001])
async def test_an_acknowledgement_has_1_to_1000_entries(
    start_broker: StartBroker, count: int
) -> None:
    async with with_messages(start_broker, b"a") as running:
        response = await Consumer(running).ack(*["none"] * count)
        assert (response.status.code, len(response.entries)) == (v2.BAD_REQUEST, 0)


MALFORMED: list[Illegal] = [
    lambda _: "",
    lambda _: "none",
    lambda _: "0 1 1 0 0 broker-a 0 0",
    lambda handle: handle[:-1],
    lambda handle: handle + " ",
    lambda handle: handle + "é",
    lambda handle: handle * 100,
]
# A broker cannot distinguish these from the handles of another store.
FOREIGN: list[Illegal] = [
    lambda _: "0 1 1 0 0 broker-a 0 0 0123456789abcdef",
    lambda handle: handle.replace("broker-a", "broker-b"),
    *map(changed_number, (0, 1, 2, 3, 4, 6, 7)),
]


@pytest.mark.parametrize(
    ("illegal", "forwarded"),
    [
        *((each, v2.INVALID_RECEIPT_HANDLE) for each in MALFORMED),
        # A consumer in order repeats a forward until OK, and the message is not here.
        *((each, v2.OK) for each in FOREIGN),
    ],
)
async def test_a_handle_of_no_delivery_changes_nothing(
    start_broker: StartBroker, illegal: Illegal, forwarded: v2.Code
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await consumer.receive()).handles
        end = running.broker.store.positions().log_end
        wrong = illegal(handle)
        response = await consumer.ack(wrong)
        assert response.status.code == v2.INVALID_RECEIPT_HANDLE
        assert (await consumer.forward(wrong)) == forwarded
        change = await consumer.change(wrong, 1_000)
        assert change.status.code == v2.INVALID_RECEIPT_HANDLE
        assert change.receipt_handle == wrong
        assert running.broker.store.positions().log_end == end


@pytest.mark.parametrize("other", [{"group": "h"}, {"topic": "U"}])
async def test_a_handle_of_another_group_or_topic_changes_nothing(
    start_broker: StartBroker, other: dict[str, Any]
) -> None:
    async with with_messages(start_broker, b"a") as running:
        await running.create_topic("U", 1)
        await running.append("U", 0, b"u")
        consumer = Consumer(running)
        foreign = replace(consumer, **other)
        (handle,) = (await foreign.receive()).handles
        await consumer.receive()
        end = running.broker.store.positions().log_end
        assert (await consumer.ack(handle)).status.code == v2.INVALID_RECEIPT_HANDLE
        assert (await consumer.change(handle, 0)).status.code == v2.INVALID_RECEIPT_HANDLE
        assert await consumer.forward(handle) == v2.OK
        assert running.broker.store.positions().log_end == end
        # Nor after its owner has used it.
        await foreign.acked(handle)
        assert (await consumer.ack(handle)).status.code == v2.INVALID_RECEIPT_HANDLE


async def test_an_expired_handle_changes_nothing(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await consumer.receive()).handles
        running.clock.advance(INVISIBLE_MS)
        assert (await consumer.ack(handle)).status.code == v2.INVALID_RECEIPT_HANDLE
        change = await consumer.change(handle, 1_000)
        assert change.status.code == v2.INVALID_RECEIPT_HANDLE
        # Clients repeat this call until it succeeds.
        assert await consumer.forward(handle) == v2.OK
        await pass_time(running, REVIVE_MS)
        assert (await consumer.receive()).attempts == [2]
        assert dead_letters(running) == 0


async def test_a_handle_stays_valid_over_a_restart(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        (handle,) = (await Consumer(running).receive()).handles
        clock = running.clock
    async with start_broker(clock=clock) as running:
        consumer = Consumer(running)
        await consumer.acked(handle)
        await pass_time(running, LATER_MS)
        await consumer.receive_nothing()


async def test_a_change_replaces_the_handle(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await consumer.receive()).handles
        change = await consumer.change(handle, 60_000)
        assert change.status.code == v2.OK
        assert change.receipt_handle not in {"", handle}
        assert (await consumer.ack(handle)).status.code == v2.INVALID_RECEIPT_HANDLE
        repeated = await consumer.change(handle, 0)
        assert repeated.status.code == v2.INVALID_RECEIPT_HANDLE
        await pass_time(running, LATER_MS)
        await consumer.receive_nothing()
        await consumer.acked(change.receipt_handle)
        await pass_time(running, 60_000)
        await consumer.receive_nothing()


@pytest.mark.parametrize("invisible_ms", [0, 1_000])
async def test_a_change_makes_a_message_visible_sooner(
    start_broker: StartBroker, invisible_ms: int
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        first = await consumer.receive(invisible_duration=duration(3_600_000))
        await consumer.change(first.handles[0], invisible_ms)
        await pass_time(running, invisible_ms + REVIVE_MS)
        again = await consumer.receive()
        assert (again.bodies, again.attempts) == ([b"a"], [2])


@pytest.mark.parametrize("invisible_ms", [-1, 12 * 3_600_000 + 1])
async def test_an_illegal_change_keeps_the_handle(
    start_broker: StartBroker, invisible_ms: int
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await consumer.receive()).handles
        change = await consumer.change(handle, invisible_ms)
        assert change.status.code == v2.ILLEGAL_INVISIBLE_TIME
        assert change.receipt_handle == handle
        await consumer.acked(handle)


async def test_an_acknowledged_message_has_no_invisible_time(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await consumer.receive()).handles
        await consumer.acked(handle)
        assert (await consumer.change(handle, 0)).status.code == v2.INVALID_RECEIPT_HANDLE
        await pass_time(running, LATER_MS)
        await consumer.receive_nothing()


async def test_a_handle_counts_after_a_change_that_the_store_refused(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await consumer.receive()).handles
        with monkeypatch.context() as patch:
            before_call(patch, "pwrite", LOG, failing(errno.ENOSPC))
            change = await consumer.change(handle, 0)
        assert (change.status.code, change.receipt_handle) == (v2.INTERNAL_SERVER_ERROR, handle)
        await consumer.acked(handle)


async def test_a_message_after_its_last_attempt_is_a_dead_letter(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        config = SubscriptionGroupConfig(GROUP, retry_max_times=1)
        await running.broker.services.groups.configs.update(config)
        consumer = Consumer(running)
        attempts = []
        for _ in range(2):
            received = await consumer.receive()
            attempts += received.attempts
            await pass_time(running, LATER_MS)
        await running.append(TOPIC, 0, b"c")
        assert attempts == [1, 1, 2, 2]
        assert (await consumer.receive()).bodies == [b"c"]
        assert dead_letters(running) == 2
        reader = replace(consumer, group="reader", topic=DEAD_LETTERS)
        dead = await reader.receive()
        assert sorted(dead.bodies) == [b"a", b"b"]
        assert {each.topic.name for each in dead.messages} == {DEAD_LETTERS}
        await pass_time(running, LATER_MS)
        assert dead_letters(running) == 2


async def test_a_forwarded_message_is_one_dead_letter(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        consumer = Consumer(running)
        handle, _ = (await consumer.receive()).handles
        assert [await consumer.forward(handle) for _ in range(2)] == [v2.OK, v2.OK]
        await consumer.acked(handle)
        assert dead_letters(running) == 1
        await pass_time(running, LATER_MS)
        assert (await consumer.receive()).bodies == [b"b"]


async def test_an_acknowledgement_counts_although_a_forward_at_that_time_fails(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(unflushed_bytes_max=1)
    async with with_messages(
        start_broker, b"a", flush=FlushDiskType.SYNC_FLUSH, limits=limits
    ) as running:
        await running.create_topic("U", 1)
        consumer, services = Consumer(running), running.broker.services
        deliveries, flushes = services.deliveries, services.flush.group_commit
        (handle,) = (await consumer.receive()).handles
        with holding(monkeypatch, "fdatasync", LOG) as gate:
            filling = asyncio.ensure_future(running.append("U", 0, b"u"))
            await until(lambda: flushes.waiting_count == 1)
            forward = deliveries.forward_to_dead_letters(GROUP, TOPIC, handle)
            forwarding = asyncio.ensure_future(forward)
            await until(lambda: flushes.waiting_count == 2)
            acking = asyncio.ensure_future(deliveries.ack(GROUP, TOPIC, [handle], "c"))
            await asyncio.sleep(0)
            running.clock.advance(FlushTimes().sync_flush_timeout_ms)
            with pytest.raises(StoreBusyError):
                await forwarding
            gate.open()
            assert await acking == [None]
        assert (await filling).status.code == ResponseCode.FLUSH_DISK_TIMEOUT
        await pass_time(running, LATER_MS)
        await consumer.receive_nothing()


@pytest.mark.parametrize("flush", [FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH])
async def test_after_a_kill_acknowledged_messages_stay_so_and_the_rest_comes_once(
    start_crashed: StartBroker, flush: FlushDiskType
) -> None:
    bodies = [b"%d" % i for i in range(10)]
    async with with_messages(start_crashed, *bodies, flush=flush) as running:
        consumer = Consumer(running)
        received = await consumer.receive(batch_size=8)
        await consumer.acked(*received.handles[:4])
        await consumer.change(received.handles[4], 5_000)
        clock = running.clock
    async with start_crashed(flush, clock=clock) as running:
        consumer = Consumer(running)
        assert (await consumer.receive(invisible_duration=duration(600_000))).bodies == bodies[8:]
        await pass_time(running, LATER_MS)
        again = await consumer.receive()
        assert sorted(again.bodies) == bodies[4:8]
        await consumer.acked(*again.handles)
        await pass_time(running, LATER_MS)
        await consumer.receive_nothing()
