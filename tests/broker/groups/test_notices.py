"""Streams of notices: receivers, clients that disconnect, and slow clients."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from rocketpy_broker.config import ClientLimits, Limits
from rocketpy_broker.errors import NoticesEndedError
from rocketpy_broker.services.groups.client_stream import OVERHEAD_BYTES, ClientStreams
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import groups_pb2
from tests.support.broker.clients.group_clients import (
    changed,
    consumer,
    heartbeat,
    listening,
    members,
    unregister,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, until


def check(number: int, group: str = "p", record: bytes = b"record") -> groups_pb2.CheckTransaction:
    return groups_pb2.CheckTransaction(
        producer_group=group,
        transaction_id=f"transaction-{number}",
        offset_msg_id=f"offset-{number}",
        commit_log_offset=number,
        queue_offset=7,
        record=record,
    )


def asked(number: int) -> groups_pb2.Notice:
    return groups_pb2.Notice(check_transaction=check(number))


def tell(running: RunningBroker, number: int, group: str = "p") -> bool:
    return running.broker.services.groups.clients.notify_one_producer(check(number, group))


async def test_b08_a_client_whose_stream_is_cancelled_has_left_all_its_groups(
    running: RunningBroker,
) -> None:
    async with listening(running, "c1") as told:
        async with listening(running, "c2"):
            await heartbeat(running, "c1", consumer("g"))
            await heartbeat(running, "c2", consumer("g"), consumer("h"), producers=["p"])
            assert await members(running, "h") == ["c2"]
            assert await told.changed() == "g"
        assert await told.changed() == "g"
        assert await members(running, "g") == ["c1"]
        assert await members(running, "h") == []
        assert not tell(running, 1)


async def test_b08_a_client_whose_connection_breaks_has_left(running: RunningBroker) -> None:
    async with listening(running, "c1") as told:
        await heartbeat(running, "c1", consumer("g"))
        assert await told.changed() == "g"
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.ready.port}") as channel:
            other = RunningBroker(running.broker, running.clock, running.ready, channel)
            call = other.groups.Notices(groups_pb2.NoticesRequest(client_id="c2"))
            await call.initial_metadata()
            await heartbeat(other, "c2", consumer("g"))
            assert await told.changed() == "g"
        assert await told.changed() == "g"
        assert await members(running, "g") == ["c1"]


async def test_b08_the_end_of_a_stream_is_told_also_where_joining_is_not(
    running: RunningBroker,
) -> None:
    async with listening(running, "c1") as told:
        config = running.broker.services.groups.configs
        async with listening(running, "c2"):
            await heartbeat(running, "c2", consumer("g"))
            await config.update(
                type(config.get("g"))("g", notify_consumer_ids_changed_enable=False)
            )
            await heartbeat(running, "c1", consumer("g"))
        assert await told.changed() == "g"


async def test_a_newer_stream_of_a_client_ends_the_older_and_the_client_stays(
    running: RunningBroker,
) -> None:
    async with listening(running, "c1") as older:
        await heartbeat(running, "c1", consumer("g"))
        assert await older.changed() == "g"
        async with listening(running, "c1") as newer:
            last = await older.next()
            assert last.status.code == ResponseCode.ILLEGAL_OPERATION
            assert "client 'c1' has opened a newer stream" in last.status.remark
            assert await older.call.read() is grpc.aio.EOF
            assert await members(running, "g") == ["c1"]
            await heartbeat(running, "c2", consumer("g"))
            assert await newer.changed() == "g"


async def test_streams_end_without_an_error_when_the_broker_stops(running: RunningBroker) -> None:
    call = running.groups.Notices(groups_pb2.NoticesRequest(client_id="c1"))
    await call.initial_metadata()
    for stop in running.broker._lifecycle.stops:
        stop()
    assert await call.read() is grpc.aio.EOF
    late = running.groups.Notices(groups_pb2.NoticesRequest(client_id="c2"))
    assert await late.read() is grpc.aio.EOF


@pytest.mark.parametrize("client_id", ["", "c" * 256, "c\t1"])
async def test_a_stream_for_a_bad_client_id_is_refused(
    client_id: str, running: RunningBroker
) -> None:
    call = running.groups.Notices(groups_pb2.NoticesRequest(client_id=client_id))
    status = (await call.read()).status
    assert status.code == ResponseCode.INVALID_PARAMETER
    assert "client_id is" in status.remark
    assert await call.read() is grpc.aio.EOF


async def test_only_so_many_streams_are_open(start_broker: StartBroker) -> None:
    limits = Limits(clients=ClientLimits(clients_max=1))
    async with start_broker(limits=limits) as running:
        async with listening(running, "c1"), listening(running, "c1"):
            call = running.groups.Notices(groups_pb2.NoticesRequest(client_id="c2"))
            status = (await call.read()).status
            assert status.code == ResponseCode.SYSTEM_BUSY
            assert "clients with a stream of notices would exceed the limit 1" in status.remark
        streams = running.broker.services.groups.clients
        await until(lambda: not streams.listener_count)
        async with listening(running, "c2"):
            pass


# --- Transactions to check ---


async def test_t04_a_check_reaches_one_client_of_the_producer_group(running: RunningBroker) -> None:
    async with listening(running, "c1") as told:
        await heartbeat(running, "c1", producers=["p"])
        assert tell(running, 5)
        notice = await told.next()
        assert notice.status.code == 0
        assert notice.check_transaction == check(5)


async def test_t04_clients_that_listen_are_asked_in_turn(running: RunningBroker) -> None:
    async with listening(running, "c1") as first, listening(running, "c3") as third:
        for client_id in ("c1", "c2", "c3", "c4"):
            await heartbeat(running, client_id, producers=["p"])
        await heartbeat(running, "c1", producers=["other"])
        for number in range(6):
            assert tell(running, number)
        assert tell(running, 6, "other")
        numbers = [(await first.next()).check_transaction.commit_log_offset for _ in range(4)]
        assert numbers == [0, 2, 4, 6]
        numbers = [(await third.next()).check_transaction.commit_log_offset for _ in range(3)]
        assert numbers == [1, 3, 5]


async def test_t04_nobody_is_asked_where_no_producer_listens(running: RunningBroker) -> None:
    async with listening(running, "c1"):
        await heartbeat(running, "c2", producers=["p"])
        await heartbeat(running, "c1", consumer("p"))
        assert not tell(running, 1)
        assert not tell(running, 1, "unknown")


# --- Slow clients ---


def streams(**fields: int) -> ClientStreams:
    return ClientStreams(ClientLimits(**fields))


async def test_changes_of_a_group_that_wait_are_one_notice() -> None:
    stream = streams().open("c1")
    for group in ("g", "h", "g", "g"):
        stream.notify_changed(group)
    stream.offer(check(1))
    found = [await stream.next() for _ in range(3)]
    assert found == [changed("g"), changed("h"), asked(1)]
    stream.notify_changed("g")
    assert await stream.next() == changed("g")


async def test_a_group_that_was_left_is_not_spoken_of_any_more(running: RunningBroker) -> None:
    clients = running.broker.services.groups.clients
    stream = clients.open_notices("c1")
    await heartbeat(running, "c1", consumer("g"), consumer("h"))
    await unregister(running, "c1", consumer="g")
    assert await stream.next() == changed("h")


async def test_t04_only_so_many_checks_wait_for_one_client() -> None:
    opened = streams(notices_per_client_max=2)
    stream = opened.open("c1")
    assert [stream.offer(check(number)) for number in range(3)] == [True, True, False]
    assert await stream.next() == asked(0)
    assert stream.offer(check(3))
    assert not stream.offer(check(4))


async def test_t04_checks_that_wait_take_only_so_much_memory() -> None:
    size = OVERHEAD_BYTES + 1_000
    opened = streams(notice_bytes_max=2 * size)
    first, second = opened.open("c1"), opened.open("c2")
    large = check(1, record=b"x" * 1_000)
    assert first.offer(large)
    assert second.offer(large)
    assert not first.offer(check(2, record=b""))
    await second.next()
    assert first.offer(check(2, record=b""))
    assert opened.waiting_bytes == size + OVERHEAD_BYTES
    opened.close(first)
    assert opened.waiting_bytes == 0


async def test_t04_a_connection_has_a_limited_share_of_the_checks_that_wait() -> None:
    opened = streams(notice_bytes_per_connection_max=2 * OVERHEAD_BYTES)
    first, second = opened.open("c1", "host:1"), opened.open("c2", "host:1")
    other = opened.open("c3", "host:2")
    small = check(1, record=b"")
    assert first.offer(small)
    assert second.offer(small)
    assert not first.offer(small)
    assert other.offer(small)
    opened.close(second)
    assert first.offer(small)
    assert opened.waiting_bytes == 3 * OVERHEAD_BYTES


async def test_t04_a_client_with_too_many_notices_is_passed_over(
    start_broker: StartBroker,
) -> None:
    limits = Limits(clients=ClientLimits(notices_per_client_max=1))
    async with start_broker(limits=limits) as running:
        clients = running.broker.services.groups.clients
        await heartbeat(running, "c1", producers=["p"])
        await heartbeat(running, "c2", producers=["p"])
        first, second = clients.open_notices("c1"), clients.open_notices("c2")
        assert [tell(running, number) for number in range(3)] == [True, True, False]
        assert [await first.next(), await second.next()] == [asked(0), asked(1)]


async def test_what_waits_for_a_client_goes_with_its_stream() -> None:
    opened = streams()
    stream = opened.open("c1")
    stream.notify_changed("g")
    assert stream.offer(check(1))
    opened.disconnect("c1", "c1 was silent")
    with pytest.raises(NoticesEndedError, match="c1 was silent"):
        await stream.next()
    assert not stream.offer(check(2))
    assert opened.waiting_bytes == 0
    assert opened.get("c1") is None
    assert not opened.close(stream)
    opened.disconnect("c1", "once more is nothing")


async def test_a_notice_wakes_the_client_that_waits_for_it() -> None:
    stream = streams().open("c1")
    waiting = asyncio.ensure_future(stream.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.notify_changed("g")
    assert await waiting == changed("g")
