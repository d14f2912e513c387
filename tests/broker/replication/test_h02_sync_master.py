"""H02: a SYNC_MASTER acknowledges what slaves have confirmed, or reports that they have not."""

from __future__ import annotations

import asyncio

import pytest

from rocketpy_broker import connect
from rocketpy_broker.client.errors import SendError
from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.services.replication.errors import SlaveNotAvailableError
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.replication.slave import slave_of
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

SYNC = Replication(BrokerRole.SYNC_MASTER, port=0)
TWO = Replication(BrokerRole.SYNC_MASTER, port=0, in_sync_replicas=2)


def slave_count(running: RunningBroker) -> int:
    return len(running.broker.services.replication.slaves.slaves)


@pytest.mark.parametrize("config", [SYNC, TWO])
@pytest.mark.parametrize("flush", FlushDiskType)
async def test_h02_a_send_is_acknowledged_when_the_slave_has_it(
    start_broker: StartBroker, config: Replication, flush: FlushDiskType
) -> None:
    async with start_broker(replication=config, flush=flush) as running:
        await running.create_topic("T")
        async with slave_of(running, 0) as slave:
            await until(lambda: slave_count(running) == 1)
            sending = asyncio.ensure_future(running.append("T", 0, b"x"))
            frame = await slave.frame()
            await asyncio.sleep(0.05)
            assert not sending.done()
            slave.report(len(frame.data) - 1)
            await asyncio.sleep(0.05)
            assert not sending.done()
            slave.report(len(frame.data))
            assert (await sending).status.code == 0


async def test_h02_a_slave_that_does_not_confirm_is_named_after_the_timeout(
    start_broker: StartBroker,
) -> None:
    async with start_broker(replication=SYNC) as running:
        await running.create_topic("T")
        async with slave_of(running, 0) as slave:
            await until(lambda: slave_count(running) == 1)
            sending = asyncio.ensure_future(running.append("T", 0, b"x"))
            frame = await slave.frame()
            waiting = running.broker.services.replication.confirmations
            await until(lambda: len(waiting._waiting) == 1)
            running.clock.advance(SYNC.slave_timeout_ms)
            answer = await sending
            assert answer.status.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert "not confirmed by 1 slave within 3000 ms" in answer.status.remark
            # It is stored, so the answer has its position.
            assert (answer.record_count, answer.queue_offset) == (1, 0)
            slave.report(len(frame.data))
            await until(lambda: running.broker.services.replication.slaves.lag_bytes == 0)
            again = asyncio.ensure_future(running.append("T", 0, b"y"))
            following = await slave.frame()
            slave.report(following.offset + len(following.data))
            assert (await again).status.code == 0


async def test_h02_as_in_rocketmq_4_no_slave_is_not_waited_for(start_broker: StartBroker) -> None:
    async with start_broker(replication=SYNC) as running:
        await running.create_topic("T")
        answer = await running.append("T", 0, b"x")
        assert answer.status.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert "no slave is connected" in answer.status.remark
        assert (await running.append("T", 0, b"y")).queue_offset == 1


async def test_h02_as_in_rocketmq_4_a_far_slave_is_not_waited_for(
    start_broker: StartBroker,
) -> None:
    config = Replication(BrokerRole.SYNC_MASTER, port=0, fall_behind_bytes_max=5_000)
    async with start_broker(replication=config) as running:
        await running.create_topic("T")
        async with slave_of(running, 0) as slave:
            await until(lambda: slave_count(running) == 1)
            answer = await running.append("T", 0, b"x" * 6_000)
            assert answer.status.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert "lacks" in answer.status.remark
            frame = await slave.frame()
            slave.report(len(frame.data))
            slaves = running.broker.services.replication.slaves
            await until(lambda: slaves.lag_bytes == 0)
            sending = asyncio.ensure_future(running.append("T", 0, b"y"))
            following = await slave.frame()
            slave.report(following.offset + len(following.data))
            assert (await sending).status.code == 0


