"""Renewals of push consumers' deliveries by the broker."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from rocketpy_broker.services.deliveries.renewals import (
    COUNT_MAX,
    DUE_MAX,
    OF_CLIENT_MAX,
    RENEWED_MS,
    RENEWED_MS_MAX,
    SCAN_MS,
    RenewalService,
    Renewed,
)
from rocketpy_broker.services.groups.clients.members import EXPIRY_MS
from rocketpy_broker.services.groups.retry_policy import EXPONENTIAL
from rocketpy_broker.services.receipts.handle import Receipt, TopicKind
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from tests.support.broker.clients.apache_consumers import Consumer, Received
from tests.support.broker.pops import GROUP, REVIVE_MS, TOPIC, pass_time, settled, with_messages
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import LOG, DiskCall, before_call, holding

# A scan, a second, and the revive.
SOON_MS = 2_000 + REVIVE_MS


def renewed(running: RunningBroker) -> RenewalService:
    return running.broker.services.deliveries.renewals


async def pushed(consumer: Consumer) -> Received:
    return await consumer.receive(auto_renew=True)


async def alive(consumer: Consumer, ms: int) -> None:
    """Lets time pass for a consumer that sends heartbeats."""
    for _ in range(0, ms, 10_000):
        assert await consumer.heartbeat() == v2.OK
        await pass_time(consumer.running, 10_000)


async def began_earlier(running: RunningBroker, handle: str, ms: int) -> None:
    """Puts a delivery in the state that it has after `ms` of renewals."""
    delivery = await renewed(running).take(handle)
    assert delivery is not None
    delivery = replace(delivery, begin_ms=delivery.begin_ms - ms)
    renewed(running).put_back(handle, delivery)


def renew_others(running: RunningBroker, client_id: str, count: int, **fields: Any) -> list[str]:
    """Adds up to `count` deliveries of a group without messages; returns their handles."""
    receipt = Receipt(0, running.clock.now_ms(), RENEWED_MS, 0, TopicKind.NORMAL, "b", 0, 0)
    handles = [f"{client_id} {number}" for number in range(count)]
    for handle in handles:
        delivery = Renewed(client_id, "other", QueueKey(TOPIC, 0), receipt, 1, 0, 0, **fields)
        renewed(running).add(handle, delivery)
    return handles


@asynccontextmanager
async def others_renewed(running: RunningBroker, *client_ids: str) -> AsyncIterator[None]:
    """Fills the share of each client with further deliveries for the time of the block."""
    handles = [renew_others(running, each, OF_CLIENT_MAX) for each in client_ids]
    yield
    for handle in chain.from_iterable(handles):
        await renewed(running).take(handle)


async def test_a_message_stays_invisible_while_its_consumer_is_alive(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await pushed(consumer)).handles
        await alive(consumer, 5 * RENEWED_MS)
        await Consumer(running, client_id="other").receive_nothing()
        assert len(renewed(running)) == 1
        # The first handle counts.
        await consumer.acked(handle)
        assert len(renewed(running)) == 0
        await pass_time(running, 2 * RENEWED_MS)
        await consumer.receive_nothing()


async def test_a_consumer_without_heartbeats_is_alive_while_it_calls(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        consumer = Consumer(running)
        handles = (await pushed(consumer)).handles
        await pass_time(running, EXPIRY_MS - 20_000)
        await consumer.acked(handles[0])
        await pass_time(running, EXPIRY_MS - 20_000)
        await consumer.acked(handles[1])
        await pass_time(running, RENEWED_MS + SOON_MS)
        await consumer.receive_nothing()


@pytest.mark.parametrize("is_registered", [True, False])
async def test_a_silent_consumer_s_messages_come_again(
    start_broker: StartBroker, *, is_registered: bool
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        if is_registered:
            await consumer.heartbeat()
        (handle,) = (await pushed(consumer)).handles
        await pass_time(running, EXPIRY_MS + RENEWED_MS + SOON_MS)
        again = await Consumer(running, client_id="other").receive()
        assert (again.bodies, again.attempts) == ([b"a"], [2])
        assert (await consumer.ack(handle)).status.code == v2.INVALID_RECEIPT_HANDLE
        assert len(renewed(running)) == 0


async def test_a_terminated_consumer_s_messages_come_again_soon(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        consumer = Consumer(running)
        await consumer.heartbeat()
        received = await pushed(consumer)
        await consumer.acked(received.handles[0])
        await consumer.terminate()
        assert (await Consumer(running, client_id="other").receive_soon()).bodies == [b"b"]


async def test_a_change_ends_the_renewal(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        await consumer.heartbeat()
        (handle,) = (await pushed(consumer)).handles
        await alive(consumer, 2 * RENEWED_MS)
        assert (await consumer.change(handle, 5_000)).status.code == v2.OK
        assert len(renewed(running)) == 0
        await pass_time(running, 5_000 + REVIVE_MS)
        assert (await pushed(consumer)).attempts == [2]


async def test_a_forward_ends_the_renewal(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await pushed(consumer)).handles
        await alive(consumer, 2 * RENEWED_MS)
        assert await consumer.forward(handle) == v2.OK
        assert len(renewed(running)) == 0
        await pass_time(running, 2 * RENEWED_MS)
        await consumer.receive_nothing()


async def test_a_renewal_ends_after_its_longest_time(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await pushed(consumer)).handles
        await began_earlier(running, handle, RENEWED_MS_MAX - 3 * RENEWED_MS)
        await alive(consumer, 2 * RENEWED_MS)
        assert len(renewed(running)) == 1
        await alive(consumer, 3 * RENEWED_MS)
        assert len(renewed(running)) == 0
        # The group's delay after a first attempt is 10 seconds.
        assert (await consumer.receive()).attempts == [2]
        assert (await consumer.ack(handle)).status.code == v2.INVALID_RECEIPT_HANDLE


async def test_a_delay_of_one_minute_ends_a_renewal(start_broker: StartBroker) -> None:
    policy = {"type": EXPONENTIAL, "exponentialRetryPolicy": {"initial": RENEWED_MS}}
    async with with_messages(start_broker, b"a") as running:
        config = SubscriptionGroupConfig(GROUP, group_retry_policy=policy)
        await running.broker.services.groups.configs.update(config)
        consumer = Consumer(running)
        (handle,) = (await pushed(consumer)).handles
        await began_earlier(running, handle, RENEWED_MS_MAX - RENEWED_MS)
        await alive(consumer, 4 * RENEWED_MS)
        assert (await consumer.receive()).attempts == [2]


async def test_deliveries_are_renewed_after_a_jump_of_the_wall_clock_back(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        await pushed(consumer)
        running.clock.jump(-3_600_000)
        await running.append(TOPIC, 0, b"b")
        (handle,) = (await pushed(consumer)).handles
        await alive(consumer, 3 * RENEWED_MS)
        await Consumer(running, client_id="other").receive_nothing()
        await consumer.acked(handle)


async def test_after_a_restart_messages_come_again_at_the_end_of_their_time(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        await pushed(consumer)
        await alive(consumer, 2 * RENEWED_MS)
        clock = running.clock
    async with start_broker(clock=clock) as running:
        consumer = Consumer(running)
        await alive(consumer, RENEWED_MS + 10_000)
        assert (await consumer.receive()).attempts == [2]


async def test_the_table_of_renewals_has_a_limit(start_broker: StartBroker) -> None:
    others = [f"other-{number}" for number in range(COUNT_MAX // OF_CLIENT_MAX)]
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        first = await pushed(consumer)
        async with others_renewed(running, *others):
            await running.append(TOPIC, 0, b"b")
            second = await pushed(consumer)
            assert len(renewed(running)) == COUNT_MAX
        await alive(consumer, RENEWED_MS + 10_000)
        assert len(renewed(running)) == 1
        assert (await consumer.receive()).bodies == [b"b"]
        # The handle of a message that is not renewed has expired.
        assert (await consumer.ack(*second.handles)).status.code == v2.INVALID_RECEIPT_HANDLE
        await consumer.acked(*first.handles)


async def test_an_acknowledgement_during_a_renewal_counts(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_messages(start_broker, b"a", flush=FlushDiskType.SYNC_FLUSH) as running:
        consumer = Consumer(running)
        (handle,) = (await pushed(consumer)).handles
        with holding(monkeypatch, "fdatasync", LOG) as gate:
            running.clock.advance(RENEWED_MS - 5_000)
            await gate.reached()
            acking = asyncio.ensure_future(consumer.acked(handle))
            await until(lambda: len(renewed(running)) == 0)
        await acking
        await pass_time(running, 2 * RENEWED_MS)
        await consumer.receive_nothing()


async def test_one_client_has_a_share_of_the_renewals(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer, other = Consumer(running), Consumer(running, client_id="other")
        await pushed(consumer)
        async with others_renewed(running, consumer.client_id):
            await running.append(TOPIC, 0, b"b")
            assert (await pushed(consumer)).bodies == [b"b"]
            await running.append(TOPIC, 0, b"c")
            assert (await pushed(other)).bodies == [b"c"]
        assert len(renewed(running)) == 2
        await alive(other, RENEWED_MS + 10_000)
        assert (await other.receive()).bodies == [b"b"]


async def test_deliveries_beyond_those_of_one_scan_are_renewed_by_the_next(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a") as running:
        # The clients of these have gone, so a scan ends as many of them as it may.
        for client_id, count in (("gone-1", DUE_MAX - 1), ("gone-2", 2)):
            renew_others(running, client_id, count, is_client_gone=True)
        consumer = Consumer(running)
        handles = (await pushed(consumer)).handles
        running.clock.advance(SCAN_MS)
        await until(lambda: len(renewed(running)) <= 2)
        await settled(running)
        assert len(renewed(running)) == 2
        await alive(consumer, 2 * RENEWED_MS)
        assert len(renewed(running)) == 1
        await consumer.receive_nothing()
        await consumer.acked(*handles)


@pytest.mark.parametrize("is_forward", [False, True])
async def test_a_handle_counts_after_a_call_that_its_client_cancelled(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, *, is_forward: bool
) -> None:
    async with with_messages(start_broker, b"a", flush=FlushDiskType.SYNC_FLUSH) as running:
        consumer = Consumer(running)
        (handle,) = (await pushed(consumer)).handles
        await alive(consumer, 2 * RENEWED_MS)
        # A forward stores the dead letter before it acknowledges the message.
        with holding(monkeypatch, "fdatasync", LOG, after=int(is_forward)) as gate:
            call = consumer.forward if is_forward else consumer.acked
            calling = asyncio.ensure_future(call(handle))
            await gate.reached()
            calling.cancel()
            await until(lambda: len(renewed(running)) == 1)
        await alive(consumer, RENEWED_MS)
        await consumer.acked(handle)
        await pass_time(running, 2 * RENEWED_MS)
        await consumer.receive_nothing()


async def test_a_renewal_that_the_store_refuses_is_tried_again(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0

    def sometimes(call: DiskCall) -> None:
        nonlocal refused
        if call.records is not None and refused < 3:
            refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        (handle,) = (await pushed(consumer)).handles
        before_call(monkeypatch, "pwrite", LOG, sometimes)
        await alive(consumer, 2 * RENEWED_MS)
        assert refused == 3
        await consumer.acked(handle)
