"""H01: a master sends its log to slaves, byte for byte."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path
from typing import cast

import pytest

from rocketpy_broker.config import SLAVES_MAX, Replication
from rocketpy_broker.server.bind_address import PublicSlavePortError
from rocketpy_broker.server.ha.connection import HEARTBEAT_MS, IDLE_MS_MAX
from rocketpy_broker.store.config import FlushDiskType
from tests.broker.replication.slave import Frame, log_of, slave_of
from tests.support.broker.clients.users import USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

SEGMENT = 64 << 10
MASTER = Replication(port=0)


def end_of(running: RunningBroker) -> int:
    return running.broker.store.positions().log_end


async def fill(running: RunningBroker, count: int, size: int = 1_000) -> None:
    for number in range(count):
        assert (await running.append("T", 0, bytes([number % 251]) * size)).status.code == 0


@pytest.mark.parametrize("flush", FlushDiskType)
async def test_h01_a_slave_gets_the_log_and_follows_it(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(replication=MASTER, flush=flush) as running:
        await running.create_topic("T")
        await fill(running, 3)
        async with slave_of(running) as slave:
            await slave.read_until(end_of(running))
            assert (slave.begin, bytes(slave.log)) == (0, log_of(running))
            await fill(running, 5)
            await slave.read_until(end_of(running))
            assert bytes(slave.log) == log_of(running)


async def test_h01_frames_end_at_segments_and_blank_records_are_sent(
    start_broker: StartBroker,
) -> None:
    config = Replication(port=0, batch_bytes=32 << 10)
    async with start_broker(replication=config, commit_log_segment_bytes=SEGMENT) as running:
        await running.create_topic("T")
        async with slave_of(running, 0) as slave:
            await fill(running, 150)
            assert end_of(running) > 2 * SEGMENT
            await slave.read_until(end_of(running))
            assert bytes(slave.log) == log_of(running)


async def test_h01_an_empty_slave_begins_with_the_last_segment(start_broker: StartBroker) -> None:
    async with start_broker(replication=MASTER, commit_log_segment_bytes=SEGMENT) as running:
        await running.create_topic("T")
        await fill(running, 100)
        async with slave_of(running, 0) as slave:
            await slave.read_until(end_of(running))
            assert slave.begin == SEGMENT
        async with slave_of(running, 777) as another:
            await another.read_until(end_of(running))
            assert another.begin == 777
            assert bytes(another.log) == log_of(running)[777:]


async def test_h01_with_sync_flush_a_slave_gets_no_byte_before_the_disk(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(replication=MASTER, flush=FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        async with slave_of(running, 0) as slave:
            await fill(running, 1)
            await slave.read_until(end_of(running))
            store = running.broker.store
            for _ in range(20):
                sending = asyncio.ensure_future(running.append("T", 0, b"x" * 1_000))
                frame = await slave.frame()
                assert frame.offset + len(frame.data) <= store.flushed_end
                await sending


async def test_h01_heartbeats_keep_an_idle_connection(start_broker: StartBroker) -> None:
    async with start_broker(replication=MASTER) as running, slave_of(running, 0) as slave:
        await until(lambda: len(running.broker.services.replication.slaves.slaves) == 1)
        for _ in range(3):
            running.clock.advance(HEARTBEAT_MS + 1_000)
            assert await slave.frame() == Frame(0, b"")
            slave.report(0)
            await asyncio.sleep(0.01)


async def test_h01_a_silent_slave_is_disconnected(start_broker: StartBroker) -> None:
    async with (
        start_broker(replication=MASTER) as running,
        slave_of(running, None) as silent,
        slave_of(running, 0),
    ):
        slaves = running.broker.services.replication.slaves
        await until(lambda: len(slaves.slaves) == 1)
        running.clock.advance(IDLE_MS_MAX + 1_000)
        assert await silent.closed()
        await until(lambda: not slaves.slaves)


@pytest.mark.parametrize("report", [1_000_000, -1, -(1 << 63)])
async def test_h01_a_slave_with_another_log_is_refused_by_name(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, report: int
) -> None:
    async with start_broker(replication=MASTER) as running:
        await running.create_topic("T")
        await fill(running, 1)
        with caplog.at_level(logging.WARNING):
            async with slave_of(running, report) as slave:
                assert await slave.closed()
        assert f"reports offset {report}" in caplog.text
        assert "the slave has another log" in caplog.text
        async with slave_of(running, 0) as good:
            await good.read_until(end_of(running))
            good.report(end_of(running) + 1)
            assert await good.closed()


async def test_h01_a_report_of_what_was_not_sent_is_no_confirmation(
    start_broker: StartBroker,
) -> None:
    config = Replication(port=0, bytes_per_second_max=100)
    async with start_broker(replication=config) as running:
        await running.create_topic("T")
        await fill(running, 2)
        async with slave_of(running, 0) as slave:
            assert len((await slave.frame()).data) == 100
            slave.report(end_of(running))
            assert await slave.closed()


async def test_h01_reports_may_come_in_parts_and_the_last_one_counts(
    start_broker: StartBroker,
) -> None:
    async with start_broker(replication=MASTER) as running:
        await running.create_topic("T")
        await fill(running, 2)
        slaves = running.broker.services.replication.slaves
        async with slave_of(running, 0) as slave:
            await slave.read_until(end_of(running))
            data = struct.pack(">qqq", 10, 20, 30)
            slave.writer.write(data[:13])
            await until(lambda: slaves.slaves[0].acknowledged == 10)
            slave.writer.write(data[13:])
            await until(lambda: slaves.slaves[0].acknowledged == 30)
            assert slaves.lag_bytes == end_of(running) - 30


async def test_h01_the_number_of_slaves_is_limited(start_broker: StartBroker) -> None:
    async with start_broker(replication=MASTER) as running:
        writers = []
        for _ in range(SLAVES_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.ready.ha_port)
            writer.write(struct.pack(">q", 0))
            writers.append((reader, writer))
        slaves = running.broker.services.replication.slaves
        await until(lambda: len(slaves.slaves) == SLAVES_MAX)
        async with slave_of(running, 0) as beyond:
            assert await beyond.closed()
        writers[0][1].close()
        await until(lambda: len(slaves.slaves) == SLAVES_MAX - 1)
        async with slave_of(running, 0):
            await until(lambda: len(slaves.slaves) == SLAVES_MAX)
        for _, writer in writers:
            writer.close()


async def test_h01_a_slave_that_does_not_read_costs_one_frame(start_broker: StartBroker) -> None:
    async with start_broker(replication=MASTER, commit_log_segment_bytes=64 << 20) as running:
        await running.create_topic("T")
        async with slave_of(running, 0) as slave:
            await until(lambda: len(running.broker.services.replication.slaves.slaves) == 1)
            reading = cast("asyncio.ReadTransport", slave.writer.transport)
            reading.pause_reading()
            await fill(running, 40, 1_000_000)
            (state,) = running.broker.services.replication.slaves.slaves
            assert state.next_offset < end_of(running)
            reading.resume_reading()
            await slave.read_until(end_of(running))
            assert bytes(slave.log) == log_of(running)


async def test_h01_the_transfer_has_a_limit_by_option(start_broker: StartBroker) -> None:
    config = Replication(port=0, bytes_per_second_max=10_000)
    async with start_broker(replication=config) as running:
        await running.create_topic("T")
        await fill(running, 30)
        async with slave_of(running, 0) as slave:
            assert len((await slave.frame()).data) == 10_000
            await asyncio.sleep(0.05)
            (state,) = running.broker.services.replication.slaves.slaves
            assert state.next_offset == 10_000
            running.clock.advance(1_000)
            assert len((await slave.frame()).data) == 10_000


async def test_h01_beyond_loopback_the_port_needs_insecure(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    with pytest.raises(PublicSlavePortError, match="also on a broker with users"):
        async with start_broker(replication=MASTER, host="0.0.0.0"):
            pass