async def test_h02_as_in_rocketmq_5_no_slave_is_waited_for(start_broker: StartBroker) -> None:
    async with start_broker(replication=TWO) as running:
        await running.create_topic("T")
        sending = asyncio.ensure_future(running.append("T", 0, b"x"))
        waiting = running.broker.services.replication.confirmations
        await until(lambda: len(waiting._waiting) == 1)
        running.clock.advance(TWO.slave_timeout_ms)
        assert (await sending).status.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (waiting._waiting, waiting._ends) == ({}, [])


async def test_h02_three_replicas_need_two_slaves(start_broker: StartBroker) -> None:
    config = Replication(BrokerRole.SYNC_MASTER, port=0, in_sync_replicas=3)
    async with start_broker(replication=config) as running:
        await running.create_topic("T")
        async with slave_of(running, 0) as one, slave_of(running, 0) as two:
            await until(lambda: slave_count(running) == 2)
            sending = asyncio.ensure_future(running.append("T", 0, b"x"))
            end = len((await one.frame()).data)
            await two.frame()
            one.report(end)
            await asyncio.sleep(0.05)
            assert not sending.done()
            two.report(end)
            assert (await sending).status.code == 0


async def test_h02_an_asynchronous_master_waits_for_no_slave(start_broker: StartBroker) -> None:
    async with start_broker(replication=Replication(port=0)) as running:
        await running.create_topic("T")
        async with slave_of(running, 0):
            await until(lambda: slave_count(running) == 1)
            assert (await running.append("T", 0, b"x")).status.code == 0


async def test_h02_a_hundred_senders_share_reports(start_broker: StartBroker) -> None:
    async with start_broker(replication=SYNC) as running:
        await running.create_topic("T")
        async with slave_of(running, 0) as slave:
            await until(lambda: slave_count(running) == 1)
            sends = [asyncio.ensure_future(running.append("T", 0, b"x")) for _ in range(100)]
            store = running.broker.store
            end = 0
            while end < store.positions().log_end or store.statistics.put_message_count < 100:
                frame = await slave.frame()
                end = frame.offset + len(frame.data)
                slave.report(end)
            assert {(await each).status.code for each in sends} == {0}


async def test_h02_an_end_of_a_transaction_and_an_emptied_topic_wait_for_no_slave(
    start_broker: StartBroker,
) -> None:
    async with start_broker(replication=SYNC) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"x")
        empty = admin_pb2.EmptyTopicRequest(topic="T")
        assert (await running.admin.EmptyTopic(empty)).status.code == 0
        store, commit = running.broker.store, running.broker.services.flush.group_commit
        await commit.wait(store.positions().log_end)
        with pytest.raises(SlaveNotAvailableError):
            await commit.acknowledged(store.positions().log_end)


async def test_h02_a_stop_answers_the_senders_that_wait(start_broker: StartBroker) -> None:
    config = Replication(
        BrokerRole.SYNC_MASTER, port=0, in_sync_replicas=2, slave_timeout_ms=600_000
    )
    async with start_broker(replication=config) as running:
        await running.create_topic("T")
        sending = asyncio.ensure_future(running.append("T", 0, b"x"))
        waiting = running.broker.services.replication.confirmations
        await until(lambda: len(waiting._waiting) == 1)
        waiting.stop()
        assert (await sending).status.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (waiting._waiting, waiting._ends) == ({}, [])


async def test_h02_a_client_counts_what_is_stored_as_sent(start_broker: StartBroker) -> None:
    async with start_broker(replication=SYNC) as running:
        await running.create_topic("T")

        def send() -> None:
            with connect(f"127.0.0.1:{running.ready.port}") as broker:
                broker.send("T", ["a", "b"])

        with pytest.raises(SendError) as raised:
            await asyncio.to_thread(send)
        assert raised.value.sent_count == 2
        assert "no slave is connected" in str(raised.value)
